//! The operations of a queue, as data, and their answers. A batch of them is one transaction.
//!
//! Sent to the StorageActor, which gathers them for the [engine](crate::engine) to carry out. [`Request`] keeps the types of both
//! sides together, so that no sender sees [`Operation`] or [`Outcome`]. A new operation is an entry of the table below, and an arm
//! of the engine.

mod outcomes;

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use shiftboss_protocol::model::{Attempt, Idle, Key, LeaseHolder, Row, Run};
use shiftboss_protocol::verbs::Asks;

use crate::error::{Rejected, StoreError, StoreResult};
use crate::groups::GroupRules;
use crate::hold_rules::HoldOf;
pub use outcomes::*;
use shiftboss_protocol::answers::FetcherRecord;

/// One operation or several that are asked together, with the type of its answer.
pub trait Request: Send + 'static {
    type Answer: Send + 'static;

    fn push(self, batch: &mut Vec<Operation>);

    /// Takes the answer from the outcomes of its operations.
    ///
    /// # Errors
    /// What the store rejected; `Fatal` when the store answered another operation.
    fn answer(outcomes: &mut Outcomes) -> StoreResult<Self::Answer>;
}

/// The outcomes of a request's operations, in order, as far as they were not taken yet.
pub type Outcomes = std::vec::IntoIter<Result<Outcome, Rejected>>;

