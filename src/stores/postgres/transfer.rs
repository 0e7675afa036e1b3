//! Moving a queue to or from a server: with a lock that keeps daemons from joining meanwhile, and a check whether one
//! lives.
//!
//! For `shiftboss move`, which has no runtime: each call waits for its answer. It does not know what is moved.

use std::future::Future;
use std::time::Duration;

use shiftboss_protocol::model::UnixSeconds;
use shiftboss_queue::documents::{ARRIVING, Kind, MEMBER, MOVED};
use shiftboss_queue::error::{StoreError, StoreResult};
use shiftboss_queue::tables::Documents;
use tokio::runtime::{Builder, Runtime};
use tokio::time::sleep;
use tokio_postgres::{Client, Error};

use super::connection::{Server, limited};
use super::forget::wait_dead;
use super::pooler;
use super::schema;
use crate::exit::{ExitCode, Failure};
use crate::stores::start_failure;
use crate::stores::transfer::Mark;
use shiftboss_postgres::error::classify;

/// The lock of the queue, which a daemon needs to join: held as long as the connection is.
const LOCK: &str = "SELECT pg_try_advisory_lock('keys'::regclass::oid::int8)";
/// How often to look for an answer that has not come yet.
const LOOK_EVERY: Duration = Duration::from_secs(1);
const LIVING: &str = "SELECT name FROM daemons WHERE gone IS NULL ORDER BY name";
/// Whole tables are read in the order of their keys, and the other end may pause for any time.
const SETTINGS: &str = "SET enable_seqscan = on; SET enable_bitmapscan = on; SET enable_material = on; SET plan_cache_mode = auto;
    SET work_mem = '64MB'; SET cursor_tuple_fraction = 1; SET idle_in_transaction_session_timeout = 0; SET lock_timeout = '10s';
    SET statement_timeout = 0";

/// Nothing of it may be there where a queue arrives, but what a move left that was broken off.
const IS_THERE: &str = "SELECT (EXISTS (SELECT FROM keys) OR EXISTS (SELECT FROM runs))
    AND NOT EXISTS (SELECT FROM documents WHERE name = $1)";
/// The daemon whose lists these are, as one that was stopped; others adopt its jobs.
const DAEMON: &str =
    "INSERT INTO daemons (name, process, pid, socket, version, connections, epoch, started, beat, beat_at, gone, gone_at, adopted)
    SELECT $1, '', 0, '', $2, '', nextval('epochs'), now, 0, now, 'stopped', now, false
    FROM floor(extract(epoch FROM clock_timestamp())) AS now
    ON CONFLICT (name) DO UPDATE SET gone = 'stopped', gone_at = excluded.gone_at, adopted = false RETURNING daemon, gone_at";
const IDENTITY: &str =
    "SELECT system_identifier || ':' || d.oid FROM pg_control_system(), pg_database d
    WHERE d.datname = current_database()";
/// The same rows take a quarter of the bytes in a file, or more if the tables were vacuumed.
const BYTES: &str = "SELECT coalesce(sum(pg_total_relation_size(oid)) / 3, 0)::int8 FROM pg_class
    WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace";

/// The application name of a move's connections: no daemon has it.
const APPLICATION: &str = "shiftboss-move";

/// A queue that no daemon uses as long as this lasts.
pub(in crate::stores) struct Reserved {
    runtime: Runtime,
    client: Client,
    /// A second connection that checks whether the server answers at all, because a statement over all keys of a queue
    /// may take any time.
    watch: Client,
    /// As users name it.
    pub(in crate::stores) name: String,
}

/// The daemon whose the lists are that arrive, from this time on.
pub(in crate::stores) struct Whose {
    pub(in crate::stores) daemon: i64,
    pub(in crate::stores) member: String,
    pub(in crate::stores) now: UnixSeconds,
}

impl Reserved {
    /// Makes the schema if that is wanted, else needs it.
    pub(in crate::stores) fn take(server: &Server, make: bool) -> Result<Self, Failure> {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(Failure::of(ExitCode::Internal))?;
        let server = server.clone().called(APPLICATION);
        let reserved = runtime.block_on(async {
            let (client, watch) = (pooler::refuse(&server).await?, server.connect().await?);
            if make {
                schema::migrate(&client).await?;
            }
            watched(&watch, async {
                schema::require_same(&client).await?;
                lock(&client).await
            })
            .await?;
            Ok((client, watch))
        });
        let (client, watch) = reserved.map_err(start_failure)?;
        Ok(Self { runtime, client, watch, name: server.url().to_string() })
    }

    pub(in crate::stores) fn client(&self) -> &Client {
        &self.client
    }

    pub(in crate::stores) fn wait<T>(
        &self,
        asked: impl Future<Output = StoreResult<T>>,
    ) -> Result<T, Failure> {
        let name = &self.name;
        self.runtime.block_on(watched(&self.watch, asked)).map_err(|error| match error {
            StoreError::Busy(text) => {
                let text = format!("the move was broken off by {name}: {text}. Run it again");
                Failure::new(ExitCode::Unavailable, text)
            }
            StoreError::Full(text) => {
                Failure::new(ExitCode::StoreIo, format!("no space left at {name}: {text}"))
            }
            error => start_failure(error),
        })
    }

    fn ask<T>(&self, asked: impl Future<Output = Result<T, Error>>) -> Result<T, Failure> {
        self.wait(async { asked.await.map_err(classify) })
    }

