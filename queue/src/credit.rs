//! What the lane of bumped keys may spend (docs/decisions/holds-retries-bumps.md): pure arithmetic. The engine uses it
//! to hand out, and previews to predict.

use std::collections::{HashSet, VecDeque};
use std::hash::Hash;

pub const BUMPS_MAX: usize = 1_000;
/// The largest share of hand-outs that the lane may have, in thousandths.
pub const BUMP_SHARE_MAX: u32 = 500;
/// What a hand-out from the lane costs, in thousandths.
const PRICE: i64 = 1_000;
/// The credit of a new queue: its first bump goes at once.
pub const CREDIT_FIRST: i64 = PRICE;

/// What the lane may spend. It grows by the lane's share at each hand-out, up to a bound, and pays for each one from the lane.
/// So a key with p others before it in the order waits for at most (p + 2) / (1 - share) hand-outs, however many keys
/// are bumped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Credit {
    thousandths: i64,
    /// In thousandths; 0: no key goes ahead of the order.
    share: i64,
}

impl Credit {
    pub fn new(share: u32, thousandths: i64) -> Self {
        let share = i64::from(share.min(BUMP_SHARE_MAX));
        Self { thousandths: thousandths.clamp(0, PRICE + share), share }
    }

    pub fn thousandths(self) -> i64 {
        self.thousandths
    }

    pub fn share(self) -> u32 {
        u32::try_from(self.share).unwrap_or(BUMP_SHARE_MAX)
    }

    /// Whether the next hand-out may come from the lane.
    pub fn pays(self) -> bool {
        self.share > 0 && self.thousandths >= PRICE
    }

    #[must_use]
    pub fn spent(self) -> Self {
        Self { thousandths: self.thousandths - PRICE, ..self }.passed()
    }

    #[must_use]
    pub fn passed(self) -> Self {
        let thousandths = (self.thousandths + self.share).min(PRICE + self.share);
        Self { thousandths, ..self }
    }
}

/// The sequence of hand-outs: the keys of the order, with those of the lane between them.
#[derive(Debug)]
pub struct Turns<K> {
    credit: Credit,
    /// In the order in which they were bumped.
    lane: VecDeque<K>,
    /// Keys of the lane that have not had a turn yet.
    waiting: HashSet<K>,
    /// Keys that went ahead of the order.
    gone: HashSet<K>,
}

impl<K: Eq + Hash + Clone> Turns<K> {
    pub fn new(credit: Credit, lane: impl IntoIterator<Item = K>) -> Self {
        let lane: VecDeque<K> = lane.into_iter().collect();
        Self { credit, waiting: lane.iter().cloned().collect(), lane, gone: HashSet::new() }
    }

    /// The key of the lane that may go ahead of the next one of the order, if the credit pays for it. Each is offered
    /// once, whether it can go or not.
    pub fn offered(&mut self) -> Option<K> {
        while self.credit.pays() {
            let key = self.lane.pop_front()?;
            if self.waiting.remove(&key) {
                return Some(key);
            }
        }
        None
    }

    /// The offered key goes.
    pub fn goes(&mut self, key: K) {
        self.credit = self.credit.spent();
        self.gone.insert(key);
    }

    /// Whether the next key of the order goes now: not if it went ahead of the order already.
    pub fn is_left(&mut self, key: &K) -> bool {
        if self.gone.contains(key) {
            return false;
        }
        self.credit = self.credit.passed();
        // A bumped key whose turn comes needs nothing more.
        self.waiting.remove(key);
        true
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// With a share of a tenth: the first key at once, because there is credit for it, and then every tenth hand-out.
    #[test]
    fn the_lane_has_its_share() {
        let (mut turns, mut seen) = (Turns::new(Credit::new(100, CREDIT_FIRST), 100..200), vec![]);
        for key in 0..30 {
            while let Some(key) = turns.offered() {
                turns.goes(key);
                seen.push(key);
            }
            seen.extend(Some(key).filter(|key| turns.is_left(key)));
        }
        let places: Vec<_> =
            (0..seen.len()).filter(|at| seen[*at] >= 100).map(|at| at as i64).collect();
        assert_eq!(places, [0, 10, 20, 30]);
    }

    /// Without a share nothing goes ahead of the order; a bumped key has its turn once.
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

    proptest! {
        /// However the lane is filled, a key with p others before it does not wait longer than the bound.
        #[test]
        fn nobody_waits_longer_than_the_bound(share in 0..=BUMP_SHARE_MAX, before in 0..200_i64, start in 0..1_500_i64,
                has_bumped in prop::collection::vec(any::<bool>(), 1_000)) {
            let mut credit = Credit::new(share, start);
            let (mut ordinary, mut hand_outs) = (0, 0_i64);
            while ordinary <= before {
                let is_bumped = has_bumped[hand_outs as usize % 1_000] && credit.pays();
                credit = if is_bumped { credit.spent() } else { credit.passed() };
                ordinary += i64::from(!is_bumped);
                hand_outs += 1;
            }
            let bound = (before + 2) as f64 / (1.0 - f64::from(share) / 1_000.0);
            prop_assert!(hand_outs as f64 <= bound + 1e-9, "{hand_outs} of {bound}");
        }
    }
}
