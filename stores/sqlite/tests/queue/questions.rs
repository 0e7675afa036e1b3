//! What a reader answers about states that operations made.

use std::time::Duration;

use shiftboss_queue::context::Settings;
use shiftboss_queue::documents::{DAEMON, Daemon, Policy};
use shiftboss_sqlite::{SqliteReader, SqliteRecords};
use tempfile::TempDir;

/// How long the questions of one test may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// A queue as it is at a moment, in a file, and who is asked about it.
pub struct Asked {
    pub reader: SqliteReader,
    _directory: TempDir,
}

pub fn ask(store: &SqliteRecords) -> Asked {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state.db");
    store.connection().execute("VACUUM INTO ?1", [path.to_str()]).unwrap();
    Asked { reader: SqliteReader::glance(path, PATIENCE), _directory: directory }
}

/// As a daemon notes how it was started.
pub fn note_daemon(store: &SqliteRecords, settings: &Settings) {
    let daemon = Daemon {
        durability: "power".to_owned(),
        policy: if settings.is_fair { Policy::Fair } else { Policy::Classic },
        lease_seconds: settings.lease_seconds,
        bump_share: settings.bump_share,
        max_single_tasks: settings.max_single_tasks.cast_signed(),
        running: None,
    };
    let sql = "INSERT OR REPLACE INTO documents VALUES (?1, ?2)";
    let value = serde_json::to_string(&daemon).unwrap();
    store.connection().execute(sql, (DAEMON.name(), value)).unwrap();
}
