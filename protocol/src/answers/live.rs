//! The daemon's part of answers to operators: what only a running one knows of itself (`status`, `health`), and the
//! envelope of every JSON object (docs/json.md), which begins with the daemon. The daemon's actors and services fill it
//! in.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::metrics::Counted;
use crate::model::UnixSeconds;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Daemon {
    pub pid: u32,
    /// The database it keeps; for one on a server its URL, without a password.
    pub database: PathBuf,
    pub input_dir: PathBuf,
    pub socket: PathBuf,
    /// When it started, in seconds since 1970.
    pub started: u64,
}

/// The JSON object of an answer: where the data is from, and the data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report<T> {
    pub database: PathBuf,
    /// `None`: none runs, or that is not known.
    pub daemon: Option<Daemon>,
    /// Why it is not known whether one runs.
    pub daemon_unknown: Option<String>,
    #[serde(flatten)]
    pub found: T,
}

impl<T> Report<T> {
    pub fn of(daemon: &Daemon, found: T) -> Self {
        let daemon = daemon.clone();
        Self {
            database: daemon.database.clone(),
            daemon: Some(daemon),
            daemon_unknown: None,
            found,
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Health {
    /// Jobs that are out; a drain waits for them.
    pub in_flight: u64,
    /// Nothing is handed out, and the daemon stops when no job is out.
    pub draining: bool,
    /// Nothing can be written at present.
    pub outage: Option<Outage>,
}

/// A time in which nothing can be written: the disk is full, or the database locked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outage {
    /// When the first request failed, in seconds since 1970.
    pub since: UnixSeconds,
    pub error: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ProcessUsage {
    pub resident_bytes: u64,
    /// Processor time since its start.
    pub cpu_seconds: f64,
}

/// The daemon's own counters; the JSON object of `METRICS`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct DaemonMetrics {
    pub version: String,
    /// When the daemon started, in seconds since 1970.
    pub started: u64,
    pub usage: Option<ProcessUsage>,
    /// Lines of its log that were not read in time.
    #[serde(default)]
    pub dropped_log_lines: u64,
    pub counted: Counted,
    /// The broker over which it serves relays, if it does.
    #[serde(default)]
    pub broker: Option<BrokerLive>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Live {
    #[serde(flatten)]
    pub health: Health,
    /// Workers that are connected with protocol 2, by name.
    pub workers: Vec<ConnectedWorker>,
    /// The broker over which it serves relays, if it does.
    #[serde(default)]
    pub broker: Option<BrokerLive>,
    /// Lines of the daemon's log that were not read in time, since its start.
    #[serde(default)]
    pub dropped_log_lines: u64,
    /// Workers and fetchers whose last hundred jobs all failed.
    #[serde(default)]
    pub failing: Vec<Failing>,
}

/// A worker or a fetcher, and how many of its jobs failed in a row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failing {
    pub kind: FailingKind,
    pub name: String,
    pub jobs: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailingKind {
    Worker,
    Fetcher,
}

/// A broker over which a daemon serves relays.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BrokerLive {
    pub url: String,
    /// False: it cannot be used at present, and relays wait.
    pub connected: bool,
    /// Relays that have been heard from, by name.
    pub relays: Vec<HeardRelay>,
    /// Requests that wait there, as the broker reported within the last seconds; `None`: it has not reported yet.
    pub requests: Option<u32>,
    /// Messages that were refused and wait there, likewise.
    pub dead_letters: Option<u32>,
    /// Each range with the number of messages that wait, likewise.
    pub ranges: Vec<RangeLive>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeardRelay {
    pub name: String,
    pub silent_seconds: u64,
}

/// Rows of lists by the range of their keys.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RangeLive {
    pub range: u8,
    /// Messages that no daemon has taken yet.
    pub messages: u32,
    /// Daemons that take them, in turn; 0: none does.
    pub consumers: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectedWorker {
    pub name: String,
    pub connections: u64,
    /// Seconds since the last request of any of them.
    pub silent_seconds: u64,
}
