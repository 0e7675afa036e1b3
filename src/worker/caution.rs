//! Why a worker holds back: something failed that may fail again ([`Caution`]), and which failed jobs suggest that
//! ([`Failures`]). Plain values of the [`pool`](super::pool).

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// The pause after the first time; twice as long after each further one.
const PAUSE_FIRST: Duration = Duration::from_secs(1);
const PAUSE_LONGEST: Duration = Duration::from_secs(60);
/// A job that fails within this need not have tried: a link that is dead takes its time.
const AT_ONCE: Duration = Duration::from_secs(1);
/// So many keys that failed at once, one after the other, are no chance.
const KEYS_MAX: usize = 20;

/// Nobody tries before a time, and then one after the other.
#[derive(Debug, Clone, Copy, Default)]
pub struct Caution {
    times: u32,
    until: Option<Instant>,
}

impl Caution {
    /// It went wrong once more. Returns the pause. What goes wrong together counts once.
    pub fn again(&mut self, now: Instant) -> Duration {
        if let Some(until) = self.until(now) {
            return until.saturating_duration_since(now);
        }
        let pause = PAUSE_FIRST.saturating_mul(2_u32.saturating_pow(self.times)).min(PAUSE_LONGEST);
        self.times += 1;
        self.until = now.checked_add(pause);
        pause
    }

    pub fn is_on(&self) -> bool {
        self.times > 0
    }

    pub fn times(&self) -> u32 {
        self.times
    }

    /// Until when nobody tries.
    pub fn until(&self, now: Instant) -> Option<Instant> {
        self.until.filter(|until| *until > now)
    }
}

/// Jobs that failed since one succeeded.
#[derive(Debug, Clone, Default)]
pub struct Failures {
    in_a_row: u64,
    /// Keys whose jobs failed at once, since one took its time.
    at_once: BTreeSet<Vec<u8>>,
}

impl Failures {
    pub fn add(&mut self, key: &[u8], took: Duration) {
        self.in_a_row += 1;
        if took >= AT_ONCE {
            self.at_once.clear();
        } else if !self.are_suspicious() {
            self.at_once.insert(key.to_vec());
        }
    }

    pub fn in_a_row(&self) -> u64 {
        self.in_a_row
    }

    /// Not the jobs are broken, but what they all need.
    pub fn are_suspicious(&self) -> bool {
        self.at_once.len() >= KEYS_MAX
    }
}
