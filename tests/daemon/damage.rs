//! Damaged databases: found out, not used again until they are sound, and what can be read is saved.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;

use crate::common::mounts::FileSystem;
use crate::common::sql::{editor, reader, rows};
use crate::common::{Site, wait_until};

/// Page size of our databases.
const PAGE: u64 = 2048;
const NOTE: &str = ".state.db.shiftboss-corrupt";

/// The log in the order in which keys were dispatched first.
const LOG_ORDER: &str = "SELECT attr_path FROM log ORDER BY rowid";

/// A stopped daemon's database with a list of so many lines. Payloads are long, so that not all of it is
/// in SQLite's cache.
fn filled(lines: usize) -> Site {
    let site = Site::new();
    let payload = "p".repeat(200);
    let text: String = (0..lines).map(|i| format!("key{i:06} {payload}\n")).collect();
    site.write("f.1.txt", text);
    let daemon = site.start_with(&["--durability", "process"]);
    crate::common::wait_within(std::time::Duration::from_secs(120), "the list is loaded", || {
        site.number("SELECT count(*) FROM queue") == i64::try_from(lines).unwrap()
    });
    daemon.stop();
    site
}

/// Overwrites whole pages, the first of which is number 1.
fn smash(site: &Site, pages: impl Iterator<Item = u64>) {
    let file = OpenOptions::new().write(true).open(site.database()).unwrap();
    let garbage = vec![0xa5; usize::try_from(PAGE).unwrap()];
    pages.for_each(|page| file.write_all_at(&garbage, (page - 1) * PAGE).unwrap());
}

fn pages(site: &Site) -> u64 {
    fs::metadata(site.database()).unwrap().len() / PAGE
}

/// A start is refused at once, with 65 and with what to do; nothing is handed out.
fn is_refused(site: &Site, words: &[&str]) {
    let (code, log) = site.refused(site.serve(&[]));
    assert_eq!(code, 65, "{log}");
    for word in words {
        assert!(log.contains(word), "{word}: {log}");
    }
    assert!(!log.contains("Ready") && !site.socket().exists(), "{log}");
}

fn check(site: &Site) -> (Option<i32>, String) {
    let output = site.run(&["check", "--database", site.database().to_str().unwrap()]);
    (output.status.code(), String::from_utf8(output.stdout).unwrap())
}

/// Overwritten while the daemon uses it: the daemon ends with 65 and leaves a note; further starts are refused
/// at once, until `check` finds the database sound.
#[test]
fn damaged_while_running() {
    let site = filled(20_000);
    fs::copy(site.database(), site.path("sound.db")).unwrap();
    let mut daemon = site.start();
    let count = pages(&site);
    smash(&site, 20..count);
    wait_until("the daemon ends", || {
        if daemon.is_running() {
            let stream = std::os::unix::net::UnixStream::connect(site.socket());
            let asked = stream.and_then(|stream| std::io::Write::write(&mut &stream, b"READY\n"));
            drop(asked);
        }
        !daemon.is_running()
    });
    assert_eq!(daemon.exit().code(), Some(65), "{}", daemon.log());
    assert!(daemon.log().contains("shiftboss recover"), "{}", daemon.log());
    let note = fs::read_to_string(site.path(NOTE)).unwrap();
    assert!(note.contains("Since: ") && note.contains("malformed"), "{note}");
    for _ in 0..2 {
        is_refused(&site, &["malformed", "shiftboss check --database", "shiftboss recover"]);
    }
    let (code, told) = check(&site);
    assert!(code == Some(65) && !told.is_empty(), "{told}");
    assert!(site.path(NOTE).exists());
    for ending in ["state.db-wal", "state.db-shm"] {
        let _ = fs::remove_file(site.path(ending));
    }
    // Into the same file: it is known to be sound only when it was looked at.
    fs::copy(site.path("sound.db"), site.database()).unwrap();
    is_refused(&site, &["malformed"]);
    let (code, told) = check(&site);
    assert_eq!(code, Some(0), "{told}");
    assert!(!site.path(NOTE).exists());
    let daemon = site.start();
    assert!(site.ask("READY").starts_with("JOB "));
    assert_eq!(check(&site).0, Some(75));
    daemon.stop();
}

