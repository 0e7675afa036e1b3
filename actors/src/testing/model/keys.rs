//! Keys that operators hold or have forgotten, as `docs/protocol.md` describes them.

use crate::store::answers::Hold;
use crate::store::{Forgotten, Held};

use super::Model;

impl Model {
    /// An operator holds a key so.
    pub fn hold(&mut self, key: &str, hold: Hold) -> Held {
        let until = hold.until;
        let replaced = self.holds.insert(key.to_owned(), hold).map(Box::new);
        let is_known = self.log.contains_key(key) || self.queue.iter().any(|row| row.key == key);
        Held::Held { until, is_known, replaced }
    }

    pub fn unhold(&mut self, key: &str) -> bool {
        self.holds.remove(key).is_some() | self.backoffs.unhold(key)
    }

    pub fn end_holds(&mut self, now: i64) {
        self.holds.retain(|_, hold| hold.until.is_none_or(|until| until >= now));
        self.backoffs.end(now);
        self.end_delays(now);
    }

    pub fn next_hold_end(&self, now: i64) -> Option<u64> {
        let ends = self.holds.values().filter_map(|hold| hold.until.as_ref());
        let first = ends.chain(self.backoffs.ends()).min();
        let first = first.map(|until| (until + 1 - now).max(0).cast_unsigned());
        [first, self.next_due(now)].into_iter().flatten().min()
    }

    /// Keys that operators hold, by their bytes, and until when.
    pub fn held_keys(&self) -> Vec<(String, Option<i64>)> {
        self.holds.iter().map(|(key, hold)| (key.clone(), hold.until)).collect()
    }

    pub fn forget(&mut self, key: &str, now: i64) -> Forgotten {
        if self.queue.iter().any(|row| row.key == key) {
            return Forgotten::Listed;
        }
        if self.is_held(key, now) {
            return Forgotten::InFlight;
        }
        let is_known = self.log.remove(key).is_some() | self.unhold(key) | self.leases.forget(key);
        self.deliveries.retain(|delivery| delivery.key != key);
        self.backoffs.forget(key);
        self.last_served.retain(|(known, _), _| known != key);
        self.has_forgotten |= is_known;
        if is_known { Forgotten::Forgotten } else { Forgotten::Unknown }
    }

    pub fn has_forgotten(&self) -> bool {
        self.has_forgotten
    }

    pub(super) fn is_on_hold(&self, key: &str) -> bool {
        self.holds.contains_key(key) || self.backoffs.holds(key)
    }
}
