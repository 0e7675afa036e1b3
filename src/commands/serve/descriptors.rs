//! How many files and connections the system lets the daemon have open. Used by `serve` at its start.

use rustix::process::{Resource, getrlimit};
use tracing::warn;

use crate::fetchers::RUNS_MAX;

/// Descriptors for the database, its log, the locks, the watch and the runtime.
const OWN_DESCRIPTORS: u64 = 32;
/// Descriptors for a run of a fetcher: its output, its list, its lock, what its command gets.
const RUN_DESCRIPTORS: u64 = 8;
/// Descriptors for fetcher files, of which many can be read at once; a quarter where there are few.
const FILE_DESCRIPTORS: u64 = 1024;

/// As many connections as are wanted, or as leave descriptors for the queue and its files: a full
/// house must not keep the daemon from working.
pub fn connections_max(wanted: usize, fetchers: usize) -> usize {
    let Some(limit) = getrlimit(Resource::Nofile).current else {
        return wanted;
    };
    let (watches, runs) = (fetchers as u64, fetchers.min(RUNS_MAX) as u64);
    let others = OWN_DESCRIPTORS
        + FILE_DESCRIPTORS.min(limit / 4)
        + (watches + runs * RUN_DESCRIPTORS).min(limit / 4);
    let possible = usize::try_from(limit.saturating_sub(others)).unwrap_or(usize::MAX).max(1);
    if possible < wanted {
        warn!(
            wanted,
            possible, limit, "Fewer connections than set: raise the limit on open files."
        );
    }
    wanted.min(possible)
}
