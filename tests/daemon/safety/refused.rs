//! A start that is refused leaves everything as it was: no lock, no directory, no database.

use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::process::Command;

use rusqlite::Connection;

use super::tree::tree;
use crate::common::reference::version_2;
use crate::common::{Site, list_of, root};

/// `command` is refused with the code and the word, and nothing below the site has changed.
fn refused(site: &Site, command: Command, code: i32, word: &str) {
    let mut command = command;
    let before = tree(&site.path(""));
    let output = command.output().unwrap();
    let log = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{log}");
    assert!(log.contains(word), "{word:?}: {log}");
    assert_eq!(tree(&site.path("")), before, "{log}");
}

/// A start with a database that is missing and an input directory that has yet to be made.
fn fresh() -> Site {
    Site::bare()
}

fn serve(site: &Site, paths: [PathBuf; 3]) -> Command {
    let mut command = site.program();
    command.arg("serve").args(paths);
    command
}

/// Each of these files is no database of ours.
#[test]
fn the_database_is_another_file() {
    let text: &dyn Fn(&Site) = &|site| fs::write(site.database(), "root:x:0:0\n").unwrap();
    let empty: &dyn Fn(&Site) = &|site| fs::write(site.database(), "").unwrap();
    let foreign: &dyn Fn(&Site) = &|site| {
        let connection = Connection::open(site.database()).unwrap();
        connection.execute_batch("PRAGMA application_id = 7; CREATE TABLE t (a)").unwrap();
    };
    let other: &dyn Fn(&Site) = &|site| {
        let connection = Connection::open(site.database()).unwrap();
        connection.execute_batch("PRAGMA journal_mode = wal; CREATE TABLE t (a)").unwrap();
    };
    let tables: &dyn Fn(&Site) = &|site| {
        let connection = Connection::open(site.database()).unwrap();
        let sql = "PRAGMA journal_mode = wal; PRAGMA user_version = 3; CREATE TABLE queue (a)";
        connection.execute_batch(sql).unwrap();
    };
    let newer: &dyn Fn(&Site) = &|site| {
        version_2(&site.database()).execute_batch("PRAGMA user_version = 99").unwrap();
    };
    let directory: &dyn Fn(&Site) = &|site| fs::create_dir(site.database()).unwrap();
    let link: &dyn Fn(&Site) = &|site| symlink(site.path("gone"), site.database()).unwrap();
    for (make, code, word) in [
        (text, 78, "not an SQLite database"),
        (empty, 65, "empty"),
        (foreign, 78, "another program"),
        (other, 78, "another program"),
        (tables, 78, "another program"),
        (newer, 78, "99"),
        (directory, 78, "not an SQLite database"),
        (link, 73, "link to"),
    ] {
        let site = fresh();
        make(&site);
        refused(&site, site.serve(&[]), code, word);
    }
}

/// Another program's database that has a log, as after a kill, keeps it.
#[test]
fn another_program_s_database_keeps_its_log() {
    let (site, copy) = (fresh(), fresh());
    let connection = Connection::open(site.database()).unwrap();
    connection.execute_batch("PRAGMA journal_mode = wal; CREATE TABLE t (a)").unwrap();
    for ending in ["", "-wal", "-shm"] {
        let name = format!("state.db{ending}");
        fs::copy(site.path(&name), copy.path(&name)).unwrap();
    }
    let command = copy.serve(&[]);
    let log = copy.path("state.db-wal");
    let before = (fs::read(&log).unwrap(), fs::read(copy.database()).unwrap());
    let (code, said) = copy.refused(command);
    assert_eq!(code, 78, "{said}");
    assert_eq!((fs::read(&log).unwrap(), fs::read(copy.database()).unwrap()), before);
    assert!(!copy.input().exists() && !copy.path(".state.db.shiftboss-lock").exists());
}

/// What stands in the socket's place, or its name, or its group, cannot be used.
#[test]
fn the_socket_cannot_be_had() {
    let site = fresh();
    fs::write(site.socket(), "precious").unwrap();
    refused(&site, site.serve(&[]), 73, "not a socket");
    let site = fresh();
    fs::create_dir(site.socket()).unwrap();
    refused(&site, site.serve(&[]), 73, "not a socket");
    let site = fresh();
    let long = site.path(&"s".repeat(108));
    refused(&site, serve(&site, [site.database(), site.input(), long]), 78, "107");
    let missing = site.path("missing/socket");
    refused(&site, serve(&site, [site.database(), site.input(), missing]), 73, "missing");
    refused(&site, site.serve(&["--socket-group", "no-such-group"]), 78, "no-such-group");
    for (database, word) in
        [(site.path("missing/state.db"), "missing"), ("/proc/x.db".into(), "/proc")]
    {
        refused(&site, serve(&site, [database, site.input(), site.socket()]), 73, word);
    }
    let same = [site.database(), site.input(), site.path("./state.db")];
    refused(&site, serve(&site, same), 64, "two paths");
}

