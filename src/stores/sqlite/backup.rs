//! A consistent copy of the database, for `shiftboss backup`, while the daemon runs.
//!
//! By SQLite's own backup, in one step: one read transaction, so the copy is one moment of the
//! queue, and rows keep their places in the file, which a copy by VACUUM would not leave them.

use std::error::Error;
use std::fmt::Display;
use std::path::Path;

use rusqlite::Connection;
use rusqlite::backup::{Backup, StepResult};
use shiftboss_actors::store::StoreError;

use super::file::make_new;
use super::maintenance::quick_check_of;
use super::snapshot::open_to_read;
use crate::exit::{ExitCode, Failure};
use crate::stores::read_failure;

/// Copies `database` to `file`, which must not exist.
pub(crate) fn backup(database: &Path, file: &Path) -> Result<(), Failure> {
    let source = open_to_read(database).map_err(read_failure)?;
    let cannot = |why: &dyn Display| {
        let text = format!("cannot make the backup {}: {why}", file.display());
        Failure::new(ExitCode::CannotCreate, text)
    };
    if file.symlink_metadata().is_ok() {
        return Err(cannot(&"it exists already: remove it, or choose another name"));
    }
    make_new(file, |to| copy(&source, to)).map_err(|error| match error.downcast() {
        Ok(StoreError::Corrupt(fault)) => {
            let database = database.display();
            let text =
                format!("the copy of {database} is corrupt, and so is the database: {fault}");
            Failure::new(ExitCode::BadData, text)
        }
        Ok(error) => cannot(&error),
        Err(error) => cannot(&error),
    })
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
    if to.table_exists(None, "shiftboss_state")? {
        to.execute("DELETE FROM shiftboss_state WHERE name IN ('pid', 'started')", [])?;
    }
    Ok(())
}
