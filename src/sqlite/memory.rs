//! What the daemon remembers of the database, so that it need not ask for it at every job: which
//! keys are next, and which jobs end in the usual way.
//!
//! All of it can be had from the tables. It is forgotten when somebody else wrote to them
//! (`PRAGMA data_version`), after anything that failed, and by every operation that may change what
//! it says. Used by [`dispatch`](super::dispatch) and [`deliveries`](super::deliveries); it knows no SQL.

use std::collections::{HashMap, VecDeque};

use shiftboss_protocol::model::UnixSeconds;

use super::attempts::Delivery;

/// Keys that are looked up together at the most.
const KEYS_MAX: usize = 512;
/// Jobs in flight that are remembered at the most.
const LONE_MAX: usize = 16_384;

/// A job in flight whose key has one row, and was dispatched once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Lone {
    /// The row in `queue`.
    pub(super) rowid: i64,
    pub(super) delivery: Delivery,
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Memory {
    /// `PRAGMA data_version` when all this was true.
    version: i64,
    /// The keys that are next, in order.
    next: VecDeque<String>,
    /// The second for which they are: in another one, leases may have run out.
    second: UnixSeconds,
    /// Keys that were taken since they were looked up.
    taken: usize,
    lone: HashMap<String, Lone>,
}

impl Memory {
    /// Forgets everything if somebody else wrote since.
    pub(super) fn hold_against(&mut self, version: i64) {
        if self.version != version {
            self.version = version;
            self.forget();
        }
    }

    /// Forgets everything.
    pub(super) fn forget(&mut self) {
        self.forget_order();
        self.lone.clear();
    }

    /// Forgets which keys are next: one that is none of them may be so now.
    pub(super) fn forget_order(&mut self) {
        self.next.clear();
    }

    /// The key that is next, if that is known for this second.
    pub(super) fn next_key(&mut self, now: UnixSeconds) -> Option<String> {
        if self.second != now {
            self.forget_order();
        }
        let key = self.next.pop_front();
        self.taken += usize::from(key.is_some());
        key
    }

    /// Whether the last key was the first one of a look.
    pub(super) fn is_first(&self) -> bool {
        self.taken == 1
    }

    /// How many keys to look up: twice as many as were of use the last time.
    pub(super) fn wanted(&self) -> usize {
        (2 * self.taken).clamp(1, KEYS_MAX)
    }

    /// These are the next keys, in order.
    pub(super) fn expect(&mut self, keys: impl Iterator<Item = String>, now: UnixSeconds) {
        self.next.clear();
        self.next.extend(keys);
        self.second = now;
        self.taken = 0;
    }

    /// A job is in flight.
    pub(super) fn remember(&mut self, key: &str, lone: Lone) {
        if self.lone.len() >= LONE_MAX {
            // Most are of workers that went away for good; the others cost a few lookups once.
            self.lone.clear();
        }
        self.lone.insert(key.to_owned(), lone);
    }

    /// What is remembered of a key's job, and from now on not any more: it ends, or its key's rows
    /// change.
    pub(super) fn take_lone(&mut self, key: &str) -> Option<Lone> {
        self.lone.remove(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(count: usize) -> impl Iterator<Item = String> {
        (0..count).map(|number| number.to_string())
    }

    /// Twice what was of use, within bounds.
    #[test]
    fn as_many_are_looked_up_as_are_of_use() {
        let mut memory = Memory::default();
        let mut wanted = Vec::new();
        for _ in 0..12 {
            wanted.push(memory.wanted());
            memory.expect(keys(memory.wanted()), 7);
            while memory.next_key(7).is_some() {}
        }
        assert_eq!(wanted, [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 512, 512]);
        memory.expect(keys(512), 7);
        memory.next_key(7);
        assert_eq!((memory.next_key(8), memory.wanted()), (None, 2));
    }

    /// The order holds for a second, until it is forgotten, and until somebody else wrote.
    #[test]
    fn the_order_is_forgotten() {
        let mut memory = Memory::default();
        let forget: [fn(&mut Memory); 3] =
            [Memory::forget, Memory::forget_order, |memory| memory.hold_against(5)];
        for forget in forget {
            memory.expect(keys(2), 7);
            assert_eq!(memory.next_key(7).as_deref(), Some("0"));
            forget(&mut memory);
            assert_eq!(memory.next_key(7), None);
        }
        memory.expect(keys(2), 7);
        memory.hold_against(5);
        assert!(memory.next_key(7).is_some(), "nobody else wrote");
        assert_eq!(memory.next_key(6), None, "a clock that was set back");
    }

    /// Jobs in flight are remembered up to a bound.
    #[test]
    fn jobs_are_remembered() {
        let mut memory = Memory::default();
        let delivery = Delivery {
            attempt: 2,
            fetcher_id: 1,
            run_started: 5,
            started: 7,
            tries: 1,
            worker: None,
            handed_out: None,
        };
        let lone = Lone { rowid: 1, delivery };
        keys(LONE_MAX).for_each(|key| memory.remember(&key, lone.clone()));
        assert_eq!((memory.take_lone("5"), memory.take_lone("5")), (Some(lone.clone()), None));
        memory.remember("one", lone.clone());
        memory.remember("two", lone);
        assert_eq!(memory.lone.len(), 1);
    }
}
