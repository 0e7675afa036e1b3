//! The counts of a queue: a record's contribution before and after it changed. All counts come from here; stores keep
//! the sums.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::record::{FetcherId, Record, Retry, Singles, Task};

/// Counts of one run, of all single tasks, or of [keys](OF_KEYS).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Rows, whatever they are.
    pub rows: i64,
    /// Those that will be handed out when their keys' turns come. Every single task that waits counts.
    pub waiting: i64,
    pub in_flight: i64,
    /// Of those, the ones that are leased: protocol 2.
    pub leased: i64,
    /// Of those in flight, the ones whose lease expired before, if their lines have stayed listed.
    pub redelivered: i64,
    /// Those that failed, and are due again by themselves.
    pub delayed: i64,
    pub dead: i64,
    /// Those that failed, and are not due by themselves.
    pub failed: i64,
    pub held: i64,
    pub backed_off: i64,
    pub bumped: i64,
    /// Keys of which anything is known; and of those, the ones that [nothing lists](Record::is_unlisted).
    pub keys: i64,
    pub unlisted: i64,
}

pub const COUNTS: usize = 13;

impl Counts {
    /// All counts, in the order of stores' columns.
    pub fn values(self) -> [i64; COUNTS] {
        let mut it = self;
        it.values_mut().map(|value| *value)
    }

    pub fn values_mut(&mut self) -> [&mut i64; COUNTS] {
        [
            &mut self.rows,
            &mut self.waiting,
            &mut self.in_flight,
            &mut self.leased,
            &mut self.redelivered,
            &mut self.delayed,
            &mut self.dead,
            &mut self.failed,
            &mut self.held,
            &mut self.backed_off,
            &mut self.bumped,
            &mut self.keys,
            &mut self.unlisted,
        ]
    }

    pub fn add(&mut self, other: Self) {
        for (value, more) in self.values_mut().into_iter().zip(other.values()) {
            *value = value.saturating_add(more);
        }
    }
}

/// Counts of keys, whatever lists them.
pub const OF_KEYS: Run = (FetcherId::TASKS, -1);
pub const OF_SINGLES: Run = (FetcherId::TASKS, 0);

/// Whose: a fetcher's run; [single tasks](OF_SINGLES); [keys](OF_KEYS).
pub type Run = (FetcherId, i64);

/// Sums by run, or changes of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tally(pub BTreeMap<Run, Counts>);

impl Tally {
    pub fn change(&mut self, before: &Record, after: &Record) {
        self.add(before, -1);
        self.add(after, 1);
    }

    /// Removes runs whose counts are all 0.
    pub fn tidy(&mut self) {
        self.0.retain(|_, counts| *counts != Counts::default());
    }

    fn add(&mut self, record: &Record, sign: i64) {
        let count = |it: &mut i64| *it = it.saturating_add(sign);
        let mut rows = record.rows.iter().peekable();
        while let Some(row) = rows.next() {
            let is_newest = rows.peek().is_none_or(|next| next.fetcher != row.fetcher);
            let counts = self.run((row.fetcher, row.run));
            count(&mut counts.rows);
            if is_newest && record.is_armed(row) {
                count(&mut counts.waiting);
            } else if is_newest && record.has_failed(row) {
                count(&mut counts.failed);
            }
        }
        let extras = &record.extras;
        if let Some(flight) = &record.flight {
            let counts = self.run(run_of(flight.task));
            count(&mut counts.in_flight);
            if flight.holder.is_some() {
                count(&mut counts.leased);
            }
            if extras.expired.iter().any(|it| it.0 == flight.task) {
                count(&mut counts.redelivered);
            }
        }
        self.add_singles(record, sign);
        for retry in extras.retries.iter().filter(|it| it.due.is_some()) {
            count(&mut self.run(run_of(retry.task)).delayed);
        }
        for (task, _) in extras.dead.iter().filter(|it| matches!(it.0, Task::Row { .. })) {
            count(&mut self.run(run_of(*task)).dead);
        }
        if extras.hold.is_some() {
            count(&mut self.run(OF_KEYS).held);
        }
        if extras.backoff.is_some_and(|it| it.until.is_some()) {
            count(&mut self.run(OF_KEYS).backed_off);
        }
        if extras.bump.is_some() {
            count(&mut self.run(OF_KEYS).bumped);
        }
        if !record.is_new() {
            count(&mut self.run(OF_KEYS).keys);
            if record.is_unlisted() {
                count(&mut self.run(OF_KEYS).unlisted);
            }
        }
    }

    fn add_singles(&mut self, record: &Record, sign: i64) {
        let Singles { waiting, failed, dead, .. } = record.singles;
        let out = matches!(&record.flight, Some(it) if it.task.fetcher() == FetcherId::TASKS);
        let all = [waiting, failed, dead, u64::from(out)].into_iter().fold(0, u64::saturating_add);
        if all == 0 {
            return;
        }
        let is_delayed = |it: &&Retry| it.due.is_some() && matches!(it.task, Task::Single { .. });
        let delayed = record.extras.retries.iter().filter(is_delayed).count() as u64;
        let number = |count: u64| i64::try_from(count).unwrap_or(i64::MAX).saturating_mul(sign);
        self.run(OF_SINGLES).add(Counts {
            rows: number(all),
            waiting: number(waiting),
            failed: number(failed.saturating_sub(delayed)),
            dead: number(dead),
            ..Counts::default()
        });
    }

    fn run(&mut self, run: Run) -> &mut Counts {
        self.0.entry(run).or_default()
    }

    pub fn merge(&mut self, other: &Self) {
        for (run, counts) in &other.0 {
            self.run(*run).add(*counts);
            if self.0.get(run) == Some(&Counts::default()) {
                self.0.remove(run);
            }
        }
    }
}

fn run_of(task: Task) -> Run {
    match task {
        Task::Row { fetcher, run } => (fetcher, run),
        Task::Single { .. } => OF_SINGLES,
    }
}
