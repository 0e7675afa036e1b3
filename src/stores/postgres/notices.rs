//! Whether notices of work arrive: a daemon sends itself one now and then. Behind a pool of connections, for one, none does.
//!
//! Kept by [`membership`](super::membership); the companion sends and listens. Pure.

use std::time::Duration;

use tokio::time::Instant;

/// The channel of notices; each carries its sender's number.
pub(super) const CHANNEL: &str = "shiftboss";
/// What stands before the number in a notice that is only for its sender.
pub(super) const TEST: &str = "test ";

/// Without a notice of its own for so long a daemon sends itself one; sooner while none arrives.
const TEST_EVERY: Duration = Duration::from_secs(30);
/// One that takes longer does not arrive.
const ARRIVES_WITHIN: Duration = Duration::from_secs(5);

/// What a connection that listens has shown.
#[derive(Default)]
pub(super) struct Notices {
    arrive: bool,
    /// It was said that they do not.
    is_told: bool,
    /// When the test was sent that has not come back.
    tested: Option<Instant>,
    /// When the last one came back.
    last: Option<Instant>,
}

/// What is to be done at a beat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    Rest,
    /// A test is to be sent.
    Test,
    /// Likewise, and that the last one is lost is to be said.
    Lost,
}

impl Notices {
    /// Whether they do, as far as is known: not before the first one came.
    pub(super) fn arrive(&self) -> bool {
        self.arrive
    }

    /// Nothing can arrive until there is another connection, which is tested at once.
    pub(super) fn disconnected(&mut self) {
        (self.arrive, self.tested, self.last) = (false, None, None);
    }

    /// One came back; whether it is to be said that they do again.
    pub(super) fn arrived(&mut self, now: Instant) -> bool {
        (self.arrive, self.tested, self.last) = (true, None, Some(now));
        std::mem::take(&mut self.is_told)
    }

    pub(super) fn beat(&mut self, now: Instant) -> Step {
        let is_over = |since: Instant, time| now.saturating_duration_since(since) >= time;
        let (is_lost, is_due) = match (self.tested, self.last) {
            (Some(tested), _) => (is_over(tested, ARRIVES_WITHIN), false),
            (None, last) => (false, last.is_none_or(|last| is_over(last, TEST_EVERY))),
        };
        if !(is_lost || is_due) {
            return Step::Rest;
        }
        self.tested = Some(now);
        self.arrive &= !is_lost;
        let is_news = is_lost && !std::mem::replace(&mut self.is_told, true);
        if is_news { Step::Lost } else { Step::Test }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is done at each of so many beats, one a second, with the second; what is sent comes back in the seconds `heard`.
    fn beats(count: u64, heard: impl Fn(u64) -> bool) -> (Notices, Vec<(u64, Step)>) {
        let (mut notices, start) = (Notices::default(), Instant::now());
        let mut steps = Vec::new();
        for second in 0..count {
            let now = start + Duration::from_secs(second);
            let step = notices.beat(now);
            if step != Step::Rest {
                steps.push((second, step));
                if heard(second) {
                    notices.arrived(now + Duration::from_millis(100));
                }
            }
        }
        (notices, steps)
    }

    /// One is sent at once, and then twice a minute.
    #[test]
    fn what_arrives_is_tested_now_and_then() {
        assert!(!Notices::default().arrive());
        let (mut notices, steps) = beats(70, |_| true);
        assert_eq!(steps, [(0, Step::Test), (31, Step::Test), (62, Step::Test)]);
        assert!(notices.arrive());
        notices.disconnected();
        assert!(!notices.arrive(), "nobody listens");
        assert_eq!(notices.beat(Instant::now()), Step::Test);
    }

    /// Their loss is known after five seconds, said once, and tested on each five seconds.
    #[test]
    fn what_does_not_arrive_is_said_once() {
        let (mut notices, steps) = beats(43, |second| second < 30);
        let tests = [0, 31, 41].map(|second| (second, Step::Test));
        assert_eq!(steps, [tests[0], tests[1], (36, Step::Lost), tests[2]]);
        assert!(!notices.arrive());
        assert!(notices.arrived(Instant::now()), "that they arrive again is said");
        assert!(notices.arrive() && !notices.arrived(Instant::now()));
    }

    /// A daemon's own notices of work show as much as a test.
    #[test]
    fn work_is_a_test_too() {
        let (mut notices, start) = (Notices::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(notices.beat(at(0)), Step::Test);
        for second in 1..100 {
            notices.arrived(at(second));
            assert_eq!(notices.beat(at(second)), Step::Rest);
        }
    }
}
