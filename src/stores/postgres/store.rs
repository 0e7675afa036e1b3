//! The port [`Store`]: a batch is one call of the SQL function `apply`, which is one transaction.
//!
//! Called by the StorageActor, which gathers the next batch meanwhile. The connection is made when it is needed, and made anew
//! after it failed: then the result of the last call may not be known, and what it handed out is undone, for nobody
//! was told.

mod relays;
mod rules;

use std::future::ready;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use shiftboss_actors::file_identity::DirectoryIdentity;
use shiftboss_actors::store::{
    Changed, Checkpoint, JobEnd, Operation, Outcome, Rejected, SetPaused, Store, StoreError,
    StoreFuture, StoreResult,
};
use shiftboss_protocol::model::UnixSeconds;
use shiftboss_queue::record::Millis;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_postgres::Statement;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;
use tracing::info;

use super::answers::Answer;
use super::batch::Batch;
use super::companion::accompany;
use super::connection::{CALL_MAX, Connection, RECONNECT, Server, limited, unanswered};
use super::error::{FENCED, classify, fenced, is_undone, misunderstood};
use super::membership::{Identity, Membership};
use super::pooler;
use super::schema;
use super::standstill::{Asked, wait_out};
use crate::reconnect::Reconnect;
use crate::stores::options::Options;
use shiftboss_actors::clock::boot_time;

const APPLY: &str = "SELECT ord, answer, attempt, key, payload, number, detail FROM apply($1, $2, $3, $4, $5, $6, $7, $8,
    $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23)";

/// The queue in a PostgreSQL database, as one daemon has it.
pub(crate) struct PostgresStore {
    server: Server,
    identity: Identity,
    options: Options,
    joined: Option<Joined>,
    membership: Arc<Membership>,
    /// Begun with the first call, on its runtime.
    companion: Option<JoinHandle<()>>,
    reconnect: Reconnect,
    /// The last call, if its result is not known.
    lost_call: Option<i64>,
    calls: i64,
    /// This daemon hands nothing out.
    drains: bool,
    /// The second of the last call.
    seen: UnixSeconds,
    /// How far attempts were gone through for classic leases that are over.
    expired_to: i64,
    found: Found,
    /// Recorded by calls, and not told yet.
    ends: Vec<JobEnd>,
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
    apply_relayed: Statement,
    daemon: i32,
    epoch: i64,
}

impl Joined {
    /// What an earlier process rejected may not be there any more.
    async fn begin(&self) -> StoreResult<()> {
        let forget = "DELETE FROM rejected_files WHERE daemon = $1";
        limited(self.connection.client.execute(forget, &[&self.daemon])).await.map(|_| ())
    }
}

type Outcomes = Vec<Result<Outcome, Rejected>>;

impl PostgresStore {
    /// Makes the schema if it is missing, and joins the queue. The connection is not kept: the next one is made by whoever
    /// calls the store first, on its own runtime.
    ///
    /// # Errors
    /// When the server cannot be reached or refuses, when its schema is not ours, and when another daemon has the name.
    pub(crate) async fn open(
        server: Server,
        identity: Identity,
        options: Options,
    ) -> StoreResult<Self> {
        schema::migrate(&pooler::refuse(&server).await?.client).await?;
        let server = server.named(&identity.name);
        let mut store = Self {
            server,
            membership: Arc::new(Membership::new(identity.polls)),
            identity,
            options,
            joined: None,
            companion: None,
            reconnect: Reconnect::new(RECONNECT),
            lost_call: None,
            calls: 0,
            drains: false,
            seen: 0,
            expired_to: 0,
            found: Found::default(),
            ends: Vec::new(),
        };
        store.take_name().await?;
        Ok(store)
    }

    /// What was found at the start.
    pub(crate) fn found(&self) -> &Found {
        &self.found
    }

    /// Joins for the first time; from a daemon that has the name and stands still, it is taken.
    async fn take_name(&mut self) -> StoreResult<()> {
        match wait_out(async |known| self.ask_for_name(known).await).await? {
            Ok(joined) => joined.begin().await,
            Err(holder) => Err(self.identity.taken(&holder)),
        }
    }

