//! The wall clock as a value that can be handed in, and the time that passes whoever sets it. Used by the actors that
//! stamp what they do; tests hand in one that they can move (`testing`).

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};
use shiftboss_protocol::model::UnixSeconds;
use shiftboss_queue::record::Millis;

pub trait Clock: Send {
    /// Milliseconds since 1970; 0 when the system's clock stands before that.
    fn millis(&self) -> Millis;

    fn now(&self) -> UnixSeconds {
        self.millis().div_euclid(1_000)
    }

    /// [`boot_time`], of this clock.
    fn boot_time(&self) -> Duration;
}

/// Time since the machine was started: it goes on while the machine sleeps, and nobody sets it.
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
