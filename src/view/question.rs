//! What can be listed of a queue: each listing's question to a reader, and its answer, which is its JSON object and makes its table. Once
//! for commands, pages, the page's objects and `top`; each of them only says what was asked for in its own way. Pure.

use serde::Serialize;
use shiftboss_protocol::answers::{Found, Groups, HeldKeys, Log, Queue, QueueStatus, Stats, Tasks};
use shiftboss_protocol::model::TASKS_FETCHER;
use shiftboss_queue::reader::{EndedAttempts, ReadResult, Reader, StatsOf, TasksWith};
use shiftboss_queue::sums::total;
use shiftboss_queue::waits::within;

use super::listings::{self, HeldSet};
use super::table::Table;
use crate::exit::{ExitCode, Failure};
use crate::hint::hint;
use crate::near::did_you_mean;
use crate::stores::Pace;
use crate::text::shown;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Question {
    /// So many keys that are handed out next.
    Next(usize),
    Tasks(TasksWith),
    Held(usize),
    Groups(usize),
    Log(EndedAttempts),
    /// So many keys that begin so.
    Keys(String, usize),
    Sums(StatsOf),
}

impl Question {
    pub fn ask(&self, reader: &dyn Reader, now: i64) -> ReadResult<Listed> {
        Ok(match self {
            Self::Next(count) => Listed::Next(reader.next_jobs(now, *count)?),
            Self::Tasks(asked) => Listed::Tasks(reader.tasks(now, asked)?),
            Self::Held(count) => Listed::Held(reader.held(*count)?),
            Self::Groups(count) => Listed::Groups(reader.groups(now, *count)?),
            Self::Log(asked) => Listed::Log(reader.ended_attempts(asked)?),
            Self::Keys(prefix, count) => Listed::Keys(reader.search(prefix, *count)?),
            Self::Sums(asked) => Listed::Sums(reader.stats(asked)?),
        })
    }
}

/// Refuses the name of a fetcher that has no list here, and never had: it is mistyped.
pub fn require_fetcher(reader: &dyn Reader, name: &str) -> ReadResult<Result<(), Failure>> {
    let known = reader.fetchers()?;
    if name == TASKS_FETCHER || known.iter().any(|it| it == name) {
        return Ok(Ok(()));
    }
    let meant = did_you_mean(name, known.iter().map(String::as_str));
    let text = format!("no list of a fetcher {} is here, or ever was{meant}", shown(name));
    Ok(Err(Failure::new(ExitCode::BadData, text)))
}

/// Refuses the name of a group that no task is in, and of which nothing is remembered: it may be mistyped.
pub fn require_group(reader: &dyn Reader, name: &str) -> ReadResult<Result<(), Failure>> {
    if reader.has_group(name)? {
        return Ok(Ok(()));
    }
    let text = format!(
        "no task is in a group {}, and nothing is remembered of it: {} lists all groups",
        shown(name),
        hint("groups")
    );
    Ok(Err(Failure::new(ExitCode::BadData, text)))
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
pub enum Listed {
    Next(Queue),
    Tasks(Tasks),
    Held(HeldKeys),
    Groups(Groups),
    Log(Log),
    Keys(Found),
    Sums(Stats),
}

impl Listed {
    /// `held` are marked; `turns` say when the next ones are expected.
    pub fn table(&self, held: &HeldSet<'_>, turns: &Turns, now: i64) -> Table {
        match self {
            Self::Next(found) => listings::next(found, turns, now),
            Self::Tasks(found) => listings::tasks(found, held, now),
            Self::Held(found) => listings::held(found, now),
            Self::Groups(found) => listings::groups(found, now),
            Self::Log(found) => listings::log(&found.attempts, held, now),
            Self::Keys(found) => listings::found(found, now),
            Self::Sums(found) => listings::stats(found),
        }
    }

    /// There are more than were asked for, or more than can be listed at once.
    pub fn has_more(&self) -> bool {
        match self {
            Self::Next(found) => found.truncated,
            Self::Tasks(found) => found.truncated,
            Self::Held(found) => found.truncated,
            Self::Groups(found) => found.truncated,
            Self::Log(found) => found.looked_to.is_some(),
            Self::Keys(found) => found.truncated,
            Self::Sums(found) => found.truncated,
        }
    }
}

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
            (Some(seconds), _) => within(seconds),
            (None, Some(_)) if before == 0 => "next".to_owned(),
            (None, _) => "-".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use shiftboss_protocol::answers::Done;

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
        queue.busy_seconds = Some(10);
        assert_eq!(words(&queue, false), ["next", "in less than a second", "in 10s"]);
        assert_eq!(words(&queue, true), ["-", "-", "-"]);
        queue.paused = true;
        assert_eq!(words(&queue, false), ["-", "-", "-"]);
        queue = QueueStatus::default();
        assert_eq!(words(&queue, false), ["next", "-", "-"], "too few jobs to tell");
    }
}
