//! Why a database is refused when it is opened, with what to do about it (spec 6): what more than one look finds. Made
//! by `open` and `file`.

use std::io;
use std::path::Path;

use rusqlite::ErrorCode;

use crate::exit::{ExitCode, Failure};

pub(super) fn access(doing: &str, path: &Path, source: io::Error) -> Failure {
    let path = path.display();
    let text = format!(
        "cannot {doing} the database {path}: {source}; the daemon's user needs to read and write the file and its directory"
    );
    Failure::new(ExitCode::CannotCreate, text)
}

/// Pages or rows are missing or wrong.
pub(super) fn corrupt(path: &Path, what: &str) -> Failure {
    let path = path.display();
    let text = format!(
        "the database {path} is corrupt ({what}). Restore a backup, or save what can be read with `shiftboss recover {path} NEW`; nothing was changed"
    );
    Failure::new(ExitCode::BadData, text)
}

/// It is not ours, or of a version that is none of ours; `why` says what to do.
pub(super) fn not_ours(why: String) -> Failure {
    Failure::new(ExitCode::Configuration, why + "; nothing was changed")
}

pub(super) fn not_a_database(path: &Path) -> Failure {
    not_ours(format!("{} is not an SQLite database: give another path", path.display()))
}

pub(super) fn foreign(path: &Path, what: &str) -> Failure {
    let path = path.display();
    not_ours(format!("{path} is an SQLite database of another program ({what}): give another path"))
}

pub(super) fn failed(doing: &str, path: &Path) -> impl FnOnce(rusqlite::Error) -> Failure {
    move |source| match source.sqlite_error_code() {
        Some(ErrorCode::DatabaseCorrupt) => corrupt(path, &source.to_string()),
        Some(ErrorCode::NotADatabase) => not_a_database(path),
        _ => {
            let text = format!("cannot {doing} the database {}: {source}", path.display());
            Failure::new(ExitCode::StoreIo, text)
        }
    }
}
