//! What PostgreSQL says, classified by consequence. Used by all that asks the server.

use std::borrow::Cow;
use std::error::Error as _;

use shiftboss_actors::store::StoreError;
use tokio_postgres::Error;
use tokio_postgres::error::{Severity, SqlState};

/// Raised by the function `fence`: this daemon was taken for dead, or another one joined under its name. Classified as
/// `Rejected` with this text.
pub(super) const FENCED: &str = "SB001";

/// What a daemon says that was.
pub(super) fn fenced() -> StoreError {
    StoreError::Busy("this daemon was taken for dead: it joins the queue anew".to_owned())
}

/// Raised by the function `require_here`, with what to do.
const ELSEWHERE: &str = "SB002";

/// Where the password comes from.
const PASSWORD: &str = "it is taken from the URL, else from PGPASSWORD, else from the file that PGPASSFILE names (~/.pgpass), which nobody else may read";

/// Classifies an error: one batch's, or the end of the store.
pub(super) fn classify(error: Error) -> StoreError {
    if let Some(answer) = error.as_db_error().filter(|answer| answer.code().code() == ELSEWHERE) {
        return StoreError::Fatal(answer.message().to_owned());
    }
    let text = in_words(&error);
    // Without a code it is the connection's, not the server's answer.
    match error.code() {
        None => StoreError::Busy(format!("the connection to the server failed: {text}")),
        Some(state) => answered(state, format!("the server answered: {text}")),
    }
}

fn answered(state: &SqlState, text: String) -> StoreError {
    match state.code() {
        FENCED => StoreError::Rejected(FENCED.to_owned()),
        // Data corrupted; an index corrupted.
        "XX001" | "XX002" => StoreError::Corrupt(text),
        // Others use all connections that the server allows.
        "53300" => StoreError::Busy(text),
        code if *state == SqlState::DISK_FULL || code.starts_with("53") => StoreError::Full(text),
        // A connection's fault, a server that only reads, a deadlock, a lock that was not to be had, a server that stops or
        // starts.
        code if ["08", "25", "40", "55", "57"].iter().any(|class| code.starts_with(class)) => {
            StoreError::Busy(text + &remedy(code))
        }
        _ if *state == SqlState::INSUFFICIENT_PRIVILEGE => {
            StoreError::Denied(text + ": the role needs that right")
        }
        code => StoreError::Fatal(text + &remedy(code)),
    }
}

/// Why there is no connection, and what to do. A server that is not there now may come.
pub(super) fn unconnected(server: &str, error: &Error) -> StoreError {
    let why = in_words(error);
    let why = why.strip_prefix("error connecting to server: ").unwrap_or(&why);
    let text = format!("cannot connect to {server}: {why}");
    match error.code() {
        None if why.contains("password missing") => StoreError::Fatal(format!(
            "cannot connect to {server}: the server wants a password, and none was found; {PASSWORD}"
        )),
        None => match untrusted(why) {
            // It may be a replica that is not meant, or a server that has no process left to say more.
            Some(remedy) => StoreError::Busy(text + remedy),
            None => StoreError::Busy(text + ": see whether the server runs, and listens there"),
        },
        Some(state) if *state == SqlState::INSUFFICIENT_PRIVILEGE => {
            StoreError::Fatal(text + ": the role needs CONNECT on the database")
        }
        Some(state) => answered(state, text),
    }
}

/// What to do where the server is not one to talk to as the URL wants.
fn untrusted(why: &str) -> Option<&'static str> {
    if why.contains("server does not support TLS") {
        return Some(": sslmode wants it, so set ssl = on at the server, with a certificate");
    }
    why.contains("invalid peer certificate").then_some(
        ": with sslmode=verify-full the host in the URL is one that the server's certificate names, and who signed that \
         is one of this machine's root certificates, or in the file that sslrootcert names",
    )
}

/// What somebody can do about an answer with this code.
fn remedy(code: &str) -> Cow<'static, str> {
    let remedy = match code {
        "25006" => {
            ": the server is a standby, or was made read-only; of several hosts the right one is found with target_session_attrs=read-write"
        }
        "28P01" => return format!("; the password is wrong: {PASSWORD}").into(),
        "28000" => ": see the server's pg_hba.conf, and whether the role exists",
        "3D000" => ": make it first, with encoding UTF8 (CREATE DATABASE)",
        // Something of the schema is not there, or is another than was made.
        code if code.starts_with("42") => {
            ": the schema shiftboss was altered: undo that, or restore a backup of it; a pooler between must be in session mode"
        }
        _ => "",
    };
    remedy.into()
}

/// Whether nothing of a call has happened; else that is not known. Of a backend that ended it is not: a server that cannot
/// write its log in the middle of a commit panics, and may find that commit when it recovers.
pub(super) fn is_undone(error: &Error) -> bool {
    error.as_db_error().is_some_and(|answer| answer.parsed_severity() == Some(Severity::Error))
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

/// An answer that is none to what was asked.
pub(super) fn misunderstood(text: &str) -> StoreError {
    StoreError::Fatal(format!(
        "the functions of the schema shiftboss are not those of this version: {text}"
    ))
}
