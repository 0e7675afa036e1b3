//! Relays: who acts on a queue from a machine that reaches a broker only.
//!
//! To the store a relay is what a daemon is: it has fetchers, lists and leased jobs of its own. A daemon speaks for it
//! ([`Relayed`](super::Relayed)), whichever takes its message from the broker; nothing of brokers here.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::Outcome;
use crate::error::Rejected;
use crate::file_identity::DirectoryIdentity;
use shiftboss_protocol::model::{Row, Run};

/// Operations that one batch of a relay has at the most.
pub const RELAYED_OPERATIONS_MAX: usize = 512;

/// One that may act.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Relay {
    pub name: Arc<str>,
    /// Which process it is.
    pub process: Arc<str>,
    /// No other joining of any relay has the same.
    pub epoch: i64,
    /// Moves while it lives, where several daemons hear it; else 0.
    pub beat: i64,
}

/// What a relay learns when it joins.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinedRelay {
    pub epoch: i64,
    /// Which queue it is: no other one has the same, wherever it is moved to.
    pub installation: Arc<str>,
    /// Nothing is handed out until an operator says so.
    pub is_paused: bool,
    /// Which directory its input directory was; `None`: it has told none.
    pub input_directory: Option<DirectoryIdentity>,
}

/// What a relay asks one batch after the other: batches of one lane never wait for those of another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Lane {
    /// For workers and operators.
    Jobs,
    /// For lists and the input directory.
    Lists,
}

/// Rows of a relay's list whose keys are of one range.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RelayedRows {
    /// The one that the relay joined with.
    pub epoch: i64,
    /// Keys are of one of [`RANGES`] by what the broker's messages say; a store only counts by it.
    pub range: u8,
    /// The first of an epoch and a range is 1, and the next one is larger by one.
    pub number: i64,
    pub run: Run,
    /// In the order in which they are to be added. None: they could not be read, and are rejected.
    pub rows: Vec<Row>,
}

impl RelayedRows {
    /// What they are answered that cannot be added.
    pub fn rejected(&self) -> RowsAnswer {
        RowsAnswer::Rejected(format!("run {} is not known", self.run))
    }
}

/// How many ranges there are, for the life of an installation.
pub const RANGES: u8 = 16;

/// What came of [`RelayedRows`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RowsAnswer {
    /// They are in the queue, now or since the number came first.
    Stored,
    /// They are not, and were not when the number came first: the run was not known, or under deletion.
    Rejected(String),
    /// Rows with lower numbers are missing: nothing was done, and all from those on are to be sent again.
    Gap,
    /// The relay was taken for dead, or joined anew, or what came of the number is not known any more: nothing was done.
    Lost,
}

/// How many numbers of a range are remembered whose rows were rejected.
pub const REJECTED_MAX: usize = 1_000;

/// What came of a relay's batch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RelayAnswer {
    /// Each operation in its place.
    Answered(Vec<Result<Outcome, Rejected>>),
    /// The relay has gone on since: nobody waits for this answer, and nothing was done.
    Outdated,
    /// The relay was taken for dead, or joined anew, or is ahead of the queue, which went back: nothing was done.
    Lost,
}
