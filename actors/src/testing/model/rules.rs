//! The rules that a model, and a store beside it, go by.

use shiftboss_protocol::model::jitter;

use super::backoff::often_in_a_row;
use super::retries::tried_again;
use crate::store::{Backoff, RetryRules};

/// What a model goes by.
#[derive(Debug, Clone)]
pub struct Rules {
    /// Answers that are lost are undone, and fetchers take turns; else the Python supervisor's rules.
    pub is_fair: bool,
    /// How long a classic job may be in flight.
    pub lease_seconds: i64,
    /// So many expired leases make a dead letter of a task.
    pub max_expired_leases: i64,
    /// The place of a key among those that have waited equally long.
    pub jitter: fn(&str) -> i32,
    /// So many single tasks may be kept.
    pub max_single_tasks: usize,
    /// What keys that are bumped may have of the hand-outs, in thousandths.
    pub bump_share: u32,
    /// When keys are held whose jobs fail again and again.
    pub backoff: Option<Backoff>,
    /// Which tasks that fail are tried again.
    pub retries: RetryRules,
}

impl Rules {
    /// With all that may become of jobs that fail.
    pub fn after_failures() -> Self {
        Self { backoff: Some(often_in_a_row()), retries: tried_again(), ..Self::default() }
    }
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            is_fair: true,
            lease_seconds: 43_200,
            max_expired_leases: 5,
            jitter,
            max_single_tasks: 1_000,
            bump_share: 300,
            backoff: None,
            retries: RetryRules::default(),
        }
    }
}
