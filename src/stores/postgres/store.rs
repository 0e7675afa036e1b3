//! The port [`Store`]: a batch is one call of the SQL function `apply`, which is one transaction.
//!
//! Called by the StorageActor, which gathers the next batch meanwhile. The connection is made when it is needed, and made anew
//! after it failed: then the result of the last call may not be known, and what it handed out is undone, for nobody
//! was told.

use std::task::{Context, Poll};

use shiftboss_actors::file_identity::DirectoryIdentity;
use shiftboss_actors::store::{
    Checkpoint, Operation, Outcome, Rejected, Store, StoreError, StoreFuture, StoreResult,
};
use shiftboss_protocol::model::UnixSeconds;
use tokio_postgres::Statement;
use tokio_postgres::types::ToSql;

use super::answers::Answer;
use super::batch::Batch;
use super::connection::{Connection, Server, limited};
use super::schema;
use crate::stores::options::Options;

/// Attempts that ended and are kept.
const ENDED_MAX: i64 = 100_000;
/// Of those that are too many, so many are deleted at once.
const ENDED_STEP: i64 = 1_000;

const APPLY: &str = "SELECT ord, answer, attempt, key, payload, number, detail FROM apply($1, $2, $3, $4, $5, $6, $7, $8,
    $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22)";

/// The queue in a PostgreSQL database, as one daemon has it.
pub(crate) struct PostgresStore {
    server: Server,
    name: String,
    options: Options,
    joined: Option<Joined>,
    /// The last call, if its result is not known.
    lost_call: Option<i64>,
    calls: i64,
    /// The second of the last call.
    seen: UnixSeconds,
    /// How far attempts were gone through for classic leases that are over.
    expired_to: i64,
    found: Found,
}

/// What a daemon finds when it joins.
#[derive(Debug, Clone, Default)]
pub(crate) struct Found {
    pub(crate) was_clean: bool,
    pub(crate) is_paused: bool,
    pub(crate) input_directory: Option<DirectoryIdentity>,
}

/// A connection on which this daemon may write.
struct Joined {
    connection: Connection,
    apply: Statement,
    daemon: i32,
    epoch: i64,
}

type Outcomes = Vec<Result<Outcome, Rejected>>;

impl PostgresStore {
    /// Makes the schema if it is missing, and joins the queue under a name. The connection is not kept: the next one is made
    /// by whoever calls the store first, on its own runtime.
    ///
    /// # Errors
    /// When the server cannot be reached or refuses, and when its schema is not ours.
    pub(crate) async fn open(server: Server, name: &str, options: Options) -> StoreResult<Self> {
        schema::migrate(&server.connect().await?.client).await?;
        let mut store = Self {
            server,
            name: name.to_owned(),
            options,
            joined: None,
            lost_call: None,
            calls: 0,
            seen: 0,
            expired_to: 0,
            found: Found::default(),
        };
        store.join().await?;
        store.joined = None;
        Ok(store)
    }

    /// What was found at the start.
    pub(crate) fn found(&self) -> &Found {
        &self.found
    }

    /// Connects, and joins the queue: from then on nothing that was sent before under this name is carried out.
    async fn join(&mut self) -> StoreResult<&Joined> {
        let connection = self.server.connect().await?;
        let client = &connection.client;
        let join = "SELECT daemon, epoch, was_clean, paused, input_directory, seen FROM join_queue($1, $2, $3)";
        let pid = i64::from(std::process::id());
        let row =
            limited(client.query_one(join, &[&self.name, &self.options.policy.lease(), &pid]))
                .await?;
        let (daemon, epoch, input): (i32, i64, Option<String>) =
            (row.get(0), row.get(1), row.get(4));
        if let Some(call) = self.lost_call {
            let undo = "SELECT undo_call($1, $2, $3)";
            limited(client.query_one(undo, &[&daemon, &call, &self.options.policy.lease()]))
                .await?;
            self.lost_call = None;
        }
        let apply = limited(client.prepare(APPLY)).await?;
        self.found = Found {
            was_clean: row.get(2),
            is_paused: row.get(3),
            input_directory: input.as_deref().and_then(DirectoryIdentity::parse),
        };
        self.seen = self.seen.max(row.get::<_, Option<i64>>(5).unwrap_or_default());
        self.calls = self.calls.max(row.get::<_, i64>(1) << 32);
        Ok(self.joined.insert(Joined { connection, apply, daemon, epoch }))
    }