/// Somebody listens on the socket: found when the locks were had, and the directories made.
#[test]
fn somebody_listens_on_the_socket() {
    let site = fresh();
    let _listener = UnixListener::bind(site.socket()).unwrap();
    let input = site.path("a/b/input");
    refused(&site, serve(&site, [site.database(), input, site.socket()]), 75, "listening");
}

/// The input directory is a file, or would be in one.
#[test]
fn the_input_directory_is_a_file() {
    let site = fresh();
    fs::write(site.input(), "precious").unwrap();
    refused(&site, site.serve(&[]), 73, "input");
    let below = site.input().join("below");
    refused(&site, serve(&site, [site.database(), below, site.socket()]), 73, "input");
}

/// Whoever takes the order of the three paths for another one is told so, where nothing is there to tell it.
#[test]
fn the_paths_are_in_another_order() {
    let site = fresh();
    let [database, input, socket] =
        ["state.db", "input", "worker.sock"].map(|name| site.path(name));
    for paths in [
        [&input, &database, &socket],
        [&socket, &input, &database],
        [&database, &socket, &input],
        [&socket, &database, &input],
    ] {
        let command = serve(&site, paths.map(Clone::clone));
        refused(&site, command, 64, "DATABASE INPUT_DIR SOCKET");
    }
}

/// A database that is damaged, with the note of the daemon that was killed on it.
#[test]
fn the_database_is_damaged() {
    let (site, daemon) = Site::serving(&list_of(3_000), &[]);
    daemon.stop();
    site.start().kill();
    let content = fs::read(site.database()).unwrap();
    fs::write(site.database(), &content[..content.len() / 2]).unwrap();
    fs::remove_file(site.path("state.db-wal")).unwrap();
    assert!(!fs::read(site.path(".state.db.shiftboss-daemon")).unwrap().is_empty());
    refused(&site, site.serve(&[]), 65, "corrupt");
}

/// A second daemon is refused, and leaves neither what it made before it knew nor what it met.
#[test]
fn another_daemon_runs() {
    let (site, other) = (Site::new(), fresh());
    let mut first = site.start();
    let pid = first.pid().as_raw_nonzero().to_string();
    let paths = [other.database(), site.input(), other.socket()];
    refused(&other, serve(&other, paths), 75, &format!("is watching {}", site.input().display()));
    let paths = [other.database(), other.input(), site.socket()];
    refused(&other, serve(&other, paths), 75, &pid);
    symlink(site.database(), other.path("link.db")).unwrap();
    for database in [site.database(), other.path("link.db")] {
        let paths = [database, other.input(), other.socket()];
        refused(&other, serve(&other, paths), 75, &pid);
    }
    assert!(first.is_running());
    assert_eq!(site.ask("READY"), "NOJOBS\n");
}

/// The socket cannot be given to its group: nothing stays of it.
#[test]
fn the_socket_s_group_is_another_user_s() {
    root!();
    let site = Site::new();
    let (code, log) = site.refused(site.serve_unprivileged(&["--socket-group", "0"]));
    assert!(code == 73 && log.contains("group 0"), "{code}: {log}");
    assert!(!site.socket().exists() && !site.database().exists());
}

/// The database's directory may not be written to.
#[test]
fn the_database_s_directory_is_another_user_s() {
    root!();
    let site = fresh();
    // Everything is the unprivileged user's then.
    let mut command = site.unprivileged(site.program());
    fs::create_dir(site.path("theirs")).unwrap();
    let database = site.path("theirs/state.db");
    command.arg("serve").args([database, site.input(), site.socket()]);
    refused(&site, command, 73, "ermission denied");
}

/// A daemon that stopped well leaves its locks, empty, and takes them again.
#[test]
fn a_start_that_succeeds_leaves_its_locks() {
    let site = fresh();
    site.start().stop();
    for lock in [".state.db.shiftboss-lock", ".socket.shiftboss-lock", ".socket.shiftboss-daemon"] {
        assert_eq!(fs::read(site.path(lock)).unwrap(), b"");
    }
    assert!(site.database().exists() && site.input().exists());
    let status = site.run(&["status", "-t", site.socket().to_str().unwrap()]);
    let told = String::from_utf8_lossy(&status.stderr);
    assert!(told.contains("a daemon that stopped leaves no socket"), "{told}");
    site.start().stop();
}
