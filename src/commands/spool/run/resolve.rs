//! What becomes of an entry after its command, and which entries failed. Resolving blocks, as the spool
//! does.

use std::collections::BTreeSet;
use std::time::Duration;

use tracing::{error, warn};

use shiftboss_spool::{EntryName, Guard, QueueName, SpoolError};

/// How an entry's attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    Done,
    /// In any other way of its own.
    Failed,
    /// It was not begun, or broken off by us.
    Untried,
}

/// Failed entries that are remembered by name, so that a later success is seen as theirs.
const FAILED_MAX: usize = 100_000;

/// The entries whose last attempt failed.
#[derive(Debug, Default)]
pub struct Failed {
    names: BTreeSet<EntryName>,
    /// Beyond [`FAILED_MAX`]; they count for good.
    more: usize,
}

impl Failed {
    /// An attempt of an entry has ended.
    pub fn note(&mut self, name: EntryName, ended: Ended) {
        match ended {
            Ended::Done => _ = self.names.remove(&name),
            Ended::Failed if self.names.len() < FAILED_MAX => _ = self.names.insert(name),
            Ended::Failed => self.more += usize::from(!self.names.contains(&name)),
            Ended::Untried => {}
        }
    }

    pub fn count(&self) -> usize {
        self.names.len() + self.more
    }
}

/// What is done with failures.
#[derive(Debug)]
pub struct OutcomePolicy {
    /// How often an entry is tried.
    pub attempts: u32,
    pub failed: QueueName,
    /// How long it rests between two attempts.
    pub rest: Duration,
}

impl OutcomePolicy {
    /// Resolves an entry. A lost claim is another's to resolve, and no error.
    pub fn resolve(&self, guard: Guard, ended: Ended) -> Result<(), SpoolError> {
        let (name, attempt) = (guard.name().clone(), guard.attempt());
        let resolved = match ended {
            Ended::Done => guard.complete(),
            Ended::Untried => guard.release(),
            Ended::Failed if attempt < self.attempts => guard.retry_after(self.rest),
            Ended::Failed => {
                error!(%name, attempt, to = %self.failed, "An entry failed for good.");
                guard.move_to(&self.failed)
            }
        };
        match resolved {
            Err(error @ SpoolError::Lost { .. }) => {
                warn!(%name, %error, "An entry was not resolved.");
                Ok(())
            }
            resolved => resolved,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An entry that succeeds at last has not failed; one that was not tried again has.
    #[test]
    fn the_last_attempt_counts() {
        let name = |text: &str| EntryName::new(text).unwrap();
        let mut failed = Failed::default();
        for (entry, ended) in [
            ("a", Ended::Failed),
            ("b", Ended::Failed),
            ("b", Ended::Failed),
            ("c", Ended::Done),
            ("a", Ended::Done),
            ("b", Ended::Untried),
        ] {
            failed.note(name(entry), ended);
        }
        assert_eq!(failed.count(), 1);
        for number in 0..=FAILED_MAX {
            failed.note(name(&format!("e{number}")), Ended::Failed);
        }
        assert_eq!(failed.count(), FAILED_MAX + 2);
        failed.note(name("b"), Ended::Done);
        assert_eq!(failed.count(), FAILED_MAX + 1);
    }
}
