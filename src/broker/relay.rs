//! A relay's store: it keeps nothing, and has a daemon carry out what the StorageActor asks, over the broker.
//!
//! A batch that changes something has a number, and is carried out once however often it is sent. One that was not answered is
//! sent again before any other, and what it handed out is undone, for nobody was told.

mod change_signal;

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use shiftboss_actors::store::{
    Changed, Checkpoint, CountInFlight, Dispatched, JoinedRelay, Lane, Operation, Outcome,
    Rejected, RelayAnswer, SetPaused, Store, StoreError, StoreFuture, StoreResult, Undo,
};
use shiftboss_protocol::backoff::random;
use shiftboss_protocol::model::UnixSeconds;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use tracing::info;

use super::link::{Broker, CALL_MAX};
use super::liveness::SILENCE_MAX;
use super::message::{Reply, Request};
use super::rpc_client::RpcClient;
use crate::reconnect::Reconnect;
use change_signal::ChangeSignal;

/// How often a relay says that it lives.
const BEAT: Duration = Duration::from_secs(1);
/// How long a name is waited for whose last process may be dead.
const NAME_PATIENCE: Duration = SILENCE_MAX.saturating_add(Duration::from_secs(2));
const NAME_LOOK: Duration = Duration::from_millis(500);
/// Delays before a connection that failed is made again.
const RECONNECT: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// What a relay is started with.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) broker: Broker,
    /// Its own among all relays of the installation.
    pub(crate) name: String,
}

/// See the module's documentation.
pub(crate) struct RelayStore {
    settings: Settings,
    /// Which process this is.
    process: Arc<str>,
    joined: Option<Joined>,
    found: JoinedRelay,
    /// The number of the last batch.
    number: i64,
    /// The last batch, if what came of it is not known.
    unanswered: Option<Vec<Operation>>,
    /// Jobs that nobody was told of.
    to_undo: Vec<Undo>,
    /// This relay hands nothing out.
    drains: bool,
    reconnect: Reconnect,
    signal: Arc<ChangeSignal>,
}

/// A connection over which this relay may ask.
struct Joined {
    client: Arc<RpcClient>,
    epoch: i64,
    beats: JoinHandle<()>,
}

impl Drop for Joined {
    fn drop(&mut self) {
        self.beats.abort();
    }
}

type Outcomes = Vec<Result<Outcome, Rejected>>;

impl RelayStore {
    /// Joins the installation. The connection is not kept: the next one is made by whoever calls the store first, on its own
    /// runtime.
    ///
    /// # Errors
    /// `Busy` when the broker or the daemons are away, `Rejected` when another relay has the name, `Fatal` when the broker
    /// refuses.
    pub(crate) async fn open(settings: Settings) -> StoreResult<Self> {
        let process = format!("{:016x}", random()).into();
        let client = RpcClient::open(&settings.broker, &settings.name, || {}).await?;
        let deadline = Instant::now() + NAME_PATIENCE;
        let found = loop {
            match join(&client, &settings.name, &process, None).await {
                Err(StoreError::Rejected(_)) if Instant::now() < deadline => sleep(NAME_LOOK).await,
                joined => break joined?,
            }
        };
        client.close().await;
        Ok(Self {
            settings,
            process,
            joined: None,
            found,
            number: 0,
            unanswered: None,
            to_undo: Vec::new(),
            drains: false,
            reconnect: Reconnect::new(RECONNECT),
            signal: Arc::default(),
        })
    }

    /// What was found at the start.
    pub(crate) fn found(&self) -> &JoinedRelay {
        &self.found
    }

    /// Joins if it has not, or was taken for dead since.
    async fn joined(&mut self) -> StoreResult<(Arc<RpcClient>, i64)> {
        let is_good =
            |joined: &&Joined| !joined.client.is_broken() && !self.signal.is_lost(joined.epoch);
        if let Some(joined) = self.joined.as_ref().filter(is_good) {
            return Ok((Arc::clone(&joined.client), joined.epoch));
        }
        self.joined = None;
        self.reconnect.allowed()?;
        let joined = match self.join_anew().await {
            Ok(joined) => joined,
            Err(StoreError::Rejected(text)) => return Err(StoreError::Fatal(text)),
            Err(error) => return Err(self.reconnect.failed(later(error))),
        };
        self.reconnect.succeeded();
        let (client, epoch) = (Arc::clone(&joined.client), joined.epoch);
        // What it had may be others' by now, and hints were missed.
        self.signal.raise(Changed::Runs);
        self.joined = Some(joined);
        Ok((client, epoch))
    }

