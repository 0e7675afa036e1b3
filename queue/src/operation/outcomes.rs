//! What operations are answered, and what larger ones are made of. The [operations](super) themselves are in their table.
//!
//! Plain data, for the StorageActor's clients and for relays, which send it over a broker.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use shiftboss_protocol::model::{Attempt, Key, Row, Run, UnixSeconds};

use super::Outcome;
use crate::attempt;
use crate::error::Rejected;
use crate::file_identity::{DirectoryIdentity, Position};
use shiftboss_protocol::answers::Hold;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Dispatched {
    /// This job, under this attempt; undo it by the attempt.
    Job(Attempt, Row),
    Nothing,
    /// A deletion in progress must get on before this can be answered.
    Later,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ack {
    Recorded,
    /// The job is somebody else's by now, or was given back.
    Stale,
    /// No such attempt, or one that is forgotten.
    Unknown,
}

/// What came of putting back a job that is in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Requeued {
    /// It waits again; this attempt at it is over.
    Back(Attempt),
    /// The key is known, but nobody has a job of it.
    NotInFlight,
    Unknown,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExpiredLease {
    pub key: Key,
    /// Who held it, as it named itself.
    pub worker: Arc<str>,
    /// It was one too many: the task is dead-lettered.
    pub dead_letter: bool,
    /// It is a single task, not a line of a list.
    pub single: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobEnd {
    pub attempt: Attempt,
    /// Its fetcher's name; empty: it was gone.
    pub fetcher: Arc<str>,
    pub outcome: attempt::Outcome,
    pub took_ms: u64,
    /// From its key's start before to its own; `None`: the key never ran before, or that is not known.
    pub revisit_seconds: Option<u64>,
}

pub const HOLDS_MAX: usize = 10_000;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Held {
    Held {
        /// Its last second; `None`: until it is ended.
        until: Option<UnixSeconds>,
        /// A list, a single task or the log has the key. Another one may be a slip of the pen.
        is_known: bool,
        /// An operator's hold that it takes the place of.
        replaced: Option<Box<Hold>>,
    },
    Full,
}

/// What came of a key whose rows were to be put back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Retried {
    /// So many of its rows and single tasks wait again.
    Back(u64),
    Held,
    Unknown,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bumped {
    /// It is bumped, behind so many others.
    Behind(u64),
    Held,
    Full,
    Unknown,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Forgotten {
    Forgotten,
    /// A list or a single task has it: it would come before all that ran.
    Listed,
    InFlight,
    Unknown,
}

/// A fetcher run as the store knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredRun {
    pub run: Run,
    pub complete: bool,
    /// How far its file was read; `None` for a run nothing was read of, and for one taken
    /// over from a database that did not keep positions.
    pub position: Option<Position>,
    /// Rows now queued for it, dispatched ones included.
    pub rows: u64,
    /// A deletion of it was begun and must be gone on with.
    pub deleting: bool,
    /// Its file was read anew since it changed: there may be rows that the file lists no longer.
    pub stale: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Registered {
    Run(StoredRun),
    /// Another daemon has its fetcher: which one, and how this one gets it, for people.
    Elsewhere(String),
}

/// How rows go on from what was read before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reading {
    #[default]
    Onward,
    /// At the start of the file, since it changed: the run is [stale](StoredRun::stale) from now on.
    Anew,
    /// Likewise, and what is read from here on is the whole list, for [`Prune`](super::Prune).
    Listing,
}

/// Rows of one run that enter the queue together with the position behind them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RowBatch {
    /// The run, already registered.
    pub run: Run,
    /// Lines in file order; of a key that occurs twice the last payload counts.
    pub rows: Vec<Row>,
    /// Lines skipped as faulty since the previous batch.
    pub skipped: u64,
    /// The offset from which they are read on: where the run's position is another one, and not the one behind them, the batch is
    /// rejected. So nothing is left out where the queue went back, to a backup, say. `None`: that is not known.
    #[serde(default)]
    pub from: Option<u64>,
    /// Its rows came before it, by their ranges: where none were added to the run since its position moved, the batch is rejected.
    #[serde(default)]
    pub by_range: bool,
    pub position: Position,
    /// These are the last rows: the run is complete from this transaction on. `false` on a
    /// run that was complete makes it a growing one again.
    pub complete: bool,
    pub reading: Reading,
}

impl RowBatch {
    /// All rows of a run, of a file of which nothing else is known.
    pub fn of(run: Run, rows: Vec<Row>) -> Self {
        Self {
            run,
            rows,
            skipped: 0,
            from: None,
            by_range: false,
            position: Position::default(),
            complete: true,
            reading: Reading::Onward,
        }
    }

    /// Why it is rejected by a store that does not know its run, or not [as far as this](Self::from).
    pub fn unexpected(&self) -> String {
        format!("run {} is not known, or its position is another one by now", self.run)
    }

    /// The same of no rows, and of no faulty lines.
    pub fn without_rows(&self) -> Self {
        Self { rows: Vec::new(), skipped: 0, run: self.run.clone(), ..*self }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InputDirectory {
    There(DirectoryIdentity),
    Lost(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Added {
    Added(i64),
    /// The same payload of the same key waits already, or its ID is known.
    Known,
    /// There are as many single tasks as may be: it was not added.
    Full,
}

/// What came of the single tasks of a key that were to be deleted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cancelled {
    pub deleted: u64,
    /// There are more that are not in flight: to be asked for again.
    pub more: bool,
    pub in_flight: bool,
}

/// Operations that one batch of a relay has at most.
pub const RELAYED_OPERATIONS_MAX: usize = 512;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Relay {
    pub name: Arc<str>,
    pub process: Arc<str>,
    /// No other joining of any relay has the same.
    pub epoch: i64,
    /// Moves while it lives, where several daemons hear it; else 0.
    pub beat: i64,
}

/// What a relay learns when it joins.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinedRelay {
    pub epoch: i64,
    /// Which queue it is: no other one has the same, wherever it is moved to.
    pub installation: Arc<str>,
    pub is_paused: bool,
    /// Which directory its input directory was; `None`: it has told none.
    pub input_directory: Option<DirectoryIdentity>,
}

/// What a relay asks one batch after the other: batches of one lane never wait for those of another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Lane {
    /// For workers and operators.
    Jobs = 0,
    /// For lists and the input directory.
    Lists = 1,
}

/// Rows of a relay's list whose keys are of one range.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RelayedRows {
    pub epoch: i64,
    /// Keys are of one of [`RANGES`] by what the broker's messages say; a store only counts by it.
    pub range: u8,
    /// The first of an epoch and a range is 1, and the next one is larger by one.
    pub number: i64,
    pub run: Run,
    /// In the order in which they are to be added. None: they could not be read, and are rejected.
    pub rows: Vec<Row>,
}

impl RelayedRows {
    /// What they are answered that cannot be added.
    pub fn rejected(&self) -> RowsAnswer {
        RowsAnswer::Rejected(format!("run {} is not known", self.run))
    }
}

/// How many ranges there are, for the life of an installation.
pub const RANGES: u8 = 16;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RowsAnswer {
    /// They are in the queue, now or since the number came first.
    Stored,
    /// They are not, and were not when the number came first: the run was not known, or under deletion.
    Rejected(String),
    /// Rows with lower numbers are missing: nothing was done, and all from those on are to be sent again.
    Gap,
    /// The relay was taken for dead, or joined anew, or what came of the number is not known any more: nothing was done.
    Lost,
}

/// How many numbers of a range are remembered whose rows were rejected.
pub const REJECTED_MAX: usize = 1_000;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RelayAnswer {
    Answered(Vec<Result<Outcome, Rejected>>),
    /// The relay has gone on since: nobody waits for this answer, and nothing was done.
    Outdated,
    /// The relay was taken for dead, or joined anew, or is ahead of the queue, which went back: nothing was done.
    Lost,
}
