//! What PostgreSQL says, classified by consequence.

use std::error::Error as _;
use std::io;

use shiftboss_queue::records::StoreError;
use tokio_postgres::Error;
use tokio_postgres::error::SqlState;

/// Classifies an error: one batch's, or the end of the store.
pub(crate) fn classify(error: Error) -> StoreError {
    let text = in_words(&error);
    match error.code() {
        Some(state) => answered(state, format!("the server answered: {text}")),
        // Without a code it is the connection's, not the server's answer.
        None if error.is_closed() || error.source().is_some_and(|it| it.is::<io::Error>()) => {
            StoreError::Busy(format!("the connection to the server failed: {text}"))
        }
        None => odd(text),
    }
}

/// A value that no build of this version wrote.
pub(crate) fn odd(text: impl Into<String>) -> StoreError {
    StoreError::Corrupt(text.into())
}

fn answered(state: &SqlState, text: String) -> StoreError {
    match state.code() {
        // Data corrupted; an index corrupted.
        "XX001" | "XX002" => StoreError::Corrupt(text),
        // Others use all connections that the server allows.
        "53300" => StoreError::Busy(text),
        code if code.starts_with("53") => StoreError::Full(text),
        // A connection's fault, a server that only reads, a deadlock, a lock that was not to be had, a server that stops or starts.
        code if ["08", "25", "40", "55", "57"].iter().any(|class| code.starts_with(class)) => {
            StoreError::Busy(text)
        }
        _ => StoreError::Fatal(text),
    }
}

/// With its causes, which the library's own text leaves out.
fn in_words(error: &Error) -> String {
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
