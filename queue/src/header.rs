//! The header of a queue: what is not any key's, as a store keeps it beside the records.
//!
//! The [engine](crate::engine) changes it, [stores](crate::records) load and save it.

use std::collections::BTreeMap;
use std::sync::Arc;

use shiftboss_protocol::model::{Attempt, TASKS_FETCHER};

use crate::context::{Context, Settings};
use crate::counts::Tally;
use crate::credit::CREDIT_FIRST;
use crate::record::{FetcherId, Millis};

/// A run as a store knows it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunState {
    /// When it was registered, in microseconds since 1970.
    pub since: i64,
    pub complete: bool,
    pub deleting: bool,
    /// The reading that is its whole list, for a prune; rows of earlier ones go.
    pub listing: Option<i64>,
    /// The last reading of it.
    pub reading: i64,
    /// How far its file was read, as the daemon that reads it writes that.
    pub position: Option<String>,
    pub skipped: u64,
}

/// What is not any key's. Loaded at the begin of a batch, and saved with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    pub last_attempt: i64,
    pub last_bump: i64,
    /// The last number of a single task.
    pub last_single: i64,
    /// The last microsecond that a key waits since.
    pub last_since: i64,
    /// The lane's, in thousandths.
    pub credit: i64,
    pub paused: bool,
    /// By how much the wall clock was set so far, all in all; what is due [follows](crate::rules::clocks).
    pub clock: Millis,
    pub fetchers: BTreeMap<FetcherId, Arc<str>>,
    pub runs: BTreeMap<(FetcherId, i64), RunState>,
    /// Sums by run.
    pub counts: Tally,
}

impl Default for Header {
    /// A new queue's: its first bump goes at once.
    fn default() -> Self {
        Self {
            last_attempt: 0,
            last_bump: 0,
            last_single: 0,
            last_since: 0,
            credit: CREDIT_FIRST,
            paused: false,
            clock: 0,
            fetchers: BTreeMap::new(),
            runs: BTreeMap::new(),
            counts: Tally::default(),
        }
    }
}

impl Header {
    /// What rules go by at `now`.
    pub fn context(&self, settings: &Arc<Settings>, now: Millis) -> Context {
        let going = self.runs.iter().filter(|(_, run)| run.deleting).map(|(run, _)| *run);
        let mut fetchers = self.fetchers.clone();
        fetchers.insert(FetcherId::TASKS, TASKS_FETCHER.into());
        Context {
            now,
            clock: self.clock,
            settings: settings.clone(),
            last_attempt: Attempt(self.last_attempt),
            last_bump: self.last_bump,
            going: going.collect(),
            fetchers,
        }
    }
}
