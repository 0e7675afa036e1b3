//! Attempts that ended, one by one and summed up: the answers for `log`, `log --sum` and `top`.

use serde::{Deserialize, Serialize};

use crate::model::UnixSeconds;

/// The JSON object of `log` (docs/json.md).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Log {
    /// In descending order of their ends; for one key, of their hand-outs.
    pub attempts: Vec<Ended>,
    /// Attempts were searched down to the one with this number, and there are earlier ones; `None`: all were searched,
    /// or no limit was given.
    #[serde(skip)]
    pub looked_to: Option<i64>,
}

/// Attempts that ended, in the order of their ends, for a client that goes on from the last one that it read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ends {
    pub attempts: Vec<Ended>,
    /// A client that next asks for ends after this number misses none, and gets none twice.
    pub upto: i64,
    /// The end that the request started from is still kept: no later one was forgotten, unless its job took as long as
    /// all others that are kept.
    pub is_kept: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// The number of its end, which ascends.
    pub ended: i64,
    pub attempt: i64,
    pub key: String,
    /// `None`: the fetcher no longer has a run.
    pub fetcher: Option<String>,
    pub run: i64,
    /// `None`: a classic worker.
    pub worker: Option<String>,
    pub started: UnixSeconds,
    pub finished: UnixSeconds,
    /// Not below 0, whatever the clock did.
    pub duration_seconds: i64,
    pub took_ms: Option<i64>,
    /// `success`, `failure`, `timeout`, `released`, `undone`, `expired` or `cancelled`.
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

/// What ended, for one fetcher or in one period.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatsGroup {
    /// Empty: fetchers that were gone. `None`: of all fetchers.
    pub fetcher: Option<String>,
    /// The beginning of the hour or of the day; `None`: for the whole time.
    pub since: Option<UnixSeconds>,
    /// Jobs that were done, however they ended: the sum of the next three.
    pub jobs: i64,
    pub success: i64,
    pub timeout: i64,
    pub failure: i64,
    pub released: i64,
    pub undone: i64,
    pub expired: i64,
    pub cancelled: i64,
    /// How long a job took; `None`: there was none.
    pub mean_ms: Option<i64>,
    /// Mean time from a key's previous start to a job's start; `None`: no key ran again.
    pub cycle_seconds: Option<i64>,
}
