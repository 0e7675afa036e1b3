//! The store that the tests here are about: in memory. Other stores have a file of this name, and the same tests.

use std::collections::BTreeMap;

pub use shiftboss_queue::memory::Memory as Store;

pub use crate::words::at_once as ready;

pub fn new() -> Store {
    Store::default()
}

/// Rows, waiting ones and those in flight, by fetcher and run.
pub fn counts(store: &Store) -> BTreeMap<(i64, i64), [i64; 3]> {
    let counts = store.kept().header.counts.0.iter();
    counts.map(|((id, run), it)| ((id.0, *run), [it.rows, it.waiting, it.in_flight])).collect()
}

/// The last start of each key that ran, its end, and the exit code.
pub fn log(store: &Store) -> BTreeMap<String, (i64, Option<i64>, Option<i64>)> {
    let records = store.kept().keys.values();
    let last = records.filter_map(|(record, _)| Some((record.key.to_string(), record.last?)));
    last.map(|(key, last)| (key, (last.started, last.finished, last.exit_code))).collect()
}
