//! Keys that operators bump, and tasks that are tried again, as `docs/protocol.md` and `docs/configuration.md` describe them.

use crate::store::{BUMPS_MAX, Bumped, CREDIT_FIRST, Credit};

use super::{Model, Row};

/// What the model keeps of them.
#[derive(Debug, Clone)]
pub struct Bumps {
    credit: Credit,
    /// In the order in which they were bumped.
    pub(super) keys: Vec<BumpedKey>,
}

/// A task that failed and is tried again.
#[derive(Debug, Clone)]
pub(super) struct Retry {
    pub(super) fetcher: i64,
    pub(super) run: i64,
    /// The how manyeth time.
    pub(super) retries: u32,
    /// When it is due; `None`: it waits again.
    pub(super) due: Option<i64>,
}

#[derive(Debug, Clone)]
pub(super) struct BumpedKey {
    pub(super) key: String,
    /// `None`: an operator bumped it.
    pub(super) retry: Option<Retry>,
    /// In which it was handed out; `None`: it waits.
    pub(super) attempt: Option<i64>,
    /// The last one of those that were taken back.
    pub(super) last_attempt: Option<i64>,
}

impl BumpedKey {
    pub(super) fn new(key: &str) -> Self {
        Self { key: key.to_owned(), retry: None, attempt: None, last_attempt: None }
    }
}

impl BumpedKey {
    pub(super) fn waits(&self) -> bool {
        self.attempt.is_none() && self.due().is_none()
    }

    pub(super) fn due(&self) -> Option<i64> {
        self.retry.as_ref()?.due
    }
}

impl Bumps {
    pub fn new(share: u32) -> Self {
        Self { credit: Credit::new(share, CREDIT_FIRST), keys: Vec::new() }
    }

    /// The lane: what operators bumped comes first.
    fn waiting(&self) -> impl Iterator<Item = &str> {
        let retried = self.keys.iter().filter(|bump| bump.retry.is_some() && bump.waits());
        self.bumped().chain(retried.map(|bump| bump.key.as_str()))
    }

    fn bumped(&self) -> impl Iterator<Item = &str> {
        let bumped = self.keys.iter().filter(|bump| bump.retry.is_none() && bump.waits());
        bumped.map(|bump| bump.key.as_str())
    }
}

impl Model {
    pub fn bump(&mut self, key: &str) -> Bumped {
        if !self.queue.iter().any(|row| row.key == key) {
            return Bumped::Unknown;
        }
        if self.is_on_hold(key) {
            return Bumped::Held;
        }
        if !self.is_bumped(key) {
            if self.bumps.bumped().count() >= BUMPS_MAX {
                return Bumped::Full;
            }
            self.bumps.keys.retain(|bump| bump.key != key);
            self.bumps.keys.push(BumpedKey::new(key));
        }
        self.arm(key, None);
        Bumped::Behind(self.bumps.bumped().take_while(|other| *other != key).count() as u64)
    }

    /// Whether anything may go before the order.
    pub(super) fn has_lane(&self) -> bool {
        self.bumps.credit.share() > 0
    }

    /// Whether it waits for its turn before the order.
    pub fn is_bumped(&self, key: &str) -> bool {
        self.bumps.bumped().any(|bumped| bumped == key)
    }

    /// Keys that are bumped and wait, by their bytes.
    pub fn bumped_keys(&self) -> Vec<String> {
        let mut keys: Vec<_> = self.bumps.bumped().map(str::to_owned).collect();
        keys.sort();
        keys
    }

    /// Whether it goes before the order, when it may.
    pub fn is_in_lane(&self, key: &str) -> bool {
        self.bumps.waiting().any(|waiting| waiting == key)
    }

    /// The row that goes before the order.
    pub(super) fn bumped_row(&self, now: i64) -> Option<Row> {
        if !self.bumps.credit.pays() {
            return None;
        }
        self.bumps.waiting().find_map(|key| self.first_row(now, |other| other == key))
    }

    /// A key is handed out under the last attempt.
    pub(super) fn bump_goes_out(&mut self, row: &Row, is_before_order: bool) {
        if !self.rules.is_fair {
            return;
        }
        let credit = self.bumps.credit;
        self.bumps.credit = if is_before_order { credit.spent() } else { credit.passed() };
        let goes = |bump: &&mut BumpedKey| {
            let retry = bump.retry.as_ref();
            let is_its = retry.is_none_or(|it| (it.fetcher, it.run) == (row.fetcher, row.run));
            bump.key == row.key && bump.waits() && is_its
        };
        if let Some(bump) = self.bumps.keys.iter_mut().find(goes) {
            bump.attempt = Some(self.attempts);
        }
    }

    pub(super) fn restore_bump(&mut self, attempt: i64) {
        let is_its = |bump: &&mut BumpedKey| bump.attempt == Some(attempt);
        for bump in self.bumps.keys.iter_mut().filter(is_its) {
            (bump.attempt, bump.last_attempt) = (None, Some(attempt));
        }
    }

    /// An attempt that was taken back ended late: what was bumped has run.
    pub(super) fn end_late_bump(&mut self, attempt: i64) {
        let has_run = |bump: &BumpedKey| bump.waits() && bump.last_attempt == Some(attempt);
        self.bumps.keys.retain(|bump| !has_run(bump));
    }

    /// Its attempt ended: one that was bumped meanwhile runs once more.
    pub(super) fn arm_if_bumped(&mut self, key: &str) {
        if self.rules.is_fair && self.is_bumped(key) {
            self.arm(key, None);
        }
    }

    /// Keys that nothing lists any more are not bumped, nor those whose attempt ended.
    pub fn forget_bumps(&mut self) {
        if !self.rules.is_fair {
            return;
        }
        let Self { bumps, queue, deliveries, .. } = self;
        let is_out = |attempt| deliveries.iter().any(|delivery| delivery.attempt == attempt);
        bumps.keys.retain(|bump| {
            // Of a delayed one that is seen when it is due.
            let is_listed = bump.due().is_some() || queue.iter().any(|row| row.key == bump.key);
            is_listed && bump.attempt.is_none_or(is_out)
        });
    }
}
