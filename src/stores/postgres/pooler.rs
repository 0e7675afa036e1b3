//! Whether a connection keeps its server process: behind a pooler that gives each transaction another one, settings, notices and
//! locks of a session are lost.
//!
//! Checked at the start by all code that uses more than one transaction. A pooler that gives each connection a process
//! of its own is acceptable.

use shiftboss_queue::error::{StoreError, StoreResult};
use tokio_postgres::{Client, SimpleQueryMessage};

use super::connection::{Server, limited};

/// How many looks: other users of the same pooler come in between.
const LOOKS: usize = 3;
/// PgBouncer's error for a transaction if it gives each statement another process.
const NO_TRANSACTIONS: &str = "transaction blocks not allowed";
const PROCESS: &str = "SELECT pg_backend_pid()";

/// A connection, if it has a process of its own.
pub(crate) async fn refuse(server: &Server) -> StoreResult<Client> {
    let (client, other) = (server.connect().await?, server.connect().await?);
    for _ in 0..LOOKS {
        let own = ask(&client, PROCESS).await?;
        // It keeps what it got until its transaction ends.
        let others = match ask(&other, &format!("BEGIN; {PROCESS}")).await {
            Err(StoreError::Busy(text)) if text.contains(NO_TRANSACTIONS) => own.clone(),
            others => others?,
        };
        if own == others || own != ask(&client, PROCESS).await? {
            return Err(StoreError::Fatal(format!(
                "between here and the server of {} is a pooler that gives each transaction another process of the server: set it to \
                 session mode (PgBouncer: pool_mode = session), or use the server's own address",
                server.url()
            )));
        }
        ask(&other, "ROLLBACK").await?;
    }
    Ok(client)
}

/// The value that statements return, if any; without a prepared statement, which such a pooler may lose.
async fn ask(client: &Client, statements: &str) -> StoreResult<Option<String>> {
    let messages = limited(client.simple_query(statements)).await?;
    Ok(messages.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
        _ => None,
    }))
}
