//! A consistent copy of the database, for `shiftboss backup`, while the daemon runs.
//!
//! By SQLite's own backup, in one step: one read transaction, so the copy is one moment of the queue. Rows keep their
//! places in the file, which they would not with VACUUM.

use std::error::Error;
use std::fmt::Display;
use std::io::{self, ErrorKind};
use std::path::Path;

use rusqlite::backup::{Backup, StepResult};
use rusqlite::{Connection, ErrorCode};
use shiftboss_queue::documents::DAEMON;
use shiftboss_queue::error::StoreError;
use shiftboss_sqlite::open_to_read;

use super::file::make_new;
use super::maintenance::quick_check_of;
use crate::exit::{ExitCode, Failure};
use crate::stores::read_failure;

pub(crate) fn backup(database: &Path, file: &Path) -> Result<(), Failure> {
    let source = open_to_read(database).map_err(read_failure)?;
    let cannot = |code, why: &dyn Display| {
        Failure::new(code, format!("cannot make the backup {}: {why}", file.display()))
    };
    if file.symlink_metadata().is_ok() {
        let why = "it exists already: remove it, or choose another name";
        return Err(cannot(ExitCode::CannotCreate, &why));
    }
    make_new(file, |to| copy(&source, to)).map_err(|error| {
        // A bad copy alone does not show that the database is damaged: the target disk may be.
        if is_corrupt(&error)
            && let Err(StoreError::Corrupt(fault)) = quick_check_of(&source)
        {
            let text = format!("the database {} is corrupt: {fault}", database.display());
            return Failure::new(ExitCode::BadData, text);
        }
        // A system error means that the file cannot be made; SQLite's error, that it cannot be written.
        let code = match error.kind() {
            ErrorKind::Other | ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
                ExitCode::StoreIo
            }
            _ => ExitCode::CannotCreate,
        };
        cannot(code, &error)
    })
}

/// Whether SQLite reports corruption of the copy or of its source.
fn is_corrupt(error: &io::Error) -> bool {
    let Some(error) = error.get_ref() else { return false };
    let of_sqlite = error.downcast_ref().and_then(rusqlite::Error::sqlite_error_code);
    of_sqlite == Some(ErrorCode::DatabaseCorrupt)
        || matches!(error.downcast_ref(), Some(StoreError::Corrupt(_)))
}

fn copy(source: &Connection, to: &mut Connection) -> Result<(), Box<dyn Error + Send + Sync>> {
    let step = Backup::new(source, to)?.step(-1)?;
    if !matches!(step, StepResult::Done) {
        return Err(format!("the database is locked ({step:?}); try again").into());
    }
    // The copy is one file, readable by anybody.
    to.pragma_update_and_check(None, "journal_mode", "delete", |_| Ok(()))?;
    quick_check_of(to)?;
    // No daemon ever ran on the copy. One that the Python supervisor made has no such table.
    if to.table_exists(None, "documents")? {
        let sql = "UPDATE documents SET value = json_set(value, '$.running', NULL) WHERE name = ?1 AND json_valid(value)";
        to.execute(sql, [DAEMON.name()])?;
    }
    Ok(())
}
