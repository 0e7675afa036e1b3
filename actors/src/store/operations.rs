//! The operations of a store, as data: what is asked, and what each is answered.
//!
//! Made by the StorageActor, carried out by a [`Store`](super::Store). [`Request`] keeps the types of both
//! sides together, so that whoever asks never sees [`Operation`] or [`Outcome`]. A new operation is a
//! struct here, a line in the table below, and an arm in each store.

use std::sync::Arc;

use super::{
    Ack, Added, Cancelled, Dispatched, EntryId, ExpiredLease, FetcherRecord, InputDirectory,
    LeaseHolder, Rejected, Requeued, RowBatch, SpoolEntry, StoreError, StoreResult, StoredRun,
};
use shiftboss_protocol::model::{Attempt, Idle, Key, Row, Run};

/// Takes the next job (spec 2, 5) and marks it as handed out; nothing while the queue is paused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dispatch {
    /// To whom it is leased, which excludes its key until the attempt ends; `None`: to a classic worker.
    pub holder: Option<LeaseHolder>,
}

/// Records the end of `key`'s job, by key alone (classic); an unknown key changes nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Complete {
    /// The key whose job ended.
    pub key: Key,
    /// How it ended.
    pub exit_code: i64,
}

/// Records the end of a leased attempt. Said again, the first one stands. One whose lease expired still
/// counts as long as its key was not handed out again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompleteAttempt {
    /// Which attempt.
    pub attempt: Attempt,
    /// How it ended.
    pub exit_code: i64,
}

/// Gives a leased attempt's job back to its old place in the order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Release(pub Attempt);

/// Asks whether an attempt is leased still: [`Ack::Recorded`] if so, else [`Ack::Stale`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heartbeat(pub Attempt);

/// The lease of an attempt expired: its job goes back to its old place, or, after too many such ends, is
/// dead-lettered until its fetcher's next run or a [`Retry`]. `None`: the attempt had ended already.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expire(pub Attempt);

/// Makes a dispatch undone, order included, if the key's log row is still that dispatch's; says whether.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Undo {
    /// The key that was handed out.
    pub key: Key,
    /// Which dispatch.
    pub attempt: Attempt,
}

/// Puts the ended rows of a key back in the queue, dead-lettered ones too, but for those in flight. Says
/// how many; `None`: no row has that key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retry {
    /// Which key.
    pub key: Key,
    /// The fetcher whose rows alone are meant; `None`: all are.
    pub fetcher: Option<Arc<str>>,
}

/// Gives the job of a key that is in flight back to its old place, whoever has it; classic jobs, too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requeue(pub Key);

/// From now on, and after a restart, nothing is handed out; or the end of that. Says how many jobs are in
/// delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetPaused(pub bool);

/// Makes a run known, empty and growing; a known one is left as it is. Says how it stands. One under
/// deletion is rejected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegisterRun(pub Run);

/// Adds rows, position and completion of a registered run. A row that is there keeps its state and takes
/// the new payload. Rejected for an unknown run, or one under deletion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddRows(pub RowBatch);

/// Deletes rows of a run that were not read since its last [listing](super::Reading::Listing) began. Says
/// whether to ask again; when not, the run is stale no longer. Without a listing it does nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prune {
    /// Which run.
    pub run: Run,
    /// So many rows are looked at, at the most.
    pub limit: usize,
}

/// Marks a run for its deletion: no row of it is handed out from now on. An unknown run is left alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BeginDeletion(pub Run);

/// Deletes rows of `runs`, one run after the other, and each run with its last row. Says how many of the
/// first runs are gone; one that was not known counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeleteRuns {
    /// Which runs.
    pub runs: Vec<Run>,
    /// So many rows and runs, at the most.
    pub limit: usize,
}

/// Notes that an input file is rejected, for status. An earlier note keeps its time, and gets the new reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RejectFile {
    /// The file's name, escaped.
    pub name: String,
    /// Why.
    pub reason: String,
}

/// Takes the note about a rejected file back, by its escaped name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForgetRejected(pub String);

/// Notes how the input directory is. A loss that goes on keeps its time, and gets the new reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoteInput(pub InputDirectory);

/// Adds a single task, behind those of its key that wait.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddTask(pub Row);

/// Deletes the single tasks of a key, the newest first, a bounded number at once; that in flight stays.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CancelTasks(pub Key);

/// Accepts entries of a spool: adds the task of each, and remembers which entry it came from. A batch with
/// this in it is on the disk when it is answered, whatever the durability: the entry is removed then.
/// One that is remembered is [`Added::Known`], whatever became of its task. One that is [`Added::Full`]
/// is not remembered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AcceptEntries(pub Vec<SpoolEntry>);

/// Forgets an accepted entry, once its removal from the spool is durable; an unknown one changes nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForgetAccepted(pub EntryId);

/// Notes how a managed fetcher is, in place of what was noted of it before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoteFetcher(pub FetcherRecord);

/// Forgets a managed fetcher; an unknown one changes nothing. Its lists stay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForgetFetcher(pub Arc<str>);

/// Changes nothing, but needs whatever a change would need: a lock that somebody holds is an error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probe;

/// Every run that the store knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Runs;

/// All leased attempts, with their leases in seconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leases;

/// Whether a [`Dispatch`] would find a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HasWork;