    fn execute(&self, sql: &str) -> Result<(), Failure> {
        self.ask(self.client().batch_execute(sql))
    }

    pub(in crate::stores) fn note(&self, name: &str, text: &str) -> Result<(), Failure> {
        let sql = "INSERT INTO documents (name, value) VALUES ($1, $2)";
        self.ask(self.client().execute(sql, &[&name, &text])).map(drop)
    }

    pub(in crate::stores) fn mark(&self, kind: &Kind<Mark>) -> Result<Option<Mark>, Failure> {
        let sql = "SELECT value FROM documents WHERE name = $1";
        let row = self.ask(self.client().query_opt(sql, &[&kind.name()]))?;
        Ok(row.and_then(|row| Some(kind.read("", row.get(0))?.1)))
    }

    /// A unique word for this queue, on any machine.
    pub(in crate::stores) fn identity(&self) -> Result<String, Failure> {
        Ok(self.ask(self.client().query_one(IDENTITY, &[]))?.get(0))
    }

    /// The queue is moved to a file: one transaction reads all of it, and ends with the mark that it was moved. Without
    /// [`Self::leave`] it stays as it was.
    pub(in crate::stores) fn begin_to_read(&self) -> Result<(), Failure> {
        self.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    }

    /// Roughly how many bytes it takes in a file.
    pub(in crate::stores) fn bytes(&self) -> Result<u64, Failure> {
        Ok(self.ask(self.client().query_one(BYTES, &[]))?.get::<_, i64>(0).unsigned_abs())
    }

    pub(in crate::stores) fn documents(&self) -> Result<Documents, Failure> {
        let rows = self.ask(self.client().query("SELECT name, value FROM documents", &[]))?;
        Ok(rows.iter().map(|row| (row.get(0), row.get(1))).collect())
    }

    pub(in crate::stores) fn leave(&self, mark: &Mark) -> Result<(), Failure> {
        self.note(MOVED.name(), &MOVED.text(mark))?;
        self.execute("COMMIT")
    }

    /// Another queue is moved here from a file, in one transaction, and is marked until the move is ended. Its lists are this daemon's.
    pub(in crate::stores) fn fill<T>(
        &self,
        daemon: &str,
        mark: &Mark,
        fill: impl FnOnce(Whose) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        if self.ask(self.client().query_one(IS_THERE, &[&ARRIVING.name()]))?.get(0) {
            let text = format!(
                "there is a queue in {} already: give another database, or, if nobody needs that queue, DROP SCHEMA shiftboss, shiftboss_public CASCADE",
                self.name
            );
            return Err(Failure::new(ExitCode::CannotCreate, text));
        }
        self.execute("BEGIN")?;
        let version = env!("CARGO_PKG_VERSION");
        let row = self.ask(self.client().query_one(DAEMON, &[&daemon, &version]))?;
        let filled =
            fill(Whose { daemon: row.get(0), member: MEMBER.of(daemon), now: row.get(1) })?;
        self.note(ARRIVING.name(), &ARRIVING.text(mark))?;
        self.execute("COMMIT")?;
        Ok(filled)
    }

    /// The last step of such a move.
    pub(in crate::stores) fn open_up(&self) -> Result<(), Failure> {
        let sql = "DELETE FROM documents WHERE name = $1";
        self.ask(self.client().execute(sql, &[&ARRIVING.name()])).map(drop)
    }
}

impl Drop for Reserved {
    /// The server may take a moment to notice that a connection is gone, and the next daemon would be refused until then.
    fn drop(&mut self) {
        let release = self.client.batch_execute("ROLLBACK; SELECT pg_advisory_unlock_all()");
        // Else the server releases it with the connection.
        let _ = self.runtime.block_on(limited(release));
    }
}

/// The answer, unless the server is silent: then an error.
async fn watched<T>(watch: &Client, asked: impl Future<Output = StoreResult<T>>) -> StoreResult<T> {
    let silence = async {
        loop {
            sleep(LOOK_EVERY).await;
            if let Err(error) = limited(watch.batch_execute("")).await {
                break error;
            }
        }
    };
    tokio::select! {
        biased;
        answer = asked => answer,
        error = silence => Err(error),
    }
}

/// Keeps daemons from joining, and refuses if one lives: one that was killed is waited out, and writes nothing from then on.
async fn lock(client: &Client) -> StoreResult<()> {
    client.batch_execute(SETTINGS).await.map_err(classify)?;
    for name in living(client).await? {
        if wait_dead(client, &name).await?.is_err() {
            return Err(in_use(&name));
        }
    }
    let is_ours: bool = client.query_one(LOCK, &[]).await.map_err(classify)?.get(0);
    if !is_ours {
        let text = "another `shiftboss move` is at work on it, or a daemon starts there";
        return Err(StoreError::Rejected(text.to_owned()));
    }
    living(client).await?.first().map_or(Ok(()), |name| Err(in_use(name)))
}

fn in_use(daemon: &str) -> StoreError {
    StoreError::Rejected(format!("the daemon {daemon} uses it: stop it first"))
}

/// Daemons that were not stopped, and not taken for dead.
async fn living(client: &Client) -> StoreResult<Vec<String>> {
    let rows = client.query(LIVING, &[]).await.map_err(classify)?;
    Ok(rows.iter().map(|row| row.get(0)).collect())
}
