//! A relay's stores: they keep nothing, and have a daemon carry out the StorageActors' requests, over the broker.
//!
//! [`RelayStore`] is for workers and operators, [`lists::ListStore`] for files: each has its [lane](batches), so that lists hold up
//! no worker. Jobs handed out by a batch whose answer was lost are undone, because no worker got them.

mod batches;
mod change_signal;
mod lists;
mod membership;
mod row_sender;
mod rpc_client;

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use shiftboss_actors::store::{Changed, Polls, Store, StoreFuture};
use shiftboss_queue::error::{Rejected, StoreResult};
use shiftboss_queue::operation::{
    CountInFlight, Dispatched, JoinedRelay, Lane, Operation, Outcome, SetPaused, Undo,
};
use shiftboss_queue::record::Millis;
use tokio::time::timeout;

use crate::link::{Broker, CALL_MAX};
use crate::message::{HAND_OUTS_MAX, MessageSize};
use batches::{Asker, Batches, Outcomes};
use lists::ListStore;
use membership::{Membership, misunderstood};

#[derive(Debug, Clone)]
pub struct Settings {
    pub broker: Broker,
    /// Unique among all relays of the installation.
    pub name: String,
    pub message: MessageSize,
    /// How often daemons are asked for work while workers wait.
    pub polls: Polls,
}

pub struct Opened {
    /// For workers and operators.
    pub store: Box<dyn Store + Send>,
    pub list_store: Box<dyn Store + Send>,
    pub found: JoinedRelay,
}

/// Joins the installation; `waits` is called while no daemon answers.
///
/// # Errors
/// `Busy` when the broker is away, `Displaced` when another relay has the name, `Fatal` when the broker refuses.
pub async fn open(settings: Settings, waits: impl Fn()) -> StoreResult<Opened> {
    let message = settings.message;
    let (membership, found) = Membership::join(settings, waits).await?;
    let membership = Arc::new(membership);
    let list_store = Box::new(ListStore::new(Arc::clone(&membership), message));
    let batches = Batches::new(Lane::Jobs);
    let store = RelayStore { membership, batches, to_undo: Vec::new(), drains: false };
    Ok(Opened { store: Box::new(store), list_store, found })
}

/// The store for workers and operators. See the module's documentation.
struct RelayStore {
    membership: Arc<Membership>,
    batches: Batches,
    /// Jobs that no worker got.
    to_undo: Vec<Undo>,
    /// This relay hands nothing out.
    drains: bool,
}

impl RelayStore {
    async fn apply_now(&mut self, batch: Vec<Operation>) -> StoreResult<Outcomes> {
        let membership = Arc::clone(&self.membership);
        let (client, epoch) = membership.joined().await?;
        let asker = Asker { membership: &membership, client: &client, epoch };
        let lost = self.batches.resolve(asker).await?;
        self.to_undo.extend(lost.into_iter().filter_map(|(_, outcome)| handed_out(outcome)));
        let undo = std::mem::take(&mut self.to_undo);
        let undone = undo.len();
        let mut asked: Vec<Operation> = undo.iter().cloned().map(Operation::Undo).collect();
        let sources: Vec<AnswerFrom> =
            batch.into_iter().map(|operation| self.route(operation, &mut asked)).collect();
        let answered = self.batches.ask(asker, asked).await;
        if answered.is_err() && !self.batches.is_unanswered() {
            self.to_undo = undo;
        }
        let mut answers = answered?.into_iter().skip(undone);
        let outcomes = sources.into_iter().map(|source| source.outcome(&mut answers));
        outcomes.collect::<Option<_>>().ok_or_else(misunderstood)
    }

    /// Adds an operation to those that are sent, unless it is answered here.
    fn route(&mut self, operation: Operation, asked: &mut Vec<Operation>) -> AnswerFrom {
        let answer = match &operation {
            Operation::Dispatch(_) if self.drains => Outcome::Dispatch(Dispatched::Nothing),
            Operation::HasWork(_) if self.drains => Outcome::HasWork(false),
            // The daemon takes care of these itself.
            Operation::NextHoldEnd(_) => Outcome::NextHoldEnd(None),
            Operation::NextOpening(_) => Outcome::NextOpening(None),
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
        if self.batches.is_unanswered() || !self.to_undo.is_empty() {
            let _ = timeout(CALL_MAX, self.apply_now(Vec::new())).await;
        }
        self.membership.leave().await;
        Ok(())
    }
}

enum AnswerFrom {
    Daemon,
    /// Answered with the number of jobs in flight.
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
        Ok(Outcome::Dispatch(Dispatched::Job(attempt, job, _))) => {
            Some(Undo { key: job.key, attempt })
        }
        _ => None,
    }
}

impl Store for RelayStore {
    /// The daemons have the clock.
    fn apply(&mut self, _: Millis, batch: Vec<Operation>) -> StoreFuture<'_, Outcomes> {
        Box::pin(self.apply_now(batch))
    }

    fn poll_changed(&mut self, task: &mut Context<'_>) -> Poll<Changed> {
        self.membership.signals.jobs.poll(task)
    }

    fn is_remote(&self) -> bool {
        true
    }

    fn look_every(&self) -> Duration {
        self.membership.signals.jobs.look_every()
    }

    fn hand_outs_max(&self) -> usize {
        HAND_OUTS_MAX
    }

    fn close(&mut self) -> StoreFuture<'_, ()> {
        Box::pin(self.leave())
    }
}
