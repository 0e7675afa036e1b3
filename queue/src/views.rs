//! What the readers of all stores share: how much they show at the most, and what follows from what they read.
//!
//! Called by the views of each store. It knows no database.

use std::time::Duration;

use crate::answers::{
    FetcherRecord, Found, HeldKey, HeldKeys, KeyRow, KeyState, KnownKey, Next, Queue, Retry,
    RowState, Stats, StatsGroup, Task, TaskStatus, Tasks, Turn,
};
use humantime::format_duration;
use shiftboss_protocol::model::UnixSeconds;

use crate::outcome_words::{in_words, of_code};
use crate::reader::{GROUPS_MAX, Grouping, StatsOf, TasksWith};

/// Keys that can be asked for at once.
pub const QUEUE_MAX: usize = 10_000;
/// Keys that can be searched for at once.
pub const SEARCH_MAX: usize = 1_000;
/// Held keys that can be asked for at once.
pub const HELD_MAX: usize = 10_000;
/// Attempts that can be asked for at once.
pub const LOG_MAX: usize = 10_000;
/// Rows that a walk along the order goes over at the most: a key has one for each fetcher that lists it.
pub const WALK_MAX: usize = 1_000_000;
/// Keys before a single task's that are counted; and other single tasks of its key.
pub const COUNTED_MAX: u64 = 1_000;
/// Of those, so many are named.
pub const FIRST_MAX: usize = 5;
/// Rows of a key that are shown.
pub const ROWS_MAX: usize = 1_000;
/// A listing ends once its payloads have so many bytes: it is held in memory.
pub const PAYLOADS_MAX_BYTES: usize = 16 * 1024 * 1024;
/// Jobs that ended within this many minutes are counted.
pub const HOUR_MINUTES: i64 = 60;

/// Sums of one outcome each that are read at the most: one group has six.
pub const SEPARATE_SUMS_MAX: i64 = 6 * (GROUPS_MAX as i64 + 1);
const HOUR_SECONDS: i64 = 3_600;

/// Attempts that ended alike, of a group.
pub struct Summed {
    pub fetcher: Option<String>,
    pub since: Option<UnixSeconds>,
    pub outcome: String,
    pub jobs: i64,
    pub took_ms: i64,
    pub revisits: i64,
    pub revisit_seconds: i64,
}

/// The first hour that is asked for, in hours since 1970.
pub fn first_hour(asked: &StatsOf) -> i64 {
    asked.since.div_euclid(HOUR_SECONDS)
}

/// Whether fetchers are apart, and how many hours are together; 0: all.
pub fn group_hours(by: Grouping) -> (bool, i64) {
    match by {
        Grouping::All => (false, 0),
        Grouping::Fetcher => (true, 0),
        Grouping::Hour => (false, 1),
        Grouping::Day => (false, 24),
        Grouping::FetcherDay => (true, 24),
    }
}

/// The first text behind all that begin with `prefix`, in the order of their bytes; `None`: there is none.
pub fn behind(prefix: &str) -> Option<String> {
    let mut chars: Vec<char> = prefix.chars().collect();
    while let Some(last) = chars.pop() {
        let next = (u32::from(last) + 1..=u32::from(char::MAX)).find_map(char::from_u32);
        if let Some(next) = next {
            chars.push(next);
            return Some(chars.into_iter().collect());
        }
    }
    None
}

/// One key more than was asked for tells that there are more.
pub fn found(mut keys: Vec<KnownKey>, count: usize) -> Found {
    let truncated = keys.len() > count;
    keys.truncate(count);
    Found { keys, truncated }
}

/// One key more than was asked for tells that there are more.
pub fn held_keys(mut keys: Vec<HeldKey>, count: usize) -> HeldKeys {
    let truncated = keys.len() > count;
    keys.truncate(count);
    HeldKeys { keys, truncated }
}

/// Puts the sums of each group together, which stand beside each other.
pub fn summed_up(asked: &StatsOf, sums: Vec<Summed>) -> Stats {
    let mut groups: Vec<Group> = Vec::new();
    for sum in sums {
        match groups.last_mut() {
            Some(group) if group.is_of(&sum) => group.add(&sum),
            _ => groups.push(Group::of(sum)),
        }
    }
    let truncated = groups.len() > GROUPS_MAX;
    groups.truncate(GROUPS_MAX);
    let since = first_hour(asked) * HOUR_SECONDS;
    Stats {
        since,
        by: asked.by,
        groups: groups.into_iter().map(Group::finish).collect(),
        truncated,
    }
}

/// A group, and of its jobs that were done all together.
#[derive(Default)]
struct Group {
    shown: StatsGroup,
    took_ms: i64,
    revisits: i64,
    revisit_seconds: i64,
}

impl Group {
    fn of(sum: Summed) -> Self {
        let mut group = Self::default();
        group.add(&sum);
        (group.shown.fetcher, group.shown.since) = (sum.fetcher, sum.since);
        group
    }

    fn is_of(&self, sum: &Summed) -> bool {
        (&self.shown.fetcher, self.shown.since) == (&sum.fetcher, sum.since)
    }

    fn add(&mut self, sum: &Summed) {
        let shown = &mut self.shown;
        let (count, is_done) = match &*sum.outcome {
            "success" => (&mut shown.success, true),
            "timeout" => (&mut shown.timeout, true),
            "failure" => (&mut shown.failure, true),
            "released" => (&mut shown.released, false),
            "undone" => (&mut shown.undone, false),
            _ => (&mut shown.expired, false),
        };
        *count += sum.jobs;
        if is_done {
            shown.jobs += sum.jobs;
            self.took_ms += sum.took_ms;
            self.revisits += sum.revisits;
            self.revisit_seconds += sum.revisit_seconds;
        }
    }

