//! What the daemon remembers of the database, so that it need not ask for it at every job: which
//! keys are next, and which jobs end in the usual way.
//!
//! All of it can be had from the tables. It is forgotten when somebody else wrote to them
//! (`PRAGMA data_version`), after anything that failed, and by every operation that may change what
//! it says. Used by [`dispatch`](super::dispatch) and [`deliveries`](super::deliveries); it knows no SQL.

use std::collections::{HashMap, VecDeque};
use std::time::Instant;

use foldhash::fast::RandomState;
use shiftboss_protocol::model::{Attempt, UnixSeconds};

use super::candidates::Next;
use super::rows::Delivery;

const KEYS_MAX: usize = 512;
const PLAIN_MAX: usize = 16_384;
const STARTED_MAX: usize = 16_384;

/// A job in flight whose key has one row, and was dispatched once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PlainDelivery {
    /// Of the key's row in the log.
    pub(super) log_rowid: i64,
    pub(super) delivery: Delivery,
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct DispatchCache {
    /// `PRAGMA data_version` when all this was true.
    version: i64,
    /// The keys that are next, in order.
    next: VecDeque<Next>,
    /// The second for which they are: in another one, leases may have run out.
    second: UnixSeconds,
    /// No bumped key could be handed out then.
    pub(super) no_bumped_at: Option<UnixSeconds>,
    /// Keys that were taken since they were looked up.
    taken: usize,
    plain: HashMap<String, PlainDelivery, RandomState>,
    /// The keys of those that are leased, by their attempts.
    leased: HashMap<i64, String, RandomState>,
    /// When attempts began that have not ended: wall clocks have whole seconds here, and step. It outlives what others write.
    started: HashMap<i64, Instant, RandomState>,
    /// Up to this log row, by start and rowid, no row of the queue records a dispatch that nobody ended. It outlives
    /// what others write, for their triggers move the record. `None`: no log row was looked at.
    pub(super) expired: Option<(i64, i64)>,
}

impl DispatchCache {
    /// Forgets everything if somebody else wrote since, and says whether.
    pub(super) fn hold_against(&mut self, version: i64) -> bool {
        let is_older = self.version != version;
        if is_older {
            self.version = version;
            self.forget();
        }
        is_older
    }

    /// A transaction came to nothing, and what was true before it may not be: but that attempts began, whose numbers are not used
    /// again.
    pub(super) fn roll_back(&mut self) {
        let started = std::mem::take(&mut self.started);
        *self = Self { started, ..Self::default() };
    }

    pub(super) fn forget(&mut self) {
        self.forget_order();
        self.plain.clear();
        self.leased.clear();
    }

    /// Forgets which keys are next: one that is none of them may be so now.
    pub(super) fn forget_order(&mut self) {
        self.no_bumped_at = None;
        self.next.clear();
    }

    /// Forgets what a change of a key's rows may have changed.
    pub(super) fn forget_key(&mut self, key: &str) {
        self.take_plain(key);
        self.forget_order();
    }

    /// The key that is next, if that is known for this second.
    pub(super) fn next_key(&mut self, now: UnixSeconds) -> Option<Next> {
        if self.second != now {
            self.forget_order();
        }
        let next = self.next.pop_front();
        self.taken += usize::from(next.is_some());
        next
    }

    /// Whether the last key was the first one of a look.
    pub(super) fn is_first(&self) -> bool {
        self.taken == 1
    }

    /// How many keys to look up: twice as many as were of use the last time.
    pub(super) fn wanted(&self) -> usize {
        (2 * self.taken).clamp(1, KEYS_MAX)
    }

    pub(super) fn expect(&mut self, keys: impl Iterator<Item = Next>, now: UnixSeconds) {
        self.next.clear();
        self.next.extend(keys);
        self.second = now;
        self.taken = 0;
    }

    pub(super) fn remember(&mut self, key: &str, plain: PlainDelivery) {
        if self.plain.len() >= PLAIN_MAX {
            // Most are of workers that went away for good; the others cost a few lookups once.
            self.plain.clear();
            self.leased.clear();
        }
        if plain.delivery.worker.is_some() {
            self.leased.insert(plain.delivery.attempt, key.to_owned());
        }
        self.plain.insert(key.to_owned(), plain);
    }

