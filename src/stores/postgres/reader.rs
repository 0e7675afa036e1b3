//! The port [`Reader`]: questions about the queue, each answered on a connection of its own, in one read-only
//! transaction of one snapshot, which waits for no lock for long: how it stands ([`status`]), where a key is ([`mod@why`]),
//! what is next ([`mod@queue`]), which keys there are ([`keys`]), what ended ([`log`]), one by one and summed up ([`stats`]), which tasks have a status ([`mod@tasks`]).
//!
//! For commands that look, and for operators' connections. It blocks, and has a runtime for each question, or for several of one moment. Time is the
//! server's. Jobs of classic workers whose lease is over are in the order once a daemon has seen to them, each second.

mod daemons;
mod keys;
mod log;
mod queue;
mod stats;
mod status;
mod tasks;
mod why;

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use shiftboss_actors::store::answers::{
    Ends, Found, HeldKeys, LastStarts, Log, MinuteJobs, Queue, QueueStatus, Stats, Tasks, Turn, Why,
};
use shiftboss_actors::store::{
    EndedAttempts, ReadError, ReadResult, Reader, StatsOf, StoreError, TasksWith,
};
use shiftboss_protocol::model::{Key, UnixSeconds};
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Error, Row};

use super::connection::{Connection, Server};
use super::error::classify;
use super::schema;

/// A transaction for looking. An administrator who locks a table, or a migration, is not waited for.
const BEGIN: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;
    SET LOCAL lock_timeout = '1s'";
/// Of one statement.
const STATEMENT_MAX_MS: u128 = 20_000;
/// The longest time for a question, whatever the server does.
const QUESTION_MAX: Duration = Duration::from_secs(30);

/// Asks one server.
pub(crate) struct PostgresReader {
    server: Server,
    /// How long a question may take; all of them, where they are of one moment.
    patience: Duration,
    glance: Option<Mutex<Option<Moment>>>,
}

/// A snapshot that is kept for more than one question, and what its connection runs on.
type Moment = (Runtime, Snapshot);

/// One moment of a queue.
struct Snapshot {
    connection: Connection,
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
    pub(crate) fn new(server: Server) -> Self {
        Self { server, patience: QUESTION_MAX, glance: None }
    }

    /// Connects once for all its questions, which are of one moment. Not for a reader that stays.
    pub(crate) fn glance(server: Server, patience: Duration) -> Self {
        Self { server, patience: patience.min(QUESTION_MAX), glance: Some(Mutex::default()) }
    }

    fn ask<T>(&self, question: impl AsyncFnOnce(&Snapshot) -> Result<T, Error>) -> ReadResult<T> {
        let Some(glance) = &self.glance else {
            let (runtime, snapshot) = self.moment()?;
            return self.in_time(&runtime, async { question(&snapshot).await.map_err(read_error) });
        };
        let mut moment = glance.lock().unwrap_or_else(PoisonError::into_inner);
        let (runtime, snapshot) = match &mut *moment {
            Some(moment) => moment,
            none => none.insert(self.moment()?),
        };
        self.in_time(runtime, async { question(snapshot).await.map_err(read_error) })
    }

    fn moment(&self) -> ReadResult<Moment> {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| ReadError::Failed(error.to_string()))?;
        let snapshot = self.in_time(&runtime, async {
            self.snapshot(self.server.connect().await.map_err(of_store)?).await
        })?;
        Ok((runtime, snapshot))
    }

    fn in_time<T>(
        &self,
        runtime: &Runtime,
        doing: impl Future<Output = ReadResult<T>>,
    ) -> ReadResult<T> {
        let done = runtime.block_on(async { timeout(self.patience, doing).await });
        done.unwrap_or_else(|_| {
            let seconds = self.patience.as_secs();
            let text = format!("{} did not answer within {seconds} s", self.server.url());
            Err(ReadError::Unavailable(text))
        })
    }

    async fn snapshot(&self, connection: Connection) -> ReadResult<Snapshot> {
        // The server ends what nobody waits for any more.
        let ms = self.patience.as_millis().min(STATEMENT_MAX_MS);
        let begin = format!("{BEGIN}; SET LOCAL statement_timeout = {ms}");
        let client = &connection.client;
        client.batch_execute(&begin).await.map_err(read_error)?;
        let version = schema::version(client).await.map_err(of_store)?;
        if version == 0 {
            return Err(ReadError::Unavailable(format!(
                "there is no queue in {}: start `shiftboss serve` on it",
                self.server.url()
            )));
        }
        Snapshot::load(connection, version).await.map_err(read_error)
    }
}

const STATE: &str = "SELECT now_ms() / 1000, paused, deleting_runs(), moved FROM state";
/// No relay, which has a process (see [`daemons`]).
const DAEMON: &str =
    "SELECT policy_lease, max_tasks, lost_since, lost_reason, pid, started, beat_at FROM daemons d
    WHERE to_jsonb(d) ->> 'process' IS NULL ORDER BY started DESC NULLS LAST, daemon DESC LIMIT 1";

impl Snapshot {
    async fn load(connection: Connection, version: usize) -> Result<Self, Error> {
        let client = &connection.client;
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
        let moved_to = state.get::<_, Option<&str>>(3);
        let moved_to = moved_to.and_then(|text| Some(text.split_once(' ')?.1.to_owned()));
        Ok(Self { connection, version, now, is_paused, moved_to, daemon, deleting })
    }

    fn client(&self) -> &Client {
        &self.connection.client
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
        Ok(self.client().query(sql, values).await?.iter().map(read).collect())
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
        StoreError::Denied(text) | StoreError::Fatal(text) | StoreError::Newer(text) => {
            ReadError::Foreign(text)
        }
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

    fn why(&self, _: UnixSeconds, key: &str, count_max: usize) -> ReadResult<Option<Why>> {
        self.ask(async |snapshot| why::why(snapshot, key, count_max).await)
    }

    fn next_jobs(&self, _: UnixSeconds, count: usize) -> ReadResult<Queue> {
        self.ask(async |snapshot| queue::queue(snapshot, count).await)
    }

    fn ended_attempts(&self, asked: &EndedAttempts) -> ReadResult<Log> {
        self.ask(async |snapshot| log::log(snapshot, asked).await)
    }

    fn ends_after(&self, after: Option<i64>, count: usize) -> ReadResult<Ends> {
        self.ask(async |snapshot| log::ends_after(snapshot, after, count).await)
    }

    fn tasks(&self, _: UnixSeconds, asked: &TasksWith) -> ReadResult<Tasks> {
        self.ask(async |snapshot| tasks::tasks(snapshot, asked).await)
    }

    fn jobs_by_minute(&self, _: UnixSeconds) -> ReadResult<Vec<MinuteJobs>> {
        self.ask(async |snapshot| status::jobs_by_minute(snapshot).await)
    }

    fn stats(&self, asked: &StatsOf) -> ReadResult<Stats> {
        self.ask(async |snapshot| stats::stats(snapshot, asked).await)
    }

    fn search(&self, prefix: &str, count: usize) -> ReadResult<Found> {
        self.ask(async |snapshot| keys::search(snapshot, prefix, count).await)
    }

    fn held(&self, count: usize) -> ReadResult<HeldKeys> {
        self.ask(async |snapshot| keys::held(snapshot, count).await)
    }

    fn last_starts(&self) -> ReadResult<LastStarts> {
        self.ask(async |snapshot| keys::last_starts(snapshot).await)
    }

    fn turns(&self, _: UnixSeconds, keys: &[Key]) -> ReadResult<Vec<Turn>> {
        self.ask(async |snapshot| queue::turns(snapshot, keys).await)
    }
}
