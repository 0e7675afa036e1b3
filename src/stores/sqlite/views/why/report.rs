//! What there is to say of a key; the JSON object of `why` is made of it (docs/json.md). Times are in seconds since 1970.

use serde::Serialize;
use shiftboss_protocol::model::UnixSeconds;

/// Where a key is, and why it is not the next one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Why {
    pub key: String,
    pub state: KeyState,
    /// Nothing is handed out at present, whatever the state.
    pub paused: bool,
    /// Its place in the order; `None` unless it is waiting.
    pub place: Option<Place>,
    /// Seconds until it is handed out, if jobs go on ending as in the last hour; `None` where that
    /// is not known, and for the next one.
    pub expected_in_seconds: Option<i64>,
    pub jobs_last_hour: i64,
    /// Its job that is out, also beyond its lease.
    pub in_flight: Option<Delivery>,
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
    pub first: Vec<String>,
}

/// A job that is out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Delivery {
    /// `None`: a classic worker, which has no name.
    pub worker: Option<String>,
    /// `None`: a daemon under `--classic` keeps none.
    pub attempt: Option<i64>,
    pub since: UnixSeconds,
    /// `None`: a classic job.
    pub lease_seconds: Option<i64>,
    /// From when on a classic job may be handed out again; `None`: when a leased one may is known
    /// to the daemon alone.
    pub held_until: Option<UnixSeconds>,
    pub delivery_count: Option<i64>,
}

/// How a job ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct LastResult {
    pub started: UnixSeconds,
    pub finished: UnixSeconds,
    /// `None`: somebody ended it by hand without one.
    pub exit_code: Option<i64>,
}

/// A key's row in a fetcher's run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct KeyRow {
    pub fetcher: String,
    pub run: i64,
    pub complete: bool,
    pub state: RowState,
    pub expired_leases: i64,
    /// Of a dispatched row: how its own last attempt ended, if that is known.
    pub exit_code: Option<i64>,
    pub payload: String,
}

/// What a row is to the dispatcher.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RowState {
    /// It is handed out when its key's turn comes.
    Waiting,
    InFlight,
    Dispatched,
    DeadLetter,
    /// A newer run of its fetcher lists the key.
    Hidden,
    /// Its run is being deleted.
    Leaving,
}