    async fn join_anew(&self) -> StoreResult<Joined> {
        let Settings { broker, name } = &self.settings;
        let signal = Arc::clone(&self.signal);
        let client = Arc::new(RpcClient::open(broker, name, move || signal.note_hint()).await?);
        let installation = Some(&self.found.installation);
        let epoch = join(&client, name, &self.process, installation).await?.epoch;
        let beats = tokio::spawn(beat(Arc::clone(&client), epoch, Arc::clone(&self.signal)));
        Ok(Joined { client, epoch, beats })
    }

    async fn apply_now(&mut self, batch: Vec<Operation>) -> StoreResult<Outcomes> {
        let (client, epoch) = self.joined().await?;
        self.resolve_unanswered(&client, epoch).await?;
        let undo = std::mem::take(&mut self.to_undo);
        let undone = undo.len();
        let mut asked: Vec<Operation> = undo.iter().cloned().map(Operation::Undo).collect();
        let sources: Vec<AnswerFrom> =
            batch.into_iter().map(|operation| self.route(operation, &mut asked)).collect();
        let answered = self.ask(&client, epoch, asked).await;
        if answered.is_err() && self.unanswered.is_none() {
            self.to_undo = undo;
        }
        let mut answers = answered?.into_iter().skip(undone);
        let outcomes = sources.into_iter().map(|source| source.outcome(&mut answers));
        outcomes.collect::<Option<_>>().ok_or_else(misunderstood)
    }

    /// Learns what came of the batch that was not answered.
    async fn resolve_unanswered(&mut self, client: &RpcClient, epoch: i64) -> StoreResult<()> {
        let Some(operations) = self.unanswered.clone() else {
            return Ok(());
        };
        match self.send(client, epoch, operations).await? {
            RelayAnswer::Answered(outcomes) => {
                self.to_undo.extend(outcomes.into_iter().filter_map(handed_out));
            }
            RelayAnswer::Outdated => {}
            RelayAnswer::Lost => return Err(self.lost()),
        }
        self.unanswered = None;
        Ok(())
    }

    /// Has a batch carried out, under the next number if it changes something.
    async fn ask(
        &mut self,
        client: &RpcClient,
        epoch: i64,
        operations: Vec<Operation>,
    ) -> StoreResult<Outcomes> {
        if operations.is_empty() {
            return Ok(Vec::new());
        }
        if !operations.iter().all(Operation::only_reads) {
            self.number += 1;
            self.unanswered = Some(operations.clone());
        }
        match self.send(client, epoch, operations).await? {
            RelayAnswer::Answered(outcomes) => {
                self.unanswered = None;
                Ok(outcomes)
            }
            RelayAnswer::Outdated => Err(misunderstood()),
            RelayAnswer::Lost => Err(self.lost()),
        }
    }

    /// It was taken for dead, and asks again once it has joined anew.
    fn lost(&mut self) -> StoreError {
        self.joined = None;
        StoreError::Busy("this relay was taken for dead: it joins anew".to_owned())
    }

    /// Sends a batch under the last number, which stays the last one until it is answered: what a daemon says that it could not
    /// do may be on its way to storage all the same.
    async fn send(
        &mut self,
        client: &RpcClient,
        epoch: i64,
        operations: Vec<Operation>,
    ) -> StoreResult<RelayAnswer> {
        let request = Request::Batch { epoch, lane: Lane::Jobs, number: self.number, operations };
        match client.ask(&request).await? {
            Reply::Batch(answer) => Ok(answer),
            Reply::Busy(text) => Err(StoreError::Busy(text)),
            Reply::Full(text) => Err(StoreError::Full(text)),
            Reply::Refused(text) => {
                self.unanswered = None;
                // One request of the batch is too much; the others are asked again without it.
                Err(StoreError::Busy(text))
            }
            Reply::Joined(_) | Reply::Left => Err(misunderstood()),
        }
    }

    /// Adds an operation to those that are asked, unless it is answered here.
    fn route(&mut self, operation: Operation, asked: &mut Vec<Operation>) -> AnswerFrom {
        let answer = match &operation {
            Operation::Dispatch(_) if self.drains => Outcome::Dispatch(Dispatched::Nothing),
            Operation::HasWork(_) if self.drains => Outcome::HasWork(false),
            Operation::AcceptedEntries(_) => Outcome::AcceptedEntries(Vec::new()),
            Operation::FetcherRecords(_) => Outcome::FetcherRecords(Vec::new()),
            Operation::Drain(_) => {
                self.drains = true;
                asked.push(Operation::CountInFlight(CountInFlight));
                return AnswerFrom::Drained;
            }
            _ => {
                self.drains &= operation != Operation::SetPaused(SetPaused(false));
                asked.push(operation);
                return AnswerFrom::Daemon;
            }
        };
        AnswerFrom::Local(answer)
    }

