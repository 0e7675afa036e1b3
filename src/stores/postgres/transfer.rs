//! A queue on a server that is moved: into it ([`Arriving`]), or out of it ([`Leaving`]). Both begin with one connection, a lock that
//! keeps daemons from joining as long as it lasts, and a look whether one lives.
//!
//! For `shiftboss move`, which has no runtime: each call waits for its answer. What is moved is not known here.

use std::future::Future;
use std::time::Duration;

use shiftboss_queue::documents::{ARRIVING, Kind, MEMBER, MOVED};
use shiftboss_queue::error::{StoreError, StoreResult};
use tokio::runtime::{Builder, Runtime};
use tokio::time::sleep;
use tokio_postgres::{Client, Error};

use super::connection::{Connection, Server, limited};
use super::error::classify;
use super::forget::wait_dead;
use super::pooler;
use super::schema;
use crate::exit::{ExitCode, Failure};
use crate::stores::mark::{Mark, Moved};
use crate::stores::sqlite::transfer::leaving as file;
use crate::stores::start_failure;
use crate::stores::transfer::{Source, Target, occupied, to_server};

/// The lock of the queue, without which no daemon joins: held as long as the connection is.
const LOCK: &str = "SELECT pg_try_advisory_lock('keys'::regclass::oid::int8)";
/// The answer is looked for so often, if there is none yet.
const LOOK_EVERY: Duration = Duration::from_secs(1);
const LIVING: &str = "SELECT name FROM daemons WHERE gone IS NULL ORDER BY name";
/// All of a table is read in the order of its key, and nobody knows how soon the other end goes on.
const SETTINGS: &str = "SET enable_seqscan = on; SET enable_bitmapscan = on; SET enable_material = on; SET plan_cache_mode = auto;
    SET work_mem = '64MB'; SET cursor_tuple_fraction = 1; SET idle_in_transaction_session_timeout = 0; SET lock_timeout = '10s'";

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
/// Of the same rows a file has a quarter of the bytes, or more if somebody has seen to the tables.
const BYTES: &str = "SELECT coalesce(sum(pg_total_relation_size(oid)) / 3, 0)::int8 FROM pg_class
    WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace";

/// What the server calls the connections of a move: no daemon's are called so.
const APPLICATION: &str = "shiftboss-move";

/// A queue that no daemon uses as long as this lasts.
pub(in crate::stores) struct Reserved {
    runtime: Runtime,
    connection: Connection,
    /// Nobody knows how long a statement takes for all keys of a queue: whether the server answers at all is asked here.
    watch: Connection,
    name: String,
}

impl Reserved {
    /// Makes the schema if that is wanted, else needs it.
    fn take(server: &Server, make: bool) -> Result<Self, Failure> {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(Failure::of(ExitCode::Internal))?;
        let server = server.clone().called(APPLICATION);
        let reserved = runtime.block_on(async {
            let (connection, watch) = (pooler::refuse(&server).await?, server.connect().await?);
            if make {
                schema::migrate(&connection.client).await?;
            }
            watched(&watch, async {
                schema::require_same(&connection.client).await?;
                lock(&connection.client).await
            })
            .await?;
            Ok((connection, watch))
        });
        let (connection, watch) = reserved.map_err(start_failure)?;
        Ok(Self { runtime, connection, watch, name: server.url().to_string() })
    }

    pub(in crate::stores) fn client(&self) -> &Client {
        &self.connection.client
    }

    /// Waits for an answer.
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

    /// A mark that the queue has.
    fn mark(&self, kind: &Kind<Mark>) -> Result<Option<Mark>, Failure> {
        let sql = "SELECT value FROM documents WHERE name = $1";
        let row = self.ask(self.client().query_opt(sql, &[&kind.name()]))?;
        Ok(row.and_then(|row| Some(kind.read("", row.get(0))?.1)))
    }

    fn note(&self, kind: &Kind<Mark>, mark: &Mark) -> Result<(), Failure> {
        let sql = "INSERT INTO documents (name, value) VALUES ($1, $2)";
        self.ask(self.client().execute(sql, &[&kind.name(), &kind.text(mark)])).map(drop)
    }
}

