//! `shiftboss backup`: a consistent copy of the database, while the daemon runs.
//!
//! By SQLite's own backup, in one step: one read transaction, so the copy is one moment of the
//! queue, and rows keep their places in the file, which a copy by VACUUM would not leave them.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use rusqlite::Connection;
use rusqlite::backup::{Backup, StepResult};

use super::view_failure;
use crate::exit::{ExitCode, Failure};
use crate::sqlite::{open_to_read, quick_check};

/// Copies `database` to `file`, which must not exist.
///
/// # Errors
/// When the database cannot be read, the copy cannot be made, or is found to be corrupt.
pub fn run(database: &Path, file: &Path) -> Result<(), Failure> {
    let source = open_to_read(database).map_err(|error| view_failure(&error))?;
    if file.symlink_metadata().is_ok() {
        return Err(cannot(file, "it exists already: remove it, or choose another name"));
    }
    let temporary = temporary_name(file);
    // Left by a backup that was killed.
    let _ = std::fs::remove_file(&temporary);
    let copied = copy(&source, &temporary).map_err(|error| cannot(file, error)).and_then(|()| {
        quick_check(&temporary).map_err(|fault| {
            let text = format!(
                "the copy of {} is corrupt, and so is the database: {fault}",
                database.display()
            );
            Failure::new(ExitCode::BadData, text)
        })?;
        publish(&temporary, file).map_err(|error| cannot(file, error))
    });
    // Gone already when all went well.
    let _ = std::fs::remove_file(&temporary);
    copied
}

fn cannot(file: &Path, why: impl std::fmt::Display) -> Failure {
    Failure::new(
        ExitCode::CannotCreate,
        format!("cannot make the backup {}: {why}", file.display()),
    )
}

fn temporary_name(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(format!(".new-{}", std::process::id()));
    name.into()
}

fn copy(source: &Connection, to: &Path) -> Result<(), String> {
    let failed = |error: rusqlite::Error| error.to_string();
    let mut copy = Connection::open(to).map_err(failed)?;
    let step = Backup::new(source, &mut copy).and_then(|backup| backup.step(-1)).map_err(failed)?;
    if !matches!(step, StepResult::Done) {
        return Err(format!("the database is locked ({step:?}); try again"));
    }
    // The copy is one file, readable by anybody.
    copy.pragma_update_and_check(None, "journal_mode", "delete", |_| Ok(())).map_err(failed)?;
    copy.close().map_err(|(_, error)| failed(error))
}

fn publish(temporary: &Path, file: &Path) -> io::Result<()> {
    File::open(temporary)?.sync_all()?;
    // A link, unlike a rename, never replaces what has come to stand there meanwhile.
    std::fs::hard_link(temporary, file)?;
    std::fs::remove_file(temporary)?;
    let directory = match file.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    File::open(directory)?.sync_all()
}
