//! What operators are answered about keys: those that they hold, bump, put back or have forgotten. The
//! [operations](super) themselves are in their table.

use serde::{Deserialize, Serialize};
use shiftboss_protocol::model::UnixSeconds;

use crate::answers::Hold;

/// Keys that may be held at a time.
pub const HOLDS_MAX: usize = 10_000;

/// What came of a key that was to be held.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Held {
    Held {
        /// Its last second; `None`: until it is ended.
        until: Option<UnixSeconds>,
        /// A list, a single task or the log has the key. Another one may be a slip of the pen.
        is_known: bool,
        /// An operator's hold that it takes the place of.
        replaced: Option<Box<Hold>>,
    },
    /// There are [`HOLDS_MAX`] already.
    Full,
}

/// What came of a key whose rows were to be put back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Retried {
    /// So many of its rows and single tasks wait again.
    Back(u64),
    /// It is held: nothing was changed.
    Held,
    /// No row has the key.
    Unknown,
}

/// What came of a key that was to be bumped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bumped {
    /// It is bumped, behind so many others.
    Behind(u64),
    /// It is held: nothing was changed.
    Held,
    /// There are [`BUMPS_MAX`](crate::credit::BUMPS_MAX) already.
    Full,
    /// No row has the key.
    Unknown,
}

/// What came of a key that was to be forgotten.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Forgotten {
    /// Nothing is known of it any more.
    Forgotten,
    /// A list or a single task has it: it would come before all that ran.
    Listed,
    InFlight,
    /// Nothing was known of it.
    Unknown,
}
