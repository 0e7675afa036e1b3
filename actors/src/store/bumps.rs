//! The lane of keys that operators bump: when one of them may go before the order, and what comes of both
//! (surface.md, "Levers").
//!
//! Pure arithmetic. The stores hand out by it, their views foretell by it, and so does the model.

use std::collections::{HashSet, VecDeque};
use std::hash::Hash;

pub use shiftboss_queue::credit::{BUMP_SHARE_MAX, BUMPS_MAX, CREDIT_FIRST, Credit};

/// What is handed out one after the other: the keys of the order, and between them those of the lane.
#[derive(Debug)]
pub struct Turns<K> {
    credit: Credit,
    /// In the order in which they were bumped.
    lane: VecDeque<K>,
    /// Those of the lane that had no turn yet.
    waiting: HashSet<K>,
    /// Those that went before the order.
    gone: HashSet<K>,
}

impl<K: Eq + Hash + Clone> Turns<K> {
    pub fn new(credit: Credit, lane: impl IntoIterator<Item = K>) -> Self {
        let lane: VecDeque<K> = lane.into_iter().collect();
        Self { credit, waiting: lane.iter().cloned().collect(), lane, gone: HashSet::new() }
    }

    /// The key of the lane that goes before the next one of the order, if one does and it can go. Who cannot is asked about
    /// once.
    pub fn offered(&mut self) -> Option<K> {
        while self.credit.pays() {
            let key = self.lane.pop_front()?;
            if self.waiting.remove(&key) {
                return Some(key);
            }
        }
        None
    }

    /// One that was offered goes.
    pub fn goes(&mut self, key: K) {
        self.credit = self.credit.spent();
        self.gone.insert(key);
    }

    /// Whether the next key of the order goes now: one that went before it has had its turn.
    pub fn is_left(&mut self, key: &K) -> bool {
        if self.gone.contains(key) {
            return false;
        }
        self.credit = self.credit.passed();
        // A bumped key whose turn comes needs nothing more.
        self.waiting.remove(key);
        true
    }

    /// All turns, as far as the order is known, where all of the lane can go.
    pub fn merge(mut self, order: impl IntoIterator<Item = K>) -> Vec<K> {
        let mut turns = Vec::new();
        for key in order {
            while let Some(key) = self.offered() {
                self.goes(key.clone());
                turns.push(key);
            }
            if self.is_left(&key) {
                turns.push(key);
            }
        }
        turns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With a share of a tenth: the first one at once, for which there is credit, and then every tenth hand-out.
    #[test]
    fn the_lane_has_its_share() {
        let seen = Turns::new(Credit::new(100, CREDIT_FIRST), 100..200).merge(0..30);
        let places: Vec<_> =
            (0..seen.len()).filter(|at| seen[*at] >= 100).map(|at| at as i64).collect();
        assert_eq!(places, [0, 10, 20, 30]);
    }

    /// Without a share nothing goes before the order; a key that is bumped has its turn once.
    #[test]
    fn a_key_has_one_turn() {
        assert!(!Credit::new(0, 5_000).passed().pays());
        let mut turns = Turns::new(Credit::new(500, CREDIT_FIRST), [3, 1]);
        assert_eq!(turns.offered(), Some(3));
        turns.goes(3);
        assert_eq!(turns.offered(), None);
        let left = [1, 2, 3].map(|key| turns.is_left(&key));
        assert_eq!((left, turns.offered()), ([true, true, false], None));
    }
}
