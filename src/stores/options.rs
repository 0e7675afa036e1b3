//! How to keep a queue: the options of opening a store.

use std::path::PathBuf;
use std::time::Duration;

use shiftboss_actors::store::Polls;
use shiftboss_protocol::model::UnixSeconds;
use shiftboss_queue::context::Settings;
pub use shiftboss_queue::credit::BUMP_SHARE_MAX;
use shiftboss_queue::documents::{self, Running};
use shiftboss_queue::groups::GroupRules;
pub use shiftboss_queue::policy::{Backoff, RetryRules};

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

    /// As it is noted.
    pub(super) fn noted(self) -> documents::Policy {
        match self {
            Self::Fair { .. } => documents::Policy::Fair,
            Self::Classic => documents::Policy::Classic,
        }
    }
}

/// What a reply survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
    pub socket: PathBuf,
    /// The schema is made, or brought up to date.
    pub migrate: bool,
    /// How long another daemon must have been gone, or without a fetcher, for this one to take that over.
    pub takeover: Duration,
    pub polls: Polls,
}

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
    /// How many of the last ended attempts are kept.
    pub history: u32,
    /// The share of hand-outs for keys that operators bump, in thousandths.
    pub bump_share: u32,
    /// When keys are held whose jobs fail again and again; `None`: never. The classic rules know none.
    pub backoff: Option<Backoff>,
    /// Which tasks that fail are tried again by themselves. The classic rules know none.
    pub retries: RetryRules,
    /// For how long keys are kept that nothing lists; `None`: for ever. The classic rules forget none.
    pub unlisted_kept: Option<Duration>,
    /// What keys have in common, and the limits of that. The classic rules know none.
    pub groups: GroupRules,
}

impl Options {
    /// The settings of the queue's rules.
    pub(crate) fn settings(&self) -> Settings {
        let is_fair = self.policy != Policy::Classic;
        Settings {
            is_fair,
            lease_seconds: self.policy.lease(),
            max_expired_leases: self.max_expired_leases,
            max_single_tasks: self.max_single_tasks.into(),
            bump_share: if is_fair { self.bump_share } else { 0 },
            backoff: self.backoff.clone().filter(|_| is_fair),
            retries: if is_fair { self.retries.clone() } else { RetryRules::default() },
            unlisted_kept: self.unlisted_kept.filter(|_| is_fair).map(seconds),
            groups: self.groups_in_force(),
            ..Settings::default()
        }
    }

    pub fn groups_in_force(&self) -> GroupRules {
        let is_fair = self.policy != Policy::Classic;
        if is_fair { self.groups.clone() } else { GroupRules::default() }
    }

    /// How long a classic job may be out until it expires, in seconds; `None`: it does not.
    pub(super) fn classic_lease(&self) -> Option<u32> {
        let is_fair = self.policy != Policy::Classic;
        is_fair.then(|| u32::try_from(self.policy.lease()).unwrap_or(u32::MAX))
    }

    /// What status shows of a daemon with these options.
    pub(super) fn noted(&self, started: UnixSeconds) -> documents::Daemon {
        let settings = self.settings();
        documents::Daemon {
            durability: self.durability.name().to_owned(),
            policy: self.policy.noted(),
            lease_seconds: settings.lease_seconds,
            bump_share: settings.bump_share,
            max_single_tasks: self.max_single_tasks.into(),
            running: Some(Running { pid: std::process::id(), started }),
        }
    }
}

fn seconds(time: Duration) -> i64 {
    i64::try_from(time.as_secs()).unwrap_or(i64::MAX)
}