    /// Connects, and joins the queue: from then on nothing that was sent before under this name is carried out.
    async fn ask_for_name(&mut self, beat: Option<i64>) -> StoreResult<Asked<Joined>> {
        let connection = self.server.connect().await?;
        let client = &connection.client;
        schema::require_usable(client).await?;
        connection.end_given_up().await?;
        let join = "SELECT daemon, epoch, was_clean, paused, input_directory, seen, taken_by, beat
            FROM join_queue($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)";
        let (lease, pid) = (self.options.policy.lease(), i64::from(std::process::id()));
        let max_tasks = i64::from(self.options.max_single_tasks);
        let Identity { name, owner, takeover, .. } = &self.identity;
        let takeover = i64::try_from(takeover.as_secs()).unwrap_or(i64::MAX);
        let asked: [&(dyn ToSql + Sync); 10] = [
            name,
            owner,
            &env!("CARGO_PKG_VERSION"),
            &lease,
            &max_tasks,
            &takeover,
            &pid,
            &beat,
            &self.membership.has_joined(),
            &self.drains,
        ];
        let row = limited(client.query_one(join, &asked)).await?;
        if let Some(holder) = row.get(6) {
            return Ok(Asked::Taken(holder, row.get(7)));
        }
        let (daemon, epoch, input): (i32, i64, Option<String>) =
            (row.get(0), row.get(1), row.get(4));
        if let Some(call) = self.lost_call {
            let undo = "SELECT undo_call($1, $2, $3, $4)";
            limited(client.query_one(undo, &[&daemon, &epoch, &call, &lease])).await?;
            self.lost_call = None;
        }
        limited(rules::set(client, daemon, &self.options)).await?;
        let apply = limited(client.prepare(APPLY)).await?;
        let apply_relayed = limited(client.prepare(relays::APPLY)).await?;
        let input_directory = input.as_deref().and_then(DirectoryIdentity::parse);
        self.found = Found { was_clean: row.get(2), is_paused: row.get(3), input_directory };
        // As if it were a second earlier, the first call goes through the leases that are over.
        self.seen = self.seen.max(row.get::<_, Option<i64>>(5).unwrap_or_default() - 1);
        // A call's number is its own among all that daemons ever made.
        self.calls = epoch << 32;
        self.membership.join(daemon, epoch);
        Ok(Asked::Had(Joined { connection, apply, apply_relayed, daemon, epoch }))
    }

    /// Joins if it has not, or was taken for dead since.
    async fn joined(&mut self) -> StoreResult<Joined> {
        if let Some(joined) = self.joined.take().filter(|_| !self.membership.is_lost()) {
            return Ok(joined);
        }
        self.reconnect.allowed()?;
        let joined = match self.ask_for_name(None).await {
            Ok(Asked::Had(joined)) => joined,
            Ok(Asked::Taken(holder, _)) => return Err(self.identity.taken(&holder)),
            Err(error) => return Err(self.reconnect.failed(error)),
        };
        self.reconnect.succeeded();
        // What it had may be others' by now, and a call may have made work whose answer was lost.
        self.membership.tell_change(Changed::Runs);
        self.membership.tell_work();
        let companion = || {
            let (server, membership) = (self.server.clone(), Arc::clone(&self.membership));
            tokio::spawn(accompany(server, membership, self.options.history))
        };
        self.companion.get_or_insert_with(companion);
        Ok(joined)
    }

    async fn apply_now(&mut self, operations: &[Operation]) -> StoreResult<Outcomes> {
        // It may have adopted jobs of a dead daemon, classic ones among them that only that one has seen.
        if operations.iter().any(|operation| matches!(operation, Operation::Leases(_))) {
            self.expired_to = 0;
        }
        let answers = self.call(&Batch::of(operations)).await?;
        self.note_drain(operations);
        let mut outcomes: Vec<Option<Result<Outcome, Rejected>>> = Vec::new();
        outcomes.resize_with(operations.len(), || None);
        let mut makes_work = false;
        for answer in answers {
            let Some(at) = answer.ord.checked_sub(1) else {
                self.note_call(&answer);
                continue;
            };
            let operation = operations
                .get(at)
                .ok_or_else(|| misunderstood("it answered what was not asked"))?;
            makes_work |= self.note(operation, &answer);
            outcomes[at] = Some(answer.outcome(operation).map_err(|text| misunderstood(&text))?);
        }
        if makes_work {
            self.membership.tell_work();
        }
        outcomes
            .into_iter()
            .collect::<Option<_>>()
            .ok_or_else(|| misunderstood("it did not answer all"))
    }

    fn note_drain(&mut self, operations: &[Operation]) {
        for operation in operations {
            match operation {
                Operation::Drain(_) => self.drains = true,
                Operation::SetPaused(SetPaused(false)) => self.drains = false,
                _ => {}
            }
        }
    }

