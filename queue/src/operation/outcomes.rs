//! The answers of operations, and the parts of larger ones. The [operations](super) themselves are in their table.
//!
//! Plain data, for the StorageActor's clients and for relays, which send it over a broker.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use shiftboss_protocol::model::{About, Attempt, Key, Row, Run, UnixSeconds};

use super::Outcome;
use crate::attempt;
use crate::error::Rejected;
use crate::file_identity::{DirectoryIdentity, Position};
use shiftboss_protocol::answers::{Hold, HoldRule};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Dispatched {
    /// This job, under this attempt; to undo it, name the attempt.
    Job(Attempt, Row, About),
    Nothing,
    /// A deletion in progress must make progress before this can be answered.
    Later,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ack {
    Recorded,
    /// Of a heartbeat: it is recorded, and the job is to stop.
    Stopping,
    /// Another worker has the job by now, or it was given back.
    Stale,
    /// No such attempt, or one that is forgotten.
    Unknown,
}

/// The result of requeueing a job that is in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Requeued {
    /// It waits again; this attempt is over.
    Back(Attempt),
    /// The key is known, but has no job in flight.
    NotInFlight,
    Unknown,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExpiredLease {
    pub key: Key,
    /// The name of the worker that held it.
    pub worker: Arc<str>,
    /// It was one expired lease too many: the task is dead-lettered.
    pub dead_letter: bool,
    /// It was to [stop](crate::rules::stops), and is cancelled.
    pub cancelled: bool,
    /// It is a single task, not a line of a list.
    pub single: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobEnd {
    pub attempt: Attempt,
    /// Its fetcher's name; empty: it was gone.
    pub fetcher: Arc<str>,
    /// The name of the worker that had it; `None`: a classic one.
    pub worker: Option<Arc<str>>,
    pub outcome: attempt::Outcome,
    pub took_ms: u64,
    /// From the key's previous start to its own; `None`: the key never ran before, or that is not known.
    pub revisit_seconds: Option<u64>,
}

pub const HOLDS_MAX: usize = 10_000;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Held {
    Held {
        /// Its last second; `None`: until it is ended.
        until: Option<UnixSeconds>,
        /// A list, a single task or the log has the key. If not, it may be a typing error.
        is_known: bool,
        /// The operator's hold that it replaces.
        replaced: Option<Box<Hold>>,
    },
    Full,
}

/// The result of closing a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HeldGroup {
    Held {
        /// Its last second; `None`: until it is ended.
        until: Option<UnixSeconds>,
        /// It was held before.
        replaced: bool,
        /// How many tasks are in it now; 0: maybe its name is mistyped.
        tasks: i64,
    },
    /// No table of the configuration has its name, and it has no tasks.
    Unknown,
}

/// The result of a [`HoldAll`](super::HoldAll).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HeldAll {
    Held {
        /// Its last second; `None`: until it is ended.
        until: Option<UnixSeconds>,
        /// The rule that it replaces.
        replaced: Option<Box<HoldRule>>,
    },
    /// There are as many rules as there may be.
    Full,
}

