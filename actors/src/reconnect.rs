//! When a server that could not be reached is tried again. Used by the stores on a server or behind a broker.

use std::time::Duration;

use shiftboss_protocol::backoff::{Backoff, shortened};
use shiftboss_queue::error::StoreError;
use tokio::time::Instant;

/// Calls before the next attempt is due fail at once.
pub struct Reconnect {
    backoff: Backoff,
    refused: Option<(Instant, StoreError)>,
}

impl Reconnect {
    /// Delays begin with `first` and double up to `longest`, randomised by half, so that clients that failed together
    /// do not try again together.
    pub fn new((first, longest): (Duration, Duration)) -> Self {
        Self { backoff: Backoff::new(first, longest), refused: None }
    }

    /// # Errors
    /// The error of the last attempt, while it is too early for another one.
    pub fn allowed(&self) -> Result<(), StoreError> {
        match &self.refused {
            Some((until, error)) if Instant::now() < *until => Err(error.clone()),
            _ => Ok(()),
        }
    }

    pub fn failed(&mut self, error: StoreError) -> StoreError {
        self.refused = Some((Instant::now() + shortened(self.backoff.next_delay()), error.clone()));
        error
    }

    pub fn succeeded(&mut self) {
        self.backoff.reset();
        self.refused = None;
    }
}
