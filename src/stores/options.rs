//! How a queue is to be kept: what a store is opened with.

use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
pub use shiftboss_actors::store::{BUMP_SHARE_MAX, Backoff, RetryRules};
use shiftboss_protocol::model::UnixSeconds;

/// SQLite's exclusion of a key in flight without a lease of its own (spec 2): 12 h.
const CLASSIC_LEASE_SECONDS: i64 = 43_200;

/// Which of the two sets of rules of spec 5 the queue follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// Lost answers are undone, leases run out, fetchers take turns.
    Fair {
        /// How long a job may be in flight.
        lease_seconds: i64,
    },
    /// The Python supervisor's rules, bit for bit.
    Classic,
}

impl Policy {
    /// How long a key in flight is excluded, in seconds.
    pub(crate) fn lease(self) -> i64 {
        match self {
            Self::Fair { lease_seconds } => lease_seconds,
            Self::Classic => CLASSIC_LEASE_SECONDS,
        }
    }

    /// A key whose dispatch is older than this has no lease at the time `now`.
    pub(crate) fn expired(self, now: UnixSeconds) -> UnixSeconds {
        now.saturating_sub(self.lease())
    }
}

/// What a reply outlives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// A power cut: every commit is synced (synchronous FULL).
    Power,
    /// The end of the process, not of the machine (synchronous NORMAL).
    Process,
}

impl Durability {
    /// Its name on the command line and in status.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Power => "power",
            Self::Process => "process",
        }
    }

    pub(crate) fn synchronous(self) -> &'static str {
        match self {
            Self::Power => "full",
            Self::Process => "normal",
        }
    }
}

/// How a daemon joins a queue that several may share. A queue in a file has one daemon, which needs no name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Joining {
    /// Its own among all daemons of the queue.
    pub name: String,
    pub input: PathBuf,
    /// The schema is made, or brought up to date.
    pub migrate: bool,
    /// How long another daemon must have been gone, or without a fetcher, for this one to take that over.
    pub takeover: Duration,
    pub polls: Polls,
}

/// How often a daemon of several looks for work, while workers of its own wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Polls {
    /// While no notices of work arrive.
    pub alone: Duration,
    /// While they do; up to half of it less.
    pub notified: Duration,
}

impl Default for Polls {
    fn default() -> Self {
        Self { alone: Duration::from_secs(1), notified: Duration::from_secs(30) }
    }
}

/// How to open a store.
#[derive(Debug, Clone)]
pub struct Options {
    pub policy: Policy,
    pub durability: Durability,
    /// How long to wait for another process's write.
    pub busy_timeout: Duration,
    /// Leases of one job that may expire before it is a dead letter.
    pub max_expired_leases: u32,
    /// Single tasks that may be kept at once.
    pub max_single_tasks: u32,
    /// Attempts that ended are kept, so many of the last ones.
    pub history: u32,
    /// What keys that operators bump may have of the hand-outs, in thousandths.
    pub bump_share: u32,
    /// When keys are held whose jobs fail again and again; `None`: never. The classic rules know none.
    pub backoff: Option<Backoff>,
    /// Which tasks that fail are tried again by themselves. The classic rules know none.
    pub retries: RetryRules,
}
