//! The store that these tests run on: in memory. Other stores have a file of this name, and the same tests.

use std::collections::BTreeMap;

use shiftboss_queue::counts::COUNTS;
use shiftboss_queue::records::at_once;
use shiftboss_queue::sums::Hour;
pub use shiftboss_queue::testing::Memory as Store;

pub use crate::in_memory::{Looking, reader};

/// A store on the same thread is never waited for.
pub fn wait<T>(future: impl Future<Output = T>) -> T {
    at_once(future).expect("it waits")
}

/// Whether one daemon's numbers of attempts may have gaps.
pub const HAS_GAPS: bool = false;

pub fn new() -> Store {
    Store::default()
}

/// From now on the store refuses batches that write anything, or no longer does. Returns false if it cannot refuse.
pub fn refuse(_: &Store, _: bool) -> bool {
    false
}

/// Deletes all ended attempts.
pub fn forget_ends(store: &mut Store) {
    store.kept_mut().ended.clear();
}

/// What is counted, by fetcher and run.
pub fn counts(store: &Store) -> BTreeMap<(i64, i64), [i64; COUNTS]> {
    let counts = store.kept().header.counts.0.iter();
    counts.map(|((id, run), it)| ((id.0, *run), it.values())).collect()
}

/// Sums of attempts that ended, by hour, fetcher and outcome: jobs, milliseconds, revisits, seconds.
pub fn hours(store: &Store) -> BTreeMap<(i64, i64, String), [i64; 4]> {
    let hours = store.kept().sums.hours.iter().filter(|(_, it)| it.jobs != 0);
    let sums = |it: &Hour| [it.jobs, it.took_ms, it.revisits, it.revisit_seconds];
    hours
        .map(|((hour, id, outcome), it)| ((*hour, id.0, outcome.word().into()), sums(it)))
        .collect()
}

/// Jobs by minute and exit code.
pub fn minutes(store: &Store) -> BTreeMap<(i64, i64), i64> {
    let minutes = store.kept().sums.minutes.iter();
    minutes.filter(|(_, jobs)| **jobs != 0).map(|(at, jobs)| (*at, *jobs)).collect()
}

/// The number of keys that have a turn.
pub fn ready(store: &Store) -> usize {
    store.kept().keys.values().filter(|it| it.1.order.is_some()).count()
}

/// The last start of each key that ran, its end, and the exit code.
pub fn log(store: &Store) -> BTreeMap<String, (i64, Option<i64>, Option<i64>)> {
    let records = store.kept().keys.values();
    let last = records.filter_map(|(record, _)| Some((record.key.to_string(), record.last?)));
    last.map(|(key, last)| (key, (last.started, last.finished, last.exit_code))).collect()
}
