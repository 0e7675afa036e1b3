//! Files that are not, or no longer, ours to open: refused with what to do, never replaced.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use rusqlite::Connection;

use crate::common::Site;
use crate::common::reference::version_2;

/// A daemon started on the database file `content` refuses it with `expected`, naming it and one of `words`,
/// and leaves it as it was.
fn refuses(content: &[u8], expected: i32, words: &[&str]) {
    let site = Site::new();
    site.write("f.1.txt", "alpha 0 1\n");
    fs::write(site.database(), content).unwrap();
    for _ in 0..2 {
        let (code, log) = site.refused(site.serve(&[]));
        assert_eq!(code, expected, "{log}");
        assert!(log.contains("state.db"), "{log}");
        let lower = log.to_lowercase();
        assert!(words.iter().any(|word| lower.contains(word)), "{words:?}: {log}");
        assert_eq!(fs::read(site.database()).unwrap(), content);
        assert!(!site.socket().exists());
    }
}

/// The bytes of a sound database of ours with some rows.
fn sound() -> Vec<u8> {
    let site = Site::new();
    let lines: Vec<String> = (0..5_000).map(|i| format!("key{i} 0 {i}\n")).collect();
    site.write("f.1.txt", lines.concat());
    let daemon = site.start();
    site.wait_count(5_000);
    daemon.stop();
    fs::read(site.database()).unwrap()
}

/// A newer version than ours is refused, untouched.
#[test]
fn a_newer_version() {
    let site = Site::new();
    let connection = version_2(&site.database());
    connection.execute_batch("PRAGMA user_version = 99").unwrap();
    drop(connection);
    refuses(&fs::read(site.database()).unwrap(), 78, &["99", "newer"]);
}

/// Another program's database is refused, whatever version number it has.
#[test]
fn another_program_s_database() {
    for version in [0, 1, 2, 3] {
        let site = Site::new();
        let connection = Connection::open(site.database()).unwrap();
        let script = format!("CREATE TABLE users (name); PRAGMA user_version = {version}");
        connection.execute_batch(&script).unwrap();
        drop(connection);
        let words = ["not a", "another", "foreign", "unknown", "missing", "no table", "lacks"];
        refuses(&fs::read(site.database()).unwrap(), 78, &words);
    }
}

/// A file that is no database at all.
#[test]
fn no_database_at_all() {
    refuses(b"alpha 0 1\nThis is a list, not a database.\n", 78, &["not a database", "database"]);
    refuses(&[0; 8_192], 78, &["not a database", "database"]);
}

/// A database with an overwritten header, and one cut in half.
#[test]
fn a_damaged_database() {
    let sound = sound();
    let mut header = sound.clone();
    header[..100].fill(0xa5);
    refuses(&header, 78, &["not an sqlite database", "damaged", "corrupt"]);
    refuses(
        &sound[..sound.len() / 2],
        65,
        &["truncated", "damaged", "corrupt", "malformed", "shorter"],
    );
    refuses(&sound[..4_096], 65, &["truncated", "damaged", "corrupt", "malformed", "shorter"]);
}

/// An emptied file is refused: it was a database once, and a new one would hide the loss.
#[test]
fn an_emptied_database() {
    refuses(b"", 65, &["empty", "emptied"]);
}

/// A missing directory, a directory for a database, and a place where nothing can be made.
#[test]
fn a_database_that_cannot_be_made() {
    let site = Site::new();
    let places = [
        ("missing/state.db", 73, "missing"),
        ("input", 78, "input"),
        ("/proc/state.db", 73, "/proc"),
    ];
    for (database, expected, named) in places {
        let mut command = site.program();
        command.args(["serve", database]).args([site.input(), site.socket()]);
        let (code, log) = site.refused(command);
        assert_eq!(code, expected, "{database}: {log}");
        assert!(log.contains(named), "{log}");
        assert!(!site.path("missing").exists() && !site.socket().exists());
    }
}

/// A database that may only be read is refused with a message, not served from.
#[test]
fn a_read_only_database() {
    let site = Site::new();
    fs::write(site.database(), sound()).unwrap();
    let command = site.serve_unprivileged(&[]);
    let read_only = fs::Permissions::from_mode(0o444);
    fs::set_permissions(site.database(), read_only).unwrap();
    let (code, log) = site.refused(command);
    assert!(code == 73 && log.contains("state.db"), "{code}: {log}");
    assert!(!site.socket().exists());
}

/// A new database is never seen half made: either no file under its name or a whole one.
#[test]
fn a_new_database_appears_whole() {
    for _ in 0..10 {
        let site = Site::new();
        let daemon = site.spawn(site.serve(&[]));
        crate::common::wait_until("the file is there", || site.database().exists());
        let tables = "SELECT count(*) FROM sqlite_schema WHERE type = 'view' \
            AND name IN ('fetchers', 'fetcher_runs', 'queue', 'log')";
        assert_eq!(site.sql(tables), ["4"]);
        daemon.kill();
        assert!(!fs::read(site.database()).unwrap().is_empty());
        site.start().stop();
    }
}