/// Makes an operation and its answer from each line of the table below: `Operation { its: members } => answer`.
macro_rules! operations {
    (@struct [$($doc:tt)*] $request:ident { $($fields:tt)* }) => {
        $($doc)*
        #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
        pub struct $request { $($fields)* }
    };
    (@struct [$($doc:tt)*] $request:ident $(($field:ty))?) => {
        $($doc)*
        #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
        pub struct $request $((pub $field))?;
    };
    ($($(#[$doc:meta])* $request:ident $({ $($fields:tt)* })? $(($field:ty))? => $answer:ty,)*) => {
        $(operations!(@struct [$(#[$doc])*] $request $({ $($fields)* })? $(($field))?);)*

        #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum Operation { $($request($request),)* }

        /// What came of an [`Operation`].
        #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum Outcome { $($request($answer),)* }

        $(impl From<$request> for Operation {
            fn from(request: $request) -> Self {
                Self::$request(request)
            }
        }

        impl Request for $request {
            type Answer = $answer;

            fn push(self, batch: &mut Vec<Operation>) {
                batch.push(Operation::$request(self));
            }

            fn answer(outcomes: &mut Outcomes) -> StoreResult<$answer> {
                match outcomes.next() {
                    Some(Ok(Outcome::$request(answer))) => Ok(answer),
                    Some(Err(Rejected(text))) => Err(StoreError::Rejected(text)),
                    // A defect of the store.
                    Some(Ok(_)) | None => Err(StoreError::Fatal(
                        "the store did not answer what it was asked".to_owned(),
                    )),
                }
            }
        })*
    };
}

operations! {
    /// Takes the next job (spec 2, 5) and marks it as handed out; nothing while the queue is paused.
    #[derive(Default)]
    Dispatch {
        /// Who gets the lease, which excludes its key until the attempt ends; `None`: a classic worker.
        pub holder: Option<LeaseHolder>,
        /// Only tasks of these fetchers; `None`: of all.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub fetchers: Option<Vec<Arc<str>>>,
    } => Dispatched,

    /// Records the end of `key`'s job, by key alone (classic); an unknown key changes nothing.
    Complete {
        pub key: Key,
        pub exit_code: i64,
    } => (),

    /// Records the end of a leased attempt. If repeated, the first end stands. An attempt whose lease expired still
    /// counts as long as its key was not handed out again.
    CompleteAttempt {
        pub attempt: Attempt,
        pub exit_code: i64,
    } => Ack,

    /// What a worker asks for its job's group and task, before it reports the end. It says nothing of that.
    AskFor {
        pub attempt: Attempt,
        pub asks: Asks,
    } => Ack,

    /// Gives a leased attempt's job back to its old place in the order; one that is to [stop](crate::rules::stops) is
    /// cancelled.
    Release(Attempt) => Ack,

    /// Asks whether an attempt is still leased: [`Ack::Recorded`] if so, or [`Ack::Stopping`], else [`Ack::Stale`].
    Heartbeat(Attempt) => Ack,

    /// The lease of an attempt expired: its job goes back to its old place, or, after too many such ends, is
    /// dead-lettered until its fetcher's next run or a [`Retry`]. `None`: the attempt had ended already.
    Expire(Attempt) => Option<ExpiredLease>,

    /// Undoes a dispatch, order included, if the key's log row is still that dispatch's; answers whether it did.
    Undo {
        pub key: Key,
        pub attempt: Attempt,
    } => bool,

    /// Puts the ended rows of a key back in the queue, dead-lettered ones too, except those in flight.
    Retry {
        pub key: Key,
        /// Only rows of this fetcher; `None`: all rows.
        pub fetcher: Option<Arc<str>>,
    } => Retried,

    /// Keeps a key from being handed out, in place of an earlier hold of it; a job in flight goes on. It outlives lists and
    /// restarts, and then the key is back at its old place.
    Hold {
        pub key: Key,
        /// How long; `None`: until [`Unhold`].
        pub seconds: Option<u32>,
        /// For people; may be empty.
        pub reason: String,
        /// Who wants it, as he names himself.
        pub by: Arc<str>,
    } => Held,

    /// Has a key run soon: its ended rows wait again, as by [`Retry`], and it goes ahead of the order as far as the
    /// [`Credit`](crate::credit::Credit) allows. A key in flight runs once more. A hand-out that is taken back leaves
    /// it bumped.
    Bump {
        pub key: Key,
        /// Who wants it, as he names himself.
        pub by: Arc<str>,
    } => Bumped,

    /// Forgets everything known of a key that nothing lists: when it ran, its attempts, its hold. Hand-outs that never
    /// arrived are not among its attempts, and sums stay.
    Forget(Key) => Forgotten,

    /// Ends the hold of a key; answers whether there was one.
    Unhold(Key) => bool,

    /// Closes a group, in place of an earlier hold of it; jobs in flight go on.
    HoldGroup {
        pub group: Arc<str>,
        /// How long; `None`: until [`UnholdGroup`].
        pub seconds: Option<u32>,
        /// For people; may be empty.
        pub reason: String,
        /// Who wants it, as he names himself.
        pub by: Arc<str>,
    } => HeldGroup,

    /// Ends the hold of a group, and a pause and a delay that commands asked for; answers whether there was one of these.
    UnholdGroup(Arc<str>) => bool,

    /// The configuration has other groups: their limits hold at once, and tasks are sorted into them in steps.
    SetGroups(GroupRules) => (),

    /// Holds all keys with a prefix, or all tasks of a fetcher, also those that come later, by one rule; in place of an
    /// earlier one of the same.
    HoldAll {
        pub of: HoldOf,
        /// How long; `None`: until [`UnholdAll`].
        pub seconds: Option<u32>,
        pub reason: String,
        pub by: Arc<str>,
    } => HeldAll,

    /// Ends such a rule; answers whether there was one. Keys that are held by themselves stay so.
    UnholdAll(HoldOf) => bool,

    /// Ends holds that are over, and forgets keys that nothing has listed for long, a bounded number at once.
    EndHolds => (),

    /// Returns a key's job in flight to its old place, whichever worker has it; classic jobs, too.
    Requeue(Key) => Requeued,

    /// From now on, even after a restart, nothing is handed out; or ends that. Answers how many jobs are in flight.
    SetPaused(bool) => u64,

    /// From now on, and until a pause is ended, this daemon hands nothing out. A queue with one daemon is paused, so
    /// that the next one hands nothing out either; of several daemons the others go on. Answers how many jobs of this
    /// daemon are in flight.
    Drain => u64,

    /// Makes a run known, empty and growing; a known one is left as it is. Answers its state. A run under deletion is
    /// rejected. To take over another daemon's fetcher, register all its runs that this daemon has in one batch: the
    /// others leave the queue.
    RegisterRun(Run) => Registered,

    /// Adds rows, position and completion of a registered run. An existing row keeps its state and takes the new
    /// payload. Rejected for an unknown run, or one under deletion.
    AddRows(RowBatch) => (),

    /// Deletes rows of a run that were not read since its last [listing](Reading::Listing) began. Answers whether to
    /// ask again; if not, the run is no longer stale. Without a listing it does nothing.
    Prune {
        pub run: Run,
        /// Most rows that are checked.
        pub limit: usize,
    } => bool,

    /// Marks a run for deletion: from then on none of its rows is handed out. An unknown run is ignored. False: it is
    /// not marked yet, and must be asked again: a million keys at the front may have to be searched in steps.
    BeginDeletion(Run) => bool,

    /// Deletes rows of `runs`, one run after the other, and each run with its last row. Answers how many of the first
    /// runs are gone; an unknown run counts as gone.
    DeleteRuns {
        pub runs: Vec<Run>,
        /// Most rows and runs to delete.
        pub limit: usize,
    } => usize,

    /// Notes that an input file is rejected, for status. An earlier note keeps its time, and gets the new reason.
    RejectFile {
        /// The file's name, escaped.
        pub name: String,
        pub reason: String,
    } => (),

    /// Removes the note about a rejected file, by its escaped name.
    ForgetRejected(String) => (),

    /// Notes the state of the input directory. A loss that goes on keeps its time, and gets the new reason.
    NoteInput(InputDirectory) => (),

    /// Adds a single task, behind those of its key that wait.
    AddTask {
        pub task: Row,
        /// Another one with the same ID is not added.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub id: Option<Arc<str>>,
    } => Added,

    /// Deletes the single tasks of a key, the newest first, a bounded number at once; one in flight stays.
    CancelTasks(Key) => Cancelled,

    /// The job of a key that is out is to [stop](crate::rules::stops).
    Stop(Key) => Stopped,

    /// Notes the state of a managed fetcher, in place of the earlier note.
    NoteFetcher(FetcherRecord) => (),

    /// Forgets a managed fetcher; an unknown one changes nothing. Its lists stay.
    ForgetFetcher(Arc<str>) => (),

    /// Lets a relay act on this queue, under a name of its own; requests under an earlier epoch of the name are no
    /// longer carried out. It keeps what the relay of that name had, except leases that were taken from it.
    JoinRelay {
        pub name: Arc<str>,
        pub process: Arc<str>,
        /// The queue that it has used so far: another one rejects it.
        pub installation: Option<Arc<str>>,
    } => JoinedRelay,

    /// The unique identity of this queue.
    Installation => Arc<str>,

    /// Where a shared queue is; a copy of it has another place. `None`: the queue has only one daemon.
    Place => Option<Arc<str>>,

    /// Carries out a relay's operations, in its name: they concern the relay's own things where they otherwise concern
    /// the daemon's. Each number is carried out once; if repeated, it gets the first answer. A batch that only reads
    /// has no number. One without operations may have the last number that was kept: if the queue's is lower, the queue
    /// was restored from a backup, and the relay is lost.
    Relayed {
        /// The epoch of the relay's joining.
        pub epoch: i64,
        pub lane: Lane,
        /// Its number in its lane.
        pub number: i64,
        /// No operations of relays.
        pub operations: Vec<Operation>,
    } => RelayAnswer,

    /// Adds rows of relays' lists, in order, without moving a run's position. Each number is carried out once, and only
    /// after the one before.
    AddRelayedRows(Vec<RelayedRows>) => Vec<RowsAnswer>,

    /// Takes a relay for dead, or for stopped if it said so itself: requests in its name are no longer carried out, and
    /// the jobs leased through it become this daemon's. Answers how many; `None`: it has another epoch by now.
    LoseRelay {
        pub epoch: i64,
        pub is_stopped: bool,
    } => Option<u64>,

    /// Changes nothing, but needs whatever a change needs: if another process holds the lock, that is an error.
    Probe => (),

    Runs => Vec<StoredRun>,

    /// All leased attempts, with their leases in seconds.
    Leases => Vec<(Attempt, u32)>,

    /// Attempts that are to stop, at most [`STOPS_MAX`], the first ones first.
    Stops => Vec<Attempt>,

    HasWork => bool,

    /// In how many seconds the next hold is over; 0: [`EndHolds`] has something to do; `None`: none ends by itself.
    NextHoldEnd => Option<u64>,

    /// In how many milliseconds time opens a group; `None`: it opens none.
    NextOpening => Option<u64>,

    CountInFlight => u64,

    /// Why there may be nothing to hand out; the cost does not grow with the queue.
    WhyIdle(Option<Vec<Arc<str>>>) => Idle,

    /// All that is noted of managed fetchers, by name.
    FetcherRecords => Vec<FetcherRecord>,

    /// The relays that have joined and have not been lost since, by name.
    Relays => Vec<Relay>,
}

impl Operation {
    /// It changes nothing: a batch of such operations needs no lock, and so never waits for one.
    pub fn only_reads(&self) -> bool {
        match self {
            Self::Relayed(it) => it.operations.iter().all(Self::only_reads),
            Self::Heartbeat(_)
            | Self::Runs(_)
            | Self::Leases(_)
            | Self::Stops(_)
            | Self::HasWork(_)
            | Self::NextHoldEnd(_)
            | Self::NextOpening(_)
            | Self::CountInFlight(_)
            | Self::WhyIdle(_)
            | Self::FetcherRecords(_)
            | Self::Relays(_) => true,
            _ => false,
        }
    }

    /// The requester forgets it once it is answered, so it must be on the disk then, whatever the durability.
    pub fn is_synced(&self) -> bool {
        match self {
            Self::Relayed(it) => it.operations.iter().any(Self::is_synced),
            Self::AddTask(AddTask { id, .. }) => id.is_some(),
            _ => false,
        }
    }

    /// Whether it may make a new job available. An end does so if its key has more tasks.
    pub fn may_bring_work(&self) -> bool {
        match self {
            Self::Relayed(it) => it.operations.iter().any(Self::may_bring_work),
            Self::Complete(_)
            | Self::CompleteAttempt(_)
            | Self::Release(_)
            | Self::Expire(_)
            | Self::Undo(_)
            | Self::Retry(_)
            | Self::Requeue(_)
            | Self::Bump(_)
            | Self::Unhold(_)
            | Self::UnholdAll(_)
            | Self::UnholdGroup(_)
            | Self::EndHolds(_)
            | Self::SetGroups(_)
            | Self::SetPaused(_)
            | Self::AddRows(_)
            | Self::AddRelayedRows(_)
            | Self::Prune(_)
            | Self::DeleteRuns(_)
            | Self::AddTask(_)
            | Self::CancelTasks(_) => true,
            _ => false,
        }
    }

    /// Most rows that it changes, if there may be many: such an operation costs least as the first of a transaction.
    pub fn bulk_rows(&self) -> usize {
        match self {
            Self::AddRows(AddRows(batch)) => batch.rows.len(),
            Self::AddRelayedRows(it) => it.0.iter().map(|relayed| relayed.rows.len()).sum(),
            Self::Prune(Prune { limit, .. }) | Self::DeleteRuns(DeleteRuns { limit, .. }) => *limit,
            // There may be thousands at once, and no worker must wait for all of them.
            Self::BeginDeletion(_) => 1,
            Self::Relayed(it) => it.operations.iter().map(Self::bulk_rows).sum(),
            _ => 0,
        }
    }
}

/// No operation at all.
impl Request for () {
    type Answer = ();

    fn push(self, _: &mut Vec<Operation>) {}

    fn answer(_: &mut Outcomes) -> StoreResult<()> {
        Ok(())
    }
}

/// Two requests, one after the other, in one transaction; each gets its own answer.
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

/// Operations of one kind in one transaction; each gets its own answer.
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
