//! The port [`Reader`]: questions about the queue, each answered on a connection of its own, in one read-only
//! transaction of one snapshot, which waits for no lock for long: how it stands ([`status`]), where a key is ([`mod@why`]),
//! what is next ([`mod@queue`]), what ended ([`log`]), one by one and summed up ([`stats`]), which tasks have a status ([`mod@tasks`]).
//!
//! For commands that look, and for operators' connections. It blocks, and has a runtime for each question. Time is the
//! server's. Jobs of classic workers whose lease is over are in the order once a daemon has seen to them, each second.

mod daemons;
mod log;
mod queue;
mod stats;
mod status;
mod tasks;
mod why;

use std::time::Duration;

use shiftboss_actors::store::answers::{Log, Queue, QueueStatus, Stats, Tasks, Turn, Why};
use shiftboss_actors::store::{
    EndedAttempts, ReadError, ReadResult, Reader, StatsOf, StoreError, TasksWith,
};
use shiftboss_protocol::model::{Key, UnixSeconds};
use tokio::runtime::Builder;
use tokio::time::timeout;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Error, Row};

use super::connection::Server;
use super::error::classify;
use super::schema;
use crate::stores::mark::Mark;

/// A transaction for looking. An administrator who locks a table, or a migration, is not waited for.
const BEGIN: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;
    SET LOCAL lock_timeout = '1s'; SET LOCAL statement_timeout = '20s'";
/// The longest time for a question, whatever the server does.
const QUESTION_MAX: Duration = Duration::from_secs(30);

/// Asks one server.
pub(crate) struct PostgresReader(pub(crate) Server);

/// One moment of a queue.
struct Snapshot<'a> {
    client: &'a Client,
    version: usize,
    now: UnixSeconds,
    is_paused: bool,
    moved_to: Option<String>,
    /// The daemon that joined last, if there ever was one.
    daemon: Option<Daemon>,
    /// Runs that are being deleted: their rows count as gone.
    deleting: Vec<i32>,
}

/// What a daemon noted of itself.
struct Daemon {
    lease: i64,
    max_tasks: i64,
    lost_since: Option<UnixSeconds>,
    lost_reason: Option<String>,
    pid: Option<i64>,
    started: Option<UnixSeconds>,
    /// Its last sign of life.
    beat_at: UnixSeconds,
}

impl PostgresReader {
    fn ask<T>(
        &self,
        question: impl AsyncFnOnce(&Snapshot<'_>) -> Result<T, Error>,
    ) -> ReadResult<T> {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| ReadError::Failed(error.to_string()))?;
        runtime.block_on(async {
            let connection = self.0.connect().await.map_err(of_store)?;
            let answer = async {
                let snapshot = self.snapshot(&connection.client).await?;
                question(&snapshot).await.map_err(read_error)
            };
            timeout(QUESTION_MAX, answer).await.unwrap_or_else(|_| {
                let seconds = QUESTION_MAX.as_secs();
                Err(ReadError::Unavailable(format!(
                    "{} did not answer within {seconds} s",
                    self.0.url()
                )))
            })
        })
    }

    async fn snapshot<'a>(&self, client: &'a Client) -> ReadResult<Snapshot<'a>> {
        client.batch_execute(BEGIN).await.map_err(read_error)?;
        let version = schema::version(client).await.map_err(of_store)?;
        if version == 0 {
            return Err(ReadError::Unavailable(format!(
                "there is no queue in {}: start `shiftboss serve` on it",
                self.0.url()
            )));
        }
        Snapshot::load(client, version).await.map_err(read_error)
    }
}

const STATE: &str = "SELECT now_ms() / 1000, paused, deleting_runs(), moved FROM state";
/// No relay, which has a process (see [`daemons`]).
const DAEMON: &str =
    "SELECT policy_lease, max_tasks, lost_since, lost_reason, pid, started, beat_at FROM daemons d
    WHERE to_jsonb(d) ->> 'process' IS NULL ORDER BY started DESC NULLS LAST, daemon DESC LIMIT 1";

impl<'a> Snapshot<'a> {
    async fn load(client: &'a Client, version: usize) -> Result<Self, Error> {
        let state = client.query_one(STATE, &[]).await?;
        let daemon = client.query_opt(DAEMON, &[]).await?.map(|row| Daemon {
            lease: row.get(0),
            max_tasks: row.get(1),
            lost_since: row.get(2),
            lost_reason: row.get(3),
            pid: row.get(4),
            started: row.get(5),
            beat_at: row.get(6),
        });
        let (now, is_paused, deleting) = (state.get(0), state.get(1), state.get(2));
        let moved_to = state.get::<_, Option<&str>>(3).map(|mark| Mark::parse(mark).place);
        Ok(Self { client, version, now, is_paused, moved_to, daemon, deleting })
    }

    /// How long a classic job may be out, in seconds.
    fn lease(&self) -> i64 {
        self.daemon.as_ref().map_or(0, |daemon| daemon.lease)
    }

    /// A key whose dispatch is older than this has no lease.
    fn expired(&self) -> UnixSeconds {
        self.now.saturating_sub(self.lease())
    }

    async fn rows<T>(
        &self,
        sql: &str,
        values: &[&(dyn ToSql + Sync)],
        read: impl FnMut(&Row) -> T,
    ) -> Result<Vec<T>, Error> {
        Ok(self.client.query(sql, values).await?.iter().map(read).collect())
    }
}

/// An error of a question.
fn read_error(error: Error) -> ReadError {
    if error.code() == Some(&SqlState::INSUFFICIENT_PRIVILEGE) {
        return ReadError::Denied(super::error::in_words(&error));
    }
    match classify(error) {
        StoreError::Fatal(text) => ReadError::Failed(text),
        error => of_store(error),
    }
}

/// One of connecting, or of the schema.
fn of_store(error: StoreError) -> ReadError {
    match error {
        StoreError::Busy(text) => ReadError::Unavailable(text),
        StoreError::Corrupt(text) => ReadError::Corrupt(text),
        StoreError::Fatal(text) => ReadError::Foreign(text),
        error => ReadError::Failed(error.to_string()),
    }
}

/// Keys and payloads are bytes there.
fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn limit(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

impl Reader for PostgresReader {
    fn status(&self, _: UnixSeconds) -> ReadResult<QueueStatus> {
        self.ask(async |snapshot| status::status(snapshot).await)
    }

    fn why(&self, _: UnixSeconds, key: &str) -> ReadResult<Option<Why>> {
        self.ask(async |snapshot| why::why(snapshot, key).await)
    }

    fn next_jobs(&self, _: UnixSeconds, count: usize) -> ReadResult<Queue> {
        self.ask(async |snapshot| queue::queue(snapshot, count).await)
    }

    fn ended_attempts(&self, asked: &EndedAttempts) -> ReadResult<Log> {
        self.ask(async |snapshot| log::log(snapshot, asked).await)
    }

    fn tasks(&self, _: UnixSeconds, asked: &TasksWith) -> ReadResult<Tasks> {
        self.ask(async |snapshot| tasks::tasks(snapshot, asked).await)
    }

    fn stats(&self, asked: &StatsOf) -> ReadResult<Stats> {
        self.ask(async |snapshot| stats::stats(snapshot, asked).await)
    }

    fn turns(&self, _: UnixSeconds, keys: &[Key]) -> ReadResult<Vec<Turn>> {
        self.ask(async |snapshot| queue::turns(snapshot, keys).await)
    }
}
