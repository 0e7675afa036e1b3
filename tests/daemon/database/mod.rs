//! The database as a public interface (spec 6): take-over, outsiders, faults, and one daemon
//! for each.

mod faults;
mod full;
mod no_file;
mod opening;
mod outside;
mod takeover;

use crate::common::Site;

const JOURNAL: &str = "PRAGMA journal_mode";

/// Whether the main file stands alone: nothing of the write-ahead log is left beside it.
fn stands_alone(site: &Site) -> bool {
    let beside = |end: &str| site.path(&format!("state.db{end}")).exists();
    !beside("-wal") && !beside("-shm") && !beside("-journal")
}
