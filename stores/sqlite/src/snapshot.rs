//! One moment of a database, for readers: it is opened, and read in one transaction.
//!
//! Called by the reader, and by the code that copies a database. It needs no write access to the file or its directory,
//! makes no file, and disturbs no daemon.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags, Result};
use rustix::fs::{Access, access};
use rustix::io::Errno;
use shiftboss_queue::reader::ReadError;

use crate::schema::{Whose, find_out};

/// How long a reader waits for a lock; in WAL mode it never has to.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
const STATEMENTS_MAX: usize = 64;
/// Steps of SQLite's machine between two looks at the time: some 15 µs.
const STEPS_A_LOOK: i32 = 300;

/// A file of SQLite's beside a database, by its ending.
pub fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

#[derive(Debug)]
pub struct Moment {
    path: PathBuf,
    connection: Connection,
    is_taken_over: bool,
}

impl Moment {
    /// Queries are interrupted once `patience` is over.
    pub(crate) fn of(path: &Path, patience: Option<Duration>) -> Result<Self, ReadError> {
        let mut connection = open(path)?;
        patience
            .map_or(Ok(()), |patience| end_after(&mut connection, patience))
            .and_then(|()| connection.execute_batch("BEGIN"))
            .map_err(failed(path))?;
        let is_taken_over = is_ours(path, &connection)?;
        Ok(Self { path: path.to_owned(), connection, is_taken_over })
    }

    /// If not, it is the Python supervisor's.
    pub(crate) fn is_taken_over(&self) -> bool {
        self.is_taken_over
    }

    /// Refuses one that is not.
    pub(crate) fn require_taken_over(&self) -> Result<(), ReadError> {
        if self.is_taken_over {
            return Ok(());
        }
        Err(ReadError::Foreign(format!(
            "the database {} is not yet taken over: start `shiftboss serve` on it; `status` can show it as it is",
            self.path.display()
        )))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn connection(&self) -> &Connection {
        &self.connection
    }
}

/// Opens a supervisor's database read-only, whether or not it is taken over.
pub fn open_to_read(path: &Path) -> Result<Connection, ReadError> {
    let connection = open(path)?;
    is_ours(path, &connection).map(|_| connection)
}

fn open(path: &Path) -> Result<Connection, ReadError> {
    require_files(path)?;
    try_to_read(path, "mode=ro").or_else(|source| not_opened(path, source))
}

/// If not, it is the Python supervisor's; others are refused.
fn is_ours(path: &Path, connection: &Connection) -> Result<bool, ReadError> {
    match find_out(connection).map_err(failed(path))? {
        Whose::Ours => Ok(true),
        Whose::Supervisors => Ok(false),
        Whose::Nobodys => Err(ReadError::Foreign(format!(
            "the database {} is empty: give the path that `shiftboss serve` was given",
            path.display()
        ))),
        Whose::Refused(why) => {
            let text = format!("the database {} cannot be used: {why}", path.display());
            Err(ReadError::Foreign(text))
        }
    }
}

/// Interrupts queries once `patience` is over, and yields the processor at each check. A scheduler leaves even a
/// process of the lowest priority running for milliseconds, and a daemon that wakes up there, or its worker, would
/// wait.
fn end_after(connection: &mut Connection, patience: Duration) -> Result<()> {
    let end = Instant::now() + patience;
    let look = move || {
        thread::yield_now();
        Instant::now() > end
    };
    connection.progress_handler(STEPS_A_LOOK, Some(look))
}

pub(crate) fn failed(path: &Path) -> impl Fn(rusqlite::Error) -> ReadError {
    move |source| {
        if source.sqlite_error_code() == Some(ErrorCode::OperationInterrupted) {
            return ReadError::Unavailable(format!(
                "{} did not answer in time: it is slow, or very large",
                path.display()
            ));
        }
        ReadError::Failed(format!("cannot read the database {}: {source}", path.display()))
    }
}

/// Why a database was not opened as usual; or the database, if it can be opened in another way.
fn not_opened(path: &Path, source: rusqlite::Error) -> Result<Connection, ReadError> {
    if let Some(denied) = denied(path) {
        return Err(denied);
    }
    let shown = path.display();
    if !path.exists() {
        return Err(ReadError::Unavailable(format!(
            "there is no database {shown}, and no daemon with such a socket: give the database that \
             `shiftboss serve` was given"
        )));
    }
    match source.sqlite_error_code() {
        // SQLite would have had to make a file, or to write one, in order to read.
        Some(ErrorCode::CannotOpen | ErrorCode::ReadOnly) => {
            let logs = ["-wal", "-journal"].map(|end| beside(path, end));
            let Some(log) = logs.iter().find(|log| log.exists()) else {
                // It was closed in WAL mode: no process has it open, so it does not change meanwhile.
                return try_to_read(path, "mode=ro&immutable=1").map_err(failed(path));
            };
            // Its log must be replayed first, but this is a place where that cannot be done.
            Err(ReadError::Unavailable(format!(
                "cannot read the database {shown}: {source}. Its last writer did not finish, and what it left in \
                 {} can only be read where the directory is writable: start `shiftboss serve`, or run this as the \
                 daemon's user",
                log.display()
            )))
        }
        Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => {
            Err(ReadError::Corrupt(format!(
                "{shown} is no sound SQLite database ({source}): give another path, restore a backup, or save what \
                 can be read with `shiftboss move --salvage {shown} NEW`"
            )))
        }
        _ => Err(failed(path)(source)),
    }
}

/// What this user may not read of a database: it, a file that belongs to it, or a directory on the way there. Nothing
/// is opened: closing it again would drop the locks that this process may have on it.
fn denied(path: &Path) -> Option<ReadError> {
    let may_not = |file: &PathBuf| access(file, Access::READ_OK) == Err(Errno::ACCESS);
    let file = files(path).into_iter().find(may_not)?;
    // If even its metadata cannot be read, a directory on the way may not be entered.
    let (place, found) =
        file.ancestors().find_map(|place| Some((place, place.metadata().ok()?)))?;
    Some(ReadError::Denied(format!(
        "this user may not read {}, which belongs to the user {}: run this as that user or as root, or have the \
         daemon make what others may read (UMask=0022 in its unit)",
        place.display(),
        found.uid()
    )))
}

/// A database, and what SQLite keeps beside it.
fn files(path: &Path) -> [PathBuf; 4] {
    ["", "-wal", "-journal", "-shm"].map(|end| beside(path, end))
}

/// Refuses what SQLite would wait for or read without end: a pipe or a device in the place of a database, or beside it.
pub fn require_files(database: &Path) -> Result<(), ReadError> {
    // SQLite keeps its files beside the target of a link. If that cannot be resolved, opening it will fail.
    let path = std::fs::canonicalize(database).unwrap_or_else(|_| database.to_owned());
    let is_other = |file: &PathBuf| file.metadata().is_ok_and(|found| !found.is_file());
    files(&path).into_iter().find(is_other).map_or(Ok(()), |file| {
        Err(ReadError::Foreign(format!(
            "{} is no regular file: give the path of the database that `shiftboss serve` was given",
            file.display()
        )))
    })
}

fn try_to_read(path: &Path, parameters: &str) -> Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
    // Every byte is escaped: none has a meaning in a URI.
    let bytes = path.as_os_str().as_encoded_bytes().iter();
    let escaped: String = bytes.map(|byte| format!("%{byte:02X}")).collect();
    let connection = Connection::open_with_flags(format!("file:{escaped}?{parameters}"), flags)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
    // Without this a statement is prepared anew for each new value: with many keys that would cost more than everything
    // else.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    connection.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()))?;
    Ok(connection)
}
