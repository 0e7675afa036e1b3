//! Whether a batch waits for company: for workers that were just answered, and are about to ask again.
//!
//! A call to a server costs as much as dozens of the operations in it. Without this, workers with short jobs fall into
//! two groups, one of which is answered while the other asks: twice as many calls as necessary. Used by the
//! StorageActor if its store is [remote](crate::store::Store::is_remote). It does not know the store, and carries
//! nothing out.

use std::time::Duration;

use tokio::time::Instant;

use super::gathered::BATCH_OPERATIONS_MAX;

/// How long a batch waits at most.
pub(super) const WAIT_MAX: Duration = Duration::from_millis(2);
/// Requests that fit into a batch: most are two operations, an end and a dispatch.
const REQUESTS_MAX: usize = BATCH_OPERATIONS_MAX / 2;
/// Batches that do not wait after one has waited in vain: jobs take longer than that.
const IMPATIENT: u32 = 100;

#[derive(Default)]
pub(super) struct Company {
    /// How many requests the next batch waits for, and until when.
    expected: Option<(usize, Instant)>,
    /// Batches that will not wait.
    impatient: u32,
}

impl Company {
    /// A batch was answered: `jobs` workers got a job, and `gathered` requests have come meanwhile.
    pub(super) fn answered(&mut self, jobs: usize, gathered: usize, now: Instant) {
        self.impatient = self.impatient.saturating_sub(1);
        let expected = (jobs + gathered).min(REQUESTS_MAX);
        self.expected =
            (self.impatient == 0 && jobs > 0 && expected > 1).then(|| (expected, now + WAIT_MAX));
    }

    /// How much longer the next batch, which has `gathered` requests now, waits.
    pub(super) fn wait(&mut self, gathered: usize, now: Instant) -> Option<Duration> {
        let (expected, until) = self.expected?;
        // A few may be late.
        if gathered + expected / 8 >= expected {
            self.expected = None;
        } else if now >= until {
            self.expected = None;
            self.impatient = IMPATIENT;
        }
        self.expected.map(|_| until - now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LATER: Duration = Duration::from_millis(3);

    /// The next batch goes once it has nearly all workers that were answered, and those that asked meanwhile.
    #[test]
    fn who_was_answered_is_waited_for() {
        let (mut company, now) = (Company::default(), Instant::now());
        company.answered(8, 8, now);
        assert_eq!(company.wait(8, now), Some(WAIT_MAX));
        assert!(company.wait(13, now + WAIT_MAX / 2).is_some());
        assert_eq!(company.wait(14, now + WAIT_MAX / 2), None);
        assert_eq!(company.wait(1, now + WAIT_MAX / 2), None, "that was for one batch");
    }

    /// Jobs that take longer cost one wait in a hundred batches.
    #[test]
    fn a_wait_in_vain_is_not_repeated_soon() {
        let (mut company, now) = (Company::default(), Instant::now());
        company.answered(2, 1, now);
        assert!(company.wait(1, now).is_some());
        assert_eq!(company.wait(2, now + LATER), None);
        for _ in 1..IMPATIENT {
            company.answered(2, 1, now);
            assert_eq!(company.wait(1, now), None);
        }
        company.answered(2, 1, now);
        assert!(company.wait(1, now).is_some());
    }

    /// A batch does not wait for more than fit into it.
    #[test]
    fn a_full_batch_goes() {
        let (mut company, now) = (Company::default(), Instant::now());
        company.answered(3 * REQUESTS_MAX, 0, now);
        assert!(company.wait(REQUESTS_MAX / 2, now).is_some());
        assert_eq!(company.wait(REQUESTS_MAX, now), None);
    }

    /// A single worker has no company to wait for, and one that got no job does not come back at once.
    #[test]
    fn nobody_waits_for_himself() {
        let (mut company, now) = (Company::default(), Instant::now());
        company.answered(1, 0, now);
        assert_eq!(company.wait(1, now), None);
        company.answered(0, 5, now);
        assert_eq!(company.wait(5, now), None);
    }
}
