//! What the reference loses or dies of, one test each, numbered as in spec 4. Each must be
//! survived, losing nothing.

use std::fs::{self, OpenOptions};
use std::io::Write;

use super::names::{make_bad_names, make_oddities};
use super::warned_of_line;
use crate::common::sql::RUNS;
use crate::common::{Site, list_of, wait_until};

const GOOD: &str = "good|1|alpha|0 1|0";

/// Loss 1: bad names, at start, while running, and at the start after that.
#[test]
fn loss_01_bad_names() {
    let site = Site::new();
    make_bad_names(&site);
    site.write("good.1.txt", "alpha 0 1\n");
    let daemon = site.start();
    site.wait_queue(&[GOOD]);
    daemon.stop();
    fs::remove_dir_all(site.input()).unwrap();
    fs::create_dir(site.input()).unwrap();
    let daemon = site.start();
    make_bad_names(&site);
    site.write("good.1.txt", "alpha 0 1\n");
    site.wait_queue(&[GOOD]);
    daemon.kill();
    let daemon = site.start();
    assert_eq!(site.ask("READY"), "JOB alpha 0 1\n");
    site.wait_sql(RUNS, &["good|1|1"]);
    daemon.stop();
}

/// Loss 2: directories, FIFOs, links to nowhere, sockets and devices, at start and while
/// running; none is opened in a way that hangs, and each is named in the log.
#[test]
fn loss_02_things_that_are_no_files() {
    let site = Site::new();
    make_oddities(&site, 1);
    site.write("good.1.txt", "alpha 0 1\n");
    let daemon = site.start();
    site.wait_queue(&[GOOD]);
    make_oddities(&site, 2);
    site.write("good.2.txt", "bravo 0 2\n");
    site.wait_queue(&[GOOD, "good|2|bravo|0 2|0"]);
    for kind in ["directory.1", "fifo.2", "dangling.1", "loop.2", "socket.1"] {
        wait_until("every oddity is named", || !daemon.warnings(&[kind]).is_empty());
    }
    daemon.kill();
    let daemon = site.start();
    assert_eq!(site.ask("READY"), "JOB alpha 0 1\n");
    daemon.stop();
}

/// Loss 3: a line that is no UTF-8 is skipped, named, and the rest is kept; in a complete file
/// and in a growing one.
#[test]
fn loss_03_invalid_utf8() {
    let site = Site::new();
    let lines = [&b"alpha 0 1\n".repeat(330)[..], b"b\xffd 0 2\ncharlie \xc3\n", b"delta 0 4\n"];
    site.write("f.1.txt", lines.concat());
    let daemon = site.start();
    site.write("g.1.txt.part", lines.concat());
    let expected = ["f|1|alpha|0 1|0", "f|1|delta|0 4|0", "g|1|alpha|0 1|0", "g|1|delta|0 4|0"];
    site.wait_queue(&expected);
    site.wait_sql(RUNS, &["f|1|1", "g|1|0"]);
    for (file, line) in [("f.1.txt", 331), ("f.1.txt", 332), ("g.1.txt.part", 331)] {
        wait_until("the line is named", || warned_of_line(&daemon, file, line));
    }
}

/// Loss 4: a multi-byte character split over two writes, each seen by a request in between.
#[test]
fn loss_04_a_character_split_over_two_writes() {
    let (site, daemon) = Site::running(&[]);
    for part in [&b"caf\xc3"[..], b"\xa9 0 \xf0\x9f", b"\x98", b"\x80"] {
        site.append("f.1.txt.part", part);
        assert_eq!(site.ask("READY"), "NOJOBS\n");
    }
    site.append("f.1.txt.part", "\n");
    assert_eq!(site.ask("READY"), "JOB café 0 \u{1F600}\n");
    assert!(daemon.warnings(&["f.1.txt"]).is_empty());
}

/// Loss 5: killed again and again while loading a complete file of very many lines: never
/// complete without all rows, and all rows in the end.
#[test]
fn loss_05_killed_while_loading() {
    const LINES: i64 = 30_000;
    const STATE: &str = "SELECT (SELECT count(*) FROM queue), \
        (SELECT ifnull(max(is_complete), 0) FROM fetcher_runs)";
    let site = Site::new();
    site.write("f.1.txt", list_of(LINES as usize));
    let look = || {
        let (rows, complete) = split_pair(&site.sql(STATE)[0]);
        assert!(complete == 0 || rows == LINES, "complete with {rows} rows");
        (rows, complete)
    };
    for threshold in [0, 1, 10_000, 25_000] {
        let daemon = site.start();
        wait_until("some rows are loaded", || look().0 >= threshold);
        daemon.kill();
    }
    let _daemon = site.start();
    wait_until("all rows are loaded", || look() == (LINES, 1));
}

