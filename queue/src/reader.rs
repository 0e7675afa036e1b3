//! The read-only port: what can be asked of a queue without changing it.
//!
//! Connections ask a [`Reader`] for operators, and so do commands, which open one without a daemon. A new question is a
//! method here; its answer's type is in [`answers`](shiftboss_protocol::answers).

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;

pub use shiftboss_protocol::answers::Grouping;
use shiftboss_protocol::answers::{
    Ends, Found, Groups, HeldKeys, LastStarts, Log, MinuteJobs, Queue, QueueStatus, Stats,
    TaskStatus, Tasks, Turn, Why,
};
use shiftboss_protocol::model::{Key, UnixSeconds};

use crate::listings::Spot;

pub type ReadResult<T> = Result<T, ReadError>;

/// Looks at a whole queue, not only at one daemon's part. Each question is answered as of one moment, from any thread,
/// which it may block for long.
///
/// `now` is the asker's clock; a store that keeps time itself does not need it.
///
/// # Errors
/// If the queue does not exist, is not available, or cannot be read.
#[allow(clippy::missing_errors_doc)] // The same for all of them.
pub trait Reader: Send + Sync {
    fn status(&self, now: UnixSeconds) -> ReadResult<QueueStatus>;

    /// Where a key is, and why it is not the next one; `None`: the key is unknown. `key` need not be a valid key,
    /// because a user typed it. Up to `count_max` of the keys before it are counted; beyond that, there are "more than"
    /// that.
    fn why(&self, now: UnixSeconds, key: &str, count_max: usize) -> ReadResult<Option<Why>>;

    /// The next jobs in the order in which they would be handed out now: one to 10,000.
    fn next_jobs(&self, now: UnixSeconds, count: usize) -> ReadResult<Queue>;

    /// Ended attempts that are kept, the one that ended last first; for one key, the one that was handed out last
    /// first, without hand-outs that never arrived.
    fn ended_attempts(&self, asked: &EndedAttempts) -> ReadResult<Log>;

    /// The first `count` attempts that ended after the end of this number; `None`: none, only the number to start from
    /// for ends from now on.
    fn ends_after(&self, after: Option<i64>, count: usize) -> ReadResult<Ends>;

    /// The tasks with a status: failed ones newest first, those in flight oldest first, waiting ones in the order of
    /// their turns.
    fn tasks(&self, now: UnixSeconds, asked: &TasksWith) -> ReadResult<Tasks>;

    /// Jobs that ended in each of the last 60 minutes, the present one included; minutes without any are left out.
    fn jobs_by_minute(&self, now: UnixSeconds) -> ReadResult<Vec<MinuteJobs>>;

    /// What ended, summed up: at most [`GROUPS_MAX`] groups, by name or by time.
    fn stats(&self, asked: &StatsOf) -> ReadResult<Stats>;

    /// Keys that begin with `prefix`, listed now or run before, in the order of their bytes: at most `count`.
    fn search(&self, prefix: &str, count: usize) -> ReadResult<Found>;

    /// Keys that an order is for, behind where the last answer ended: a bounded number is looked at, and maybe none of
    /// these is meant. Of the fetcher alone, if there is one with each key.
    fn select(
        &self,
        now: UnixSeconds,
        asked: &Selection,
        behind: Option<&Behind>,
    ) -> ReadResult<Selected>;

    /// The names of fetchers that have, or had, lists here.
    fn fetchers(&self) -> ReadResult<Vec<String>>;

    /// Groups, closed ones first: at most `count`.
    fn groups(&self, now: UnixSeconds, count: usize) -> ReadResult<Groups>;

    /// Whether a task is in the group, or something is remembered of it.
    fn has_group(&self, name: &str) -> ReadResult<bool>;

    /// Keys that are held, the last one first: at most `count`.
    fn held(&self, count: usize) -> ReadResult<HeldKeys>;

    /// When the keys of the newest lists were last started: of all if they are few, else of a random sample of
    /// [`SAMPLE_MAX`].
    fn last_starts(&self) -> ReadResult<LastStarts>;

    /// When single tasks of these keys are expected to be handed out; in their order.
    fn turns(&self, now: UnixSeconds, keys: &[Key]) -> ReadResult<Vec<Turn>>;

    /// All keys of the newest lists, for a [simulation](crate::simulation), until `take` wants no more.
    fn listed(
        &self,
        now: UnixSeconds,
        take: &mut dyn FnMut(ListedKey) -> ControlFlow<()>,
    ) -> ReadResult<()>;
}

