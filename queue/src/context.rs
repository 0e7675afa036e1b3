//! What rules need besides a record: the time, the settings, which runs are being deleted. Made by the engine for each
//! batch.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use shiftboss_protocol::model::{Attempt, Key, TASKS_FETCHER, UnixSeconds};

use crate::groups::GroupRules;
use crate::hold_rules::{HoldOf, HoldRule, HoldRules};
use crate::policy::{Backoff, RetryRules};
use crate::record::{Due, FetcherId, Millis, Task, seconds};

/// For how many minutes a done or cancelled single task is remembered by its ID: seven days.
const IDS_KEPT: i64 = 7 * 24 * 60;
/// In microseconds: if a key waits since a time this far in the future, a clock that was ahead set that time. Less than
/// that is only the order of keys that came at one moment, each a microsecond after the one before.
const AHEAD: i64 = 60_000_000;

#[derive(Debug, Clone)]
pub struct Settings {
    /// False: the rules of the Python supervisor (`--classic`).
    pub is_fair: bool,
    pub lease_seconds: i64,
    /// After this many expired leases a task becomes a dead letter.
    pub max_expired_leases: u32,
    pub max_single_tasks: u64,
    /// For how many minutes done or cancelled single tasks are remembered by their IDs.
    pub ids_kept: i64,
    /// The share of hand-outs for keys in the lane, in thousandths.
    pub bump_share: u32,
    pub backoff: Option<Backoff>,
    pub retries: RetryRules,
    pub groups: GroupRules,
    /// For how many seconds keys are kept that nothing lists; `None`: for ever.
    pub unlisted_kept: Option<i64>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            is_fair: true,
            lease_seconds: 43_200,
            max_expired_leases: 5,
            max_single_tasks: 1_000_000,
            ids_kept: IDS_KEPT,
            bump_share: 100,
            backoff: None,
            retries: RetryRules::default(),
            groups: GroupRules::default(),
            unlisted_kept: None,
        }
    }
}

/// See the module.
#[derive(Debug, Clone)]
pub struct Context {
    pub now: Millis,
    /// By how much the clock has been [set](crate::records::Header::clock) in all.
    pub clock: Millis,
    pub settings: Arc<Settings>,
    /// The last attempt that this engine has numbered.
    pub last_attempt: Attempt,
    /// The last place that was given in the lane.
    pub last_bump: i64,
    pub going: Arc<BTreeSet<(FetcherId, i64)>>,
    /// Fetchers whose tasks some workers take alone: keys have a [place](crate::place::Place::routes) for each.
    pub routed: Arc<BTreeSet<FetcherId>>,
    /// What operators hold by a rule.
    pub holds: Arc<HoldRules>,
    /// All fetchers except that of single tasks.
    pub fetchers: Arc<BTreeMap<FetcherId, Arc<str>>>,
}

impl Context {
    pub fn seconds(&self) -> UnixSeconds {
        seconds(self.now)
    }

    /// The time by which groups' limits count: steps of the clock are not in it.
    pub fn steady(&self) -> Millis {
        self.now.saturating_sub(self.clock)
    }

    fn micros(&self) -> i64 {
        self.now.saturating_mul(1_000)
    }

    /// The latest microsecond that a key can wait since, unless a clock that was ahead set it.
    pub fn latest_since(&self) -> i64 {
        self.micros().saturating_add(AHEAD)
    }

    /// The microsecond that the next key waits since, after the last one.
    pub fn next_since(&self, last: i64) -> i64 {
        let behind = if last > self.latest_since() { 0 } else { last.saturating_add(1) };
        self.micros().max(behind)
    }

    pub fn due_in(&self, seconds: i64) -> Due {
        let delay = seconds.saturating_mul(1_000);
        Due { at: self.now.saturating_add(delay), delay, clock: self.clock }
    }

    /// A due time, converted to the present clock.
    pub fn followed(&self, due: Due) -> Due {
        let by = self.clock.saturating_sub(due.clock);
        let at = due.at.saturating_add(by).min(self.now.saturating_add(due.delay));
        Due { at, clock: self.clock, ..due }
    }

    pub fn is_going(&self, task: Task) -> bool {
        match task {
            Task::Row { fetcher, run } => self.going.contains(&(fetcher, run)),
            Task::Single { .. } => false,
        }
    }

    /// The Python supervisor does not know single tasks: they wait for a daemon with the fair rules.
    pub fn is_handed_out(&self, fetcher: FetcherId) -> bool {
        self.settings.is_fair || fetcher != FetcherId::TASKS
    }

    /// The rule that keeps a key's tasks of this fetcher from being handed out.
    pub fn hold_rule(&self, key: &Key, fetcher: FetcherId) -> Option<&HoldRule> {
        self.holds.rules.iter().find(|rule| match &rule.of {
            HoldOf::Prefix(text) => key.as_str().starts_with(&**text),
            HoldOf::Fetcher(name) => self.fetcher(fetcher) == *name,
        })
    }

    /// The same as if no rule held anything.
    #[must_use]
    pub fn without_rules(&self) -> Self {
        Self { holds: Arc::default(), ..self.clone() }
    }

    /// The name of a fetcher, that of single tasks included.
    pub fn fetcher(&self, id: FetcherId) -> Arc<str> {
        match id {
            FetcherId::TASKS => TASKS_FETCHER.into(),
            id => self.fetchers.get(&id).cloned().unwrap_or_default(),
        }
    }

    /// A new place in the lane, behind all others.
    pub fn next_bump(&mut self) -> i64 {
        self.last_bump = self.last_bump.saturating_add(1);
        self.last_bump
    }
}
