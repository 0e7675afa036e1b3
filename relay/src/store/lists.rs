//! A relay's store for lists: rows go by their ranges' queues, everything else in batches, like jobs.
//!
//! The watcher and the tails use it, through a StorageActor of their own, so what waits here does not hold up workers.
//! A run's position moves when all rows before it are answered, in a batch of its own. A request repeated after an
//! error continues where it stopped.

use std::collections::HashMap;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use shiftboss_actors::store::{Changed, Store, StoreFuture};
use shiftboss_protocol::model::Run;
use shiftboss_queue::error::{Rejected, StoreResult};
use shiftboss_queue::file_identity::Position;
use shiftboss_queue::operation::{
    AddRows, DeleteRuns, Lane, Operation, Outcome, Prune, Reading, RegisterRun, RowBatch,
};
use shiftboss_queue::record::Millis;
use tokio::time::Instant;

use super::batches::{Asker, Batches, Outcomes};
use super::membership::{Membership, misunderstood};
use super::row_sender::RowSender;
use crate::message::MessageSize;

/// How long to wait for rows before the requester is answered that it takes longer.
const PATIENCE: Duration = Duration::from_secs(10);
/// Rows that are sent together: as many as keep daemons busy while their answers are on the way.
const STEP_ROWS: usize = 5_000;

pub(super) struct ListStore {
    membership: Arc<Membership>,
    batches: Batches,
    sender: RowSender,
    /// The transfer to each run, at most one at a time.
    transfers: HashMap<Run, Transfer>,
}

struct Transfer {
    batch: RowBatch,
    /// The daemon knows how the file is read.
    is_begun: bool,
    /// The rows are with the sender.
    is_sent: bool,
    /// All is done, or it was rejected.
    end: Option<Result<(), Rejected>>,
}

impl ListStore {
    pub(super) fn new(membership: Arc<Membership>, size: MessageSize) -> Self {
        let (batches, sender) = (Batches::new(Lane::Lists), RowSender::new(size));
        Self { membership, batches, sender, transfers: HashMap::new() }
    }

    async fn apply_now(&mut self, batch: Vec<Operation>) -> StoreResult<Outcomes> {
        let membership = Arc::clone(&self.membership);
        let (client, epoch) = membership.joined().await?;
        let asker = Asker { membership: &membership, client: &client, epoch };
        let deadline = Instant::now() + PATIENCE;
        self.end_others(asker, &batch, deadline).await?;
        for rows in rows_of(&batch) {
            self.transfers.entry(rows.run.clone()).or_insert_with(|| Transfer::of(rows));
        }
        // Rows that can be sent at once go to the broker before any request to a daemon, which may be away.
        self.send_rows(asker, &batch, deadline).await?;
        self.resolve(asker).await?;
        self.begin(asker).await?;
        self.send_rows(asker, &batch, deadline).await?;
        self.finish(asker, batch).await
    }

    /// Learns the result of the unanswered batch. It is only noted for rows: everything else may be repeated.
    async fn resolve(&mut self, asker: Asker<'_>) -> StoreResult<()> {
        for (operation, outcome) in self.batches.resolve(asker).await? {
            if let Operation::AddRows(AddRows(noted)) = operation {
                self.note_moved(&noted, outcome);
            }
        }
        Ok(())
    }

    /// A batch that begins a reading does not end its transfer.
    fn note_moved(&mut self, noted: &RowBatch, outcome: Result<Outcome, Rejected>) {
        let transfer = self.transfers.get_mut(&noted.run);
        let its = transfer.filter(|transfer| transfer.behind() == *noted);
        if let Some(transfer) = its {
            transfer.end = Some(outcome.map(|_| ()));
        }
    }

    /// Waits for rows of the present request's runs that were sent for an earlier request, which was given up.
    async fn end_others(
        &mut self,
        asker: Asker<'_>,
        batch: &[Operation],
        deadline: Instant,
    ) -> StoreResult<()> {
        let asked = batch.iter().flat_map(runs_of);
        let is_other = |(run, goes_on): &(&Run, Option<&RowBatch>)| {
            self.transfers.get(*run).is_some_and(|transfer| Some(&transfer.batch) != *goes_on)
        };
        let others: Vec<&Run> = asked.filter(is_other).map(|(run, _)| run).collect();
        self.sender.settle(asker, &others, deadline).await?;
        for run in others {
            self.sender.take_rejected(run);
            self.transfers.remove(run);
        }
        Ok(())
    }

    /// Announces that files are read anew, before their rows are sent.
    async fn begin(&mut self, asker: Asker<'_>) -> StoreResult<()> {
        let is_due = |transfer: &&mut Transfer| !transfer.is_begun && transfer.end.is_none();
        let mut anew: Vec<&mut Transfer> = self.transfers.values_mut().filter(is_due).collect();
        let begun = anew.iter().map(|transfer| Operation::AddRows(AddRows(transfer.before())));
        let outcomes = self.batches.ask(asker, begun.collect()).await?;
        for (transfer, outcome) in anew.iter_mut().zip(outcomes) {
            transfer.is_begun = true;
            transfer.end = outcome.err().map(Err);
        }
        Ok(())
    }

