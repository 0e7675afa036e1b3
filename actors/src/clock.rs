//! The wall clock as a value that can be passed in, and a monotonic time that no clock change affects. Used by the
//! actors to timestamp what they do; tests pass in one that they can move (`testing`).

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};
use shiftboss_protocol::model::UnixSeconds;
use shiftboss_queue::record::Millis;

pub trait Clock: Send {
    /// Milliseconds since 1970; 0 if the system clock is set before that.
    fn millis(&self) -> Millis;

    fn now(&self) -> UnixSeconds {
        self.millis().div_euclid(1_000)
    }

    /// [`boot_time`], of this clock.
    fn boot_time(&self) -> Duration;
}

/// Time since the machine was started: it goes on while the machine sleeps, and cannot be set.
pub fn boot_time() -> Duration {
    let now = clock_gettime(ClockId::Boottime);
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or_default())
}

#[derive(Debug, Clone, Copy)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn millis(&self) -> Millis {
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    }

    fn boot_time(&self) -> Duration {
        boot_time()
    }
}