/// A key of lists, without its single tasks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedKey {
    pub key: Key,
    pub last_started: Option<UnixSeconds>,
    /// It is held: in how many seconds that ends, if it does by itself.
    pub held: Option<Option<u32>>,
    /// The fetchers whose newest lists have it, each with its payload.
    pub rows: Vec<(Arc<str>, String)>,
}

/// Why a question has no answer. The text says what to do.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ReadError {
    /// The queue does not exist, or is not available now.
    #[error("{0}")]
    Unavailable(String),
    /// What is there is not a queue that this program knows: another program's data, or of another version.
    #[error("{0}")]
    Foreign(String),
    #[error("{0}")]
    Denied(String),
    #[error("{0}")]
    Corrupt(String),
    #[error("{0}")]
    Failed(String),
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EndedAttempts {
    /// Only those with these outcomes, in the words of a task's life cycle; empty: all.
    pub outcomes: Vec<&'static str>,
    pub fetcher: Option<String>,
    pub since: Option<UnixSeconds>,
    pub key: Option<String>,
    pub before: Option<i64>,
    /// Only among this many that ended last, or last before that number, so that a search for something rare does not
    /// read all that are kept. Not used for one key.
    pub among: Option<usize>,
    /// At most this many, and at most 10,000.
    pub count: usize,
}

impl EndedAttempts {
    /// The outcomes that `failed` stands for: jobs that were done, but without success.
    pub const FAILED: [&str; 2] = ["failure", "timeout"];
}

const HOUR_SECONDS: i64 = 3_600;
pub const GROUPS_MAX: usize = 10_000;
/// Up to how many keys before a key [`Reader::why`] counts for `why` itself.
pub const KEYS_BEFORE_MAX: usize = 100_000;
/// The same for what is drawn again and again: the page, its objects and `top`.
pub const KEYS_BEFORE_IN_VIEWS: usize = 10_000;
pub const SAMPLE_MAX: usize = 1_024;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatsOf {
    /// From when on: whole hours, of those that are kept.
    pub since: UnixSeconds,
    pub by: Grouping,
    /// Only of these fetchers; empty: of all.
    pub fetchers: Vec<String>,
}

impl StatsOf {
    /// For the last whole hours of `time`, the present one included.
    pub fn last(time: Duration, by: Grouping, now: UnixSeconds) -> Self {
        let hours = time.as_secs().div_ceil(HOUR_SECONDS.unsigned_abs()).max(1);
        let first = (now.div_euclid(HOUR_SECONDS) + 1).saturating_sub_unsigned(hours);
        Self { since: first * HOUR_SECONDS, by, fetchers: Vec::new() }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TasksWith {
    /// `None`: those in flight, those that failed, dead letters, delayed ones, and those that wait, in this order.
    pub status: Option<TaskStatus>,
    pub fetcher: Option<String>,
    /// Only tasks of this group.
    pub group: Option<String>,
    /// Only tasks that got their status at that time or later; for failed ones and those in flight.
    pub since: Option<UnixSeconds>,
    pub count: usize,
}

/// Which keys an order is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selection {
    pub order: Order,
    /// Only keys that begin so.
    pub prefix: String,
    /// Only what the lists of this fetcher have; of keys to be forgotten, what it listed once.
    pub fetcher: Option<String>,
    /// Only keys with a task in this group.
    pub group: Option<String>,
}

/// An order to many keys: it is for those alone to which it does something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    Hold,
    Unhold,
    Cancel,
    Retry,
    /// Only tasks that failed, each with its fetcher.
    RetryFailed(FailedTasks),
    Bump,
    Forget,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FailedTasks {
    pub since: Option<UnixSeconds>,
    pub exit_code: Option<i64>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selected {
    pub keys: Vec<(Key, Option<String>)>,
    /// So many more would be meant, but are held.
    pub held: u64,
    /// Where the next answer begins; `None`: these were all.
    pub behind: Option<Behind>,
}

/// How far a selection has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Behind {
    Key(String),
    /// The number of an index, and where on it.
    Spot(i64, Option<Spot>),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_hours_are_summed_up() {
        let first = |now, hours: f64| {
            let time = Duration::from_secs_f64(hours * 3_600.0);
            StatsOf::last(time, Grouping::All, now).since
        };
        assert_eq!(first(10 * 3_600, 1.0), 10 * 3_600);
        assert_eq!(first(10 * 3_600 + 5, 0.1), 10 * 3_600);
        assert_eq!(first(10 * 3_600 + 5, 1.5), 9 * 3_600);
        assert_eq!(first(30 * 3_600 - 1, 24.0), 6 * 3_600);
    }
}