/// How many jobs are in flight.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CountInFlight;

/// Why there may be nothing to hand out; takes no longer the larger the queue is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WhyIdle;

/// The accepted entries that are remembered, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AcceptedEntries;

/// All that is noted of managed fetchers, by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetcherRecords;

/// One operation or several that are asked together, with the type of its answer.
pub trait Request: Send + 'static {
    /// What it is answered.
    type Answer: Send + 'static;

    /// Adds its operations to a batch.
    fn push(self, batch: &mut Vec<Operation>);

    /// Takes the answer from the outcomes of its operations.
    ///
    /// # Errors
    /// What the store rejected; `Fatal` when the store answered another operation.
    fn answer(outcomes: &mut Outcomes) -> StoreResult<Self::Answer>;
}

/// The outcomes of a request's operations, in order, as far as they were not taken yet.
pub type Outcomes = std::vec::IntoIter<Result<Outcome, Rejected>>;

/// What a store answers a request that it was not asked: a defect of the store.
fn mismatched() -> StoreError {
    StoreError::Fatal("the store did not answer what it was asked".to_owned())
}

/// The table of operations: what is asked, and the type of its answer.
macro_rules! operations {
    ($($request:ident => $answer:ty,)*) => {
        /// One step of a batch.
        #[derive(Debug, Clone, PartialEq, Eq)]
        #[allow(missing_docs)] // Each variant is the struct of its name.
        pub enum Operation { $($request($request),)* }

        /// What came of an [`Operation`].
        #[derive(Debug, Clone, PartialEq, Eq)]
        #[allow(missing_docs)] // Each variant is the answer to the operation of its name.
        pub enum Outcome { $($request($answer),)* }

        $(impl Request for $request {
            type Answer = $answer;

            fn push(self, batch: &mut Vec<Operation>) {
                batch.push(Operation::$request(self));
            }

            fn answer(outcomes: &mut Outcomes) -> StoreResult<$answer> {
                match outcomes.next() {
                    Some(Ok(Outcome::$request(answer))) => Ok(answer),
                    Some(Err(Rejected(text))) => Err(StoreError::Rejected(text)),
                    Some(Ok(_)) | None => Err(mismatched()),
                }
            }
        })*
    };
}

operations! {
    Dispatch => Dispatched,
    Complete => (),
    CompleteAttempt => Ack,
    Release => Ack,
    Heartbeat => Ack,
    Expire => Option<ExpiredLease>,
    Undo => bool,
    Retry => Option<u64>,
    Requeue => Requeued,
    SetPaused => u64,
    RegisterRun => StoredRun,
    AddRows => (),
    Prune => bool,
    BeginDeletion => (),
    DeleteRuns => usize,
    RejectFile => (),
    ForgetRejected => (),
    NoteInput => (),
    AddTask => Added,
    CancelTasks => Cancelled,
    AcceptEntries => Vec<Added>,
    ForgetAccepted => (),
    NoteFetcher => (),
    ForgetFetcher => (),
    Probe => (),
    Runs => Vec<StoredRun>,
    Leases => Vec<(Attempt, u32)>,
    HasWork => bool,
    CountInFlight => u64,
    WhyIdle => Idle,
    AcceptedEntries => Vec<EntryId>,
    FetcherRecords => Vec<FetcherRecord>,
}

impl Operation {
    /// It changes nothing: a batch of such ones needs no lock, so nobody's is in the way.
    #[must_use]
    pub fn only_reads(&self) -> bool {
        matches!(
            self,
            Self::Heartbeat(_)
                | Self::Runs(_)
                | Self::Leases(_)
                | Self::HasWork(_)
                | Self::CountInFlight(_)
                | Self::WhyIdle(_)
                | Self::AcceptedEntries(_)
                | Self::FetcherRecords(_)
        )
    }

    /// It changes many rows: it costs least as the first of a transaction.
    #[must_use]
    pub fn is_bulk(&self) -> bool {
        match self {
            Self::AddRows(AddRows(batch)) => !batch.rows.is_empty(),
            Self::Prune(_) | Self::DeleteRuns(_) => true,
            _ => false,
        }
    }
}

/// Two requests one behind the other in one transaction; each is answered for itself.
impl<A: Request, B: Request> Request for (A, B) {
    type Answer = (StoreResult<A::Answer>, StoreResult<B::Answer>);

    fn push(self, batch: &mut Vec<Operation>) {
        self.0.push(batch);
        self.1.push(batch);
    }

    fn answer(outcomes: &mut Outcomes) -> StoreResult<Self::Answer> {
        let first = A::answer(outcomes);
        Ok((first, B::answer(outcomes)))
    }
}

/// Operations of one kind in one transaction; each is answered for itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Each<R>(pub Vec<R>);

impl<R: Request> Request for Each<R> {
    type Answer = Vec<StoreResult<R::Answer>>;

    fn push(self, batch: &mut Vec<Operation>) {
        self.0.into_iter().for_each(|request| request.push(batch));
    }

    fn answer(outcomes: &mut Outcomes) -> StoreResult<Self::Answer> {
        let mut answers = Vec::with_capacity(outcomes.len());
        while !outcomes.as_slice().is_empty() {
            answers.push(R::answer(outcomes));
        }
        Ok(answers)
    }
}
