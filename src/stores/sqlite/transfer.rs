//! A queue in a file that is moved: out of it, to a server (`leaving`) or [back to the Python supervisor](supervisor); or into a new
//! one, from a server (`arriving`) or from a [damaged file](salvage()). And the marks with which no daemon uses one.

pub(in crate::stores) mod arriving;
pub(in crate::stores) mod leaving;
mod salvage;
mod supervisor;

use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, Result};
use serde::Serialize;
use shiftboss_queue::documents::{Kind, MOVED};
use shiftboss_sqlite::{Whose, missing, whose};

use super::file::{self, corrupt, failed, not_usable, stopped};
use crate::exit::{ExitCode, Failure};
use crate::stores::mark::Mark;

pub(crate) use salvage::salvage;
pub(crate) use supervisor::give_back;

/// How long somebody else who writes is waited for.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

/// Opens a queue of ours for writing.
pub(super) fn open_ours(path: &Path) -> std::result::Result<Connection, Failure> {
    file::look(path)?;
    let connection = open_to_write(path).map_err(failed("open", path))?;
    connection.busy_timeout(BUSY_TIMEOUT).map_err(failed("open", path))?;
    let why = match whose(&connection).map_err(stopped("read", path))? {
        Whose::Ours => return Ok(connection),
        Whose::Refused(why) => why,
        Whose::Nobodys => "it has no tables".to_owned(),
        Whose::Supervisors => "it is the Python supervisor's: start `shiftboss serve` on it once, which takes it over, and stop it".to_owned(),
    };
    Err(not_usable(path, &why))
}

/// The same of one that is to be moved away, with a transaction in which nobody else writes; the caller has its lock.
fn to_leave(path: &Path) -> std::result::Result<(Connection, PathBuf), Failure> {
    let path = std::path::absolute(path).map_err(|error| file::access("look at", path, error))?;
    let connection = open_ours(&path)?;
    connection.execute_batch("BEGIN IMMEDIATE").map_err(failed("write to", &path))?;
    match missing(&connection).map_err(stopped("read", &path))? {
        Some(what) => Err(corrupt(&path, &what)),
        None => Ok((connection, path)),
    }
}

fn open_to_write(path: &Path) -> Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    Connection::open_with_flags(path, flags)
}

/// From now on no daemon uses it; ends the transaction.
fn leave(connection: &Connection, path: &Path, mark: &Mark) -> std::result::Result<(), Failure> {
    let marked = note(connection, &MOVED, mark);
    marked.and_then(|()| connection.execute_batch("COMMIT")).map_err(failed("mark as moved", path))
}

fn note<T: Serialize>(connection: &Connection, kind: &Kind<T>, document: &T) -> Result<()> {
    let sql = "INSERT OR REPLACE INTO documents (name, value) VALUES (?1, ?2)";
    connection.execute(sql, (kind.name(), kind.text(document))).map(drop)
}

/// Nothing may stand where a database is to be made.
fn require_free(path: &Path) -> std::result::Result<(), Failure> {
    if path.symlink_metadata().is_ok() {
        let path = path.display();
        let text = format!("{path} exists already: remove it, or choose another name");
        return Err(Failure::new(ExitCode::CannotCreate, text));
    }
    Ok(())
}

/// Makes a database whole or not at all; why not: what `fill` said, or what is wrong with its place.
fn make_new<T>(
    path: &Path,
    fill: impl FnOnce(&mut Connection) -> std::result::Result<T, Failure>,
) -> std::result::Result<T, Failure> {
    require_free(path)?;
    let mut filled = None;
    let made = file::make_new(path, |connection| {
        let outcome = fill(connection);
        let text = outcome.as_ref().err().map(ToString::to_string);
        filled = Some(outcome);
        text.map_or(Ok(()), Err)
    });
    match (made, filled) {
        (_, Some(Err(failure))) => Err(failure),
        (Ok(()), Some(filled)) => filled,
        (made, _) => {
            let why = made.err().map(|error| error.to_string()).unwrap_or_default();
            let text = format!("cannot make {}: {why}", path.display());
            Err(Failure::new(ExitCode::CannotCreate, text))
        }
    }
}