fn split_pair(row: &str) -> (i64, i64) {
    let (first, second) = row.split_once('|').unwrap();
    (first.parse().unwrap(), second.parse().unwrap())
}

/// Loss 6: a `.txt` read while it is being written is complete when its writer closes it.
#[test]
fn loss_06_a_complete_name_while_it_is_written() {
    let (site, _daemon) = Site::running(&[]);
    let mut file = fs::File::create(site.file("f.1.txt")).unwrap();
    file.write_all(b"alpha 0 1\nbra").unwrap();
    assert_eq!(site.ask("READY"), "JOB alpha 0 1\n");
    assert_eq!(site.ask("READY"), "NOJOBS\n");
    assert_eq!(site.sql(RUNS), ["f|1|0"]);
    file.write_all(b"vo 0 2\ncharlie 0 3").unwrap();
    assert_eq!(site.ask("READY"), "JOB bravo 0 2\n");
    drop(file);
    site.wait_sql(RUNS, &["f|1|1"]);
    site.wait_queue(&["f|1|alpha|0 1|1", "f|1|bravo|0 2|1", "f|1|charlie|0 3|0"]);
}

/// Loss 7: create, write and rename without a gap, 200 times of 200.
#[test]
fn loss_07_create_and_rename_in_quick_succession() {
    let (site, _daemon) = Site::running(&[]);
    for i in 0..200 {
        let (part, whole) = (format!("f{i}.1.txt.part"), format!("f{i}.1.txt"));
        site.write(&part, format!("key{i} 0 {i}\n"));
        site.rename(part, whole);
    }
    site.wait_count(200);
    site.wait_sql("SELECT sum(is_complete) FROM fetcher_runs", &["200"]);
}

/// Loss 8: moves in are creations, moves out deletions, link+unlink and copy+remove are
/// completions that keep the rows and what was dispatched of them.
#[test]
fn loss_08_moves_links_and_copies() {
    let (site, _daemon) = Site::running(&[]);
    fs::write(site.path("outside"), "alpha 0 1\n").unwrap();
    fs::rename(site.path("outside"), site.file("in.1.txt")).unwrap();
    assert_eq!(site.ask("READY"), "JOB alpha 0 1\n");
    for name in ["linked", "copied"] {
        site.write(format!("{name}.1.txt.part"), format!("{name} 0 1\n"));
        assert_eq!(site.ask("READY"), format!("JOB {name} 0 1\n"));
    }
    fs::hard_link(site.file("linked.1.txt.part"), site.file("linked.1.txt")).unwrap();
    site.remove("linked.1.txt.part");
    fs::copy(site.file("copied.1.txt.part"), site.file("copied.1.txt")).unwrap();
    site.remove("copied.1.txt.part");
    site.wait_sql(RUNS, &["copied|1|1", "in|1|1", "linked|1|1"]);
    fs::rename(site.file("in.1.txt"), site.path("outside")).unwrap();
    site.wait_queue(&["copied|1|copied|0 1|1", "linked|1|linked|0 1|1"]);
    assert_eq!(site.ask("READY"), "NOJOBS\n");
}

/// Loss 9: more than 16,384 events while the daemon cannot look: nothing of what happened
/// after the overflow is lost, and later events arrive.
#[test]
fn loss_09_event_queue_overflow() {
    let site = Site::new();
    site.write("gone.1.txt", "gone 0 1\n");
    site.write("done.1.txt.part", "done 0 1\n");
    let daemon = site.start();
    site.wait_count(2);
    daemon.freeze();
    let open = |name: &str| {
        let mut options = OpenOptions::new();
        options.create(true).append(true).open(site.file(name)).unwrap()
    };
    let mut files = [open("a.1.txt.part"), open("b.1.txt.part")];
    for i in 0..20_000_usize {
        // Taking turns keeps the kernel from merging equal events.
        files[i % 2].write_all(format!("key{i} 0 1\n").as_bytes()).unwrap();
    }
    site.write("late.1.txt", "late 0 1\n");
    site.remove("gone.1.txt");
    site.rename("done.1.txt.part", "done.1.txt");
    daemon.thaw();
    site.wait_sql(RUNS, &["a|1|0", "b|1|0", "done|1|1", "late|1|1"]);
    site.wait_count(20_002);
    site.write("after.1.txt.part", "after 0 1\n");
    site.wait_count(20_003);
}

