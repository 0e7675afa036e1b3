//! What becomes of an entry after its command. Blocks, as the spool does.

use std::time::Duration;

use tracing::{error, warn};

use crate::spool::{Guard, QueueName, SpoolError};

/// How an entry's attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// With exit code 0.
    Done,
    /// In any other way of its own.
    Failed,
    /// It was not begun, or broken off by us.
    Untried,
}

/// What is done with failures.
#[derive(Debug)]
pub struct Settling {
    /// How often an entry is tried.
    pub attempts: u32,
    /// Where it goes then.
    pub failed: QueueName,
    /// How long it rests between two attempts.
    pub rest: Duration,
}

impl Settling {
    /// Settles an entry. A claim that was lost is another's to settle, and no error.
    ///
    /// # Errors
    /// When the spool refuses; what becomes of the entry is then up to those who reclaim.
    pub fn settle(&self, guard: Guard, ended: Ended) -> Result<(), SpoolError> {
        let (name, attempt) = (guard.name().clone(), guard.attempt());
        let settled = match ended {
            Ended::Done => guard.complete(),
            Ended::Untried => guard.release(),
            Ended::Failed if attempt < self.attempts => guard.retry_after(self.rest),
            Ended::Failed => {
                error!(%name, attempt, to = %self.failed, "An entry failed for good.");
                guard.move_to(&self.failed)
            }
        };
        match settled {
            Err(error @ SpoolError::Lost { .. }) => {
                warn!(%name, %error, "An entry was not settled.");
                Ok(())
            }
            settled => settled,
        }
    }
}
