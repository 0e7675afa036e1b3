//! Why there is no connection to a server, and what to do. What the server answers is classified in the crate of its records.

use shiftboss_postgres::error::{PASSWORD, answered};
pub(super) use shiftboss_postgres::error::{classify, in_words};
use shiftboss_queue::error::StoreError;
use tokio_postgres::Error;
use tokio_postgres::error::SqlState;

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