/// The result of putting a key's rows back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Retried {
    /// How many of its rows and single tasks wait again.
    Back(u64),
    Held,
    Unknown,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bumped {
    /// It is bumped, after this many others.
    Behind(u64),
    Held,
    Full,
    Unknown,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Forgotten {
    Forgotten,
    /// A list or a single task has it: if forgotten, it would come before all keys that ran.
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
    /// Its deletion was begun and must be continued.
    pub deleting: bool,
    /// Its file has changed and was read anew: there may be rows that the file no longer lists.
    pub stale: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Registered {
    Run(StoredRun),
    /// Another daemon has its fetcher; a text for people says which one, and how to get it.
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
    /// Likewise, and the rows from here on are the whole list, for [`Prune`](super::Prune).
    Listing,
}

/// Rows of one run that enter the queue together with the position after them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RowBatch {
    /// The run, already registered.
    pub run: Run,
    /// Lines in file order; of a key that occurs twice the last payload counts.
    pub rows: Vec<Row>,
    /// Lines skipped as faulty since the previous batch.
    pub skipped: u64,
    /// The offset from which they were read: if the run's position is neither that nor the one after them, the batch is
    /// rejected. So nothing is left out if the queue was restored, from a backup for example. `None`: not known.
    #[serde(default)]
    pub from: Option<u64>,
    /// Its rows came before it, by ranges: if none were added to the run since its position moved, the batch is
    /// rejected.
    #[serde(default)]
    pub by_range: bool,
    pub position: Position,
    /// These are the last rows: the run is complete from this transaction on. `false` on a
    /// run that was complete makes it a growing one again.
    pub complete: bool,
    pub reading: Reading,
}

impl RowBatch {
    /// All rows of a run, if nothing else is known of its file.
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

    /// Why it is rejected if its run is unknown, or has another [position](Self::from).
    pub fn unexpected(&self) -> String {
        format!("run {} is not known, or its position is another one by now", self.run)
    }

    /// The same without rows and faulty lines.
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
    /// The limit of single tasks is reached: it was not added.
    Full,
}

/// The result of deleting the single tasks of a key.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cancelled {
    pub deleted: u64,
    /// There are more that are not in flight: ask again.
    pub more: bool,
    pub in_flight: bool,
}

/// Most attempts that are to stop which a daemon looks at together; it finds others when the first ones have ended.
pub const STOPS_MAX: usize = 1_000;

/// The result of asking a job to stop.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stopped {
    /// Its worker learns it from a heartbeat.
    Asked {
        attempt: Attempt,
        worker: Arc<str>,
    },
    /// A classic worker has it, which cannot be reached.
    Classic,
    NotInFlight,
    Unknown,
}

/// Most operations of one batch of a relay.
pub const RELAYED_OPERATIONS_MAX: usize = 512;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Relay {
    pub name: Arc<str>,
    pub process: Arc<str>,
    /// No other joining of any relay has the same.
    pub epoch: i64,
    /// Changes while the relay lives, if several daemons hear it; else 0.
    pub beat: i64,
}

/// What a relay learns when it joins.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinedRelay {
    pub epoch: i64,
    /// The unique identity of the queue, wherever it is moved to.
    pub installation: Arc<str>,
    pub is_paused: bool,
    /// The identity of its input directory; `None`: it has reported none.
    pub input_directory: Option<DirectoryIdentity>,
}

/// A relay sends the batches of a lane one after the other; they never wait for those of another lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Lane {
    /// For workers and operators.
    Jobs = 0,
    /// For lists and the input directory.
    Lists = 1,
}

/// Rows of a relay's list whose keys are in one range.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RelayedRows {
    pub epoch: i64,
    /// The range of the keys, one of [`RANGES`], as the broker's messages have it; a store only numbers by it.
    pub range: u8,
    /// The first number of an epoch and a range is 1, and each next one is larger by one.
    pub number: i64,
    pub run: Run,
    /// In the order in which they are added. Empty: they could not be read, and are rejected.
    pub rows: Vec<Row>,
}

impl RelayedRows {
    /// The answer to rows that cannot be added.
    pub fn rejected(&self) -> RowsAnswer {
        RowsAnswer::Rejected(format!("run {} is not known", self.run))
    }
}

/// How many ranges there are, for the life of an installation.
pub const RANGES: u8 = 16;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RowsAnswer {
    /// They are in the queue, since now or since the number first came.
    Stored,
    /// They are not in the queue, and were not when the number first came: the run was unknown, or under deletion.
    Rejected(String),
    /// Rows with lower numbers are missing: nothing was done; send everything from those on again.
    Gap,
    /// The relay was taken for dead, or joined anew, or the number's result is no longer known: nothing was done.
    Lost,
}

/// How many numbers with rejected rows are remembered for a range.
pub const REJECTED_MAX: usize = 1_000;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RelayAnswer {
    Answered(Vec<Result<Outcome, Rejected>>),
    /// The relay has gone on since and no longer waits for this answer: nothing was done.
    Outdated,
    /// The relay was taken for dead, or joined anew, or is ahead of a queue that was restored from a backup: nothing
    /// was done.
    Lost,
}
