//! What is told of a key; the JSON object of `why` is made of it (docs/json.md).

use serde::Serialize;
use shiftboss_protocol::model::UnixSeconds;

/// Where a key is, and why it is not the next one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Why {
    /// The key.
    pub key: String,
    /// In one word.
    pub state: KeyState,
    /// Nothing is handed out at present, whatever the state.
    pub paused: bool,
    /// Its place in the order; `None` unless it is waiting.
    pub place: Option<Place>,
    /// Seconds until it is handed out, if jobs go on ending as in the last hour; `None` where that
    /// cannot be told, and for the next one.
    pub expected_in_seconds: Option<i64>,
    /// Jobs that ended in the last hour.
    pub jobs_last_hour: i64,
    /// Its job that is out, also beyond its lease.
    pub in_flight: Option<Delivery>,
    /// How its job ended the last time.
    pub last_result: Option<LastResult>,
    /// Single tasks of it that failed, and are not due by themselves.
    pub failed_single_tasks: i64,
    /// Its rows, by fetcher, newer runs first.
    pub rows: Vec<KeyRow>,
    /// There are more rows than are shown.
    pub truncated: bool,
}

/// What stands between a key and its next dispatch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyState {
    /// Only the keys before it.
    Waiting,
    /// Its job is out.
    InFlight,
    /// Too many leases of it expired: a newer run of its fetcher, or `retry`, brings it back.
    DeadLetter,
    /// It was handed out: a newer run of its fetcher brings it back.
    Dispatched,
    /// Its runs are being deleted.
    Leaving,
    /// No fetcher lists it.
    Unlisted,
}

/// A place in the order of dispatch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Place {
    /// Keys that would be handed out before it.
    pub keys_before: usize,
    /// False: there are more than that.
    pub exact: bool,
    /// The first of them.
    pub first: Vec<String>,
}

/// A job that is out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Delivery {
    /// The worker's name; `None`: a classic worker, which has none.
    pub worker: Option<String>,
    /// The attempt; `None`: a daemon under `--classic` keeps none.
    pub attempt: Option<i64>,
    /// When it was handed out, in seconds since 1970.
    pub since: UnixSeconds,
    /// How long the worker may be silent; `None`: a classic job.
    pub lease_seconds: Option<i64>,
    /// From when on a classic job may be handed out again; `None`: when a leased one may is known
    /// to the daemon alone.
    pub held_until: Option<UnixSeconds>,
    /// Which delivery of its row it is.
    pub delivery_count: Option<i64>,
}

/// How a job ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct LastResult {
    /// When it was handed out, in seconds since 1970.
    pub started: UnixSeconds,
    /// When it ended, in seconds since 1970.
    pub finished: UnixSeconds,
    /// Its exit code; `None`: somebody ended it by hand without one.
    pub exit_code: Option<i64>,
}

/// A key's row in a fetcher's run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct KeyRow {
    /// The fetcher.
    pub fetcher: String,
    /// The run's number.
    pub run: i64,
    /// All lines of the run are there.
    pub complete: bool,
    /// What the row is to the dispatcher.
    pub state: RowState,
    /// Expired leases of it.
    pub expired_leases: i64,
    /// Of a dispatched row: how its own last attempt ended, if that is known.
    pub exit_code: Option<i64>,
    /// What the worker is told.
    pub payload: String,
}

/// What a row is to the dispatcher.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RowState {
    /// It is handed out when its key's turn comes.
    Waiting,
    /// It is out.
    InFlight,
    /// It was handed out.
    Dispatched,
    /// Too many leases of it expired.
    DeadLetter,
    /// A newer run of its fetcher lists the key.
    Hidden,
    /// Its run is being deleted.
    Leaving,
}