/// The note is there once the damage is found: a daemon that is killed before it has ended leaves it, too.
#[test]
fn killed_when_the_damage_is_found() {
    let site = filled(20_000);
    let daemon = site.start();
    smash(&site, 20..pages(&site));
    wait_until("the damage is found", || {
        let stream = std::os::unix::net::UnixStream::connect(site.socket());
        let asked = stream.and_then(|stream| std::io::Write::write(&mut &stream, b"READY\n"));
        drop(asked);
        daemon.log().contains("Storage cannot go on.")
    });
    assert!(site.path(NOTE).exists());
    daemon.kill();
    let (code, log) = site.refused(site.serve(&[]));
    assert!(code == 65 && log.contains("malformed"), "{code}: {log}");
}

/// Another file in the place of the one that the note is about is used.
#[test]
fn a_note_is_about_one_file() {
    let site = filled(10);
    fs::copy(site.database(), site.path("backup.db")).unwrap();
    fs::write(site.path("elsewhere"), "untouched").unwrap();
    fs::rename(site.path("backup.db"), site.database()).unwrap();
    fs::write(site.path(NOTE), "File: 1:1\nSince: then\nFault: malformed\n").unwrap();
    site.start().stop();
    fs::remove_file(site.path(NOTE)).unwrap();
    std::os::unix::fs::symlink(site.path("elsewhere"), site.path(NOTE)).unwrap();
    is_refused(&site, &["check --database"]);
    assert_eq!(check(&site).0, Some(0));
    assert_eq!(fs::read_to_string(site.path("elsewhere")).unwrap(), "untouched");
    site.start().stop();
}

/// Roots of a table and of indexes overwritten, while a killed daemon's database lay there: the daemon ends
/// with 65, by itself, and the next start with 65 at once.
#[test]
fn damaged_while_down() {
    let sound = filled(2_000);
    for object in ["queue", "shiftboss_ready", "sqlite_autoindex_queue_1", "log"] {
        let site = Site::new();
        fs::copy(sound.database(), site.database()).unwrap();
        fs::copy(sound.file("f.1.txt"), site.file("f.1.txt")).unwrap();
        site.start().kill();
        fs::remove_file(site.socket()).unwrap();
        let root = format!("SELECT rootpage FROM sqlite_schema WHERE name = '{object}'");
        let root = u64::try_from(site.number(&root)).unwrap();
        let whole = editor(&site.database()).unwrap();
        whole.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
        drop(whole);
        smash(&site, [root].into_iter());
        let (code, log) = site.refused(site.serve(&[]));
        assert_eq!(code, 65, "{object}: {log}");
        is_refused(&site, &["shiftboss recover"]);
    }
}

/// A file that was cut off is refused, and what is left of it is saved.
#[test]
fn half_a_file() {
    let site = filled(2_000);
    let half = fs::metadata(site.database()).unwrap().len() / 2 / PAGE * PAGE;
    OpenOptions::new().write(true).open(site.database()).unwrap().set_len(half).unwrap();
    is_refused(&site, &["shiftboss recover"]);
    let (code, told) = recover(&site);
    assert!(matches!(code, Some(0 | 1)), "{told}");
    put_in_place(&site);
    let _daemon = site.start();
    site.wait_count(2_000);
}

fn recover(site: &Site) -> (Option<i32>, String) {
    let (old, new) = (site.database(), site.path("new.db"));
    let output = site.run(&["recover", old.to_str().unwrap(), new.to_str().unwrap()]);
    let told = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(told).unwrap())
}

