//! The wall clock as a value that can be handed in. Used by the actors that stamp what they do;
//! tests hand in one that they can move (`testing`).

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