    pub(super) fn note_start(&mut self, attempt: Attempt) {
        if self.started.len() >= STARTED_MAX {
            // As with plain ones.
            self.started.clear();
        }
        self.started.insert(attempt.0, Instant::now());
    }

    /// How long an attempt that ends now took, if its start is known still.
    pub(super) fn take_milliseconds(&mut self, attempt: i64) -> Option<i64> {
        let started = self.started.remove(&attempt)?;
        i64::try_from(started.elapsed().as_millis()).ok()
    }

    /// What is remembered of a key's job, and from now on not any more: it ends, or its key's rows
    /// change.
    pub(super) fn take_plain(&mut self, key: &str) -> Option<PlainDelivery> {
        let plain = self.plain.remove(key)?;
        self.leased.remove(&plain.delivery.attempt);
        Some(plain)
    }

    /// The key of a leased attempt whose job is remembered.
    pub(super) fn take_leased(&mut self, attempt: Attempt) -> Option<String> {
        self.leased.remove(&attempt.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(count: usize) -> impl Iterator<Item = Next> {
        (0..count).map(|number| Next { key: number.to_string(), plain: None })
    }

    /// Twice what was of use, within bounds.
    #[test]
    fn as_many_are_looked_up_as_are_of_use() {
        let mut cache = DispatchCache::default();
        let mut wanted = Vec::new();
        for _ in 0..12 {
            wanted.push(cache.wanted());
            cache.expect(keys(cache.wanted()), 7);
            while cache.next_key(7).is_some() {}
        }
        assert_eq!(wanted, [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 512, 512]);
        cache.expect(keys(512), 7);
        cache.next_key(7);
        assert!(cache.next_key(8).is_none());
        assert_eq!(cache.wanted(), 2);
    }

    /// The order holds for a second, until it is forgotten, and until somebody else wrote.
    #[test]
    fn the_order_is_forgotten() {
        let mut cache = DispatchCache::default();
        let forget: [fn(&mut DispatchCache); 3] =
            [DispatchCache::forget, DispatchCache::forget_order, |cache| {
                assert!(cache.hold_against(5))
            }];
        for forget in forget {
            cache.expect(keys(2), 7);
            assert_eq!(cache.next_key(7).unwrap().key, "0");
            forget(&mut cache);
            assert!(cache.next_key(7).is_none());
        }
        cache.expect(keys(2), 7);
        assert!(!cache.hold_against(5) && cache.next_key(7).is_some(), "nobody else wrote");
        assert!(cache.next_key(6).is_none(), "a clock that was set back");
    }

    /// When a job began is known until it ends, whatever fails meanwhile, up to a bound.
    #[test]
    fn starts_are_remembered() {
        let mut cache = DispatchCache::default();
        cache.note_start(Attempt(1));
        cache.roll_back();
        cache.forget();
        assert!(cache.take_milliseconds(1).is_some() && cache.take_milliseconds(1).is_none());
        (0..=STARTED_MAX as i64).for_each(|attempt| cache.note_start(Attempt(attempt)));
        assert_eq!(cache.started.len(), 1);
    }

    /// Jobs in flight are remembered up to a bound.
    #[test]
    fn jobs_are_remembered() {
        let mut cache = DispatchCache::default();
        let delivery = Delivery {
            attempt: 2,
            fetcher_id: 1,
            run_started: 5,
            started: 7,
            delivery_count: 1,
            worker: None,
            previous: None,
            prev_started: None,
        };
        let plain = PlainDelivery { log_rowid: 1, delivery };
        keys(PLAIN_MAX).for_each(|next| cache.remember(&next.key, plain.clone()));
        assert_eq!((cache.take_plain("5"), cache.take_plain("5")), (Some(plain.clone()), None));
        cache.remember("one", plain.clone());
        cache.remember("two", plain);
        assert_eq!(cache.plain.len(), 1);
    }
}
