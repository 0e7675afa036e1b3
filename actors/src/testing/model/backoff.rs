//! Keys that are held because their jobs fail again and again, as `docs/configuration.md` describes it.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::time::Duration;

use crate::store::{Backoff, CountedEnds, Delays};

use super::Model;

/// Held from the second failure in a row on, and not for long.
pub fn often_in_a_row() -> Backoff {
    let [first, most] = [20, 60].map(Duration::from_secs);
    let second = NonZeroU32::MIN.saturating_add(1);
    let on = CountedEnds::listed(vec![1, 124]);
    Backoff { on, after: second, delays: Delays::new(first, 2.0, most) }
}

/// What the model keeps of them.
#[derive(Debug, Clone, Default)]
pub struct Backoffs {
    /// Ends in a row that count.
    failures: BTreeMap<String, i64>,
    /// The last second of each hold.
    until: BTreeMap<String, i64>,
}

impl Backoffs {
    pub fn unhold(&mut self, key: &str) -> bool {
        self.until.remove(key).is_some()
    }

    pub fn end(&mut self, now: i64) {
        self.until.retain(|_, until| *until >= now);
    }

    pub fn ends(&self) -> impl Iterator<Item = &i64> {
        self.until.values()
    }

    pub fn holds(&self, key: &str) -> bool {
        self.until.contains_key(key)
    }

    pub fn forget(&mut self, key: &str) {
        self.failures.remove(key);
    }
}

impl Model {
    /// A job of the key ended.
    pub(super) fn count_end(&mut self, key: &str, code: i64, now: i64) {
        let Some(rule) = self.rules.backoff.as_ref().filter(|_| self.rules.is_fair) else {
            return;
        };
        let Backoffs { failures, until } = &mut self.backoffs;
        if rule.on.counts(code) {
            let failures = failures.entry(key.to_owned()).or_default();
            *failures += 1;
            let delay = rule.delay(key, *failures);
            until.extend(delay.map(|delay| (key.to_owned(), now + delay)));
        } else if failures.remove(key).is_some() {
            until.remove(key);
        }
    }

    /// Keys that are held so, by their bytes, and until when.
    pub fn backed_off_keys(&self) -> Vec<(String, i64)> {
        self.backoffs.until.iter().map(|(key, until)| (key.clone(), *until)).collect()
    }
}
