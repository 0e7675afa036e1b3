//! When to maintain the store: soon after the last commit, and now and then. Used by the StorageActor alone.

use std::time::Duration;

use tokio::time::Instant;

/// Without a commit for this long the main file is brought up to date (spec 6: a second).
const IDLE_AFTER: Duration = Duration::from_millis(400);
/// Even a busy store is maintained this often: its files may have vanished.
const MAINTAIN_EVERY: Duration = Duration::from_secs(2);

pub(super) struct Housekeeping {
    /// There were commits since the main file was last up to date.
    pub(super) dirty: bool,
    last_commit: Instant,
    pub(super) last_maintained: Instant,
}

impl Housekeeping {
    pub(super) fn new() -> Self {
        let now = Instant::now();
        Self { dirty: true, last_commit: now, last_maintained: now }
    }

    pub(super) fn committed(&mut self) {
        self.dirty = true;
        self.last_commit = Instant::now();
    }

    /// Whether it is time; `Some(true)` if that is because the store is idle.
    pub(super) fn due(&self) -> Option<bool> {
        let is_idle = self.dirty && self.last_commit.elapsed() >= IDLE_AFTER;
        (is_idle || self.last_maintained.elapsed() >= MAINTAIN_EVERY).then_some(is_idle)
    }
}
