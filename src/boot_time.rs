//! A clock that goes on while the machine sleeps, and that nobody sets.
//!
//! For the stores that are on a server: who was away for long, asleep or stopped, may have been taken for dead.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Time since the machine was started.
pub(crate) fn boot_time() -> Duration {
    let now = clock_gettime(ClockId::Boottime);
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or_default())
}
