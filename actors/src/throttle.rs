//! A limit on how often something is logged: a number of events in each period.
//!
//! For warnings that a peer can cause at will, and those of lasting conditions. Pure: it is passed the time and says
//! yes or no, and how often it said no; the caller logs.

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

    /// A whole burst is admitted, and what follows in the same period is left out. The next period admits again, and
    /// its first event says, once, how many were left out. A period begins with an event, not at a fixed time; a clock
    /// that goes back changes nothing.
    #[test]
    fn what_is_left_out_is_told_once() {
        let start = Instant::now();
        let burst = [(0, SAID), (1, SAID), (2, SAID), (3, None), (5_000, None), (9_999, None)];
        let told = [(0, SAID), (1_000, None), (10_000, Some(1)), (19_000, None), (20_000, Some(1))];
        let late = [(25_000, SAID), (34_000, None), (0, None), (35_000, Some(2)), (60_000, SAID)];
        for (size, events) in [(3, &burst[..]), (1, &told), (1, &late)] {
            let mut throttle = Throttle::new(size, 10);
            for &(millis, said) in events {
                let at = start + Duration::from_millis(millis);
                assert_eq!(throttle.admit(at), said, "{size} at {millis}");
            }
        }
    }
}
