//! Which names are fetcher files, and what else may lie in the input directory.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;

use rustix::fs::{CWD, FileType, Mode, mkfifoat, mknodat};

use crate::common::sql::RUNS;
use crate::common::{Site, wait_until};

/// Makes one of everything that is named like a fetcher file and is none (spec 4, loss 2).
pub fn make_oddities(site: &Site, stamp: i64) {
    let name = |kind: &str| site.file(format!("{kind}.{stamp}.txt"));
    fs::create_dir(name("directory")).unwrap();
    fs::create_dir(site.file(format!("directory2.{stamp}.txt.part"))).unwrap();
    mkfifoat(CWD, name("fifo"), Mode::RWXU).unwrap();
    mkfifoat(CWD, site.file(format!("fifo2.{stamp}.txt.part")), Mode::RWXU).unwrap();
    symlink("nowhere", name("dangling")).unwrap();
    symlink(format!("loop.{stamp}.txt"), name("loop")).unwrap();
    drop(UnixListener::bind(name("socket")).unwrap());
    if rustix::process::geteuid().is_root() {
        let null = rustix::fs::makedev(1, 3);
        // Containers may forbid it; the other oddities are there all the same.
        let _ = mknodat(CWD, name("device"), FileType::CharacterDevice, Mode::RWXU, null);
    }
}

/// The bad names of spec 4 that end like a fetcher file's, as bytes.
pub const BAD_NAMES: [&[u8]; 10] = [
    b"a.b.txt",
    b"a..txt",
    b"f.-5.txt",
    b"f.+5.txt",
    b"f.1_0.txt",
    b"f.007.txt",
    b"f.9223372036854775808.txt",
    b"a.b.5.txt",
    b"bad\xff\xfe.5.txt",
    b"f.5 .txt.part",
];

/// What editors and file managers keep beside a list.
const HIDDEN_NAMES: [&str; 4] = [".#f.1.txt", "._f.1.txt", ".f.1.txt.swp", ".5.txt.part"];

/// Names that are no fetcher file's and none of our business.
pub const OTHER_NAMES: [&str; 6] =
    ["README", "f.5.txt~", "f.5.txt.part.swp", "f.5.TXT", "f.5.json", "txt"];

pub fn make_bad_names(site: &Site) {
    for name in BAD_NAMES {
        site.write(OsStr::from_bytes(name), "bad 0 1\n");
    }
    for name in OTHER_NAMES {
        site.write(name, "other 0 1\n");
    }
}

/// Names within the grammar, up to its ends, are runs; with a line end in the name too.
#[test]
fn good_names_up_to_the_limits() {
    let site = Site::new();
    let longest = "n".repeat(255 - ".1.txt".len());
    site.write(format!("{longest}.1.txt"), "alpha 0 1\n");
    site.write("f.9223372036854775807.txt", "bravo 0 2\n");
    site.write("line\nend.1.txt", "charlie 0 3\n");
    site.write("-dash é \u{1F600}.1.txt.part", "delta 0 4\n");
    let expected = [
        "-dash é \u{1F600}|1|delta|0 4|0",
        "f|9223372036854775807|bravo|0 2|0",
        "line\nend|1|charlie|0 3|0",
        &format!("{longest}|1|alpha|0 1|0"),
    ];
    let daemon = site.start();
    site.wait_queue(&expected);
    daemon.stop();
    let _daemon = site.start();
    site.wait_queue(&expected);
}

/// A bad name that ends in `.txt` or `.txt.part` is logged once; other names are not.
#[test]
fn a_bad_name_is_logged_once() {
    let (site, daemon) = Site::running(&[]);
    make_bad_names(&site);
    for i in 0..20 {
        site.append("a.b.txt", "more 0 1\n");
        assert_eq!(site.ask("READY"), "NOJOBS\n", "round {i}");
    }
    wait_until("the bad names are logged", || {
        !daemon.warnings(&["f.1_0.txt"]).is_empty() && !daemon.warnings(&["f.007.txt"]).is_empty()
    });
    assert_eq!(daemon.warnings(&["a.b.txt"]).len(), 1);
    let log = daemon.stop();
    assert!(!log.contains("README") && !log.contains("f.5.json"), "{log}");
}

