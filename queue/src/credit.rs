//! What the lane of bumped keys may spend (surface.md, "Levers"): pure arithmetic. The engine hands out by it, previews foretell by it.

/// Keys that may be bumped at a time.
pub const BUMPS_MAX: usize = 1_000;
/// The largest share of hand-outs that the lane may have, in thousandths.
pub const BUMP_SHARE_MAX: u32 = 500;
/// What a hand-out from the lane costs, in thousandths.
const PRICE: i64 = 1_000;
/// What a new queue has: its first bump goes at once.
pub const CREDIT_FIRST: i64 = PRICE;

/// What the lane may spend. It grows by the lane's share at each hand-out, up to a bound, and pays for each one from the lane.
/// So a key with p others before it in the order waits for (p + 2) / (1 - share) hand-outs at the most, whoever bumps how much.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Credit {
    thousandths: i64,
    /// In thousandths; 0: nothing goes before the order.
    share: i64,
}

impl Credit {
    /// What was left.
    pub fn new(share: u32, thousandths: i64) -> Self {
        let share = i64::from(share.min(BUMP_SHARE_MAX));
        Self { thousandths: thousandths.clamp(0, PRICE + share), share }
    }

    pub fn thousandths(self) -> i64 {
        self.thousandths
    }

    /// The share that it was made with, in thousandths.
    pub fn share(self) -> u32 {
        u32::try_from(self.share).unwrap_or(BUMP_SHARE_MAX)
    }

    /// Whether the next hand-out may be one from the lane.
    pub fn pays(self) -> bool {
        self.share > 0 && self.thousandths >= PRICE
    }

    /// As it is after a hand-out from the lane.
    #[must_use]
    pub fn spent(self) -> Self {
        Self { thousandths: self.thousandths - PRICE, ..self }.passed()
    }

    /// As it is after one from the order.
    #[must_use]
    pub fn passed(self) -> Self {
        let thousandths = (self.thousandths + self.share).min(PRICE + self.share);
        Self { thousandths, ..self }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// However the lane is filled, a key with p others before it waits for no longer than the bound.
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
