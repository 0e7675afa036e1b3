//! When the turns of those that wait are expected: what `shiftboss tasks --next`, `top` and the page say beside each of them. Pure.

use shiftboss_queue::answers::QueueStatus;
use shiftboss_queue::sums::total;

use crate::stores::Pace;
use crate::text::span;

/// When turns come in a queue as it stands.
#[derive(Default)]
pub struct Turns {
    /// `None`: nothing is handed out.
    pace: Option<Pace>,
}

impl Turns {
    /// `is_down`: no daemon runs.
    pub fn of(queue: &QueueStatus, is_down: bool) -> Self {
        let jobs = total(queue.done_last_hour.iter().map(|done| done.jobs));
        let goes_on = !queue.paused && !is_down;
        Self { pace: goes_on.then(|| Pace::new(jobs, queue.busy_seconds)) }
    }

    /// In how many seconds the turn behind so many others comes.
    pub fn seconds(&self, before: usize) -> Option<i64> {
        self.pace?.expected_in(before)
    }

    /// The same in words.
    pub fn words(&self, before: usize) -> String {
        match (self.seconds(before), self.pace) {
            (Some(seconds), _) => format!("in {}", span(seconds)),
            (None, Some(_)) if before == 0 => "next".to_owned(),
            (None, _) => "-".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use shiftboss_queue::answers::Done;

    use super::*;

    /// At the pace of the last jobs, and not at all where nothing is handed out.
    #[test]
    fn turns_come_at_the_pace_of_what_ended() {
        let done_last_hour = vec![Done { exit_code: 0, jobs: 60 }];
        let mut queue =
            QueueStatus { done_last_hour, busy_seconds: Some(600), ..QueueStatus::default() };
        let words = |queue: &QueueStatus, is_down| {
            let turns = Turns::of(queue, is_down);
            [0, 1, 59].map(|before| turns.words(before))
        };
        assert_eq!(words(&queue, false), ["next", "in 20s", "in 10m"]);
        assert_eq!(words(&queue, true), ["-", "-", "-"]);
        queue.paused = true;
        assert_eq!(words(&queue, false), ["-", "-", "-"]);
        queue = QueueStatus::default();
        assert_eq!(words(&queue, false), ["next", "-", "-"], "too few jobs to tell");
    }
}