    /// Whether others may have work by an operation.
    fn note(&self, operation: &Operation, answer: &Answer) -> bool {
        use Operation as Op;
        match operation {
            Op::Heartbeat(_) if answer.number == Some(1) => {
                // The attempt came from another daemon, and its lease is to run here.
                self.membership.tell_change(Changed::Leases);
                false
            }
            // Not told if this answer is lost: asked again, the fetcher is this daemon's.
            Op::RegisterRun(it) => {
                if let Some(from) = answer.payload.as_deref() {
                    let (fetcher, from) = (&it.0.fetcher, String::from_utf8_lossy(from));
                    info!("This daemon takes over the fetcher {fetcher} of the daemon {from}.");
                }
                operation.may_bring_work()
            }
            // A key that has more than this job.
            Op::Complete(_) | Op::CompleteAttempt(_) => answer.number == Some(1),
            operation => operation.may_bring_work(),
        }
    }

    /// Makes the call of a batch. When it fails so that it may have been carried out all the same, what it handed out is
    /// undone at the next one.
    async fn call(&mut self, batch: &Batch<'_>) -> StoreResult<Vec<Answer>> {
        let answered = self.try_call(batch).await;
        self.membership
            .note_away(matches!(answered, Err(StoreError::Busy(_) | StoreError::Denied(_))));
        answered
    }

    async fn try_call(&mut self, batch: &Batch<'_>) -> StoreResult<Vec<Answer>> {
        self.membership.failure()?;
        let joined = self.joined().await?;
        self.calls += 1;
        let sent = boot_time();
        let answered = timeout(CALL_MAX, self.query(&joined, batch)).await;
        // It was frozen meanwhile: others may have taken it for dead, and handed out what it was answered.
        let is_late = boot_time().saturating_sub(sent) > CALL_MAX;
        let error = match answered {
            Ok(Ok(rows)) if !is_late => {
                self.joined = Some(joined);
                return rows
                    .iter()
                    .map(Answer::read)
                    .collect::<Result<_, _>>()
                    .map_err(|error| misunderstood(&error.to_string()));
            }
            Ok(Err(error)) if is_undone(&error) => {
                return Err(match classify(error) {
                    StoreError::Rejected(text) if text == FENCED => fenced(),
                    error => {
                        let error = schema::looked_at(&joined.connection.client, error).await;
                        self.joined = Some(joined);
                        error
                    }
                });
            }
            Ok(Err(error)) => classify(error),
            Ok(Ok(_)) | Err(_) => unanswered(),
        };
        self.lost_call = Some(self.calls);
        Err(error)
    }

    async fn query(
        &self,
        Joined { connection, apply, daemon, epoch, .. }: &Joined,
        batch: &Batch<'_>,
    ) -> Result<Vec<tokio_postgres::Row>, tokio_postgres::Error> {
        let options = &self.options;
        let (lease, max_tasks) = (options.policy.lease(), i64::from(options.max_single_tasks));
        let max_expired = i32::try_from(options.max_expired_leases).unwrap_or(i32::MAX);
        let mut values: Vec<&(dyn ToSql + Sync)> = vec![
            daemon,
            epoch,
            &self.calls,
            &self.seen,
            &self.expired_to,
            &lease,
            &max_expired,
            &max_tasks,
            &self.drains,
        ];
        values.extend(batch.columns());
        loop {
            match connection.client.query(apply, &values).await {
                // Two daemons waited for each other.
                Err(error) if error.code() == Some(&SqlState::T_R_DEADLOCK_DETECTED) => {}
                answered => return answered,
            }
        }
    }

    fn stop_companion(&mut self) {
        if let Some(companion) = self.companion.take() {
            companion.abort();
        }
    }

    async fn leave(&mut self) -> StoreResult<()> {
        let Joined { connection, daemon, epoch, .. } = self.joined().await?;
        self.stop_companion();
        let leave = "SELECT leave_queue($1, $2)";
        limited(connection.client.query_one(leave, &[&daemon, &epoch])).await.map(|_| ())
    }
}

impl Drop for PostgresStore {
    fn drop(&mut self) {
        self.stop_companion();
    }
}

impl Store for PostgresStore {
    /// Time is the server's.
    fn apply(&mut self, _: Millis, batch: Vec<Operation>) -> StoreFuture<'_, Outcomes> {
        Box::pin(self.apply_with_relays(batch))
    }

    fn poll_changed(&mut self, task: &mut Context<'_>) -> Poll<Changed> {
        self.membership.poll_changed(task)
    }

    fn is_remote(&self) -> bool {
        true
    }

    fn look_every(&self) -> Duration {
        self.membership.look_every()
    }

    fn maintain(&mut self) -> StoreFuture<'_, Checkpoint> {
        // The companion sees to what there is.
        Box::pin(ready(Ok(Checkpoint::Complete)))
    }

    fn take_ends(&mut self) -> Vec<JobEnd> {
        std::mem::take(&mut self.ends)
    }

    fn close(&mut self) -> StoreFuture<'_, ()> {
        Box::pin(self.leave())
    }
}