fn put_in_place(site: &Site) {
    fs::rename(site.database(), site.path("damaged.db")).unwrap();
    for ending in ["state.db-wal", "state.db-shm"] {
        let _ = fs::remove_file(site.path(ending));
    }
    fs::rename(site.path("new.db"), site.database()).unwrap();
}

/// 100,000 rows, some worked through, and several pages overwritten: all others are saved, with what was
/// dispatched and logged, in order; the lists bring back what was lost.
#[test]
fn the_rest_is_saved() {
    const ROWS: usize = 100_000;
    const SMASHED: u64 = 6;
    let site = filled(ROWS);
    let daemon = site.start_with(&["--durability", "process"]);
    let mut client = crate::common::Client::connect(&site);
    let mut request = "READY".to_owned();
    for _ in 0..2_000 {
        let key = crate::common::worker::key_of(&client.ask(&request)).unwrap();
        request = format!("DONE {key} 0");
    }
    client.ask(&request);
    drop(client);
    daemon.stop();
    let log = site.sql(LOG_ORDER);
    let waiting = "SELECT attr_path FROM queue WHERE is_dequeued = 0 \
        ORDER BY last_started, order_jitter, attr_path LIMIT 50";
    let next = site.sql(waiting);
    let attempts = site.number("SELECT count(*) FROM shiftboss_attempts");
    let count = pages(&site);
    smash(&site, (1..=SMASHED).map(|part| count * part / (SMASHED + 1)));
    let (code, told) = recover(&site);
    // 1: a page of the log or of attempts may be among them.
    assert!(matches!(code, Some(0 | 1)), "{told}");
    let new = reader(&site.path("new.db")).unwrap();
    let number = |sql: &str| rows(&new, sql).unwrap()[0].parse::<i64>().unwrap();
    let saved = number("SELECT count(*) FROM queue");
    // A page has at the most 2048 bytes of rows; one inside the tree leads to a hundred others.
    assert!(saved > 99_000 && saved <= ROWS as i64, "{saved}: {told}");
    assert!(number("SELECT count(*) FROM shiftboss_attempts") > attempts - 300, "{told}");
    assert_eq!(rows(&new, "PRAGMA integrity_check").unwrap(), ["ok"]);
    let saved_log = rows(&new, LOG_ORDER).unwrap();
    assert!(saved_log.len() > 1_800, "{}", saved_log.len());
    let mut order = log.iter();
    assert!(saved_log.iter().all(|key| order.any(|known| known == key)));
    drop(new);
    put_in_place(&site);
    let daemon = site.start();
    site.wait_sql("SELECT count(*) FROM queue", &[&ROWS.to_string()]);
    let first = site.next_key("READY").unwrap();
    assert!(next[..20].contains(&first), "{first}: {next:?}");
    daemon.stop();
    assert_eq!(check(&site).0, Some(0));
    assert_eq!(recover(&site).0, Some(0));
    assert_eq!(recover(&site).0, Some(73));
}

/// What is bumped outlives its rows, which the lists bring back; so does what may go first, and it can be moved.
#[test]
fn bumps_outlive_their_rows() {
    let site = filled(10);
    let daemon = site.start();
    site.wait_count(10);
    assert_eq!(site.run(&["bump", "socket", "key000007"]).status.code(), Some(0));
    daemon.stop();
    let roots = "SELECT rootpage FROM sqlite_schema WHERE name IN ('queue', 'shiftboss_counters')";
    let roots: Vec<u64> = site.sql(roots).iter().map(|page| page.parse().unwrap()).collect();
    smash(&site, roots.into_iter());
    let (code, told) = recover(&site);
    assert!(matches!(code, Some(0 | 1)), "{told}");
    put_in_place(&site);
    let daemon = site.start();
    site.wait_count(10);
    assert_eq!(site.next_key("READY").as_deref(), Some("key000007"));
    daemon.stop();
    assert_eq!(site.number("SELECT count(*) FROM shiftboss_counters WHERE name = 'credit'"), 1);
}

