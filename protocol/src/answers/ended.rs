//! Attempts that ended, one by one and summed up: what `log`, `log --sum` and `top` are answered.

use serde::{Deserialize, Serialize};

use crate::model::UnixSeconds;

/// The JSON object of `log` (docs/json.md).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Log {
    /// The one that ended last first; of one key, the one that was handed out last.
    pub attempts: Vec<Ended>,
    /// Attempts were looked at down to the one with this number, and there are earlier ones; `None`: all were, or it was not
    /// asked.
    #[serde(skip)]
    pub looked_to: Option<i64>,
}

/// Attempts that ended, in the order of their ends: for who reads on from the last one that he read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ends {
    pub attempts: Vec<Ended>,
    /// Who asks next for what is behind this number misses no end, and meets none twice.
    pub upto: i64,
    /// The end behind which it was asked is kept still: no later one was forgotten, unless its job took as long as all others
    /// that are kept.
    pub is_kept: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// The number of its end, which ascends.
    pub ended: i64,
    pub attempt: i64,
    pub key: String,
    /// `None`: the fetcher has no run any more.
    pub fetcher: Option<String>,
    pub run: i64,
    /// `None`: a classic worker.
    pub worker: Option<String>,
    pub started: UnixSeconds,
    pub finished: UnixSeconds,
    /// Not below 0, whatever the clock did.
    pub duration_seconds: i64,
    pub took_ms: Option<i64>,
    /// `success`, `failure`, `timeout`, `released`, `undone` or `expired`.
    pub outcome: String,
    pub exit_code: Option<i64>,
    /// The file of its output, if its directory is known and it is there.
    pub output: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MinuteJobs {
    /// Its beginning.
    pub since: UnixSeconds,
    pub jobs: i64,
}

/// The JSON object of `log --sum` (docs/json.md).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stats {
    /// The beginning of the first hour that is summed up.
    pub since: UnixSeconds,
    pub by: Grouping,
    pub groups: Vec<StatsGroup>,
    pub truncated: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Grouping {
    All,
    Fetcher,
    Hour,
    /// Days are UTC's.
    Day,
    /// Fetchers, and of each the days.
    FetcherDay,
}

/// What ended, of a fetcher, or in a time.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatsGroup {
    /// Empty: fetchers that were gone. `None`: of all fetchers.
    pub fetcher: Option<String>,
    /// The beginning of the hour or of the day; `None`: of all the time.
    pub since: Option<UnixSeconds>,
    /// Jobs that were done, however they ended: the next three together.
    pub jobs: i64,
    pub success: i64,
    pub timeout: i64,
    pub failure: i64,
    pub released: i64,
    pub undone: i64,
    pub expired: i64,
    /// How long a job took; `None`: there was none.
    pub mean_ms: Option<i64>,
    /// How long after its key's start before a job was started; `None`: no key ran again.
    pub cycle_seconds: Option<i64>,
}
