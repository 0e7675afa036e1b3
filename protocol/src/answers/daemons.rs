//! Who keeps a queue: daemons and relays, what each records of itself, and of the fetchers that it runs.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::model::UnixSeconds;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndedRun {
    pub started: UnixSeconds,
    pub ended: UnixSeconds,
    /// As a shell would report it; 0 means that its list is in place.
    pub exit_code: u8,
    /// The result, for people.
    pub message: String,
}

/// The state of a managed fetcher. What it fetches is not here: that comes through the input directory, like any list.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FetcherRecord {
    /// Its name, and that of its list.
    pub name: Arc<str>,
    /// What it is doing, in a word or two: idle, waiting, running...
    pub state: String,
    /// When the present run began. If it is still set after the daemon died, that run was broken off.
    pub run_started: Option<UnixSeconds>,
    pub last_run: Option<EndedRun>,
    /// When it runs next, if nothing changes; `None`: when something does.
    pub next_run: Option<UnixSeconds>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RelayStatus {
    pub name: String,
    pub joined_since: UnixSeconds,
    /// It has been stopped since, or was taken for dead.
    pub gone: bool,
    /// It was taken for dead, and was not stopped.
    pub silent: bool,
    pub directory_lost_since: Option<UnixSeconds>,
    pub directory_lost_reason: Option<String>,
    pub rejected_files: i64,
    /// Leased jobs whose leases it keeps.
    pub in_flight: i64,
    /// Whose lists it has, by name.
    pub fetchers: Vec<String>,
}

/// One of several daemons, as the queue knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DaemonStatus {
    pub name: String,
    pub state: DaemonState,
    pub since: UnixSeconds,
    pub version: String,
    /// Its machine; `None`: no daemon of that name has run since the queue was moved here.
    pub host: Option<String>,
    /// `None`: it was stopped.
    pub pid: Option<i64>,
    pub input_dir: Option<String>,
    pub socket: Option<String>,
    /// Whose lists it has, by name.
    pub fetchers: Vec<String>,
    /// Jobs that it handed out, or adopted.
    pub in_flight: i64,
    /// When it found that the server's state was older than what it had written.
    pub went_back: Option<UnixSeconds>,
}

impl DaemonStatus {
    pub fn runs(&self) -> bool {
        matches!(self.state, DaemonState::Running | DaemonState::Draining)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DaemonState {
    Running,
    /// It hands nothing out from `since` on, and stops when its jobs have ended.
    Draining,
    Stopped,
    /// It was not stopped, and was last heard of at `since`.
    Silent,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotStopped {
    pub pid: u32,
    pub started: UnixSeconds,
    /// When the database was last written to: its last known sign of life.
    pub last_write: Option<UnixSeconds>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RejectedFile {
    /// Escaped.
    pub name: String,
    pub reason: String,
    pub since: UnixSeconds,
    /// The name of the daemon in whose input directory it is; `None`: the queue is in a file.
    pub daemon: Option<String>,
}