    async fn send_rows(
        &mut self,
        asker: Asker<'_>,
        batch: &[Operation],
        deadline: Instant,
    ) -> StoreResult<()> {
        for rows in rows_of(batch) {
            let transfer = self.transfers.get_mut(&rows.run);
            let due = transfer.filter(|transfer| transfer.is_begun && transfer.end.is_none());
            if due.is_some_and(|transfer| !std::mem::replace(&mut transfer.is_sent, true)) {
                self.sender.push(&rows.run, &rows.rows);
            }
        }
        let sent: Vec<&Run> = rows_of(batch).map(|rows| &rows.run).collect();
        self.sender.settle(asker, &sent, deadline).await?;
        for run in sent {
            let rejected = self.sender.take_rejected(run).map(|why| Err(Rejected(why)));
            if let Some(transfer) = self.transfers.get_mut(run).filter(|it| it.end.is_none()) {
                transfer.end = rejected;
            }
        }
        Ok(())
    }

    /// Moves the positions, and sends everything else.
    async fn finish(&mut self, asker: Asker<'_>, batch: Vec<Operation>) -> StoreResult<Outcomes> {
        let (mut asked, mut known) = (Vec::new(), Vec::new());
        for operation in batch {
            let (outcome, operation) = self.route(operation);
            known.push(outcome);
            asked.extend(operation);
        }
        let mut answers = self.batches.ask(asker, asked.clone()).await?.into_iter();
        for operation in &asked {
            if let Operation::AddRows(AddRows(rows)) = operation {
                self.transfers.remove(&rows.run);
            }
        }
        let outcomes = known.into_iter().map(|known| known.or_else(|| answers.next()));
        outcomes.collect::<Option<_>>().ok_or_else(misunderstood)
    }

    /// Answers what is known here, or returns what must be sent.
    fn route(
        &mut self,
        operation: Operation,
    ) -> (Option<Result<Outcome, Rejected>>, Option<Operation>) {
        let answer = match &operation {
            // The store for jobs has those.
            Operation::Leases(_) => Outcome::Leases(Vec::new()),
            // The daemon's own, of which it takes care.
            Operation::NextHoldEnd(_) => Outcome::NextHoldEnd(None),
            Operation::NextOpening(_) => Outcome::NextOpening(None),
            Operation::AddRows(AddRows(rows)) => {
                let Some(transfer) = self.transfers.get(&rows.run) else {
                    return (None, Some(operation));
                };
                let Some(end) = transfer.end.clone() else {
                    return (None, Some(Operation::AddRows(AddRows(transfer.behind()))));
                };
                self.transfers.remove(&rows.run);
                return (Some(end.map(Outcome::AddRows)), None);
            }
            _ => return (None, Some(operation)),
        };
        (Some(Ok(answer)), None)
    }
}

impl Transfer {
    fn of(batch: &RowBatch) -> Self {
        let is_begun = batch.reading == Reading::Onward;
        Self { batch: batch.clone(), is_begun, is_sent: false, end: None }
    }

    /// The note before the rows are there, for a file that is read anew: the next reader begins at its start.
    fn before(&self) -> RowBatch {
        let (position, complete, skipped) = (Position::default(), false, 0);
        RowBatch { position, complete, skipped, ..self.batch.without_rows() }
    }

    /// The note when the rows are there.
    fn behind(&self) -> RowBatch {
        let RowBatch { skipped, .. } = self.batch;
        let (by_range, reading) = (true, Reading::Onward);
        RowBatch { skipped, by_range, reading, ..self.batch.without_rows() }
    }
}

/// The additions to lists that have rows; everything else is sent unchanged.
fn rows_of(batch: &[Operation]) -> impl Iterator<Item = &RowBatch> {
    batch.iter().filter_map(|operation| match operation {
        Operation::AddRows(AddRows(rows)) if !rows.rows.is_empty() => Some(rows),
        _ => None,
    })
}

/// The runs that an operation concerns, each with the batch if that continues rows that are on their way.
fn runs_of(operation: &Operation) -> Vec<(&Run, Option<&RowBatch>)> {
    match operation {
        Operation::AddRows(AddRows(rows)) => vec![(&rows.run, Some(rows))],
        Operation::RegisterRun(RegisterRun(run)) | Operation::Prune(Prune { run, .. }) => {
            vec![(run, None)]
        }
        Operation::BeginDeletion(it) => vec![(&it.0, None)],
        Operation::DeleteRuns(DeleteRuns { runs, .. }) => {
            runs.iter().map(|run| (run, None)).collect()
        }
        _ => Vec::new(),
    }
}

impl Store for ListStore {
    /// Time is the daemons'.
    fn apply(&mut self, _: Millis, batch: Vec<Operation>) -> StoreFuture<'_, Outcomes> {
        Box::pin(self.apply_now(batch))
    }

    fn poll_changed(&mut self, task: &mut Context<'_>) -> Poll<Changed> {
        self.membership.signals.lists.poll(task)
    }

    fn is_remote(&self) -> bool {
        true
    }

    fn step_rows(&self) -> usize {
        STEP_ROWS
    }

    /// The next process reads again what is on its way.
    fn close(&mut self) -> StoreFuture<'_, ()> {
        Box::pin(std::future::ready(Ok(())))
    }
}
