//! A limit on how often something is said: so many at once, then so many in a time.
//!
//! For warnings that a peer can cause at will, and those of what lasts. Pure: it is handed the time and says yes or
//! no, and how often it said no; the caller logs.

use std::time::{Duration, Instant};

/// Admits `burst` events in each period; a period begins with the first event after the last one.
#[derive(Debug)]
pub struct Throttle {
    burst: u32,
    period: Duration,
    began: Option<Instant>,
    admitted: u32,
    suppressed: u64,
}

impl Throttle {
    pub const fn new(burst: u32, per_seconds: u32) -> Self {
        Self {
            burst,
            period: Duration::from_secs(per_seconds as u64),
            began: None,
            admitted: 0,
            suppressed: 0,
        }
    }

    /// Counts an event at `now`. `Some`: log it, and how many were left out since the last one.
    pub fn admit(&mut self, now: Instant) -> Option<u64> {
        let is_over = |began| now.saturating_duration_since(began) >= self.period;
        if self.began.is_none_or(is_over) {
            self.began = Some(now);
            self.admitted = 0;
        }
        if self.admitted >= self.burst {
            self.suppressed += 1;
            return None;
        }
        self.admitted += 1;
        Some(std::mem::take(&mut self.suppressed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: Option<u64> = Some(0);

    /// A burst is admitted whole, and what follows in the same period is left out.
    #[test]
    fn a_burst_then_silence() {
        let mut throttle = Throttle::new(3, 10);
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        assert_eq!([0, 1, 2].map(|millis| throttle.admit(at(millis))), [SAID; 3]);
        assert_eq!([3, 5_000, 9_999].map(|t| throttle.admit(at(t))), [None; 3]);
    }

    /// The next period admits again, and its first says how many were left out; once.
    #[test]
    fn what_was_left_out_is_told_once() {
        let mut throttle = Throttle::new(1, 10);
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(throttle.admit(at(0)), SAID);
        assert_eq!([1, 2].map(|t| throttle.admit(at(t))), [None; 2]);
        assert_eq!(throttle.admit(at(10)), Some(2));
        assert_eq!(throttle.admit(at(19)), None);
        assert_eq!(throttle.admit(at(20)), Some(1));
        assert_eq!(throttle.admit(at(40)), SAID);
    }

    /// A period begins with an event, not by a clock of its own; time that goes back changes
    /// nothing.
    #[test]
    fn a_period_begins_with_an_event() {
        let mut throttle = Throttle::new(1, 10);
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(throttle.admit(at(25)), SAID);
        assert_eq!(throttle.admit(at(34)), None);
        assert_eq!(throttle.admit(at(0)), None);
        assert_eq!(throttle.admit(at(35)), Some(2));
    }
}
