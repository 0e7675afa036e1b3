//! How a queue stands; the JSON object of `status` is made of it (docs/json.md).

use serde::Serialize;
use shiftboss_actors::store::{EndedRun, FetcherRecord};
use shiftboss_protocol::model::UnixSeconds;

use super::holders::Holding;

/// How a queue stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct QueueStatus {
    /// Version of the schema; below [`VERSION`](crate::sqlite::VERSION) no shiftboss of this version has
    /// taken the database over yet.
    pub schema_version: i64,
    /// What an answer outlives, as the last daemon was told: `power` or `process`.
    pub durability: Option<String>,
    /// `fair` or `classic`, as the last daemon was told.
    pub policy: Option<String>,
    /// How long a job may be out, in seconds.
    pub lease_seconds: Option<i64>,
    /// Nothing is handed out until somebody says `resume`.
    pub paused: bool,
    /// Rows.
    pub rows: Rows,
    /// Dead letters: they wait for their fetcher's next run or for `retry`.
    pub dead_letters: i64,
    /// Single tasks that are kept, whatever their status.
    pub single_tasks: i64,
    /// Of those, the ones that failed or are dead letters.
    pub single_tasks_ended: i64,
    /// How many may be, as the last daemon was told.
    pub max_single_tasks: Option<i64>,
    /// Who holds which job, the job that is out for longest first; at most
    /// [`HOLDERS_MAX`](super::HOLDERS_MAX).
    pub holders: Vec<Holding>,
    /// Every fetcher with its newest run, by name: the lists that are in the input directory, whoever
    /// made them.
    pub fetchers: Vec<FetcherStatus>,
    /// The fetchers that the daemon runs itself, by name, as the last daemon that ran any noted them.
    pub managed_fetchers: Vec<ManagedFetcher>,
    /// The key that has waited longest of those that could be handed out now.
    pub oldest_waiting: Option<Waiting>,
    /// Jobs that ended in the last hour, by exit code.
    pub done_last_hour: Vec<Done>,
    /// Input files that are left out.
    pub rejected_files: Vec<RejectedFile>,
    /// Since when the input directory is lost, in seconds since 1970.
    pub directory_lost_since: Option<UnixSeconds>,
    /// Why it is.
    pub directory_lost_reason: Option<String>,
    /// A daemon that was started and not stopped cleanly: the one that runs, or one that died.
    pub not_stopped: Option<NotStopped>,
}

/// A daemon that has not stopped cleanly. Times are in seconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct NotStopped {
    /// Its process id.
    pub pid: u32,
    /// When it began.
    pub started: UnixSeconds,
    /// When the database was last written to: its last known sign of life.
    pub last_write: Option<UnixSeconds>,
}

/// Counts of rows and keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Rows {
    /// Rows not handed out yet.
    pub pending: i64,
    /// Rows handed out.
    pub dispatched: i64,
    /// Keys whose job has not ended yet.
    pub in_flight: i64,
    /// Of those, keys handed out again since their lease expired.
    pub redelivered: i64,
}

/// A fetcher and its newest run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FetcherStatus {
    /// Its name.
    pub name: String,
    /// The number of its newest run, usually the time of its start.
    pub run: i64,
    /// All lines of that run are there.
    pub complete: bool,
    /// Rows of that run.
    pub lines: i64,
    /// Of those, rows not handed out yet.
    pub pending: i64,
    /// Faulty lines of that run that were skipped.
    pub skipped: i64,
    /// Older runs that are there still.
    pub older_runs: i64,
    /// Seconds since the run's number, if that is a time.
    pub age_seconds: Option<i64>,
}

/// A fetcher that the daemon runs itself. Times are in seconds since 1970.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ManagedFetcher {
    /// Its name, and its list's.
    pub name: String,
    /// What it is doing, in a word or two.
    pub state: String,
    /// When the run began that is on; without a daemon, the one that was broken off.
    pub run_started: Option<UnixSeconds>,
    /// The run that ended last.
    pub last_run: Option<ManagedRun>,
    /// When it runs next if nothing changes; `None`: when something does.
    pub next_run: Option<UnixSeconds>,
}

/// A run that has ended, of a fetcher that the daemon runs itself. Times are in seconds since 1970.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ManagedRun {
    /// When it began.
    pub started: UnixSeconds,
    /// When it ended.
    pub ended: UnixSeconds,
    /// As a shell would report it; 0: its list is in place.
    pub exit_code: u8,
    /// What came of it, for people.
    pub message: String,
}

impl From<FetcherRecord> for ManagedFetcher {
    fn from(record: FetcherRecord) -> Self {
        let FetcherRecord { name, state, run_started, last_run, next_run } = record;
        let last_run = last_run.map(ManagedRun::from);
        // One that was broken off and is still to be done is not on.
        let run_started = run_started.filter(|_| state.starts_with("running"));
        Self { name: name.to_string(), state, run_started, last_run, next_run }
    }
}

impl From<EndedRun> for ManagedRun {
    fn from(run: EndedRun) -> Self {
        let EndedRun { started, ended, exit_code, message } = run;
        Self { started, ended, exit_code, message }
    }
}

/// A key that waits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Waiting {
    /// The key.
    pub key: String,
    /// When it was last started; `None`: never.
    pub last_started: Option<UnixSeconds>,
}

/// Jobs that ended alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Done {
    /// Their exit code.
    pub exit_code: i64,
    /// How many.
    pub jobs: i64,
}

/// An input file that is left out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RejectedFile {
    /// Its name, escaped.
    pub name: String,
    /// Why.
    pub reason: String,
    /// Since when, in seconds since 1970.
    pub since: UnixSeconds,
}
