//! One fetcher of the supervisor's: what is wanted of it, and what runs of it.

use std::time::Duration;

use shiftboss_protocol::backoff::Backoff;
use tokio::task::AbortHandle;

use super::super::child::Child;
use crate::config::FetcherTable;
use crate::schedule::scheduler::Request;

/// From a panic to the start of the next child: at first, and at the longest.
const RESTART: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(60)];

pub(super) struct Fetcher {
    /// What is to run; `None`: nothing any more.
    pub wanted: Option<FetcherTable>,
    /// What runs, and how it is killed.
    pub child: Option<(Child, AbortHandle)>,
    /// It is replaced by one that was configured anew.
    pub is_changed: bool,
    pub is_running: bool,
    pub is_ending: bool,
    /// Reset when a run ends.
    pub restarts: Backoff,
}

impl Default for Fetcher {
    fn default() -> Self {
        Self {
            wanted: None,
            child: None,
            is_changed: false,
            is_running: false,
            is_ending: false,
            restarts: Backoff::new(RESTART[0], RESTART[1]),
        }
    }
}

impl Fetcher {
    pub fn end(&mut self) {
        if let Some((child, _)) = self.child.as_ref().filter(|_| !self.is_ending) {
            // One that has ended is heard of in a moment.
            let _ = child.requests.send(Request::Stop);
            self.is_ending = true;
        }
    }

    pub fn clear(&mut self) {
        (self.child, self.is_ending, self.is_running) = (None, false, false);
    }
}
