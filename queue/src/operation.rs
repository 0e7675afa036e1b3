//! What may be asked of a queue, as data, and what each is answered. A batch of them is one transaction.
//!
//! Made by the actors and commands, carried out by the [engine](crate::engine).

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use shiftboss_protocol::model::{Attempt, Key, LeaseHolder, Row, Run};
use thiserror::Error;

use crate::attempt::Outcome;
use crate::header::RunState;
use crate::record::{Hold, LastRun, Millis, Task};
use crate::rules::bumps::Bumped;
use crate::rules::completion::Ack;
use crate::rules::lists::Forgotten;
use crate::rules::retries::Retried;
use crate::rules::singles::Cancelled;

/// How a key is named by an operation.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Name {
    Key(Key),
    /// The key whose attempt it is, out or ended.
    Attempt(Attempt),
    /// The key of the single task that was added with this ID.
    TaskId(Arc<str>),
}

/// One step of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation {
    /// Takes the next job, of these fetchers or of all.
    Dispatch {
        holder: Option<LeaseHolder>,
        fetchers: Option<Vec<Arc<str>>>,
    },
    /// The end of the key's job, by key alone (classic).
    Complete {
        key: Key,
        exit_code: i64,
    },
    CompleteAttempt {
        attempt: Attempt,
        exit_code: i64,
    },
    /// A worker gives its job back.
    Release(Attempt),
    /// Whether it is out still.
    Heartbeat(Attempt),
    /// Its lease expired.
    Expire(Attempt),
    /// The hand-out never arrived.
    Undo(Attempt),
    /// An operator puts the job of a key back that is out.
    Requeue(Key),
    /// The ended tasks of a key wait again, of one fetcher or of all.
    Retry {
        key: Key,
        fetcher: Option<Arc<str>>,
    },
    Hold {
        key: Key,
        seconds: Option<u32>,
        reason: String,
        by: Arc<str>,
    },
    Unhold(Key),
    Bump {
        key: Key,
        by: Arc<str>,
    },
    Forget(Key),
    /// Holds that are over end, and delayed tasks wait again that are due: a bounded number.
    Wake,
    /// The wall clock was set by so much: what is due keeps its distance, and lies no further ahead than it was said to take. A
    /// bounded number at once: it is to be asked again, with 0, until it says no; also at each start.
    FollowClock {
        by: Millis,
    },
    SetPaused(bool),
    RegisterRun(Run),
    AddRows(Rows),
    /// Rows go that were not read since the run's listing began; whether there is more to do.
    Prune {
        run: Run,
        /// So many rows are looked at.
        limit: usize,
    },
    /// Nothing of the run is handed out any more.
    BeginDeletion(Run),
    /// A bounded number of rows of runs that are being deleted goes, and each run with its last row.
    DeleteRuns {
        runs: Vec<Run>,
        limit: usize,
    },
    /// A single task; one with an ID that is known already is not added again.
    AddTask {
        task: Row,
        id: Option<Arc<str>>,
    },
    /// The single tasks of a key go, but for the one that is out.
    CancelTasks(Key),
    /// Somebody edited a row of `log`.
    EditLog {
        key: Key,
        last: LastRun,
    },
    /// Somebody edited `queue.is_dequeued` of a row.
    EditRow {
        key: Key,
        run: Run,
        is_dequeued: bool,
    },
    /// Whether a dispatch would find a job.
    HasWork,
    /// When a [`Wake`](Self::Wake) has something to do.
    NextDue,
    /// What is out, for a daemon that begins: it has them [expire](Self::Expire). Under `--classic` classic jobs never do.
    Leases,
}

impl Operation {
    /// The key that it is about, if it is about one by name.
    pub fn key(&self) -> Option<&Key> {
        match self {
            Self::Complete { key, .. }
            | Self::Requeue(key)
            | Self::Retry { key, .. }
            | Self::Hold { key, .. }
            | Self::Unhold(key)
            | Self::Bump { key, .. }
            | Self::Forget(key)
            | Self::CancelTasks(key)
            | Self::EditLog { key, .. }
            | Self::EditRow { key, .. } => Some(key),
            Self::AddTask { task, .. } => Some(&task.key),
            _ => None,
        }
    }

    /// The attempt that it is about.
    pub fn attempt(&self) -> Option<Attempt> {
        match self {
            Self::CompleteAttempt { attempt, .. }
            | Self::Release(attempt)
            | Self::Heartbeat(attempt)
            | Self::Expire(attempt)
            | Self::Undo(attempt) => Some(*attempt),
            _ => None,
        }
    }

    /// The records that it is about, as far as it can tell, are added to others.
    pub(crate) fn name(&self, names: &mut Vec<Name>) {
        names.extend(self.key().cloned().map(Name::Key));
        names.extend(self.attempt().map(Name::Attempt));
        match self {
            Self::AddTask { id, .. } => names.extend(id.iter().cloned().map(Name::TaskId)),
            Self::AddRows(rows) => {
                names.extend(rows.rows.iter().map(|row| Name::Key(row.key.clone())));
            }
            _ => {}
        }
    }
}

/// Rows of one run that enter the queue together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rows {
    pub run: Run,
    /// Of a key that occurs twice the last payload counts.
    pub rows: Vec<Row>,
    pub skipped: u64,
    pub complete: bool,
    /// How far the file was read.
    pub position: Option<String>,
    pub reading: Reading,
}

/// How rows go on from what was read before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Reading {
    #[default]
    Onward,
    /// At the start of the file, since it changed.
    Anew,
    /// Likewise, and what is read from here on is the whole list, for a prune.
    Listing,
}

/// What an operation is answered, in its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    Done,
    Job(Job),
    Nothing,
    /// A deletion must get on before a dispatch can be answered.
    Later,
    Ack(Ack),
    Is(bool),
    /// The job's attempt that was put back; `None`: none was out.
    Requeued(Option<Attempt>),
    Expired {
        key: Key,
        task: Task,
        is_dead_letter: bool,
    },
    Retried(Retried),
    /// The hold in whose place it is.
    Held(Option<Hold>),
    Bumped(Bumped),
    Forgotten(Forgotten),
    /// So many keys, or jobs.
    Count(u64),
    Run(RunState),
    Added(Added),
    Cancelled(Cancelled),
    /// In milliseconds since 1970.
    Due(Option<i64>),
    /// By attempt.
    Leases(Vec<Lease>),
}

/// A job that is handed out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    pub attempt: Attempt,
    pub row: Row,
    pub fetcher: Arc<str>,
    pub task: Task,
}

/// A job that is out, and for how long it may be: a leased one from its last sign of life, a classic one from its hand-out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    pub attempt: Attempt,
    pub started: Millis,
    pub is_classic: bool,
    pub seconds: i64,
}

/// What came of a task that was to be added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Added {
    Added(i64),
    /// The same payload of the same key waits already, or the ID is known.
    Known,
    /// There are as many as may be.
    Full,
}

/// Why an operation was rejected: nothing of it has happened.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct Rejected(pub String);

/// What the end of an attempt is to those who say it again.
impl Outcome {
    pub fn has_run(self) -> bool {
        matches!(self, Self::Success | Self::Failure | Self::Timeout)
    }
}
