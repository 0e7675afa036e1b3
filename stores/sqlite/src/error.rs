//! SQLite's errors, classified by consequence.

use rusqlite::{Error, ErrorCode, ffi};
use rustix::process::{Resource, getrlimit};
use shiftboss_queue::records::StoreError;

pub fn classify(error: Error) -> StoreError {
    let text = error.to_string();
    if grows_shared_memory(&error) {
        return StoreError::Full(text);
    }
    if let Some(limit) = is_too_large(&error) {
        let why = "the limit on the size of files (RLIMIT_FSIZE, `ulimit -f`) is";
        return StoreError::Full(format!("{text}: {why} {limit} bytes"));
    }
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            StoreError::Busy(format!("the database cannot be used at present: {text}"))
        }
        // The database is open already: it is a temporary file that could not be opened, for want
        // of descriptors or space. A database that vanished is recognised by its identity.
        Some(ErrorCode::DiskFull | ErrorCode::CannotOpen) => StoreError::Full(text),
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => StoreError::Corrupt(text),
        // A value that was not written by any build of this version.
        None => StoreError::Corrupt(text),
        // An I/O error, a read-only or vanished file, and whatever should not happen.
        _ => StoreError::Fatal(format!("the database cannot be used any longer: {text}")),
    }
}

/// The log's index beside the database could not grow. SQLite calls that an I/O error, whatever the
/// reason; the usual one is a full disk, and the next try begins anew.
fn grows_shared_memory(error: &Error) -> bool {
    let code = error.sqlite_error().map(|error| error.extended_code);
    matches!(code, Some(ffi::SQLITE_IOERR_SHMSIZE | ffi::SQLITE_IOERR_SHMMAP))
}

/// The limit on the size of files, if there is one and a file could not be written: SQLite calls that an I/O error, too.
fn is_too_large(error: &Error) -> Option<u64> {
    let code = error.sqlite_error().map(|error| error.extended_code);
    getrlimit(Resource::Fsize).current.filter(|_| code == Some(ffi::SQLITE_IOERR_WRITE))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(code: i32) -> StoreError {
        classify(Error::SqliteFailure(ffi::Error::new(code), Some("why".to_owned())))
    }

    /// The daemon survives a full disk wherever it is met, but not a failing one.
    #[test]
    fn a_full_disk_is_told_from_a_failing_one() {
        for code in [ffi::SQLITE_FULL, ffi::SQLITE_IOERR_SHMSIZE, ffi::SQLITE_IOERR_SHMMAP] {
            assert!(matches!(said(code), StoreError::Full(_)), "{code}");
        }
        for code in [ffi::SQLITE_IOERR_FSYNC, ffi::SQLITE_IOERR_READ] {
            assert!(matches!(said(code), StoreError::Fatal(_)), "{code}");
        }
        for code in [ffi::SQLITE_CORRUPT, ffi::SQLITE_CORRUPT_INDEX, ffi::SQLITE_NOTADB] {
            assert!(matches!(said(code), StoreError::Corrupt(_)), "{code}");
        }
    }

    /// The text names the database.
    #[test]
    fn an_error_names_what_it_is_about() {
        for (code, text) in [
            (ffi::SQLITE_BUSY, "the database cannot be used at present: why"),
            (ffi::SQLITE_IOERR_FSYNC, "the database cannot be used any longer: why"),
        ] {
            assert_eq!(said(code).to_string(), text);
        }
    }
}
