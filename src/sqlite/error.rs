//! What SQLite says, sorted by consequence. Used by the store's operations.

use rusqlite::{Error, ErrorCode};
use shiftboss_actors::store::StoreError;

/// Sorts an error: one request's, or the end of the store.
pub fn sorted(error: Error) -> StoreError {
    let text = error.to_string();
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => StoreError::Busy(text),
        // The database is open already: it is a temporary file that could not be opened, for want
        // of descriptors or space. A database that vanished is told by its identity.
        Some(ErrorCode::DiskFull | ErrorCode::CannotOpen) => StoreError::Full(text),
        Some(ErrorCode::ConstraintViolation | ErrorCode::TooBig | ErrorCode::TypeMismatch) => {
            StoreError::Rejected(text)
        }
        // An I/O error, corruption, a read-only or vanished file, and what ought not to happen.
        _ => StoreError::Fatal(text),
    }
}