/// A table with two wide holes: every row before, between and behind them is saved, and the text says what
/// no file brings back.
#[test]
fn rows_between_two_holes_are_saved() {
    let site = filled(10);
    site.edit(
        "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2000)
         INSERT INTO shiftboss_single_tasks (task, attr_path, checksum, added, payload)
         SELECT i, 'single' || i, 1, 1, hex(zeroblob(30)) FROM n",
    );
    let leaves = leaves_of(&site, "shiftboss_single_tasks");
    let part = |percent: usize| leaves.len() * percent / 100;
    smash(&site, leaves[..part(55)].iter().chain(&leaves[part(75)..part(80)]).copied());
    let damaged = editor(&site.database()).unwrap();
    let readable = (1..=2000_i64).filter(|i| {
        let sql = "SELECT payload FROM shiftboss_single_tasks WHERE task = ?1";
        damaged.query_row(sql, [*i], |row| row.get::<_, String>(0)).is_ok()
    });
    let readable = readable.count();
    assert!((500..1_200).contains(&readable), "{readable}");
    let (code, told) = recover(&site);
    let new = reader(&site.path("new.db")).unwrap();
    let saved = rows(&new, "SELECT count(*) FROM shiftboss_single_tasks").unwrap();
    assert_eq!(saved, [readable.to_string()], "{told}");
    assert_eq!(code, Some(1), "{told}");
    assert!(told.contains("NOT whole: 2 ranges of shiftboss_single_tasks"), "{told}");
}

/// A damaged page may name any rowid, before or behind all others: what comes after it is saved all the same.
#[test]
fn wild_rowids_hide_nothing() {
    // The largest rowid, and -1; as long as those that they replace.
    let wild = [[0xbf, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff], [0xff; 9]];
    for rowid in wild {
        let site = filled(10);
        site.edit(
            "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 500)
             INSERT INTO shiftboss_single_tasks (task, attr_path, checksum, added, payload)
             SELECT (1 << 60) + i, 'single' || i, 1, 1, hex(zeroblob(30)) FROM n",
        );
        let leaves = leaves_of(&site, "shiftboss_single_tasks");
        assert!(leaves.len() > 10, "{}", leaves.len());
        let file = OpenOptions::new().read(true).write(true).open(site.database()).unwrap();
        let mut page = vec![0; usize::try_from(PAGE).unwrap()];
        let at = (leaves[4] - 1) * PAGE;
        file.read_exact_at(&mut page, at).unwrap();
        let number = |at: usize| u64::from(u16::from_be_bytes([page[at], page[at + 1]]));
        // Its last cell, behind the length of its row, which is one of two bytes if it is 128 or more.
        let cell = number(8 + 2 * (usize::try_from(number(3)).unwrap() - 1));
        let length = 1 + u64::from(page[usize::try_from(cell).unwrap()] >> 7);
        file.write_all_at(&rowid, at + cell + length).unwrap();
        smash(&site, [leaves[5]].into_iter());
        let (code, told) = recover(&site);
        assert_eq!(code, Some(1), "{told}");
        let new = reader(&site.path("new.db")).unwrap();
        let last = "SELECT count(*) FROM shiftboss_single_tasks WHERE attr_path = 'single500'";
        assert_eq!(rows(&new, last).unwrap(), ["1"], "{told}");
        let saved = rows(&new, "SELECT count(*) FROM shiftboss_single_tasks").unwrap();
        let saved: usize = saved[0].parse().unwrap();
        assert!(saved >= 500 - 2 * 500 / (leaves.len() - 1), "{saved}: {told}");
    }
}

/// On a read-only file system nothing can be locked: what to do is told, and nothing is said to be damaged.
#[test]
fn on_a_read_only_file_system() {
    let site = filled(10);
    let disk = FileSystem::new(&site.path("disk"));
    fs::copy(site.database(), site.path("disk/state.db")).unwrap();
    disk.make_read_only();
    for words in
        [&["check", "--database", "disk/state.db"][..], &["recover", "disk/state.db", "new.db"]]
    {
        let output = site.run(words);
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(73) && said.contains("copy it"), "{said}");
    }
    assert!(!site.path("new.db").exists());
}

