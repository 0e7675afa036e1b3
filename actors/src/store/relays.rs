//! Relays: who acts on a queue from a machine that reaches a broker only.
//!
//! To the store a relay is what a daemon is: it has fetchers, lists and leased jobs of its own. A daemon speaks for it
//! ([`Relayed`](super::Relayed)), whichever takes its message from the broker; nothing of brokers here.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Outcome, Rejected};
use crate::file_identity::DirectoryIdentity;

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

/// What came of a relay's batch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RelayAnswer {
    /// Each operation in its place.
    Answered(Vec<Result<Outcome, Rejected>>),
    /// The relay has gone on since: nobody waits for this answer, and nothing was done.
    Outdated,
    /// The relay was taken for dead, or joined anew: nothing was done.
    Lost,
}
