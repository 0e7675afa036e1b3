//! When leased attempts end unless their workers say a word (protocol 2). In memory, on the
//! monotonic clock; the store knows which attempts are leased, not until when.
//!
//! A plain struct of the StorageActor's. Times are handed in.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use tokio::time::Instant;

use shiftboss_protocol::model::Attempt;

/// Leases by attempt and by end.
#[derive(Debug)]
pub struct LeaseClock {
    ends: HashMap<Attempt, (Instant, Duration)>,
    order: BTreeSet<(Instant, Attempt)>,
    unsure: bool,
    /// Until when leases that ended are left alone, after a failure.
    pause: Option<Instant>,
}

impl Default for LeaseClock {
    fn default() -> Self {
        Self { ends: HashMap::new(), order: BTreeSet::new(), unsure: true, pause: None }
    }
}

impl LeaseClock {
    /// Leases that the store knows may be missing: at the start, and after a batch that failed.
    pub fn unsure(&mut self) {
        self.unsure = true;
    }

    /// Whether some may be missing; asked once.
    pub fn take_unsure(&mut self) -> bool {
        std::mem::take(&mut self.unsure)
    }

    /// Ends could not be written: they are all due again at `end`.
    pub fn pause(&mut self, end: Instant) {
        self.pause = Some(end);
    }

    /// When the next end is due.
    pub fn next_end(&self) -> Option<Instant> {
        let first = self.first_end()?;
        Some(first.max(self.pause.unwrap_or(first)))
    }

    /// A lease begins, or begins anew with that length.
    pub fn begin(&mut self, attempt: Attempt, length: Duration, now: Instant) {
        self.postpone(attempt, length, now + length);
    }

    /// A lease begins, unless it runs already.
    pub fn begin_missing(&mut self, attempt: Attempt, length: Duration, now: Instant) {
        if !self.ends.contains_key(&attempt) {
            self.begin(attempt, length, now);
        }
    }

    /// A lease begins anew. False: it is not known.
    pub fn extend(&mut self, attempt: Attempt, now: Instant) -> bool {
        let known = self.ends.get(&attempt).copied();
        if let Some((_, length)) = known {
            self.begin(attempt, length, now);
        }
        known.is_some()
    }

    /// An end that could not be written is due again at `end`. A beat before then still extends the
    /// lease by its whole length.
    pub fn postpone(&mut self, attempt: Attempt, length: Duration, end: Instant) {
        self.end(attempt);
        self.ends.insert(attempt, (end, length));
        self.order.insert((end, attempt));
    }

    pub fn end(&mut self, attempt: Attempt) {
        if let Some((end, _)) = self.ends.remove(&attempt) {
            self.order.remove(&(end, attempt));
        }
    }

    /// The end of the lease that ends first.
    fn first_end(&self) -> Option<Instant> {
        self.order.first().map(|(end, _)| *end)
    }

    /// Takes out the lease that ended longest ago, if one has, with its length.
    pub fn take_ended(&mut self, now: Instant) -> Option<(Attempt, Duration)> {
        if self.pause.is_some_and(|until| now < until) {
            return None;
        }
        let (_, attempt) = self.order.first().filter(|(end, _)| *end <= now).copied()?;
        let (_, length) = self.ends.get(&attempt).copied()?;
        self.end(attempt);
        Some((attempt, length))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Leases end in the order of their ends, once, unless they were extended or ended before.
    #[test]
    fn leases_end_in_order() {
        let (start, second) = (Instant::now(), Duration::from_secs(1));
        let mut leases = LeaseClock::default();
        for (attempt, seconds) in [(1, 10), (2, 5), (3, 5), (4, 7)] {
            leases.begin(Attempt(attempt), second * seconds, start);
        }
        assert_eq!(leases.first_end(), Some(start + second * 5));
        assert_eq!(leases.take_ended(start + second * 4), None);
        assert!(leases.extend(Attempt(2), start + second * 3));
        assert!(!leases.extend(Attempt(9), start));
        leases.end(Attempt(4));
        let ended: Vec<i64> = std::iter::from_fn(|| leases.take_ended(start + second * 20))
            .map(|(attempt, _)| attempt.0)
            .collect();
        assert_eq!(ended, [3, 2, 1]);
        assert_eq!((leases.first_end(), leases.ends.len()), (None, 0));
    }
}
