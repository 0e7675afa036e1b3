//! What is counted of a queue: the difference that a record makes, before and after it changed. The one place where counts come
//! from; stores keep the sums.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::record::{FetcherId, Record, Task};

/// Counts of one run, or of all single tasks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Rows, whatever they are.
    pub rows: i64,
    /// Those that would be handed out when their keys' turns come. Every single task that waits counts.
    pub waiting: i64,
    pub in_flight: i64,
    /// Those that failed, and are due again by themselves.
    pub delayed: i64,
    /// Dead letters.
    pub dead: i64,
}

impl Counts {
    /// More of them, or with a sign of -1 fewer.
    pub fn add(&mut self, other: Self, sign: i64) {
        let add = |it: &mut i64, more: i64| *it = it.saturating_add(more.saturating_mul(sign));
        add(&mut self.rows, other.rows);
        add(&mut self.waiting, other.waiting);
        add(&mut self.in_flight, other.in_flight);
        add(&mut self.delayed, other.delayed);
        add(&mut self.dead, other.dead);
    }
}

/// Whose: a fetcher's run; of single tasks there is one, 0.
pub type Run = (FetcherId, i64);

/// Sums by run, or changes of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tally(pub BTreeMap<Run, Counts>);

impl Tally {
    /// What came of a record, and what was before.
    pub fn change(&mut self, before: &Record, after: &Record) {
        self.add(before, -1);
        self.add(after, 1);
        self.0.retain(|_, counts| *counts != Counts::default());
    }

    fn add(&mut self, record: &Record, sign: i64) {
        for row in &record.rows {
            self.run((row.fetcher, row.run)).add(Counts { rows: 1, ..Counts::default() }, sign);
        }
        for row in record.newest_rows().filter(|row| record.is_armed(row)) {
            self.run((row.fetcher, row.run)).add(Counts { waiting: 1, ..Counts::default() }, sign);
        }
        if let Some(flight) = &record.flight {
            self.run(run_of(flight.task)).add(Counts { in_flight: 1, ..Counts::default() }, sign);
        }
        for retry in record.extras.retries.iter().filter(|it| it.due.is_some()) {
            self.run(run_of(retry.task)).add(Counts { delayed: 1, ..Counts::default() }, sign);
        }
        for row in record.dead_letters() {
            self.run((row.fetcher, row.run)).add(Counts { dead: 1, ..Counts::default() }, sign);
        }
        let singles = &record.singles;
        let out = matches!(&record.flight, Some(it) if it.task.fetcher() == FetcherId::TASKS);
        let all = singles.waiting + singles.failed + singles.dead + u64::from(out);
        let number = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        if all > 0 {
            let [rows, waiting, dead] = [all, singles.waiting, singles.dead].map(number);
            let counts = Counts { rows, waiting, dead, ..Counts::default() };
            self.run((FetcherId::TASKS, 0)).add(counts, sign);
        }
    }

    fn run(&mut self, run: Run) -> &mut Counts {
        self.0.entry(run).or_default()
    }

    /// Adds the changes of another one.
    pub fn merge(&mut self, other: &Self) {
        for (run, counts) in &other.0 {
            self.run(*run).add(*counts, 1);
        }
        self.0.retain(|_, counts| *counts != Counts::default());
    }
}

fn run_of(task: Task) -> Run {
    match task {
        Task::Row { fetcher, run } => (fetcher, run),
        Task::Single { .. } => (FetcherId::TASKS, 0),
    }
}
