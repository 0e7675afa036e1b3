//! Waiting for a condition with a deadline: the only place that polls and the only one that
//! sleeps.

use std::fmt::Debug;
use std::time::{Duration, Instant};

/// How long a test waits before it says that something does not happen. Generous: it is only
/// spent by a test that fails.
pub const DEADLINE: Duration = Duration::from_secs(60);

const POLL: Duration = Duration::from_millis(3);

/// Waits until `condition` holds; panics with `what` after [`DEADLINE`].
pub fn wait_until(what: &str, condition: impl FnMut() -> bool) {
    wait_within(DEADLINE, what, condition);
}

/// Waits until `condition` holds; panics with `what` after `limit`.
pub fn wait_within(limit: Duration, what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < limit, "waited {limit:?} in vain until {what}");
        pause(POLL);
    }
}

/// Waits until `look` returns `expected`; panics with what it returned last.
pub fn wait_equal<T: PartialEq + Debug>(what: &str, expected: &T, mut look: impl FnMut() -> T) {
    let start = Instant::now();
    let mut seen = look();
    while seen != *expected {
        if start.elapsed() > DEADLINE {
            assert_eq!(seen, *expected, "waited {DEADLINE:?} in vain until {what}");
        }
        pause(POLL);
        seen = look();
    }
}

/// Lets `time` pass: between two looks, between a refused request and its repetition, and for
/// the random moments of the kill tests.
#[allow(clippy::disallowed_methods, reason = "the one place where tests let time pass")]
pub fn pause(time: Duration) {
    std::thread::sleep(time);
}

/// Waits until a signal counts as a second one.
pub fn pause_before_second_signal() {
    pause(Duration::from_millis(1_050));
}

/// Sets a flag when it goes, so that threads that watch the flag end with a test that fails.
pub struct SetOnDrop<'a>(pub &'a std::sync::atomic::AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, std::sync::atomic::Ordering::Relaxed);
    }
}
