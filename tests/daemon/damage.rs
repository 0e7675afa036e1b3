//! Damaged databases: found out, not used again until they are sound, and what can be read is saved.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::process::Output;

use crate::common::mounts::FileSystem;
use crate::common::said::code_and_error;
use crate::common::sql::editor;
use crate::common::{Site, root, wait_until};

/// Page size of our databases.
const PAGE: u64 = 2048;
const NOTE: &str = ".state.db.shiftboss-corrupt";

/// A stopped daemon's database with a list of so many lines. Payloads are long, so that not all of it is
/// in SQLite's cache.
fn filled(lines: usize) -> Site {
    let payload = "p".repeat(200);
    let text: String = (0..lines).map(|i| format!("key{i:06} {payload}\n")).collect();
    let (site, daemon) = Site::serving(&text, &["--durability", "process"]);
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
    assert!(daemon.log().contains("shiftboss move --salvage"), "{}", daemon.log());
    let note = fs::read_to_string(site.path(NOTE)).unwrap();
    assert!(note.contains("Since: ") && note.contains("malformed"), "{note}");
    for _ in 0..2 {
        is_refused(&site, &["malformed", "shiftboss check --database", "shiftboss move --salvage"]);
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
    for object in ["keys", "header"] {
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
        is_refused(&site, &["shiftboss move --salvage"]);
    }
}

/// A file that was cut off is refused, and what is left of it is saved.
#[test]
fn half_a_file() {
    let site = filled(2_000);
    let half = fs::metadata(site.database()).unwrap().len() / 2 / PAGE * PAGE;
    OpenOptions::new().write(true).open(site.database()).unwrap().set_len(half).unwrap();
    is_refused(&site, &["shiftboss move --salvage"]);
    let (code, told) = salvage(&site);
    assert!(matches!(code, Some(0 | 1)), "{told}");
    put_in_place(&site);
    let _daemon = site.start();
    site.wait_count(2_000);
}

fn salvage(site: &Site) -> (Option<i32>, String) {
    let (old, new) = (site.database(), site.path("new.db"));
    let output = site.run(&["move", "--salvage", old.to_str().unwrap(), new.to_str().unwrap()]);
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

/// On a read-only file system nothing can be locked: what to do is told, and nothing is said to be damaged.
#[test]
fn on_a_read_only_file_system() {
    root!();
    let site = filled(10);
    let disk = FileSystem::new(&site.path("disk"));
    fs::copy(site.database(), site.path("disk/state.db")).unwrap();
    disk.make_read_only();
    for words in [
        &["check", "--database", "disk/state.db"][..],
        &["move", "--salvage", "disk/state.db", "new.db"],
    ] {
        let output = site.run(words);
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(73) && said.contains("copy it"), "{said}");
    }
    assert!(!site.path("new.db").exists());
}

/// A target that is full, or whose directory is missing, is blamed, and nothing is left of it.
#[test]
fn the_target_of_what_is_saved_is_blamed() {
    let site = filled(2_000);
    let blamed = |output: Output, new: &str| {
        let (code, error) = code_and_error(&output);
        assert!(code == 73 && error.contains(new) && !error.contains("state.db"), "{code} {error}");
    };
    blamed(site.run(&["move", "--salvage", "state.db", "missing/new.db"]), "missing/new.db");
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", "ulimit -f 100; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_shiftboss")]);
    shell.args(["move", "--salvage", "state.db", "new.db"]);
    blamed(shell.current_dir(site.path("")).output().unwrap(), "new.db");
    assert!(!site.path("new.db").exists());
    assert_eq!(salvage(&site).0, Some(0));
}
