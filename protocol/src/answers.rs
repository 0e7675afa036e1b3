//! What operators see of a queue and its daemon: the JSON objects of commands, and of the answers to their
//! [requests](crate::verbs), consist of these types (docs/json.md describes each member). Times are in seconds since
//! 1970.
//!
//! The queue's readers and the daemon fill it in; commands, pages and clients show it. Plain values without behaviour.

mod daemons;
mod ended;
mod groups;
mod keys;
pub mod live;
pub mod metrics;

use serde::{Deserialize, Serialize};

use crate::model::UnixSeconds;

pub use daemons::{
    DaemonState, DaemonStatus, EndedRun, FetcherRecord, NotStopped, RejectedFile, RelayStatus,
};
pub use ended::{Ended, Ends, Grouping, Log, MinuteJobs, Stats, StatsGroup};
pub use groups::{GroupCount, GroupRow, GroupState, Groups};
pub use keys::{
    Bump, Found, HeldBy, HeldKey, HeldKeys, Hold, HoldKind, HoldRule, KnownKey, LastStarts, Retry,
};

/// Most jobs in flight that are shown.
pub const HOLDERS_MAX: usize = 1_000;

/// The state of a queue, and the one daemon that keeps it, or kept it last.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueStatus {
    /// If it is below the program's own, no shiftboss of this version has taken the database over yet.
    pub schema_version: i64,
    /// `power` or `process`: the setting of the last daemon that was started.
    pub durability: Option<String>,
    /// `fair` or `classic`, likewise.
    pub policy: Option<String>,
    pub lease_seconds: Option<i64>,
    pub paused: bool,
    /// Where the queue was moved to; no daemon uses what is left here.
    pub moved_to: Option<String>,
    pub rows: Rows,
    pub dead_letters: i64,
    /// Tasks that failed, and are not due by themselves.
    pub failed: i64,
    pub single_tasks: i64,
    /// Of those, the ones that failed, and are not due by themselves, or are dead letters.
    pub single_tasks_ended: i64,
    pub max_single_tasks: Option<i64>,
    pub held: i64,
    /// The rules by which operators hold many keys.
    pub hold_rules: Vec<HoldRule>,
    /// The rules have changed, and hold, or let go, this many keys of `keys` by now; `None`: all.
    pub hold_rules_carried: Option<i64>,
    /// The configuration has other groups, and this many keys of `keys` are sorted into them by now; `None`: all.
    pub groups_carried: Option<i64>,
    /// Keys that are held because their jobs failed too often in a row.
    pub backed_off: i64,
    /// Tasks that failed, and wait again by themselves when their time comes.
    pub delayed: i64,
    /// Keys that operators bumped, and that wait for their turn.
    pub bumped: i64,
    /// Keys of which anything is known.
    pub keys: i64,
    /// Of those, the ones that no list, single task, job or hold has: they are kept for their last runs.
    pub unlisted_keys: i64,
    /// How many of those were forgotten by `[retention]` so far.
    pub forgotten_keys: i64,
    /// How many groups have each state, and how many keys wait for them; empty: there are none.
    pub groups: Vec<GroupCount>,
    /// Jobs in flight, the one that has been out longest first; at most [`HOLDERS_MAX`].
    pub holders: Vec<Holding>,
    /// By name, each with its newest run: the lists in the input directory, whoever made them.
    pub fetchers: Vec<FetcherStatus>,
    /// The fetchers that the daemon runs itself, by name.
    pub managed_fetchers: Vec<FetcherRecord>,
    /// The key whose turn is next of those that could be handed out now.
    pub oldest_waiting: Option<Waiting>,
    /// The same among keys that ran before: a key that never ran goes before them, and hides how long they have waited.
    pub longest_wait: Option<Waiting>,
    pub done_last_hour: Vec<Done>,
    /// The minute in which the first of these ended; `None`: there are none.
    pub done_since: Option<UnixSeconds>,
    /// The seconds since then, without the pauses in which nothing ended: how fast jobs ended while there was work.
    pub busy_seconds: Option<i64>,
    pub rejected_files: Vec<RejectedFile>,
    pub directory_lost_since: Option<UnixSeconds>,
    pub directory_lost_reason: Option<String>,
    /// A daemon that was started and not stopped cleanly: it still runs, or it died.
    pub not_stopped: Option<NotStopped>,
    /// The daemons that share a queue on a server, by name; empty for a queue in a file, which has only one.
    pub daemons: Vec<DaemonStatus>,
    /// The relays that have ever joined, by name.
    pub relays: Vec<RelayStatus>,
}

