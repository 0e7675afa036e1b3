//! Which relays are alive: those that were heard from within a few seconds.
//!
//! Kept by the daemon's [`server`](super), in memory and on the monotonic clock. Pure.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use shiftboss_queue::operation::Relay;
use tokio::time::Instant;

/// A relay that is not heard from for this long is taken for dead.
pub(super) const SILENCE_MAX: Duration = Duration::from_secs(6);

/// A live relay is heard from more often than this.
const QUIET_AFTER: Duration = Duration::from_millis(2_500);

#[derive(Default)]
pub(super) struct Liveness {
    relays: HashMap<i64, Known>,
}

struct Known {
    /// Its beat is how often it was heard from.
    relay: Relay,
    last_seen: Instant,
}

impl Liveness {
    /// These relays have joined; each counts as heard from now. While a daemon hears no relay at all, none counts as
    /// silent.
    pub(super) fn reset(&mut self, relays: Vec<Relay>, now: Instant) {
        let known = relays.into_iter().map(|relay| (relay.epoch, Known { relay, last_seen: now }));
        self.relays = known.collect();
    }

    pub(super) fn join(&mut self, relay: Relay, now: Instant) {
        self.relays.retain(|_, known| known.relay.name != relay.name);
        self.relays.insert(relay.epoch, Known { relay, last_seen: now });
    }

    pub(super) fn note_seen(&mut self, epoch: i64, now: Instant) {
        if let Some(known) = self.relays.get_mut(&epoch) {
            known.last_seen = now;
            known.relay.beat += 1;
        }
    }

    /// Relays that have joined a shared queue, by how often any of its daemons heard from them.
    pub(super) fn heard_by_all(&mut self, relays: Vec<Relay>, now: Instant) {
        self.relays.retain(|epoch, _| relays.iter().any(|relay| relay.epoch == *epoch));
        for relay in relays {
            let is_heard = |known: &Known| known.relay.beat != relay.beat;
            if self.relays.get(&relay.epoch).is_none_or(is_heard) {
                self.relays.insert(relay.epoch, Known { relay, last_seen: now });
            }
        }
    }

    /// Relays that have joined, by name, and for how long each has been silent.
    pub(super) fn heard(&self, now: Instant) -> Vec<(Arc<str>, Duration)> {
        let heard = self.relays.values();
        let mut heard: Vec<_> = heard
            .map(|known| (known.relay.name.clone(), now.saturating_duration_since(known.last_seen)))
            .collect();
        heard.sort();
        heard
    }

    /// Whether one of them may be unable to send.
    pub(super) fn is_anybody_quiet(&self, now: Instant) -> bool {
        self.relays.values().any(|known| known.last_seen + QUIET_AFTER <= now)
    }

    /// No relay can be heard now.
    pub(super) fn note_all_seen(&mut self, now: Instant) {
        self.relays.values_mut().for_each(|known| known.last_seen = now);
    }

    /// The other process that has a name and may be alive, and how often it was heard from.
    pub(super) fn holder(
        &self,
        name: &str,
        process: &str,
        now: Instant,
    ) -> Option<(Arc<str>, i64)> {
        let living = self.relays.values().filter(|known| now < known.last_seen + SILENCE_MAX);
        let mut named = living.map(|known| &known.relay).filter(|relay| &*relay.name == name);
        let holder = named.find(|relay| &*relay.process != process)?;
        Some((Arc::clone(&holder.process), holder.beat))
    }

    pub(super) fn name(&self, epoch: i64) -> Option<&str> {
        self.relays.get(&epoch).map(|known| &*known.relay.name)
    }

    /// Relays to take for dead, with their names. They stay until they are [forgotten](Self::forget).
    pub(super) fn silent(&self, now: Instant) -> Vec<(i64, Arc<str>)> {
        let silent = self.relays.iter().filter(|(_, known)| known.last_seen + SILENCE_MAX <= now);
        silent.map(|(epoch, known)| (*epoch, known.relay.name.clone())).collect()
    }

    pub(super) fn forget(&mut self, epoch: i64) {
        self.relays.remove(&epoch);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn relay(name: &str, process: &str, epoch: i64) -> Relay {
        Relay { name: name.into(), process: process.into(), epoch, beat: 0 }
    }

    /// A name belongs to its process while that is heard from, and a silent relay is reported until it is forgotten.
    #[test]
    fn silence_is_death() {
        let (start, mut liveness) = (Instant::now(), Liveness::default());
        liveness.reset(vec![relay("a", "1", 7)], start);
        assert_eq!(liveness.holder("a", "2", start), Some(("1".into(), 0)));
        assert_eq!(liveness.holder("a", "1", start), None, "it joins anew");
        assert_eq!(liveness.holder("b", "2", start), None);
        assert!(
            !liveness.is_anybody_quiet(start) && liveness.is_anybody_quiet(start + QUIET_AFTER)
        );
        liveness.note_seen(7, start + SILENCE_MAX / 2);
        liveness.note_seen(8, start);
        assert_eq!(liveness.silent(start + SILENCE_MAX), []);
        assert_eq!(liveness.holder("a", "2", start), Some(("1".into(), 1)));
        assert_eq!(liveness.heard(start + SILENCE_MAX), [("a".into(), SILENCE_MAX / 2)]);
        let mut deaf = Liveness::default();
        deaf.reset(vec![relay("a", "1", 7)], start);
        deaf.note_all_seen(start + SILENCE_MAX);
        assert_eq!(deaf.silent(start + SILENCE_MAX), []);
        let later = start + SILENCE_MAX * 2;
        assert_eq!(liveness.holder("a", "2", later), None);
        assert_eq!(liveness.silent(later), [(7, "a".into())]);
        liveness.join(relay("a", "2", 9), later);
        assert_eq!((liveness.name(7), liveness.name(9)), (None, Some("a")));
        liveness.forget(9);
        assert_eq!(liveness.silent(later + SILENCE_MAX), []);
    }

    /// If several daemons share a queue, a relay is alive while any of them hears from it, and gone for all when it
    /// left one.
    #[test]
    fn others_hear_too() {
        let (start, mut liveness) = (Instant::now(), Liveness::default());
        liveness
            .heard_by_all(vec![relay("a", "1", 7), relay("b", "1", 8), relay("c", "1", 9)], start);
        let heard = Relay { beat: 1, ..relay("a", "1", 7) };
        liveness.heard_by_all(vec![heard, relay("c", "1", 9)], start + SILENCE_MAX);
        assert_eq!(liveness.silent(start + SILENCE_MAX), [(9, "c".into())]);
        assert_eq!(liveness.name(8), None);
    }
}
