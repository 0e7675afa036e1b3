//! The port [`Reader`]: questions about the queue, each answered on a connection of its own as of one moment.
//!
//! For commands that look, and for operators' connections. It blocks, and has a runtime for each question.

use shiftboss_actors::store::answers::{Log, Next, Queue, QueueStatus, Tasks, Turn, Why};
use shiftboss_actors::store::{
    EndedAttempts, ReadError, ReadResult, Reader, StoreError, TasksWith,
};
use shiftboss_protocol::model::{Key, UnixSeconds};
use tokio::runtime::Builder;
use tokio_postgres::Client;

use super::connection::{Connection, Server};
use super::error::classify;

/// Keys that can be asked for at once.
const QUEUE_MAX: usize = 10_000;

/// Asks one server.
pub(crate) struct PostgresReader(pub(crate) Server);

impl PostgresReader {
    fn ask<T>(
        &self,
        question: impl AsyncFnOnce(&Client) -> Result<T, tokio_postgres::Error>,
    ) -> ReadResult<T> {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| ReadError::Failed(error.to_string()))?;
        runtime.block_on(async {
            let Connection { client, .. } = &self.0.connect().await.map_err(read_error)?;
            let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";
            client.batch_execute(begin).await.map_err(|error| read_error(classify(error)))?;
            question(client).await.map_err(|error| read_error(classify(error)))
        })
    }
}

fn read_error(error: StoreError) -> ReadError {
    match error {
        StoreError::Busy(text) => ReadError::Unavailable(text),
        StoreError::Corrupt(text) => ReadError::Corrupt(text),
        error => ReadError::Failed(error.to_string()),
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

const NEXT: &str = "SELECT k.key, f.name, chosen.run_started, l.started, chosen.dispatched, chosen.payload
    FROM ready r JOIN log l USING (key_id) JOIN keys k USING (key_id)
    CROSS JOIN LATERAL choose(r.key_id, deleting_runs()) AS chosen JOIN fetchers f ON f.fetcher = chosen.fetcher
    WHERE l.finished IS NOT NULL OR l.started IS NULL
        OR l.started + (SELECT min(policy_lease) FROM daemons) < now_ms() / 1000
    ORDER BY r.started, r.place LIMIT $1";

async fn next_jobs(client: &Client, count: usize) -> Result<Queue, tokio_postgres::Error> {
    let count = i64::try_from(count.clamp(1, QUEUE_MAX)).unwrap_or(i64::MAX);
    let keys = client.query(NEXT, &[&count]).await?;
    let keys = keys.iter().map(|row| Next {
        key: text(row.get(0)),
        fetcher: row.get(1),
        run: row.get(2),
        last_started: row.get(3),
        again: row.get(4),
        payload: text(row.get(5)),
    });
    let keys = keys.collect();
    let paused = client.query_one("SELECT paused FROM state", &[]).await?.get(0);
    Ok(Queue { paused, keys, truncated: false })
}

impl Reader for PostgresReader {
    fn status(&self, _: UnixSeconds) -> ReadResult<QueueStatus> {
        todo!()
    }

    fn why(&self, _: UnixSeconds, _: &str) -> ReadResult<Option<Why>> {
        todo!()
    }

    fn next_jobs(&self, _: UnixSeconds, count: usize) -> ReadResult<Queue> {
        self.ask(async |client| next_jobs(client, count).await)
    }

    fn ended_attempts(&self, _: &EndedAttempts) -> ReadResult<Log> {
        todo!()
    }

    fn tasks(&self, _: UnixSeconds, _: &TasksWith) -> ReadResult<Tasks> {
        todo!()
    }

    fn turns(&self, _: UnixSeconds, _: &[Key]) -> ReadResult<Vec<Turn>> {
        todo!()
    }
}