/// Single tasks whose table was lost come back from their rows of the queue.
#[test]
fn single_tasks_come_back_from_the_queue() {
    let site = Site::new();
    let daemon = site.start();
    let output = |words: &[&str]| assert!(site.run(words).status.success(), "{words:?}");
    output(&["add", "socket", "failed", "1"]);
    assert_eq!(site.ask("READY"), "JOB failed 1\n");
    assert_eq!(site.ask("DONE failed 3"), "NOJOBS\n");
    output(&["add", "socket", "out", "2"]);
    assert_eq!(site.ask("READY"), "JOB out 2\n");
    output(&["add", "socket", "waits", "3"]);
    let singles = "SELECT task, attr_path, checksum, status, payload
        FROM shiftboss_single_tasks ORDER BY attr_path";
    let before = site.sql(singles);
    daemon.stop();
    let root = "SELECT rootpage FROM sqlite_schema WHERE name = 'shiftboss_single_tasks'";
    let root = u64::try_from(site.number(root)).unwrap();
    smash(&site, [root].into_iter());
    let (code, told) = recover(&site);
    assert_eq!(code, Some(1), "{told}");
    put_in_place(&site);
    let _daemon = site.start();
    assert_eq!(site.sql(singles), before);
    assert_eq!(site.ask("READY"), "JOB waits 3\n");
    assert_eq!(site.ask("DONE out 0"), "NOJOBS\n");
    let left = "SELECT attr_path, status FROM shiftboss_single_tasks ORDER BY attr_path";
    assert_eq!(site.sql(left), ["failed|failed", "waits|waiting"]);
}

/// The pages of a table's leaves, in the order of its rows, where its root leads to them: SQLite's file format.
fn leaves_of(site: &Site, table: &str) -> Vec<u64> {
    let root = format!("SELECT rootpage FROM sqlite_schema WHERE name = '{table}'");
    let file = fs::read(site.database()).unwrap();
    let root = usize::try_from(site.number(&root)).unwrap() - 1;
    let page = &file[root * PAGE as usize..][..PAGE as usize];
    assert_eq!(page[0], 5, "an interior page of a table");
    let number = |at: usize| u64::from(u32::from_be_bytes(page[at..at + 4].try_into().unwrap()));
    let cells = usize::from(u16::from_be_bytes([page[3], page[4]]));
    let places = page[12..].chunks_exact(2).take(cells);
    let lefts = places.map(|at| number(usize::from(u16::from_be_bytes([at[0], at[1]]))));
    lefts.chain([number(8)]).collect()
}

/// Private tables that were emptied or dropped are named at a start, and made anew by `recover`.
#[test]
fn emptied_private_tables() {
    let sound = filled(10);
    for (damage, name) in [
        ("DELETE FROM shiftboss_counters", "shiftboss_counters"),
        ("DELETE FROM shiftboss_counters WHERE name = 'row'", "'row'"),
        ("DELETE FROM shiftboss_state", "shiftboss_state"),
        ("DELETE FROM shiftboss_runs", "shiftboss_runs"),
        ("DROP TABLE shiftboss_last_served", "shiftboss_last_served"),
    ] {
        let site = Site::new();
        fs::copy(sound.database(), site.database()).unwrap();
        fs::copy(sound.file("f.1.txt"), site.file("f.1.txt")).unwrap();
        site.edit(damage);
        is_refused(&site, &[name, "shiftboss recover"]);
        assert_eq!(check(&site).0, Some(65), "{damage}");
        let (code, told) = recover(&site);
        assert_eq!(code, Some(0), "{told}");
        put_in_place(&site);
        let _daemon = site.start();
        assert!(site.ask("READY").starts_with("JOB "), "{damage}");
        site.wait_count(10);
    }
}