/// Hidden files, those of editors among them, are skipped: each is a line of the log, and nothing is wrong.
#[test]
fn hidden_files_are_skipped() {
    let site = Site::new();
    site.deliver("f", 1, "alpha 1\n");
    for name in HIDDEN_NAMES {
        site.write(name, "\0\u{5}\u{16}\u{7}");
    }
    symlink("me@host.1:1", site.file(".#link.1.txt")).unwrap();
    let daemon = site.start();
    site.wait_count(1);
    site.append("._f.1.txt", "more\n");
    fs::create_dir(site.file(".directory.1.txt")).unwrap();
    wait_until("it is said of each", || {
        [".#f.1.txt", "._f.1.txt", ".5.txt.part", ".#link.1.txt", ".directory.1.txt"]
            .iter()
            .all(|name| daemon.log().matches(name).count() == 1)
    });
    for checked in [site.run(&["status", "--check", "-t", "socket"]), site.run(&["check", "input"])]
    {
        assert!(checked.status.success(), "{checked:?}");
    }
    assert!(daemon.warnings(&["f.1.txt"]).is_empty(), "{}", daemon.log());
}

/// A line end in a name, good or bad, cannot forge a line of the log; nor can one in a request.
#[test]
fn names_are_escaped_in_the_log() {
    let (site, daemon) = Site::running(&[]);
    site.write("a\nERROR forged.b.txt", "bad 0 1\n");
    site.write("a\nERROR forged.1.txt", "alpha 0 1\none\u{1b}[31mword\n");
    site.wait_sql("SELECT max(is_complete) FROM fetcher_runs", &["1"]);
    site.ask("a\rERROR forged\u{1b}[31m");
    wait_until("the bad name is logged", || daemon.warnings(&["forged"]).len() >= 3);
    let log = daemon.stop();
    assert!(!log.lines().any(|line| line.starts_with("ERROR forged")), "{log}");
    assert!(!log.contains(['\r', '\u{1b}']), "{log:?}");
}

/// What is left out is taken as soon as a file of that name can be read.
#[test]
fn an_oddity_replaced_by_a_file_is_loaded() {
    let site = Site::new();
    make_oddities(&site, 1);
    site.write("good.1.txt", "good 0 1\n");
    let _daemon = site.start();
    site.wait_queue(&["good|1|good|0 1|0"]);
    fs::remove_dir(site.file("directory.1.txt")).unwrap();
    site.write("directory.1.txt", "alpha 0 1\n");
    assert!(fs::symlink_metadata(site.file("fifo.1.txt")).unwrap().file_type().is_fifo());
    site.remove("fifo.1.txt");
    site.write("new", "bravo 0 2\n");
    site.rename("new", "fifo.1.txt");
    site.remove("dangling.1.txt");
    site.write("dangling.1.txt.part", "charlie 0 3\n");
    site.wait_queue(&[
        "dangling|1|charlie|0 3|0",
        "directory|1|alpha|0 1|0",
        "fifo|1|bravo|0 2|0",
        "good|1|good|0 1|0",
    ]);
}

/// A file that may not be read is left out with a warning, keeps nobody from being served, and
/// is taken when it may be read.
#[test]
fn an_unreadable_file_is_set_aside_and_taken_later() {
    let site = Site::new();
    site.write("secret.1.txt", "alpha 0 1\n");
    site.write("good.1.txt", "bravo 0 2\n");
    let secret = site.file("secret.1.txt");
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o000)).unwrap();
    let daemon = site.spawn(site.serve_unprivileged(&[])).ready();
    wait_until("the file is reported", || !daemon.warnings(&["secret.1.txt"]).is_empty());
    assert_eq!(site.ask("READY"), "JOB bravo 0 2\n");
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o644)).unwrap();
    site.wait_queue(&["good|1|bravo|0 2|1", "secret|1|alpha|0 1|0"]);
    site.wait_sql(RUNS, &["good|1|1", "secret|1|1"]);
}
