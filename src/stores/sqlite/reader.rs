//! Reading a database, for `status`, `backup` and whoever else only reads: opening it, and consistent snapshots.
//!
//! A reader needs no write access to the file or its directory, makes no file, and disturbs no
//! daemon.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OpenFlags, Result};
use rustix::fs::{Access, access};
use rustix::io::Errno;
use thiserror::Error;

use super::file::beside;
use super::options::Policy;
use super::records::state;
use super::schema;

/// How long a reader waits for a lock; in WAL mode it never has to.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// Why a database cannot be looked at.
#[derive(Debug, Error)]
pub(crate) enum ViewError {
    #[error(
        "there is no database {0}, and no daemon with such a socket: give the database that `shiftboss serve` was given"
    )]
    Missing(PathBuf),
    /// There, and not for this user.
    #[error(
        "this user may not read {path}, which belongs to the user {owner}: run this as that user or as root, or have the daemon make what others may read (UMask=0022 in its unit)"
    )]
    Denied {
        /// The database, a file that belongs to it, or a directory on the way there.
        path: PathBuf,
        /// Its owner's number.
        owner: u32,
    },
    #[error(
        "{0} is not the database of a supervisor: give the path that `shiftboss serve` was given"
    )]
    Foreign(PathBuf),
    #[error(
        "the database {path} has version {version}, this program knows versions up to {}: use the newer shiftboss that wrote it",
        schema::VERSION
    )]
    Newer { path: PathBuf, version: i64 },
    /// Last used by the Python supervisor, or by an older shiftboss.
    #[error(
        "the database {path} has version {version}, and is not yet taken over: start `shiftboss serve` on it; `status` can show it as it is"
    )]
    NotTakenOver { path: PathBuf, version: i64 },
    /// A log that must be replayed first, in a place where that cannot be done.
    #[error(
        "cannot read the database {path}: {source}. Its last writer did not finish, and what it left in {log} can only be read where the directory is writable: start `shiftboss serve`, or run this as the daemon's user"
    )]
    Unrecovered { path: PathBuf, log: PathBuf, source: rusqlite::Error },
    /// Not a database, or one with wrong pages.
    #[error(
        "{path} is no sound SQLite database ({source}): give another path, restore a backup, or save what can be read with `shiftboss recover {path} NEW`"
    )]
    Unsound { path: PathBuf, source: rusqlite::Error },
    #[error("cannot read the database {path}: {source}")]
    Sqlite { path: PathBuf, source: rusqlite::Error },
}

/// Opens a supervisor's database for reading alone.
pub(crate) fn open_to_read(path: &Path) -> Result<Connection, ViewError> {
    let connection = try_to_read(path, "mode=ro").or_else(|source| not_opened(path, source))?;
    for table in schema::PUBLIC_TABLES {
        let has_table = schema::has_table(&connection, table);
        if !has_table.map_err(|source| ViewError::Sqlite { path: path.to_owned(), source })? {
            return Err(ViewError::Foreign(path.to_owned()));
        }
    }
    Ok(connection)
}

/// Asks a database of any version that is known, in one read transaction: `ask` is given the version, too.
pub(super) fn read<T>(
    path: &Path,
    ask: impl FnOnce(&Connection, i64) -> Result<T>,
) -> Result<T, ViewError> {
    let connection = open_to_read(path)?;
    let failed = |source| ViewError::Sqlite { path: path.to_owned(), source };
    let snapshot = connection.unchecked_transaction().map_err(failed)?;
    match schema::version(&snapshot).map_err(failed)? {
        version if version > schema::VERSION => {
            Err(ViewError::Newer { path: path.to_owned(), version })
        }
        version => ask(&snapshot, version).map_err(failed),
    }
}

/// Asks a database that a shiftboss of this version has taken over.
pub(super) fn read_current<T>(
    path: &Path,
    ask: impl FnOnce(&Connection) -> Result<T>,
) -> Result<T, ViewError> {
    let older = |version| ViewError::NotTakenOver { path: path.to_owned(), version };
    read(path, |snapshot, version| match version {
        schema::VERSION => ask(snapshot).map(Ok),
        version => Ok(Err(older(version))),
    })?
}

/// The policy of the daemon that runs, or ran last.
pub(super) fn policy(snapshot: &Connection) -> Result<Policy> {
    if state(snapshot, "policy")?.as_deref() == Some("classic") {
        return Ok(Policy::Classic);
    }
    let lease = state(snapshot, "lease")?.and_then(|text| text.parse().ok());
    Ok(Policy::Fair { lease_seconds: lease.unwrap_or_else(|| Policy::Classic.lease()) })
}

/// Why a database was not opened as usual; or the database, where it can be opened otherwise.
fn not_opened(path: &Path, source: rusqlite::Error) -> Result<Connection, ViewError> {
    let owned = || path.to_owned();
    if let Some(denied) = denied(path) {
        return Err(denied);
    }
    if !path.exists() {
        return Err(ViewError::Missing(owned()));
    }
    if !path.is_file() {
        return Err(ViewError::Foreign(owned()));
    }
    match source.sqlite_error_code() {
        // SQLite would have had to make a file, or to write one, in order to read.
        Some(ErrorCode::CannotOpen | ErrorCode::ReadOnly) => match log_beside(path) {
            Some(log) => Err(ViewError::Unrecovered { path: owned(), log, source }),
            // Left in WAL mode and closed: nobody has it open, so it stays as it is meanwhile.
            None => try_to_read(path, "mode=ro&immutable=1")
                .map_err(|source| ViewError::Sqlite { path: owned(), source }),
        },
        Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => {
            Err(ViewError::Unsound { path: owned(), source })
        }
        _ => Err(ViewError::Sqlite { path: owned(), source }),
    }
}

/// What this user may not read of a database. Nothing is opened: closing it again would drop the locks
/// that this process may have on it.
fn denied(path: &Path) -> Option<ViewError> {
    let files = ["", "-wal", "-journal", "-shm"].map(|end| beside(path, end));
    let may_not = |file: &&PathBuf| access(*file, Access::READ_OK) == Err(Errno::ACCESS);
    let file = files.iter().find(may_not)?;
    // One that cannot even be looked at is behind a directory that may not be entered.
    let seen = |place: &Path| Some((place.to_owned(), place.metadata().ok()?.uid()));
    let (path, owner) = file.ancestors().find_map(seen)?;
    Some(ViewError::Denied { path, owner })
}

/// A log that holds what the main file does not.
fn log_beside(path: &Path) -> Option<PathBuf> {
    ["-wal", "-journal"].map(|end| beside(path, end)).into_iter().find(|log| log.exists())
}

fn try_to_read(path: &Path, parameters: &str) -> Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
    let connection =
        Connection::open_with_flags(format!("file:{}?{parameters}", uri(path)), flags)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()))?;
    Ok(connection)
}

/// A path as part of a URI: what has a meaning there is escaped.
fn uri(path: &Path) -> String {
    let mut out = String::new();
    for byte in path.as_os_str().as_encoded_bytes() {
        if byte.is_ascii_alphanumeric() || b"/._-".contains(byte) {
            out.push(char::from(*byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}