    fn finish(self) -> StatsGroup {
        let mean = |sum: i64, count: i64| (count > 0).then(|| sum / count);
        let mean_ms = mean(self.took_ms, self.shown.jobs);
        let cycle_seconds = mean(self.revisit_seconds, self.revisits);
        StatsGroup { mean_ms, cycle_seconds, ..self.shown }
    }
}

/// How an attempt ended, in words.
pub fn outcome(kept: String, exit_code: Option<i64>) -> String {
    if kept == "done" { of_code(exit_code.unwrap_or(0)).to_owned() } else { kept }
}

/// Why a task counts as failed. Of a single task another one of its key may have run since.
pub fn failure(exit_code: Option<i64>) -> String {
    match of_code(exit_code.unwrap_or(0)) {
        "success" => "failure".to_owned(),
        end => in_words(end, exit_code),
    }
}

/// Why a task is delayed, and for how long.
pub fn delayed(exit_code: Option<i64>, retry: Retry, now: UnixSeconds) -> String {
    let (why, retries) = (failure(exit_code), retry.retries);
    match u64::try_from(retry.due.saturating_sub(now)) {
        Ok(left @ 1..) => {
            format!("{why}; retry {retries} in {}", format_duration(Duration::from_secs(left)))
        }
        _ => format!("{why}; retry {retries} is due"),
    }
}

/// What is shown of a fetcher that a daemon runs: one that was broken off and is still to be done is not on; one that
/// was begun since the input directory is lost waits for it.
pub fn managed(mut fetcher: FetcherRecord, lost_since: Option<UnixSeconds>) -> FetcherRecord {
    let is_running = fetcher.state.starts_with("running");
    let began = fetcher.run_started.take_if(|_| is_running);
    let waits = began.zip(lost_since).is_some_and(|(began, lost)| began >= lost);
    if waits {
        fetcher.state = fetcher.state.replacen("running", "waiting", 1);
    }
    fetcher.run_started = began.filter(|_| !waits);
    fetcher
}

/// The first rows, as many as have their payloads in memory.
pub fn that_fit(mut rows: Vec<KeyRow>) -> Vec<KeyRow> {
    let mut bytes = 0;
    rows.retain(|row| {
        let fits = bytes < PAYLOADS_MAX_BYTES;
        bytes += row.payload.len();
        fits
    });
    rows
}

/// What stands between a key with these rows and its next dispatch.
///
/// is_free: it has a row that may be handed out; is_on_hold: that is all that keeps it from that.
pub fn key_state(rows: &[KeyRow], is_in_flight: bool, is_free: bool, is_on_hold: bool) -> KeyState {
    let has = |state| rows.iter().any(|row| row.state == state);
    match (is_in_flight, is_free) {
        (true, _) => KeyState::InFlight,
        (_, true) if is_on_hold => KeyState::Held,
        (_, true) => KeyState::Waiting,
        _ if has(RowState::Delayed) => KeyState::Delayed,
        _ if has(RowState::DeadLetter) => KeyState::DeadLetter,
        _ if has(RowState::Dispatched) => KeyState::Dispatched,
        _ if !rows.is_empty() => KeyState::Leaving,
        _ => KeyState::Unlisted,
    }
}

/// The turn of a key before which so many keys were counted, if it was met; `is_all`: there are no more keys. It has so
/// many single tasks that wait or are in flight.
pub fn turn(keys_before: Option<u64>, is_all: bool, tasks: u64) -> Turn {
    Turn {
        keys_before: keys_before.or((!is_all).then_some(COUNTED_MAX)),
        exact: keys_before.is_some(),
        tasks_before: tasks.saturating_sub(1),
    }
}

/// The next [`QUEUE_MAX`] jobs at the most are looked at, for those of one fetcher are among them.
pub fn waiting_count(asked: &TasksWith) -> usize {
    if asked.fetcher.is_some() { QUEUE_MAX } else { asked.count.saturating_add(1) }
}

/// Those of the next jobs that are wanted.
pub fn waiting(next: Queue, asked: &TasksWith) -> Vec<Task> {
    let is_wanted = |next: &Next| asked.fetcher.as_ref().is_none_or(|name| next.fetcher == *name);
    let task = |Next { key, fetcher, run, last_started: since, again, .. }| {
        let reason = if again { "its lease expired" } else { "its turn comes" }.to_owned();
        Task { key, fetcher, run, since, reason, due: None }
    };
    next.keys.into_iter().filter(is_wanted).map(task).collect()
}

/// One task more than was asked for tells that there are more.
pub fn cut(status: TaskStatus, mut tasks: Vec<Task>, count: usize) -> Tasks {
    let truncated = tasks.len() > count;
    tasks.truncate(count);
    Tasks { status, tasks, truncated }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What begins with a text is before the text behind it, and nothing else is.
    #[test]
    fn texts_behind_a_prefix() {
        assert_eq!(behind("ab").as_deref(), Some("ac"));
        assert_eq!(behind("a\u{10ffff}").as_deref(), Some("b"));
        assert_eq!(behind("\u{d7ff}").as_deref(), Some("\u{e000}"));
        assert_eq!((behind(""), behind("\u{10ffff}")), (None, None));
    }
}
