//! Growing delays between tries, partly random, so that processes that failed together do not try again together.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

/// A number that no other process on any host has. Nothing here has to be secret.
pub fn random() -> u64 {
    RandomState::new().hash_one(0_u8)
}

/// A time between half of this one and all of it, at random.
pub fn shortened(time: Duration) -> Duration {
    time / 2 + time.mul_f64((random() % 1_000) as f64 / 2_000.0)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    first: Duration,
    longest: Duration,
    next: Duration,
}

impl Backoff {
    /// Delays begin with `first`; none is longer than `longest`.
    pub fn new(first: Duration, longest: Duration) -> Self {
        let first = first.min(longest);
        Self { first, longest, next: first }
    }

    pub fn next_delay(&mut self) -> Duration {
        let delay = self.next;
        self.next = delay.saturating_mul(2).min(self.longest);
        delay
    }

    pub fn reset(&mut self) {
        self.next = self.first;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Delays double up to the longest, and begin anew.
    #[test]
    fn delays_double() {
        let mut backoff = Backoff::new(Duration::from_secs(2), Duration::from_secs(5));
        let mut next = || backoff.next_delay().as_secs();
        assert_eq!([next(), next(), next(), next()], [2, 4, 5, 5]);
        backoff.reset();
        assert_eq!(backoff.next_delay().as_secs(), 2);
        let mut short = Backoff::new(Duration::from_secs(2), Duration::from_secs(1));
        assert_eq!(short.next_delay().as_secs(), 1);
    }
}
