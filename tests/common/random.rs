//! Random numbers that can be had again: the seed is printed, and taken from `SHIFTBOSS_SEED`.

/// A linear congruential generator: small, and the same everywhere.
pub struct Random(u64);

impl Random {
    /// A new sequence, unless `SHIFTBOSS_SEED` asks for an earlier one. The test shows the seed
    /// when it fails.
    pub fn seeded() -> Self {
        let asked = std::env::var("SHIFTBOSS_SEED").ok().and_then(|text| text.parse().ok());
        let seed = asked.unwrap_or_else(|| u64::from(std::process::id()) * 7_919 + 1);
        eprintln!("SHIFTBOSS_SEED={seed}");
        Self(seed)
    }

    /// The next number, from 0 to less than `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        let (factor, step) = (6_364_136_223_846_793_005, 1_442_695_040_888_963_407);
        self.0 = self.0.wrapping_mul(factor).wrapping_add(step);
        (self.0 >> 33) % limit
    }
}
