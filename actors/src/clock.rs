//! The wall clock as a value that can be handed in. Used by the actors that stamp what they do;
//! tests hand in one they can move.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use shiftboss_protocol::model::UnixSeconds;

/// Tells the time in whole seconds.
pub trait Clock: Send {
    /// Seconds since 1970; 0 when the system's clock stands before that.
    fn now(&self) -> UnixSeconds;
}

/// The system's clock (spec 2: whole seconds of the wall clock).
#[derive(Debug, Clone, Copy)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> UnixSeconds {
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| i64::try_from(since.as_secs()).unwrap_or(i64::MAX))
    }
}

/// A clock that stands still until it is moved; clones share the time.
#[derive(Debug, Clone, Default)]
pub struct ManualClock(Arc<AtomicI64>);

impl ManualClock {
    /// A clock that shows `now`.
    pub fn at(now: UnixSeconds) -> Self {
        Self(Arc::new(AtomicI64::new(now)))
    }

    /// Moves the clock to `now`, backwards too.
    pub fn set(&self, now: UnixSeconds) {
        self.0.store(now, Ordering::Relaxed);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> UnixSeconds {
        self.0.load(Ordering::Relaxed)
    }
}
