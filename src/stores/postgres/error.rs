//! What PostgreSQL says, classified by consequence. Used by all that asks the server.

use std::error::Error as _;

use shiftboss_actors::store::StoreError;
use tokio_postgres::Error;
use tokio_postgres::error::SqlState;

/// Raised by the function `fence`: this daemon was taken for dead, or another one joined under its name. Classified as
/// `Rejected` with this text.
pub(super) const FENCED: &str = "SB001";

/// Classifies an error: one batch's, or the end of the store.
pub(super) fn classify(error: Error) -> StoreError {
    let text = in_words(&error);
    let Some(state) = error.code() else {
        // The connection, not the server's answer.
        return StoreError::Busy(text);
    };
    match state.code() {
        FENCED => {
            StoreError::Fatal("another daemon took this one's name: give each its own".to_owned())
        }
        // Data corrupted; an index corrupted.
        "XX001" | "XX002" => StoreError::Corrupt(text),
        code if *state == SqlState::DISK_FULL || code.starts_with("53") => StoreError::Full(text),
        // A connection's fault, a deadlock, a lock that was not to be had, a server that stops or starts.
        code if ["08", "40", "55", "57"].iter().any(|class| code.starts_with(class)) => {
            StoreError::Busy(text)
        }
        _ => StoreError::Fatal(text),
    }
}

/// Whether nothing of a call has happened; else that is not known. Of a backend that was ended it is not.
pub(super) fn is_undone(error: &Error) -> bool {
    error
        .code()
        .is_some_and(|state| !state.code().starts_with("57") && !state.code().starts_with("08"))
}

/// With its causes, which the library's own text leaves out.
pub(super) fn in_words(error: &Error) -> String {
    if let Some(answer) = error.as_db_error() {
        return answer.to_string();
    }
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
