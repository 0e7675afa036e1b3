//! One question to the daemon about its queue, over a connection of its own, for what is shown to
//! people. The daemon tells nobody but its own user and root, and a classic one nobody at all.

use std::path::Path;

use serde_json::Value;
use shiftboss_protocol::wire::session::VERSION;

use super::connection::{ANSWER_TIMEOUT, Connection};

/// Asks a question of protocol 2 whose answer is one line of JSON; `None`: there is no such answer.
pub async fn ask(socket: &Path, question: &str) -> Option<Value> {
    let mut connection = Connection::open(socket).await.ok()?;
    connection.send(format!("HELLO {VERSION} progress\n{question}\n").as_bytes(), 2).await.ok()?;
    connection.line(ANSWER_TIMEOUT).await.ok()?;
    let answer = connection.line(ANSWER_TIMEOUT).await.ok()?;
    serde_json::from_slice(&answer).ok()
}