    async fn apply_now(&mut self, operations: &[Operation]) -> StoreResult<Outcomes> {
        if self.joined.is_none() {
            self.join().await?;
        }
        let answers = self.call(&Batch::of(operations)).await?;
        let mut outcomes: Vec<Option<Result<Outcome, Rejected>>> = Vec::new();
        outcomes.resize_with(operations.len(), || None);
        for answer in answers {
            let Some(at) = answer.ord.checked_sub(1) else {
                self.seen = answer.number.unwrap_or_default();
                self.expired_to = answer.attempt.unwrap_or_default();
                continue;
            };
            let operation = operations
                .get(at)
                .ok_or_else(|| misunderstood("it answered what was not asked"))?;
            outcomes[at] = Some(answer.outcome(operation).map_err(|text| misunderstood(&text))?);
        }
        outcomes
            .into_iter()
            .collect::<Option<_>>()
            .ok_or_else(|| misunderstood("it did not answer all"))
    }

    async fn call(&mut self, batch: &Batch<'_>) -> StoreResult<Vec<Answer>> {
        let Some(Joined { connection, apply, daemon, epoch }) = &self.joined else {
            return Err(StoreError::Busy("the server is not connected".to_owned()));
        };
        self.calls += 1;
        let options = &self.options;
        let (lease, max_expired) =
            (options.policy.lease(), i32::try_from(options.max_expired_leases).unwrap_or(i32::MAX));
        let max_tasks = i64::from(options.max_single_tasks);
        let Batch { until, kind, key, jitter, number, code, .. } = batch;
        let Batch {
            name,
            lease_seconds,
            payload,
            detail,
            rows,
            row_key,
            row_jitter,
            row_payload,
            ..
        } = batch;
        let values: [&(dyn ToSql + Sync); 22] = [
            daemon,
            epoch,
            &self.calls,
            &self.seen,
            &self.expired_to,
            &lease,
            &max_expired,
            &max_tasks,
            until,
            kind,
            key,
            jitter,
            number,
            code,
            name,
            lease_seconds,
            payload,
            detail,
            rows,
            row_key,
            row_jitter,
            row_payload,
        ];
        let answered = limited(connection.client.query(apply, &values)).await;
        if connection.client.is_closed() || matches!(answered, Err(StoreError::Busy(_))) {
            // It may have been carried out all the same.
            self.lost_call = Some(self.calls);
            self.joined = None;
        }
        answered?
            .iter()
            .map(Answer::read)
            .collect::<Result<_, _>>()
            .map_err(|error| misunderstood(&error.to_string()))
    }

    /// Keeps the last attempts that ended.
    async fn forget_ended(&mut self) -> StoreResult<Checkpoint> {
        let Some(Joined { connection, daemon, epoch, .. }) = &self.joined else {
            return Ok(Checkpoint::Complete);
        };
        let forget = "SELECT forget_ended($1, $2, $3, $4)";
        limited(connection.client.query_one(forget, &[daemon, epoch, &ENDED_MAX, &ENDED_STEP]))
            .await?;
        Ok(Checkpoint::Complete)
    }

    async fn leave(&mut self) -> StoreResult<()> {
        if self.joined.is_none() {
            self.join().await?;
        }
        let Some(Joined { connection, daemon, epoch, .. }) = self.joined.take() else {
            return Ok(());
        };
        let leave = "SELECT leave_queue($1, $2)";
        limited(connection.client.query_one(leave, &[&daemon, &epoch])).await.map(|_| ())
    }
}

fn misunderstood(text: &str) -> StoreError {
    StoreError::Fatal(format!(
        "the functions of the schema shiftboss are not those of this version: {text}"
    ))
}

impl Store for PostgresStore {
    /// Time is the server's.
    fn apply(&mut self, _: UnixSeconds, batch: Vec<Operation>) -> StoreFuture<'_, Outcomes> {
        Box::pin(async move { self.apply_now(&batch).await })
    }

    fn poll_changed(&mut self, _: &mut Context<'_>) -> Poll<()> {
        Poll::Pending
    }

    fn maintain(&mut self) -> StoreFuture<'_, Checkpoint> {
        Box::pin(self.forget_ended())
    }

    fn close(&mut self) -> StoreFuture<'_, ()> {
        Box::pin(self.leave())
    }
}
