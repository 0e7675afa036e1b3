//! Files that are not, or no longer, ours to open: refused with what to do, never replaced.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::common::Site;
use crate::common::reference::version_2;

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

/// A file that is no database of this version, or not all of one, is refused with its name and with what is wrong, and left as it was.
#[test]
fn what_is_refused_stays_as_it_was() {
    let newer = Site::new();
    version_2(&newer.database()).execute_batch("PRAGMA user_version = 99").unwrap();
    let (newer, sound) = (fs::read(newer.database()).unwrap(), sound());
    for (content, expected, word) in [
        (&newer[..], 78, "99"),
        (b"alpha 0 1\nThis is a list, not a database.\n", 78, "is not an SQLite database"),
        (&sound[..sound.len() / 2], 65, "corrupt"),
        (b"", 65, "empty"),
    ] {
        let site = Site::new();
        site.write("f.1.txt", "alpha 0 1\n");
        fs::write(site.database(), content).unwrap();
        for _ in 0..2 {
            let (code, log) = site.refused(site.serve(&[]));
            assert!(
                code == expected && log.contains("state.db") && log.contains(word),
                "{code} {log}"
            );
            assert_eq!(fs::read(site.database()).unwrap(), content);
            assert!(!site.socket().exists());
        }
    }
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
