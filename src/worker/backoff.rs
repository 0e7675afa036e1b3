//! How long to wait before the next try: longer each time, and never the same for two workers, so that a
//! daemon that was restarted does not meet all of them at once. Pure but for the random number.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

#[derive(Debug, Clone)]
pub struct Backoff {
    first: Duration,
    longest: Duration,
    tries: u32,
}

impl Backoff {
    /// Delays from `first` on, doubled each time up to `longest`, each shortened by up to a half.
    pub fn new(first: Duration, longest: Duration) -> Self {
        Self { first: first.min(longest), longest, tries: 0 }
    }

    pub fn next_delay(&mut self) -> Duration {
        let full = self.first.saturating_mul(1 << self.tries.min(20)).min(self.longest);
        self.tries = self.tries.saturating_add(1);
        full.mul_f64(0.5 + random_share() / 2.0)
    }
}

/// From 0 to 1. The standard library seeds its hashes at random; nothing here has to be secret.
fn random_share() -> f64 {
    (RandomState::new().hash_one(0_u8) >> 11) as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Delays grow to their limit, stay within half of it, and differ.
    #[test]
    fn delays_grow_and_differ() {
        let (first, longest) = (Duration::from_millis(100), Duration::from_secs(5));
        let delays = || {
            let mut backoff = Backoff::new(first, longest);
            (0..40).map(|_| backoff.next_delay()).collect::<Vec<_>>()
        };
        let (a, b) = (delays(), delays());
        assert!(a[0] >= first / 2 && a[0] <= first, "{a:?}");
        assert!(a[6..].iter().all(|delay| *delay >= longest / 2 && *delay <= longest), "{a:?}");
        assert_ne!(a, b);
    }
}
