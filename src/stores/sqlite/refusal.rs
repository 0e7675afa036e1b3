//! Why a database is refused when it is opened, with what to do about it (spec 6).
//!
//! Made by `open` and `file`; `serve` maps each to an exit code.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use super::schema;

/// Why a database cannot be used. Each says what to do.
#[derive(Debug, Error)]
#[allow(missing_docs)] // The messages say it.
pub enum OpenError {
    #[error(
        "cannot {doing} the database {path}: {source}; the daemon's user needs to read and write the file and its directory"
    )]
    Access { doing: &'static str, path: PathBuf, source: io::Error },
    /// No bytes where a database was.
    #[error(
        "the database {0} is empty (0 bytes): it was cut off or emptied. Restore a backup; to begin anew, remove the file"
    )]
    Emptied(PathBuf),
    #[error(
        "the database {path} is a link to {target}, where nothing is: mount or restore what it leads to, or remove the link; nothing was changed"
    )]
    LinkToNowhere { path: PathBuf, target: PathBuf },
    #[error("{0} is not an SQLite database: give another path; nothing was changed")]
    NotADatabase(PathBuf),
    #[error(
        "{path} is an SQLite database of another program ({what}): give another path; nothing was changed"
    )]
    Foreign { path: PathBuf, what: String },
    #[error(
        "the database {path} has version {version}, this program knows versions up to {}: use the newer shiftboss that wrote it; nothing was changed",
        schema::VERSION
    )]
    Newer { path: PathBuf, version: i64 },
    /// A version of builds before the first release.
    #[error(
        "the database {path} has version {version} with the tables of an unreleased build before version 5, which this program does not upgrade: start a build of version 5 or 6 on it first; or move the file away, and all lists are read again into a new one; nothing was changed"
    )]
    TooOld { path: PathBuf, version: i64 },
    /// Pages or rows are missing or wrong.
    #[error(
        "the database {path} is corrupt ({what}). Restore a backup, or save what can be read with `shiftboss recover {path} NEW`; nothing was changed"
    )]
    Corrupt { path: PathBuf, what: String },
    /// A daemon found it corrupt while it used it.
    #[error(
        "the database {path} was found to be corrupt ({note}), and is not used until it is known to be sound: `shiftboss check --database {path}` looks; `shiftboss recover {path} NEW` saves what can be read; or restore a backup"
    )]
    Marked { path: PathBuf, note: String },
    #[error("cannot {doing} the database {path}: {source}")]
    Sqlite { doing: &'static str, path: PathBuf, source: rusqlite::Error },
    #[error(
        "built with SQLite {0}, which can corrupt databases in WAL mode: build with 3.51.3 or newer"
    )]
    OldLibrary(String),
}

pub(super) fn access(doing: &'static str, path: &Path, source: io::Error) -> OpenError {
    OpenError::Access { doing, path: path.to_owned(), source }
}

pub(super) fn foreign(path: &Path, what: String) -> OpenError {
    OpenError::Foreign { path: path.to_owned(), what }
}

pub(super) fn failed(
    doing: &'static str,
    path: &Path,
) -> impl FnOnce(rusqlite::Error) -> OpenError {
    let path = path.to_owned();
    move |source| match source.sqlite_error_code() {
        Some(rusqlite::ErrorCode::DatabaseCorrupt) => {
            OpenError::Corrupt { path, what: source.to_string() }
        }
        Some(rusqlite::ErrorCode::NotADatabase) => OpenError::NotADatabase(path),
        _ => OpenError::Sqlite { doing, path, source },
    }
}
