//! The records that a batch works on: loaded once, changed by rules, saved together. Also which of them are ready by
//! now.

use std::cell::OnceCell;
use std::collections::{BTreeSet, HashMap};

use foldhash::fast::RandomState;
use shiftboss_protocol::model::{Attempt, Key};

use super::groups::{Footprint, Step};
use crate::attempt::EndedAttempt;
use crate::context::Context;
use crate::counts::Tally;
use crate::place::{Place, Turn};
use crate::record::{Record, Task};
use crate::records::{Change, KeyId, Stored};

/// A key's rank in the order: its turn, then its jitter, then its bytes.
type Rank = (Turn, i32, Key);

fn rank(record: &Record, turn: Turn) -> Rank {
    (turn, record.key.jitter(), record.key.clone())
}

#[derive(Debug)]
struct Slot {
    /// As the store has it; `None`: the key is new.
    stored: Option<Box<Stored>>,
    record: Box<Record>,
    place: Place,
    /// As far as its groups know.
    footprint: Footprint,
    is_changed: bool,
    is_forgotten: bool,
    /// It was forgotten in this batch; if it is known again since, it counts as a new key.
    was_forgotten: bool,
    /// The key's, once it was needed: many are compared often.
    jitter: OnceCell<i32>,
}

impl Slot {
    fn jitter(&self) -> i32 {
        *self.jitter.get_or_init(|| self.record.key.jitter())
    }

