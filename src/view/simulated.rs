//! What simulations came to: a table with a row for each number of workers, a sentence on one more worker, and a picture. Pure.

use std::cmp::Reverse;

use serde::Serialize;
use shiftboss_queue::simulation::Simulated;

use super::table::{Cell, Column, Row, Table, column, number, table};
use crate::text::span;

const COLUMNS: &[Column] = &[
    number("workers", 0),
    column("all ran in", 1),
    number("left", 1),
    number("jobs/h", 2),
    number("busy", 2),
    number("limits cost", 3),
    number("one more", 3),
    column("cycle time by fetcher", 4),
];
const HOUR_MS: f64 = 3_600_000.0;
/// One more worker helps if it brings this share of what it would bring without limits.
const HELPS: f64 = 0.5;
/// Fetchers that a row names, the slowest ones.
const NAMED_MAX: usize = 5;
const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

#[derive(Debug, Serialize)]
pub struct Runs {
    pub seed: u64,
    pub runs: Vec<Run>,
}

/// How it went with so many workers.
#[derive(Debug, Serialize)]
pub struct Run {
    pub workers: u32,
    pub took_ms: i64,
    /// Tasks that did not run.
    pub left: u64,
    pub jobs: u64,
    pub failures: u64,
    pub jobs_per_hour: f64,
    /// The share of the workers' time in which they had jobs.
    pub busy: f64,
    /// The share of the workers' time in which tasks waited, and none of them was allowed to start.
    pub limits_cost: f64,
    /// By what share one more worker raises the jobs an hour.
    pub one_more: f64,
    pub fetchers: Vec<Cycle>,
    pub slice_ms: i64,
    /// Jobs that ended, by such parts of the time.
    pub slices: Vec<u64>,
}

#[derive(Debug, Serialize)]
pub struct Cycle {
    pub fetcher: String,
    pub tasks: u64,
    pub ran: u64,
    /// From the beginning of its list to the end of its last task; `null`: not every task ran.
    pub cycle_seconds: Option<i64>,
}

fn jobs_per_hour(it: &Simulated) -> f64 {
    it.jobs as f64 * HOUR_MS / it.took_ms.max(1) as f64
}

/// Any time is at least a second.
fn seconds(ms: i64) -> i64 {
    ms.saturating_add(500).div_euclid(1_000).max(i64::from(ms > 0))
}

/// To four digits behind the point.
fn rounded(number: f64) -> f64 {
    (number * 1e4).round() / 1e4
}

impl Run {
    /// What came of it, and of the same with one more worker.
    pub fn new(it: &Simulated, one_more: &Simulated) -> Self {
        let time = f64::from(it.workers) * it.took_ms.max(1) as f64;
        let share = |ms: i64| (ms as f64 / time).clamp(0.0, 1.0);
        let cycles = it.fetchers.iter().map(|(fetcher, cycle)| Cycle {
            fetcher: fetcher.to_string(),
            tasks: cycle.tasks,
            ran: cycle.ran,
            cycle_seconds: (cycle.ran == cycle.tasks).then(|| seconds(cycle.took_ms)),
        });
        let rate = jobs_per_hour(it);
        let more = if rate > 0.0 { jobs_per_hour(one_more) / rate - 1.0 } else { 0.0 };
        Self {
            workers: it.workers,
            took_ms: it.took_ms,
            left: it.left,
            jobs: it.jobs,
            failures: it.failures,
            jobs_per_hour: rounded(rate),
            busy: rounded(share(it.busy_ms)),
            limits_cost: rounded(share(it.limited_ms)),
            one_more: rounded(more),
            fetchers: cycles.collect(),
            slice_ms: it.slice_ms,
            slices: it.slices.clone(),
        }
    }

    fn is_helped(&self) -> bool {
        self.one_more >= HELPS / f64::from(self.workers)
    }

    /// The slowest fetchers first.
    fn cycles(&self) -> String {
        let mut cycles: Vec<&Cycle> = self.fetchers.iter().collect();
        cycles.sort_by_key(|it| Reverse(it.cycle_seconds.unwrap_or(i64::MAX)));
        let named = cycles.iter().take(NAMED_MAX).map(|it| {
            let time = it.cycle_seconds.map_or_else(|| "-".to_owned(), span);
            format!("{} {time}", it.fetcher)
        });
        let more = cycles.len().saturating_sub(NAMED_MAX);
        let rest = (more > 0).then(|| format!("and {more} more"));
        named.chain(rest).collect::<Vec<_>>().join(", ")
    }
}

fn percent(share: f64, sign: &str) -> Cell {
    let percent = (share * 100.0).round() as i64;
    Cell { value: Some(percent), ..Cell::word(format!("{sign}{percent}%")) }
}

impl Runs {
    pub fn table(&self) -> Table {
        let row = |it: &Run| {
            let all_ran = (it.left == 0).then(|| seconds(it.took_ms));
            let left = i64::try_from(it.left).unwrap_or(i64::MAX);
            let cells = vec![
                Cell::number(it.workers.into()),
                Cell::seconds(all_ran),
                if left > 0 { Cell::number(left) } else { Cell::word("") },
                Cell::number(it.jobs_per_hour.round() as i64),
                percent(it.busy, ""),
                percent(it.limits_cost, ""),
                percent(it.one_more, if it.one_more < 0.0 { "" } else { "+" }),
                Cell::outside(&it.cycles()),
            ];
            Row { id: it.workers.to_string(), cells, ..Row::default() }
        };
        table("Simulations", COLUMNS, "Nothing was simulated.", self.runs.iter().map(row))
    }

    /// Where one more worker helps.
    pub fn advice(&self) -> String {
        let of = |is_helped: bool| -> String {
            let some = self.runs.iter().filter(|it| it.is_helped() == is_helped);
            some.map(|it| it.workers.to_string()).collect::<Vec<_>>().join(", ")
        };
        let is_limited = self.runs.iter().any(|it| !it.is_helped() && it.limits_cost > 0.0);
        let why = match is_limited {
            true => "there tasks wait for limits, not for workers",
            false => "there are not enough tasks for it",
        };
        match (of(true), of(false)) {
            (helped, not) if not.is_empty() => format!("One more worker helps with {helped}.\n"),
            (helped, not) if helped.is_empty() => {
                format!("One more worker hardly helps with {not}: {why}.\n")
            }
            (helped, not) => {
                format!("One more worker helps with {helped}, and hardly with {not}: {why}.\n")
            }
        }
    }

    /// Jobs that ended, from the start to the end: a line for each number of workers.
    pub fn picture(&self) -> String {
        let width = self.runs.iter().map(|it| it.workers.to_string().len()).max().unwrap_or(0);
        let line = |it: &Run| {
            let most = it.slices.iter().copied().max().unwrap_or(0).max(1);
            // Below the number of blocks.
            let at = |jobs: u64| (jobs * (BLOCKS.len() as u64 - 1)).div_ceil(most) as usize;
            let blocks: String = it.slices.iter().map(|jobs| BLOCKS[at(*jobs)]).collect();
            format!("{:>width$} {blocks} {}\n", it.workers, span(seconds(it.took_ms)))
        };
        self.runs.iter().map(line).collect()
    }
}