    async fn leave(&mut self) -> StoreResult<()> {
        if self.unanswered.is_some() || !self.to_undo.is_empty() {
            let _ = timeout(CALL_MAX, self.apply_now(Vec::new())).await;
        }
        if let Some(joined) = self.joined.take() {
            // Else a daemon finds out by itself.
            let leave = Request::Leave { epoch: joined.epoch };
            let _ = timeout(CALL_MAX, joined.client.ask(&leave)).await;
            joined.client.close().await;
        }
        Ok(())
    }
}

/// Where an operation's answer comes from.
enum AnswerFrom {
    Daemon,
    /// The number of jobs in flight was asked for.
    Drained,
    Local(Outcome),
}

impl AnswerFrom {
    /// `None`: there are too few answers.
    fn outcome(
        self,
        answers: &mut impl Iterator<Item = Result<Outcome, Rejected>>,
    ) -> Option<Result<Outcome, Rejected>> {
        Some(match self {
            Self::Local(outcome) => Ok(outcome),
            Self::Daemon => answers.next()?,
            Self::Drained => answers.next()?.map(|outcome| match outcome {
                Outcome::CountInFlight(jobs) => Outcome::Drain(jobs),
                other => other,
            }),
        })
    }
}

fn handed_out(outcome: Result<Outcome, Rejected>) -> Option<Undo> {
    match outcome {
        Ok(Outcome::Dispatch(Dispatched::Job(attempt, job))) => {
            Some(Undo { key: job.key, attempt })
        }
        _ => None,
    }
}

async fn join(
    client: &RpcClient,
    name: &str,
    process: &Arc<str>,
    installation: Option<&Arc<str>>,
) -> StoreResult<JoinedRelay> {
    let (process, installation) = (Arc::clone(process), installation.cloned());
    let request = Request::Join { name: name.into(), process, installation };
    match client.ask(&request).await? {
        Reply::Joined(joined) => Ok(joined),
        Reply::Busy(text) => Err(StoreError::Busy(text)),
        Reply::Full(text) => Err(StoreError::Full(text)),
        Reply::Refused(text) => Err(StoreError::Rejected(text)),
        Reply::Batch(_) | Reply::Left => Err(misunderstood()),
    }
}

/// A relay that has lived goes on trying, whatever the broker refuses.
fn later(error: StoreError) -> StoreError {
    match error {
        StoreError::Fatal(text) => StoreError::Busy(text),
        error => error,
    }
}

fn misunderstood() -> StoreError {
    StoreError::Fatal(
        "a daemon answered what was not asked: its version may be another one".to_owned(),
    )
}

/// Says that the relay lives, until it is taken for dead.
async fn beat(client: Arc<RpcClient>, epoch: i64, signal: Arc<ChangeSignal>) {
    let alive = Request::Batch { epoch, lane: Lane::Jobs, number: 0, operations: Vec::new() };
    loop {
        sleep(BEAT).await;
        match client.ask(&alive).await {
            Ok(Reply::Batch(RelayAnswer::Lost)) => {
                info!("This relay was taken for dead: it joins anew.");
                return signal.lose(epoch);
            }
            // The StorageActor asks for its leases, and so has the store connect anew.
            Err(_) if client.is_broken() => return signal.raise(Changed::Leases),
            _ => {}
        }
    }
}

impl Store for RelayStore {
    /// Time is the daemons'.
    fn apply(&mut self, _: UnixSeconds, batch: Vec<Operation>) -> StoreFuture<'_, Outcomes> {
        Box::pin(self.apply_now(batch))
    }

    fn poll_changed(&mut self, task: &mut Context<'_>) -> Poll<Changed> {
        self.signal.poll(task)
    }

    fn is_remote(&self) -> bool {
        true
    }

    fn look_every(&self) -> Duration {
        self.signal.look_every()
    }

    fn maintain(&mut self) -> StoreFuture<'_, Checkpoint> {
        // The daemons' business.
        Box::pin(std::future::ready(Ok(Checkpoint::Complete)))
    }

    fn close(&mut self) -> StoreFuture<'_, ()> {
        Box::pin(self.leave())
    }
}
