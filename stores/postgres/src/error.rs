//! PostgreSQL's errors, classified by consequence. Used by everything that asks the server, here and in the program.

use std::error::Error as _;

use shiftboss_queue::records::StoreError;
use tokio_postgres::Error;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{WasNull, WrongType};

/// Where the password comes from.
pub const PASSWORD: &str = "it is taken from the URL, else from PGPASSWORD, else from the file that PGPASSFILE names (~/.pgpass), which nobody else may read";

/// Classifies an error: one batch's, or the end of the store.
pub fn classify(error: Error) -> StoreError {
    let text = in_words(&error);
    if error.source().is_some_and(|it| it.is::<WasNull>() || it.is::<WrongType>()) {
        return odd(text);
    }
    // Without a code it is an error of the connection, not the server's answer.
    match error.code() {
        None => StoreError::Busy(format!("the connection to the server failed: {text}")),
        Some(state) => answered(state, format!("the server answered: {text}")),
    }
}

/// A value that was not written by any build of this version.
pub(crate) fn odd(text: impl Into<String>) -> StoreError {
    let text = text.into();
    StoreError::Corrupt(format!(
        "the schema shiftboss has a value that no daemon wrote ({text}): put it right, or restore a backup"
    ))
}

/// The consequence of an answer with a code.
pub fn answered(state: &SqlState, text: String) -> StoreError {
    match state.code() {
        // Data corrupted; an index corrupted.
        "XX001" | "XX002" => StoreError::Corrupt(text),
        // Other clients use all connections that the server allows.
        "53300" => StoreError::Busy(text),
        code if code.starts_with("53") => StoreError::Full(text),
        // A fault of the connection, a read-only server, a deadlock, a lock that was not available, a server that stops
        // or starts.
        code if ["08", "25", "40", "55", "57"].iter().any(|class| code.starts_with(class)) => {
            StoreError::Busy(text + &remedy(code))
        }
        _ if *state == SqlState::INSUFFICIENT_PRIVILEGE => {
            StoreError::Denied(text + ": the role needs that right")
        }
        code => StoreError::Fatal(text + &remedy(code)),
    }
}

/// What to do about an answer with this code.
fn remedy(code: &str) -> String {
    match code {
        "25006" => {
            ": the server is a standby, or was made read-only; of several hosts the right one is found with target_session_attrs=read-write"
        }
        "28P01" => return format!("; the password is wrong: {PASSWORD}"),
        "28000" => ": see the server's pg_hba.conf, and whether the role exists",
        "3D000" => ": make it first, with encoding UTF8 (CREATE DATABASE)",
        // Part of the schema is missing, or differs from what was made.
        code if code.starts_with("42") => {
            ": the schema shiftboss was altered: undo that, or restore a backup of it; a pooler between must be in session mode"
        }
        _ => "",
    }
    .to_owned()
}

/// With its causes, which the library's own text leaves out.
pub fn in_words(error: &Error) -> String {
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