    /// Unchanged records are not saved, except those of keys with an attempt that ended.
    fn is_to_be_saved(&self, ended: &[EndedAttempt]) -> bool {
        let is_new = || match &self.stored {
            Some(stored) => stored.record != *self.record || stored.place != self.place,
            None => !self.is_forgotten && !self.record.is_new(),
        };
        self.is_changed && (is_new() || ended.iter().any(|it| it.key == self.record.key))
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Desk {
    slots: Vec<Slot>,
    by_key: HashMap<Key, usize, RandomState>,
    by_attempt: HashMap<Attempt, usize, RandomState>,
    /// Changed keys that are ready, and below, with `--classic`, those that are out.
    order: BTreeSet<(Rank, usize)>,
    held: BTreeSet<(Rank, usize)>,
    lane: BTreeSet<(i64, usize)>,
}

impl Desk {
    pub(super) fn reserve(&mut self, count: usize) {
        self.slots.reserve(count);
        self.by_key.reserve(count);
    }

    pub(super) fn slot_of(&self, key: &Key) -> Option<usize> {
        self.by_key.get(key).copied()
    }

    pub(super) fn keys(&self) -> Vec<Key> {
        self.by_key.keys().cloned().collect()
    }

    pub(super) fn slot_of_attempt(&self, attempt: Attempt) -> Option<usize> {
        self.by_attempt.get(&attempt).copied()
    }

    /// Puts a record on the desk; one that is already there stays as it is.
    pub(super) fn put(&mut self, stored: Stored) -> usize {
        match self.slot_of(&stored.record.key) {
            Some(slot) => slot,
            None => {
                let (record, place) = (stored.record.clone(), stored.place.clone());
                self.push(Some(Box::new(stored)), record, place)
            }
        }
    }

    pub(super) fn put_new(&mut self, key: Key) -> usize {
        self.push(None, Record::new(key), Place::default())
    }

    fn push(&mut self, stored: Option<Box<Stored>>, record: Record, place: Place) -> usize {
        let record = Box::new(record);
        let at = self.slots.len();
        self.by_key.insert(record.key.clone(), at);
        if let Some(flight) = &record.flight {
            self.by_attempt.insert(flight.attempt, at);
        }
        let (is_changed, is_forgotten, was_forgotten) = (false, false, false);
        let footprint = Footprint::of(&record, &place);
        self.slots.push(Slot {
            stored,
            record,
            place,
            footprint,
            is_changed,
            is_forgotten,
            was_forgotten,
            jitter: OnceCell::new(),
        });
        at
    }

    /// An attempt of the key, out or ended.
    pub(super) fn note_attempt(&mut self, attempt: Attempt, slot: usize) {
        self.by_attempt.insert(attempt, slot);
    }

    pub(super) fn id(&self, slot: usize) -> Option<KeyId> {
        self.slots[slot].stored.as_ref().map(|it| it.id)
    }

    pub(super) fn record(&self, slot: usize) -> &Record {
        &self.slots[slot].record
    }

    pub(super) fn record_mut(&mut self, slot: usize) -> &mut Record {
        &mut self.slots[slot].record
    }

    pub(super) fn is_known(&self, slot: usize) -> bool {
        let Slot { stored, record, is_forgotten, .. } = &self.slots[slot];
        !is_forgotten && (stored.is_some() || !record.is_new())
    }

    /// By how many records a kind has grown through changes that are not saved yet.
    pub(super) fn more(&self, is: impl Fn(&Record) -> bool) -> i64 {
        let more = |slot: &Slot| {
            let was = slot.stored.as_ref().is_some_and(|it| is(&it.record));
            i64::from(is(&slot.record)) - i64::from(was)
        };
        self.slots.iter().filter(|slot| slot.is_changed).map(more).sum()
    }

    /// A record has changed, and so may its place. Returns what its groups must learn of that, and its turn.
    pub(super) fn changed(
        &mut self,
        slot: usize,
        context: &Context,
    ) -> (Option<Step>, Option<Turn>) {
        self.leave(slot);
        let it = &mut self.slots[slot];
        (it.place, it.is_changed, it.is_forgotten) = (it.record.place(context), true, false);
        let place = &it.place;
        if let Some(turn) = place.order {
            let set = if place.classic_held { &mut self.held } else { &mut self.order };
            set.insert((rank(&it.record, turn), slot));
            self.lane.extend(place.lane.map(|lane| (lane, slot)));
        }
        let now = Footprint::of(&it.record, &it.place);
        let step = (it.footprint != now)
            .then(|| Step { before: std::mem::replace(&mut it.footprint, now.clone()), now });
        (step, it.place.order)
    }

    fn leave(&mut self, slot: usize) {
        let it = &self.slots[slot];
        // Unchanged keys are in the store's order.
        if !it.is_changed {
            return;
        }
        if let Some(turn) = it.place.order {
            let rank = (rank(&it.record, turn), slot);
            self.order.remove(&rank);
            self.held.remove(&rank);
        }
        if let Some(lane) = it.place.lane {
            self.lane.remove(&(lane, slot));
        }
    }

    pub(super) fn forget(&mut self, slot: usize) -> Step {
        self.leave(slot);
        let it = &mut self.slots[slot];
        *it.record = Record::new(it.record.key.clone());
        (it.place, it.is_changed) = (Place::default(), true);
        (it.is_forgotten, it.was_forgotten) = (true, true);
        Step { before: std::mem::take(&mut it.footprint), now: Footprint::default() }
    }

    /// Changed keys that are ready, the first one first.
    pub(super) fn ready(&self) -> impl Iterator<Item = usize> {
        self.order.iter().map(|(_, slot)| *slot)
    }

    pub(super) fn lane(&self) -> impl Iterator<Item = (i64, usize)> {
        self.lane.iter().copied()
    }

    /// Changed keys that are out (`--classic`).
    pub(super) fn held(&self) -> impl Iterator<Item = usize> {
        self.held.iter().map(|(_, slot)| *slot)
    }

    /// Of two keys, the one whose turn comes first.
    pub(super) fn first_of(&self, one: Option<usize>, other: Option<usize>) -> Option<usize> {
        let (Some(one), Some(other)) = (one, other) else {
            return one.or(other);
        };
        let [first, second] = [one, other].map(|slot| &self.slots[slot]);
        let by_turn = first.place.order.cmp(&second.place.order);
        let by_jitter = || first.jitter().cmp(&second.jitter());
        let by_key = || first.record.key.cmp(&second.record.key);
        Some(if by_turn.then_with(by_jitter).then_with(by_key).is_le() { one } else { other })
    }

    /// Whether the store's record of its key is outdated.
    pub(super) fn is_changed(&self, slot: usize) -> bool {
        self.slots[slot].is_changed
    }

    pub(super) fn stored(&self, slot: usize) -> Option<&Stored> {
        self.slots[slot].stored.as_deref()
    }

    /// The payload of a row that came with its record.
    pub(super) fn payload_at_hand(&mut self, slot: usize, task: Task) -> Option<String> {
        let stored = self.slots[slot].stored.as_mut()?;
        match stored.record.rows.as_slice() {
            [row] if row.task() == task => stored.payload.take(),
            _ => None,
        }
    }

    pub(super) fn place(&self, slot: usize) -> &Place {
        &self.slots[slot].place
    }

    /// How the counts change with everything that is not saved yet.
    pub(super) fn tally(&self) -> Tally {
        let mut tally = Tally::default();
        for Slot { stored, record, .. } in self.slots.iter().filter(|slot| slot.is_changed) {
            match stored {
                Some(stored) => tally.change(&stored.record, record),
                None => tally.change(&Record::new(record.key.clone()), record),
            }
        }
        tally.tidy();
        tally
    }

    /// The changes to save, with all keys of ended attempts; empties the desk.
    pub(super) fn clear(&mut self, ended: &[EndedAttempt]) -> Vec<Change> {
        let slots = std::mem::take(self).slots;
        let mut changes = Vec::with_capacity(slots.len());
        for mut slot in slots.into_iter().filter(|slot| slot.is_to_be_saved(ended)) {
            let key = slot.record.key.clone();
            // A key that was held but never listed is forgotten again.
            let is_known = !slot.is_forgotten && !slot.record.is_new();
            if is_known && slot.was_forgotten {
                let before = slot.stored.take();
                changes.push(Change { before, key: key.clone(), now: None });
            }
            let now = is_known.then_some((slot.record, slot.place));
            changes.push(Change { before: slot.stored, key, now });
        }
        changes
    }
}
