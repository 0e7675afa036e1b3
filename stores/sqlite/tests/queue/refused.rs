//! Files that cannot be read: another program's, and a queue that is too large for the available time.

use std::time::Duration;

use shiftboss_queue::context::Settings;
use shiftboss_queue::reader::{ReadError, Reader};
use shiftboss_sqlite::SqliteReader;

use crate::subject::reader;
use crate::words::{NOW, Script};

fn list(keys: &str) -> Script {
    let mut script = Script::new(Settings::default());
    script.run(&format!("list f.1 {keys}"));
    script
}

/// The error says what kind of file it is, if it is not a queue of ours.
#[test]
fn what_cannot_be_looked_at() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a file?mode=rw#.db");
    let error = || SqliteReader::new(path.clone()).status(NOW).unwrap_err();
    assert!(matches!(error(), ReadError::Unavailable(_)));
    std::fs::write(&path, "alpha 0 1\n".repeat(200)).unwrap();
    assert!(matches!(error(), ReadError::Corrupt(_)));
    std::fs::write(&path, "").unwrap();
    assert!(matches!(error(), ReadError::Foreign(_)));
    let other = rusqlite::Connection::open(&path).unwrap();
    other.execute_batch("CREATE TABLE queue (attr_path)").unwrap();
    assert!(matches!(error(), ReadError::Foreign(it) if it.contains("another program")));
    let script = list("a");
    script.store().connection().execute_batch("PRAGMA user_version = 99").unwrap();
    let refused = reader(script.store()).status(NOW).unwrap_err();
    assert!(
        matches!(&refused, ReadError::Foreign(it) if it.contains("99") && it.contains("newer")),
        "{refused}"
    );
}

#[test]
fn patience_ends() {
    let many: Vec<String> = (0..1_000).map(|at| format!("k{at}")).collect();
    let asked = reader(list(&many.join(" ")).store());
    let hasty = SqliteReader::glance(asked.directory.path().join("state.db"), Duration::ZERO);
    assert!(matches!(hasty.next_jobs(NOW, 1_000), Err(ReadError::Unavailable(_))));
}
