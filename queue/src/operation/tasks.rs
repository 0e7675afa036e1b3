//! Single tasks: where they come from, and what came of them.

use serde::{Deserialize, Serialize};

/// What came of a task that was to be added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Added {
    /// Its number.
    Added(i64),
    /// The same payload of the same key waits already, or its ID is known.
    Known,
    /// There are as many single tasks as may be: it was not added.
    Full,
}

/// What came of the single tasks of a key that were to be deleted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cancelled {
    pub deleted: u64,
    /// There are more that are not in flight: to be asked for again.
    pub more: bool,
    /// One is in flight, and stays.
    pub in_flight: bool,
}