impl Drop for Reserved {
    /// The server may take a moment to notice that a connection is gone, and the next daemon would be refused until then.
    fn drop(&mut self) {
        let release =
            self.connection.client.batch_execute("ROLLBACK; SELECT pg_advisory_unlock_all()");
        // Else the server releases it with the connection.
        let _ = self.runtime.block_on(limited(release));
    }
}

/// A queue that is moved to a file: one transaction reads all of it, and ends with the mark that it was moved. Without
/// [`Source::leave`] it stays as it was.
pub(in crate::stores) struct Leaving(pub(in crate::stores) Reserved);

impl Leaving {
    pub(in crate::stores) fn open(server: &Server) -> Result<Self, Failure> {
        let reserved = Reserved::take(server, false)?;
        reserved.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")?;
        Ok(Self(reserved))
    }

    /// So many it takes in a file, about.
    pub(in crate::stores) fn bytes(&self) -> Result<u64, Failure> {
        let row = self.0.ask(self.0.client().query_one(BYTES, &[]))?;
        Ok(row.get::<_, i64>(0).unsigned_abs())
    }
}

impl Source for Leaving {
    fn name(&self) -> String {
        self.0.name.clone()
    }

    fn identity(&mut self) -> Result<String, Failure> {
        Ok(self.0.ask(self.0.client().query_one(IDENTITY, &[]))?.get(0))
    }

    fn mark(&mut self) -> Result<Option<Mark>, Failure> {
        self.0.mark(&MOVED)
    }

    fn leave(&mut self, mark: &Mark) -> Result<(), Failure> {
        self.0.note(&MOVED, mark)?;
        self.0.execute("COMMIT")
    }
}

/// A queue that another one is moved into from a file, in one transaction.
pub(in crate::stores) struct Arriving {
    reserved: Reserved,
    /// Whose lists they will be.
    daemon: String,
}

impl Arriving {
    pub(in crate::stores) fn open(server: &Server, daemon: &str) -> Result<Self, Failure> {
        let reserved = Reserved::take(server, true)?;
        Ok(Self { reserved, daemon: daemon.to_owned() })
    }
}

impl Target<file::Leaving> for Arriving {
    fn name(&self) -> String {
        self.reserved.name.clone()
    }

    fn mark(&mut self) -> Result<Option<Mark>, Failure> {
        self.reserved.mark(&ARRIVING)
    }

    /// It goes in the transaction in which its tables are filled.
    fn discard(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    fn fill(&mut self, mark: &Mark, source: &mut file::Leaving) -> Result<Vec<Moved>, Failure> {
        let Self { reserved, daemon } = self;
        if reserved.ask(reserved.client().query_one(IS_THERE, &[&ARRIVING.name()]))?.get(0) {
            return Err(occupied(format!(
                "there is a queue in {} already: give another database, or, if nobody needs that queue, DROP SCHEMA shiftboss, shiftboss_public CASCADE",
                reserved.name
            )));
        }
        reserved.execute("BEGIN")?;
        let version = env!("CARGO_PKG_VERSION");
        let row = reserved.ask(reserved.client().query_one(DAEMON, &[daemon, &version]))?;
        let (number, now) = (row.get(0), row.get(1));
        let whose = (number, &*MEMBER.of(daemon), now);
        let moved = to_server((&source.connection, &source.path), reserved, whose)?;
        reserved.note(&ARRIVING, mark)?;
        reserved.execute("COMMIT")?;
        Ok(moved)
    }

    fn open_up(&mut self) -> Result<(), Failure> {
        let sql = "DELETE FROM documents WHERE name = $1";
        let reserved = &self.reserved;
        reserved.ask(reserved.client().execute(sql, &[&ARRIVING.name()])).map(drop)
    }
}

/// The answer, unless the server is silent: then an error.
async fn watched<T>(
    watch: &Connection,
    asked: impl Future<Output = StoreResult<T>>,
) -> StoreResult<T> {
    let silence = async {
        loop {
            sleep(LOOK_EVERY).await;
            if let Err(error) = limited(watch.client.batch_execute("")).await {
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
