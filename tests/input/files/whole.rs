//! Section 4's whole list in one life of one daemon, ending with exactly the right queue.

use std::fs::{self, OpenOptions};
use std::io::Write;

use super::names::{make_bad_names, make_oddities};
use crate::common::sql::QUEUE;
use crate::common::{Site, wait_until};

/// What must be in the queue whatever happened before, in a later start too.
const SURVIVORS: [&str; 11] = [
    "copied|1|copied|0 1|0",
    "grown|1|grown|0 1|0",
    "grown|1|growncut|0 2|0",
    "linked|1|linked|0 1|0",
    "made|1|made|0 1|0",
    "moved|1|moved|0 1|0",
    "quick|1|quick|0 1|0",
    "slow|1|café|0 1|0",
    "slow|1|slow|0 2|0",
    "twice|1|twice|complete|0",
    "utf8|1|utf8|0 1|0",
];

/// All of it in one life: bad names, oddities, invalid UTF-8, split characters, slow writers,
/// quick renames, moves, links, copies, overflow, truncation, both files of one run, a huge
/// line, and a lost directory. The queue is exactly right at the end and after a restart.
#[test]
fn whole_list_survived() {
    let site = Site::new();
    make_bad_names(&site);
    make_oddities(&site, 1);
    let mut daemon = site.start();
    overflow(&site, &daemon);
    names_and_lines(&site);
    completions(&site);
    site.wait_queue(&SURVIVORS);
    make_oddities(&site, 2);
    site.wait_queue(&SURVIVORS);
    lose_the_directory(&site);
    site.wait_queue(&SURVIVORS);
    assert!(daemon.is_running());
    daemon.stop();
    let _daemon = site.start();
    site.wait_queue(&SURVIVORS);
    assert_eq!(site.sql(QUEUE), SURVIVORS);
    site.wait_sql("SELECT min(is_complete) FROM fetcher_runs", &["1"]);
    assert_eq!(site.integrity(), ["ok"]);
}

/// More events than the kernel keeps, then a run that only a rescan can find.
fn overflow(site: &Site, daemon: &crate::common::Daemon) {
    daemon.freeze();
    let open = |name: &str| OpenOptions::new().create(true).append(true).open(site.file(name));
    let mut files = [open("noise").unwrap(), open("noise2").unwrap()];
    for i in 0..20_000 {
        files[i % 2].write_all(b"x").unwrap();
    }
    site.write("made.1.txt", "made 0 1\n");
    daemon.thaw();
    wait_until("the run is found", || site.number("SELECT count(*) FROM queue") == 1);
}

fn names_and_lines(site: &Site) {
    site.write("utf8.1.txt", b"bad \xff\nutf8 0 1\n\xc3\noneword\n");
    let mut slow = fs::File::create(site.file("slow.1.txt")).unwrap();
    for part in [&b"caf\xc3"[..], b"\xa9 0 1\nsl", b"ow 0 2"] {
        slow.write_all(part).unwrap();
        assert!(site.ask("").is_empty());
    }
    drop(slow);
    site.write("grown.1.txt.part", "garbage that is cut off\nand more of it\n");
    site.wait_sql("SELECT count(*) FROM queue WHERE attr_path = 'garbage'", &["1"]);
    site.remove("grown.1.txt.part");
    site.wait_sql("SELECT count(*) FROM queue WHERE attr_path = 'garbage'", &["0"]);
    site.write("grown.1.txt.part", "grown 1 1\ngrown 0 1\n");
    site.write("grown.1.txt.part", "grown 0 1\n");
    site.append("grown.1.txt.part", vec![b'x'; 3 * 1024 * 1024]);
    site.append("grown.1.txt.part", "\ngrowncut 0 2");
    site.rename("grown.1.txt.part", "grown.1.txt");
}

fn completions(site: &Site) {
    site.write("quick.1.txt.part", "quick 0 1\n");
    site.rename("quick.1.txt.part", "quick.1.txt");
    fs::write(site.path("outside"), "moved 0 1\n").unwrap();
    fs::rename(site.path("outside"), site.file("moved.1.txt")).unwrap();
    for name in ["linked", "copied", "out"] {
        site.write(format!("{name}.1.txt.part"), format!("{name} 0 1\n"));
    }
    fs::hard_link(site.file("linked.1.txt.part"), site.file("linked.1.txt")).unwrap();
    site.remove("linked.1.txt.part");
    fs::copy(site.file("copied.1.txt.part"), site.file("copied.1.txt")).unwrap();
    site.remove("copied.1.txt.part");
    fs::rename(site.file("out.1.txt.part"), site.path("outside")).unwrap();
    site.write("twice.1.txt.part", "twice part\n");
    site.write("twice.1.txt", "twice complete\n");
    site.remove("twice.1.txt.part");
}

/// Moves everything away, removes the directory, and makes it again with the same files.
fn lose_the_directory(site: &Site) {
    let kept = site.path("kept");
    fs::rename(site.input(), &kept).unwrap();
    assert!(site.ask("").is_empty());
    fs::create_dir(site.input()).unwrap();
    for entry in fs::read_dir(&kept).unwrap() {
        let path = entry.unwrap().path();
        fs::rename(&path, site.file(path.file_name().unwrap())).unwrap();
    }
}
