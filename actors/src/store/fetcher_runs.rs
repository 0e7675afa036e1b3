//! Runs of the fetchers that the daemon runs itself: the part of the store that remembers, over a restart,
//! when each ran last and how that ended.
//!
//! Called by the StorageActor for whoever runs them. What they fetched is not here: that comes through
//! the input directory, as any list does.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use shiftboss_protocol::model::UnixSeconds;

/// A run that has ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndedRun {
    /// When it began.
    pub started: UnixSeconds,
    /// When it ended.
    pub ended: UnixSeconds,
    /// As a shell would report it; 0: its list is in place.
    pub exit_code: u8,
    /// What came of it, for people.
    pub message: String,
}

/// How a fetcher is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetcherRecord {
    /// Its name, and its list's.
    pub name: Arc<str>,
    /// What it is doing, in a word or two: idle, waiting, running...
    pub state: String,
    /// When the run began that is on. Still there after a death: that run was broken off.
    pub run_started: Option<UnixSeconds>,
    /// The run that ended last.
    pub last_run: Option<EndedRun>,
    /// When it runs next, if nothing changes; `None`: when something does.
    pub next_run: Option<UnixSeconds>,
}
