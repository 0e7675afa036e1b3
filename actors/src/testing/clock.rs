//! A wall clock that tests move.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use crate::clock::Clock;
use shiftboss_protocol::model::UnixSeconds;
use shiftboss_queue::record::Millis;

/// A clock that stands still until it is moved; clones share the time.
#[derive(Debug, Clone, Default)]
pub struct ManualClock(Arc<AtomicI64>);

impl ManualClock {
    pub fn at(now: UnixSeconds) -> Self {
        Self(Arc::new(AtomicI64::new(now)))
    }

    /// Moves the clock to `now`, backwards too.
    pub fn set(&self, now: UnixSeconds) {
        self.0.store(now, Ordering::Relaxed);
    }
}

impl Clock for ManualClock {
    fn millis(&self) -> Millis {
        self.0.load(Ordering::Relaxed).saturating_mul(1_000)
    }

    /// None passes: to move it is to set it.
    fn boot_time(&self) -> Duration {
        Duration::ZERO
    }
}
