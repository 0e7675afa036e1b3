//! Tasks of a key, and whose they are. Plain data, for records and what is in them.

use serde::{Deserialize, Serialize};

/// Wall-clock time in milliseconds since 1970.
pub type Millis = i64;

/// A fetcher, by the number that its name has in this queue for ever. [`FetcherId::TASKS`] is that of single tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct FetcherId(pub i64);

impl FetcherId {
    /// The single tasks, which are no fetcher's.
    pub const TASKS: Self = Self(0);
}

/// A task of a key: a row of a list, or a single task by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Task {
    Row { fetcher: FetcherId, run: i64 },
    Single { number: i64 },
}

impl Task {
    pub fn fetcher(self) -> FetcherId {
        match self {
            Self::Row { fetcher, .. } => fetcher,
            Self::Single { .. } => FetcherId::TASKS,
        }
    }
}
