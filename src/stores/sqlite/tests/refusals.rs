//! Files that are refused when a database is opened (spec 6): with a reason, and untouched.

use std::fs;
use std::path::Path;

use rusqlite::Connection;
use rustix::fs::{CWD, FileType::Fifo, mknodat};
use shiftboss_actors::store::Store;
use shiftboss_queue::operation::Runs;
use shiftboss_sqlite::at_once;

use super::support::{FAIR, Site, ask, options, run};
use crate::exit::{ExitCode, Failure};
use crate::stores::sqlite::SqliteStore;

/// Opens what `make` made; the error's text. The file must be as it was.
fn refusal(make: impl FnOnce(&Path)) -> (Failure, String) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state.db");
    make(&path);
    let content = || path.is_file().then(|| fs::read(&path).unwrap());
    let before = content();
    let error = SqliteStore::open(&path, &options(FAIR)).err().expect("refused");
    assert_eq!(content(), before, "{error}");
    let text = error.to_string();
    (error, text)
}

/// A database with a long list.
fn listed() -> Site {
    let mut site = Site::new(FAIR);
    let keys: Vec<String> = (0..2000).map(|i| format!("key{i}")).collect();
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    site.list(&run("f", 1), &keys);
    site
}

/// It, closed.
fn ours(path: &Path) {
    let mut site = listed();
    at_once(site.store.close()).unwrap();
    fs::copy(site.path(), path).unwrap();
}

fn edited(path: &Path, sql: &str) {
    Connection::open(path).unwrap().execute_batch(sql).unwrap();
}

/// Writes over what [`ours`] made.
fn damaged(path: &Path, damage: impl FnOnce(&mut Vec<u8>)) {
    ours(path);
    let mut bytes = fs::read(path).unwrap();
    damage(&mut bytes);
    fs::write(path, bytes).unwrap();
}

const FOREIGN: [&str; 3] = [
    "CREATE TABLE notes (text)",
    "PRAGMA application_id = 7; CREATE TABLE notes (text)",
    "CREATE TABLE fetchers (a); CREATE TABLE fetcher_runs (a); CREATE TABLE queue (a); CREATE TABLE log (a)",
];

/// Makes what is in a database's place.
type Make = Box<dyn FnOnce(&Path)>;

/// An emptied file is not taken for a new one. Some other file, also one that is too short for a header, and a
/// directory. A pipe without another end: opening does not wait for it. A newer version than this program knows. A file
/// that was cut off, at a page's end and anywhere. A first page of rubbish behind a good header. Another program's
/// database.
#[test]
fn what_is_no_database_of_ours() {
    use ExitCode::{BadData, Configuration};
    let no_database = "is not an SQLite database";
    let mut cases: Vec<(Make, ExitCode, &str)> = vec![
        (Box::new(|path| fs::write(path, "").unwrap()), BadData, "is empty"),
        (Box::new(|path| fs::write(path, "hello").unwrap()), Configuration, no_database),
        (Box::new(|path| fs::write(path, [b'x'; 5000]).unwrap()), Configuration, no_database),
        (Box::new(|path| fs::create_dir(path).unwrap()), Configuration, no_database),
        (Box::new(|path| mknodat(CWD, path, Fifo, 0o600.into(), 0).unwrap()), Configuration, ""),
        (Box::new(|path| damaged(path, |it| it[100..4096].fill(0xaa))), BadData, "is corrupt"),
    ];
    for keep in [4096 * 3, 5000, 200] {
        let cut = move |path: &Path| damaged(path, |it| it.truncate(keep));
        cases.push((Box::new(cut), BadData, "shiftboss move --salvage"));
    }
    for sql in FOREIGN {
        cases.push((Box::new(|path| edited(path, sql)), Configuration, "of another program"));
    }
    let newer = |path: &Path| {
        ours(path);
        edited(path, "PRAGMA user_version = 99");
    };
    cases.push((Box::new(newer), Configuration, "has version 99"));
    for (at, (make, code, words)) in cases.into_iter().enumerate() {
        let (error, text) = refusal(make);
        assert!(error.code() == code && text.contains(words), "{at}: {text}");
    }
}

/// A link to nothing is reported as that, and nothing is made.
#[test]
fn a_link_to_nowhere() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state.db");
    std::os::unix::fs::symlink("not/mounted.db", &path).unwrap();
    let error = SqliteStore::open(&path, &options(FAIR)).err().expect("refused");
    assert!(error.to_string().contains("link to not/mounted.db"), "{error}");
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
}

/// A database that a killed daemon left shorter than its header says, whole in its log: through a
/// link it is taken up too.
#[test]
fn a_link_to_a_database_with_a_log() {
    let site = listed();
    let killed = tempfile::tempdir().unwrap();
    // As if the power had gone in a checkpoint: the first page is written, the last is not.
    site.edit("PRAGMA wal_checkpoint(PASSIVE)");
    for ending in ["", "-wal"] {
        let name = format!("state.db{ending}");
        fs::copy(site.directory.path().join(&name), killed.path().join(&name)).unwrap();
    }
    let cut = fs::OpenOptions::new().write(true).open(killed.path().join("state.db")).unwrap();
    cut.set_len(cut.metadata().unwrap().len() - 4096).unwrap();
    let link = killed.path().join("link.db");
    std::os::unix::fs::symlink("state.db", &link).unwrap();
    let mut store = SqliteStore::open(&link, &options(FAIR)).unwrap();
    assert_eq!(ask(&mut store, 0, Runs).unwrap()[0].rows, 2000);
}

/// The background check finds what opening does not, and accepts a sound database.
#[test]
fn a_corrupt_page_is_found_by_the_check() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state.db");
    ours(&path);
    assert_eq!(crate::stores::sqlite::quick_check(&path), Ok(()));
    damaged(&path, |bytes| {
        let end = bytes.len();
        bytes[end - 4096 * 4..].fill(0xAA);
    });
    assert!(crate::stores::sqlite::quick_check(&path).is_err());
}

/// A new database is complete or not there, and nothing is left beside it.
#[test]
fn a_new_database_leaves_nothing_beside_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state.db");
    let mut store = SqliteStore::open(&path, &options(FAIR)).unwrap();
    assert!(store.found.was_clean);
    at_once(store.close()).unwrap();
    drop(store);
    let names: Vec<_> =
        fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["state.db"]);
    let missing = directory.path().join("missing/state.db");
    assert!(SqliteStore::open(&missing, &options(FAIR)).is_err());
}