impl QueueStatus {
    /// The key whose last run is longest ago; if none ever ran, one of those.
    pub fn waits_longest(&self) -> Option<&Waiting> {
        self.longest_wait.as_ref().or(self.oldest_waiting.as_ref())
    }
}

/// Counts of rows and, in flight, of keys.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rows {
    pub pending: i64,
    pub dispatched: i64,
    pub in_flight: i64,
    /// Of those in flight, the ones that are leased: protocol 2.
    pub leased: i64,
    pub redelivered: i64,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holding {
    /// `None`: a classic worker, which has no name.
    pub worker: Option<String>,
    pub key: String,
    /// `None`: a daemon under `--classic` keeps none.
    pub attempt: Option<i64>,
    pub since: UnixSeconds,
    /// `None`: classic jobs have the daemon's lease.
    pub lease_seconds: Option<i64>,
    /// The name of the daemon that handed it out, or adopted it; `None`: the queue is in a file, or that daemon was forgotten.
    pub daemon: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FetcherStatus {
    pub name: String,
    pub run: i64,
    pub complete: bool,
    pub lines: i64,
    pub pending: i64,
    pub skipped: i64,
    pub older_runs: i64,
    /// Of all its lists, as [`failed`](Self::failed).
    pub dead_letters: i64,
    /// Of all its lists, the tasks that failed, and are not due by themselves.
    pub failed: i64,
    /// Age by the run's number, if that is a time.
    pub age_seconds: Option<i64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiting {
    pub key: String,
    /// `None`: never.
    pub last_started: Option<UnixSeconds>,
}

/// Jobs that ended in the same way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Done {
    pub exit_code: i64,
    pub jobs: i64,
}

/// Where a key is, and why it is not the next one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Why {
    pub key: String,
    pub state: KeyState,
    /// Nothing is handed out at present, whatever the state.
    pub paused: bool,
    /// Its place in the order; `None` unless it is waiting.
    pub place: Option<Place>,
    /// Seconds until it is handed out, if jobs keep ending at the rate of `busy_seconds`; `None` if that is not known,
    /// and for the next key.
    pub expected_in_seconds: Option<i64>,
    pub jobs_last_hour: i64,
    /// The minute in which the first of these ended; `None`: there are none.
    pub jobs_since: Option<UnixSeconds>,
    /// As in [`QueueStatus`].
    pub busy_seconds: Option<i64>,
    /// While the hold lasts the key is not handed out, whatever its state.
    pub hold: Option<Hold>,
    /// The rule that holds its tasks, if it is not held itself.
    pub hold_rule: Option<HoldRule>,
    /// The group of its next task.
    pub group: Option<GroupRow>,
    /// It goes ahead of the order, as soon as it is eligible.
    pub bump: Option<Bump>,
    pub retry: Option<Retry>,
    /// Its job that is out, also beyond its lease.
    pub in_flight: Option<Delivery>,
    pub last_result: Option<LastResult>,
    /// Its single tasks that failed, and are not due again by themselves.
    pub failed_single_tasks: i64,
    /// Its rows, by fetcher, newer runs first.
    pub rows: Vec<KeyRow>,
    pub truncated: bool,
}