/// Loss 10: the input directory removed and made again, twice: what was removed with it is withdrawn, serving
/// goes on, nobody but its owner makes it again, and what is in the new one is found. Moved away, it keeps its
/// lists until another one is accepted.
#[test]
fn loss_10_the_input_directory_made_again() {
    let (site, daemon) = Site::running(&[]);
    site.write("f.1.txt", "alpha 0 1\n");
    site.wait_count(1);
    for round in 2..4 {
        site.remove(format!("f.{}.txt", round - 1));
        fs::remove_dir_all(site.input()).unwrap();
        wait_until("the loss is told", || daemon.log().matches("is lost").count() == round - 1);
        site.wait_count(0);
        assert_eq!(site.ask("READY"), "NOJOBS\n");
        assert!(!site.input().exists());
        fs::create_dir(site.input()).unwrap();
        site.write(format!("f.{round}.txt"), "bravo 0 2\n");
        site.wait_queue(&[&format!("f|{round}|bravo|0 2|0")]);
    }
    fs::rename(site.input(), site.path("elsewhere")).unwrap();
    assert_eq!(site.ask("READY"), "JOB bravo 0 2\n");
    fs::create_dir(site.input()).unwrap();
    site.write("g.1.txt.part", "charlie 0 3\n");
    assert_eq!(site.ask("READY"), "NOJOBS\n");
    site.wait_queue(&["f|3|bravo|0 2|1"]);
    let accepted = site.run(&["accept-input", "-t", site.socket().to_str().unwrap()]);
    assert!(accepted.status.success(), "{accepted:?}");
    site.wait_queue(&["g|1|charlie|0 3|0"]);
    site.append("g.1.txt.part", "delta 0 4\n");
    site.wait_queue(&["g|1|charlie|0 3|0", "g|1|delta|0 4|0"]);
    assert_eq!(site.ask("READY"), "JOB delta 0 4\n");
}

/// Loss 11: a `.part` truncated, rewritten in place or replaced is read again from the start;
/// reading again re-arms nothing and doubles nothing.
#[test]
fn loss_11_a_part_made_anew_under_its_name() {
    let chosen = "SELECT attr_path, payload, is_dequeued FROM queue \
        WHERE attr_path IN ('alpha', 'new') ORDER BY attr_path";
    for frozen in [false, true] {
        let (site, daemon) = Site::running(&[]);
        site.write("f.1.txt.part", "alpha 0 1\nbravo 0 2\n");
        assert_eq!(site.ask("READY"), "JOB alpha 0 1\n");
        let rewrite = |text: &str| {
            if frozen {
                daemon.freeze();
            }
            site.write("f.1.txt.part", text);
            daemon.thaw();
        };
        rewrite("new 1 1\nal");
        site.append("f.1.txt.part", "pha 1 1\n");
        site.wait_sql(chosen, &["alpha|1 1|1", "new|1 1|0"]);
        rewrite("new 2 2\nbravo 2 2\ncharlie 2 2\nalpha 2 2\nlonger than it ever was before\n");
        site.wait_sql(chosen, &["alpha|2 2|1", "new|2 2|0"]);
        fs::write(site.path("other"), "new 3 3\nbravo 3 3\nalpha 3 3\n").unwrap();
        fs::rename(site.path("other"), site.file("f.1.txt.part")).unwrap();
        site.wait_sql(chosen, &["alpha|3 3|1", "new|3 3|0"]);
        site.append("f.1.txt.part", "new 4 4\n");
        site.wait_sql(chosen, &["alpha|3 3|1", "new|4 4|0"]);
        site.wait_sql("SELECT count(*) FROM queue WHERE attr_path LIKE 'pha%'", &["0"]);
    }
}

/// Loss 12: `f.1.txt` and `f.1.txt.part` both there: one run, the complete file wins, said
/// once; deleting both ends in an empty queue.
#[test]
fn loss_12_complete_and_growing_file_of_one_run() {
    let site = Site::new();
    site.write("f.1.txt", "alpha complete 1\n");
    site.write("f.1.txt.part", "alpha part 1\nbravo part 2\n");
    let daemon = site.start();
    site.wait_queue(&["f|1|alpha|complete 1|0"]);
    site.append("f.1.txt.part", "charlie part 3\n");
    assert_eq!(site.ask("READY"), "JOB alpha complete 1\n");
    assert_eq!(site.ask("READY"), "NOJOBS\n");
    assert_eq!(daemon.warnings(&["f.1.txt.part"]).len(), 1, "{}", daemon.log());
    site.write("g.1.txt.part", "zulu part 1\n");
    site.wait_sql("SELECT payload FROM queue WHERE attr_path = 'zulu'", &["part 1"]);
    site.write("g.1.txt", "zulu complete 1\n");
    site.wait_sql("SELECT payload FROM queue WHERE attr_path = 'zulu'", &["complete 1"]);
    site.wait_sql(RUNS, &["f|1|1", "g|1|1"]);
    site.remove("f.1.txt.part");
    site.remove("g.1.txt.part");
    assert_eq!(site.ask("READY"), "JOB zulu complete 1\n");
    assert_eq!(site.sql(RUNS), ["f|1|1", "g|1|1"]);
    site.remove("f.1.txt");
    site.remove("g.1.txt");
    site.wait_sql(RUNS, &[]);
}
