//! The files under the store: bringing the main file up to date, noticing that it is gone, checking
//! it, and leaving it so that anybody can read it (spec 6).

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rusqlite::{Connection, ErrorCode, OpenFlags, Result};
use shiftboss_actors::store::Checkpoint;
use shiftboss_queue::error::{StoreError, StoreResult};
use shiftboss_sqlite::classify;

use super::checkpoints::checkpoint;
use super::file;
use super::store::SqliteStore;

/// How long the end waits for readers to leave, so that the journal mode can be changed.
const LEAVE_WAL_PATIENCE: Duration = Duration::from_secs(1);
const MODE_PAUSE: Duration = Duration::from_millis(20);

impl SqliteStore {
    pub(super) fn run_maintenance(&mut self) -> StoreResult<Checkpoint> {
        self.check_files()?;
        checkpoint(self.engine.store().connection()).map_err(classify)
    }

    /// A file that was removed or replaced would take all further work with it in silence.
    fn check_files(&self) -> StoreResult<()> {
        let gone = |(path, identity): &&(PathBuf, file::Identity)| {
            file::identity(path).ok() != Some(*identity)
        };
        let Some((path, _)) = self.files.iter().find(gone) else {
            return Ok(());
        };
        if path.as_os_str().as_encoded_bytes().ends_with(b"-wal") {
            // SQLite still has it open: moves what was answered into the main file while that is possible.
            let saved = checkpoint(self.engine.store().connection());
            tracing::warn!(?saved, "The database's log was removed: saving what it held.");
        }
        let text =
            format!("{} was removed, renamed or replaced while it was in use", path.display());
        Err(StoreError::Fatal(text))
    }

    /// Everything into the main file, and the journal mode back to DELETE: a file in WAL mode
    /// cannot be opened read-only where its directory is not writable.
    pub(super) async fn close_file(&mut self) -> StoreResult<()> {
        self.engine.stop().await?;
        let connection = self.engine.store().connection();
        let truncate = "PRAGMA wal_checkpoint(TRUNCATE)";
        let is_busy: bool =
            connection.query_row(truncate, [], |row| row.get(0)).map_err(classify)?;
        if !is_busy && set_journal_mode(connection, "delete", LEAVE_WAL_PATIENCE).is_ok() {
            return Ok(());
        }
        // There is a reader. The log stays beside the file, and the next process that opens it reads both.
        tracing::warn!(
            "A reader keeps the database in WAL mode; it can be read where its directory is writable."
        );
        Ok(())
    }
}

/// Which files are open, so that it is seen when others stand in their place.
pub(super) fn watch_files(files: [PathBuf; 3]) -> io::Result<Vec<(PathBuf, file::Identity)>> {
    files.into_iter().map(|path| file::identity(&path).map(|identity| (path, identity))).collect()
}

/// Changes the journal mode; that does not wait for readers by itself.
#[allow(clippy::disallowed_methods)] // Before the first and after the last request nobody waits.
pub(super) fn set_journal_mode(
    connection: &Connection,
    mode: &str,
    patience: Duration,
) -> Result<()> {
    let deadline = Instant::now() + patience;
    loop {
        let tried = connection
            .pragma_update_and_check(None, "journal_mode", mode, |row| row.get::<_, String>(0));
        match tried {
            Ok(now) if now.eq_ignore_ascii_case(mode) => return Ok(()),
            Err(error) if Instant::now() >= deadline || !is_busy(&error) => return Err(error),
            Ok(_) if Instant::now() >= deadline => return Err(rusqlite::Error::InvalidQuery),
            _ => std::thread::sleep(MODE_PAUSE),
        }
    }
}

/// Waiting for others may help; other errors, such as a full disk, are reported at once.
fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}

/// Reads the whole database, on a connection of its own. `Corrupt` has SQLite's text about what is wrong.
pub(crate) fn quick_check(path: &Path) -> StoreResult<()> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY;
    quick_check_of(&Connection::open_with_flags(path, flags).map_err(classify)?)
}

/// The same on an existing connection.
pub(crate) fn quick_check_of(connection: &Connection) -> StoreResult<()> {
    let said = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get::<_, String>(0));
    match said.map_err(classify)?.as_str() {
        "ok" => Ok(()),
        fault => Err(StoreError::Corrupt(fault.to_owned())),
    }
}
