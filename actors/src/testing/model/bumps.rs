//! Keys that operators bump, as `docs/protocol.md` describes them.

use crate::store::{BUMPS_MAX, Bumped, CREDIT_FIRST, Credit};

use super::{Model, Row};

/// What the model keeps of them.
#[derive(Debug, Clone)]
pub struct Bumps {
    credit: Credit,
    /// In the order in which they were bumped.
    keys: Vec<BumpedKey>,
}

#[derive(Debug, Clone)]
struct BumpedKey {
    key: String,
    /// In which it was handed out; `None`: it waits.
    attempt: Option<i64>,
    /// The last one of those that were taken back.
    last_attempt: Option<i64>,
}

impl BumpedKey {
    fn new(key: &str) -> Self {
        Self { key: key.to_owned(), attempt: None, last_attempt: None }
    }
}

impl Bumps {
    pub fn new(share: u32) -> Self {
        Self { credit: Credit::new(share, CREDIT_FIRST), keys: Vec::new() }
    }

    fn waiting(&self) -> impl Iterator<Item = &str> {
        self.keys.iter().filter(|bump| bump.attempt.is_none()).map(|bump| bump.key.as_str())
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
            if self.bumps.waiting().count() >= BUMPS_MAX {
                return Bumped::Full;
            }
            self.bumps.keys.retain(|bump| bump.key != key);
            self.bumps.keys.push(BumpedKey::new(key));
        }
        self.arm(key);
        Bumped::Behind(self.bumps.waiting().take_while(|other| *other != key).count() as u64)
    }

    /// Somebody edited the table.
    pub fn set_bumped(&mut self, key: &str, is_bumped: bool) {
        self.bumps.keys.retain(|bump| bump.key != key);
        if is_bumped {
            self.bumps.keys.push(BumpedKey::new(key));
        }
        self.forget_bumps();
    }

    /// Whether anything may go before the order.
    pub(super) fn has_lane(&self) -> bool {
        self.bumps.credit.share() > 0
    }

    /// Whether it waits for its turn before the order.
    pub fn is_bumped(&self, key: &str) -> bool {
        self.bumps.waiting().any(|bumped| bumped == key)
    }

    /// Keys that are bumped and wait, by their bytes.
    pub fn bumped_keys(&self) -> Vec<String> {
        let mut keys: Vec<_> = self.bumps.waiting().map(str::to_owned).collect();
        keys.sort();
        keys
    }

    /// The row that goes before the order.
    pub(super) fn bumped_row(&self, now: i64) -> Option<Row> {
        if !self.bumps.credit.pays() {
            return None;
        }
        self.bumps.waiting().find_map(|key| self.first_row(now, |other| other == key))
    }

    /// A key is handed out under the last attempt.
    pub(super) fn bump_goes_out(&mut self, key: &str, is_before_order: bool) {
        if !self.rules.is_fair {
            return;
        }
        let credit = self.bumps.credit;
        self.bumps.credit = if is_before_order { credit.spent() } else { credit.passed() };
        let waits = |bump: &&mut BumpedKey| bump.key == key && bump.attempt.is_none();
        if let Some(bump) = self.bumps.keys.iter_mut().find(waits) {
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
        let has_run =
            |bump: &BumpedKey| bump.attempt.is_none() && bump.last_attempt == Some(attempt);
        self.bumps.keys.retain(|bump| !has_run(bump));
    }

    /// Its attempt ended: one that was bumped meanwhile runs once more.
    pub(super) fn arm_if_bumped(&mut self, key: &str) {
        if self.rules.is_fair && self.is_bumped(key) {
            self.arm(key);
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
            queue.iter().any(|row| row.key == bump.key) && bump.attempt.is_none_or(is_out)
        });
    }
}
