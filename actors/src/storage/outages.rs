//! What the StorageActor says of requests that failed. A full disk and a locked database fail them all
//! for hours at times; what is refused is one request's own affair.

use std::time::{Duration, Instant};

use tracing::{error, info, warn};

use super::StorageActor;
use crate::live::Outage;
use crate::outage_tracker::{Extent, OutageTracker, Word};
use crate::store::StoreError;
use crate::throttle::{Throttle, Verdict};
use shiftboss_protocol::model::UnixSeconds;

/// While something lasts, it is logged so often.
const REPEAT: Duration = Duration::from_secs(60);
/// A failure is tried again after so long.
const FRESH: Duration = Duration::from_secs(1);
/// Refusals that are logged in one period, one by one.
const REFUSALS_BURST: u32 = 10;
const REFUSALS_PERIOD_SECONDS: u32 = 60;

/// Failures so far, as far as they matter to what is said.
pub(super) struct Outages {
    tracker: OutageTracker,
    last: Option<StoreError>,
    refusals: Throttle,
}

impl Default for Outages {
    fn default() -> Self {
        let refusals = Throttle::new(REFUSALS_BURST, REFUSALS_PERIOD_SECONDS);
        Self { tracker: OutageTracker::new(REPEAT), last: None, refusals }
    }
}

impl StorageActor {
    /// Logs an error, and ends the process's life with one that only a new process can mend.
    pub(super) fn note(&mut self, error: &StoreError) {
        match error {
            StoreError::Fatal(_) | StoreError::Corrupt(_) => {
                error!(%error, "Storage cannot go on.");
                self.exit_notifier.ended(error.clone());
            }
            StoreError::Rejected(_) => self.outages.refused(error),
            StoreError::Full(_) | StoreError::Busy(_) => self.outages.failed(error),
        }
    }
}

impl Outages {
    fn refused(&mut self, error: &StoreError) {
        match self.refusals.admit(Instant::now()) {
            Verdict::Log { suppressed_before: 0 } => warn!(%error, "A storage request failed."),
            Verdict::Log { suppressed_before: left_out } => {
                warn!(%error, left_out, "A storage request failed. Others were left out.");
            }
            Verdict::Suppress => {}
        }
    }

    fn failed(&mut self, error: &StoreError) {
        self.last = Some(error.clone());
        match self.tracker.failed(Instant::now()) {
            Some(Word::Began) => {
                warn!(%error, "Not everything can be written: requests fail and lists wait until it can.");
            }
            Some(Word::Lasts(Extent { failed, lasted })) => {
                let seconds = lasted.as_secs();
                warn!(%error, failed, seconds, "There is still something that cannot be written.");
            }
            Some(Word::Over(_)) | None => {}
        }
    }

    /// What cannot be written, if nothing was since it failed.
    pub(super) fn outage(&self, now: UnixSeconds) -> Option<Outage> {
        let lasts = self.tracker.lasts_since()?.elapsed().as_secs();
        let since = now.saturating_sub(i64::try_from(lasts).unwrap_or(0));
        Some(Outage { since, error: self.last.as_ref()?.to_string() })
    }

    pub(super) fn succeeded(&mut self) {
        self.tracker.succeeded();
    }

    /// Whether something failed within the last second, and nothing has succeeded since.
    pub(super) fn is_fresh(&self) -> bool {
        self.tracker.failed_since(Instant::now() - FRESH)
    }

    /// Nobody else holds the database, so that a lock is no reason any more.
    pub(super) fn unlocked(&mut self) {
        if matches!(self.last, Some(StoreError::Busy(_))) {
            self.tracker.succeeded();
        }
    }

    /// Says that it is over, once it is.
    pub(super) fn look(&mut self) {
        if let Some(Word::Over(Extent { failed, lasted })) = self.tracker.poll(Instant::now()) {
            let seconds = lasted.as_secs();
            info!(failed, seconds, "Everything can be written again.");
        }
    }
}
