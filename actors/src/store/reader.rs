//! The port's other half: what can be asked of a queue without changing it.
//!
//! A [`Reader`] is asked by connections for operators, and by commands, which open one without a daemon. A new
//! question is a method here; what it is answered is in [`answers`](super::answers).

use serde::Serialize;
use thiserror::Error;

use super::answers::{Log, Queue, QueueStatus, Stats, TaskStatus, Tasks, Turn, Why};
use shiftboss_protocol::model::{Key, UnixSeconds};

pub type ReadResult<T> = Result<T, ReadError>;

/// Looks at a queue, whoever keeps it: at all of it, not at one daemon's part. Each question is answered as of one
/// moment, from any thread, which it may block for long.
///
/// `now` is the asker's clock; a store that keeps time itself does not need it.
///
/// # Errors
/// When the queue is not there, is not to be had, or cannot be read.
#[allow(clippy::missing_errors_doc)] // The same for all of them.
pub trait Reader: Send + Sync {
    /// How the queue stands.
    fn status(&self, now: UnixSeconds) -> ReadResult<QueueStatus>;

    /// Where a key is, and why it is not the next one; `None`: nobody ever heard of it. What is no key is asked
    /// for as well: somebody typed it.
    fn why(&self, now: UnixSeconds, key: &str) -> ReadResult<Option<Why>>;

    /// The next jobs in the order in which they would be handed out now: one to 10,000.
    fn next_jobs(&self, now: UnixSeconds, count: usize) -> ReadResult<Queue>;

    /// Attempts that ended, of those that are kept: the one that ended last first; of one key, the one that was handed out
    /// last first, and without hand-outs that never arrived.
    fn ended_attempts(&self, asked: &EndedAttempts) -> ReadResult<Log>;

    /// The tasks with a status: failed ones newest first, those in flight oldest first, waiting ones in the order of
    /// their turns.
    fn tasks(&self, now: UnixSeconds, asked: &TasksWith) -> ReadResult<Tasks>;

    /// What ended, summed up: at most [`GROUPS_MAX`] groups, by name or by time.
    fn stats(&self, asked: &StatsOf) -> ReadResult<Stats>;

    /// When single tasks of these keys are expected to be handed out; in their order.
    fn turns(&self, now: UnixSeconds, keys: &[Key]) -> ReadResult<Vec<Turn>>;
}

/// Why a question has no answer. The text says what to do.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ReadError {
    /// The queue is not there, or is not to be had now.
    #[error("{0}")]
    Unavailable(String),
    /// What is there is no queue that this program knows: somebody else's, or of another version.
    #[error("{0}")]
    Foreign(String),
    /// This user may not read it.
    #[error("{0}")]
    Denied(String),
    /// It is damaged.
    #[error("{0}")]
    Corrupt(String),
    /// Reading failed.
    #[error("{0}")]
    Failed(String),
}

/// Which attempts are asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EndedAttempts {
    /// Those only that ended with `failure` or `timeout`.
    pub failed: bool,
    /// Those only that ended at that time or later.
    pub since: Option<UnixSeconds>,
    /// Those only of this key.
    pub key: Option<String>,
    /// Those only that ended before the end of this number.
    pub before: Option<i64>,
    /// At most so many, and at most 10,000.
    pub count: usize,
}

/// Groups of [`Reader::stats`] at the most.
pub const GROUPS_MAX: usize = 10_000;

/// What is to be summed up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StatsOf {
    /// Since then: whole hours, of those that are kept.
    pub since: UnixSeconds,
    pub by: Grouping,
}

/// What a sum is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Grouping {
    /// All of it.
    All,
    Fetcher,
    Hour,
    /// Days are UTC's.
    Day,
}

/// Which tasks are asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TasksWith {
    pub status: TaskStatus,
    /// Those only of this fetcher.
    pub fetcher: Option<String>,
    /// Those only that came into their status at that time or later; failed ones and those in flight.
    pub since: Option<UnixSeconds>,
    /// At most so many.
    pub count: usize,
}
