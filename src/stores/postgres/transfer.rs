//! A queue on a server that is moved: into it ([`arriving`]), or out of it ([`leaving`]). Here is what both begin with: one
//! connection, a lock that keeps daemons from joining as long as it lasts, and a look whether one lives.
//!
//! For `shiftboss move`, which has no runtime: each call waits for its answer.

pub(in crate::stores) mod arriving;
pub(in crate::stores) mod leaving;

use std::future::Future;
use std::time::Duration;

use shiftboss_actors::store::{StoreError, StoreResult};
use tokio::runtime::{Builder, Runtime};
use tokio::time::sleep;
use tokio_postgres::{Client, Error};

use super::connection::{Connection, Server, limited};
use super::error::classify;
use super::pooler;
use super::schema;
use crate::exit::{ExitCode, Failure};
use crate::stores::mark::{self, Mark};
use crate::stores::start_failure;

/// Whoever moves a queue holds this lock of the database, and a daemon that joins shares it (schema/daemons.sql).
const LOCK: &str = "SELECT pg_try_advisory_lock(move_lock())";
/// Looks, one a second, over which a daemon that was not stopped must have stood still to be taken for dead.
const LOOKS: u32 = 6;
const LOOK_EVERY: Duration = Duration::from_secs(1);
const LIVING: &str =
    "SELECT name, beat FROM daemons WHERE pid IS NOT NULL AND NOT lost ORDER BY name";
/// Those that are taken for dead write no more, should they wake up.
const FENCE: &str = "SELECT end_connections(connections, 'infinity') FROM daemons WHERE pid IS NOT NULL AND NOT lost;
    UPDATE daemons SET epoch = nextval('epochs'), lost = true, gone_at = now_ms() / 1000 WHERE pid IS NOT NULL AND NOT lost";
/// What is joined here is as large as the queue; the other settings are for finding one key among millions.
const SETTINGS: &str = "SET enable_hashjoin = on; SET enable_mergejoin = on; SET enable_seqscan = on;
    SET enable_bitmapscan = on; SET enable_material = on; SET plan_cache_mode = auto; SET work_mem = '64MB';
    SET cursor_tuple_fraction = 1; SET lock_timeout = '10s'";

/// What the server calls the connections of a move: no daemon's are called so.
const APPLICATION: &str = "shiftboss-move";

/// A queue that no daemon uses as long as this lasts.
struct Reserved {
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

    fn migrate(&self) -> Result<(), Failure> {
        self.runtime.block_on(schema::migrate(self.client())).map_err(start_failure)
    }

    fn client(&self) -> &Client {
        &self.connection.client
    }

    /// Waits for an answer.
    fn wait<T>(&self, asked: impl Future<Output = Result<T, Error>>) -> Result<T, Failure> {
        let asked = async { asked.await.map_err(classify) };
        self.runtime.block_on(watched(&self.watch, asked)).map_err(|error| match error {
            StoreError::Busy(text) => {
                let name = &self.name;
                let text = format!("the move was broken off by {name}: {text}. Run it again");
                Failure::new(ExitCode::Unavailable, text)
            }
            error => start_failure(error),
        })
    }

    fn execute(&self, sql: &str) -> Result<(), Failure> {
        self.wait(self.client().batch_execute(sql))
    }

    /// A mark that the queue has.
    fn mark(&self, column: &str) -> Result<Option<Mark>, Failure> {
        let sql = format!("SELECT {column} FROM state");
        let row = self.wait(self.client().query_one(&sql, &[]))?;
        Ok(row.get::<_, Option<String>>(0).map(|text| mark::of_text(&text)))
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

/// Keeps daemons from joining, and refuses if one lives.
async fn lock(client: &Client) -> StoreResult<()> {
    client.batch_execute(SETTINGS).await.map_err(classify)?;
    let is_ours: bool = client.query_one(LOCK, &[]).await.map_err(classify)?.get(0);
    if !is_ours {
        return Err(StoreError::Rejected("another `shiftboss move` is at work on it".to_owned()));
    }
    let first = living(client).await?;
    let mut looks = if first.is_empty() { 0 } else { LOOKS };
    while looks > 0 {
        sleep(LOOK_EVERY).await;
        looks -= 1;
        let found = living(client).await?;
        if let Some((name, _)) = found.iter().find(|daemon| !first.contains(daemon)) {
            return Err(StoreError::Rejected(format!("the daemon {name} uses it: stop it first")));
        }
    }
    client.batch_execute(FENCE).await.map_err(classify)
}

/// Daemons that were not stopped, with their counters.
async fn living(client: &Client) -> StoreResult<Vec<(String, i64)>> {
    let rows = client.query(LIVING, &[]).await.map_err(classify)?;
    Ok(rows.iter().map(|row| (row.get(0), row.get(1))).collect())
}