/// What stands between a key and its next dispatch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyState {
    /// Only the keys before it.
    Waiting,
    /// It would be waiting, but it is held.
    Held,
    /// One of its tasks failed, and waits again by itself when its time comes.
    Delayed,
    InFlight,
    /// Too many leases of it expired: a newer run of its fetcher, or `retry`, brings it back.
    DeadLetter,
    /// Its task failed: a newer run of its fetcher, or `retry`, brings it back.
    Failed,
    /// It was handed out: a newer run of its fetcher brings it back.
    Dispatched,
    Leaving,
    /// No fetcher lists it.
    Unlisted,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// Keys that would be handed out before it.
    pub keys_before: usize,
    /// False: there are more than that.
    pub exact: bool,
    pub first: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delivery {
    /// `None`: a classic worker, which has no name.
    pub worker: Option<String>,
    /// `None`: a daemon under `--classic` keeps none.
    pub attempt: Option<i64>,
    pub since: UnixSeconds,
    /// `None`: a classic job.
    pub lease_seconds: Option<i64>,
    /// When a classic job may be handed out again; `None` for a leased job: only the daemon knows when its lease ends.
    pub held_until: Option<UnixSeconds>,
    pub delivery_count: Option<i64>,
    /// Its worker is to stop it.
    pub stopping: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastResult {
    pub started: UnixSeconds,
    pub finished: UnixSeconds,
    /// `None`: it was ended by hand, without one.
    pub exit_code: Option<i64>,
    /// It was stopped on request: its exit code says nothing of it.
    pub cancelled: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyRow {
    pub fetcher: String,
    pub run: i64,
    pub complete: bool,
    pub state: RowState,
    pub expired_leases: i64,
    /// For a row that was dispatched: how its own last attempt ended, if that is still known.
    pub exit_code: Option<i64>,
    pub payload: String,
}

/// The state of a row for the dispatcher.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RowState {
    /// It is handed out when its key's turn comes.
    Waiting,
    InFlight,
    Dispatched,
    /// It was dispatched and failed, and is not due by itself.
    Failed,
    /// It was dispatched and failed, and waits again by itself when its time comes.
    Delayed,
    DeadLetter,
    /// A newer run of its fetcher lists the key.
    Hidden,
    Leaving,
}

/// The JSON object of `tasks --next` (docs/json.md).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Queue {
    pub paused: bool,
    /// The next keys, the first one first.
    pub keys: Vec<Next>,
    /// The listing has fewer entries than were asked for, though there are more.
    pub truncated: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Next {
    pub key: String,
    pub fetcher: String,
    pub run: i64,
    /// That of the task; while it is closed, others come before.
    pub group: Option<GroupRow>,
    pub last_started: Option<UnixSeconds>,
    /// The row was handed out before, and its lease expired.
    pub again: bool,
    /// It goes ahead of the order: an operator bumped it, or its task failed and is tried again.
    pub bumped: bool,
    pub payload: String,
}

/// The status of a task (the names are those of a task's life cycle).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskStatus {
    /// It is eligible when its turn comes.
    Waiting,
    InFlight,
    /// It failed, and is due again by itself.
    Delayed,
    /// Its last attempt failed, and it is not due by itself.
    Failed,
    DeadLetter,
}

/// The JSON object of `tasks` (docs/json.md).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tasks {
    /// The status that was asked for; `None`: tasks of all statuses.
    pub status: Option<TaskStatus>,
    pub tasks: Vec<Task>,
    pub truncated: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    pub key: String,
    pub status: TaskStatus,
    /// `@tasks`: it is a single task.
    pub fetcher: String,
    /// The fetcher's run; a single task's number.
    pub run: i64,
    /// In seconds since 1970: the end of the attempt, its hand-out, or its last start.
    pub since: Option<UnixSeconds>,
    /// Why it has its status, in words.
    pub reason: String,
    /// When a delayed task waits again.
    pub due: Option<UnixSeconds>,
}

/// When a single task is expected to be handed out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Turn {
    /// Keys that are handed out before its key; `None`: its key is in flight.
    pub keys_before: Option<u64>,
    /// False: there are more keys than that.
    pub exact: bool,
    /// Other single tasks of its key that wait or are in flight; up to a bound.
    pub tasks_before: u64,
}
