//! What the StorageActor logs of requests that failed. A full disk or a locked database may fail them all for hours,
//! which must neither fill pages of the log nor fall silent. So the start of an outage is logged, at most once a minute
//! that it goes on, and its end. A rejected request concerns only itself.

use std::time::{Duration, Instant};

use tracing::{error, info, warn};

use super::StorageActor;
use crate::throttle::Throttle;
use shiftboss_protocol::answers::live::Outage;
use shiftboss_protocol::model::UnixSeconds;
use shiftboss_queue::error::StoreError;

/// Seconds between two reports that an outage goes on.
const REPEAT_SECONDS: u32 = 60;
/// For how long a failure counts as fresh; after that it may be retried.
const FRESH: Duration = Duration::from_secs(1);
/// Refusals that are logged in one period, one by one.
const REFUSALS_BURST: u32 = 10;
const REFUSALS_PERIOD_SECONDS: u32 = 60;

/// An outage is over once nothing has failed for this long, and something succeeded meanwhile. It is longer than all
/// pauses before a retry, and a call to a server fails within five seconds.
const REST: Duration = Duration::from_secs(10);

const BEGAN: &str = "Requests fail and lists wait until the queue can be written again.";
const LASTS: &str = "Requests still fail, and lists wait.";
const OVER: &str = "All requests are carried out again.";

/// The failures so far, as far as they matter for the log.
pub(super) struct Outages {
    current: Option<Current>,
    refusals: Throttle,
}

/// A period in which requests fail, though not necessarily all of them.
struct Current {
    began: Instant,
    last: Instant,
    error: StoreError,
    failed: u64,
    /// Something succeeded since the last failure.
    succeeded: bool,
    /// Limits its reports, except that of its end.
    said: Throttle,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Extent {
    failed: u64,
    /// From the first failure to the last one.
    lasted: Duration,
}

impl Current {
    fn extent(&self) -> Extent {
        let lasted = self.last.saturating_duration_since(self.began);
        Extent { failed: self.failed, lasted }
    }
}

impl StorageActor {
    /// Logs an error. If only a new process can mend it, ends this one.
    pub(super) fn note(&mut self, error: &StoreError) {
        self.metrics.storage_failed(error);
        match error {
            StoreError::Rejected(_) => self.outages.refused(error),
            error if error.is_fatal() => {
                error!(%error, "Storage cannot go on.");
                self.tell_end(Err(error.clone()));
            }
            error => match self.outages.failed(error, Instant::now()) {
                Some(Extent { failed: 1, .. }) => warn!(%error, "{BEGAN}"),
                Some(Extent { failed, lasted }) => {
                    let seconds = lasted.as_secs();
                    warn!(%error, failed, seconds, "{LASTS}");
                }
                None => {}
            },
        }
    }
}

impl Outages {
    pub(super) fn new() -> Self {
        let refusals = Throttle::new(REFUSALS_BURST, REFUSALS_PERIOD_SECONDS);
        Self { current: None, refusals }
    }

    fn refused(&mut self, error: &StoreError) {
        match self.refusals.admit(Instant::now()) {
            Some(0) => warn!(%error, "A storage request failed."),
            Some(left_out) => {
                warn!(%error, left_out, "A storage request failed. Others were left out.");
            }
            None => {}
        }
    }

    /// The extent of the outage so far, if it is time to log it.
    fn failed(&mut self, error: &StoreError, at: Instant) -> Option<Extent> {
        let current = self.current.get_or_insert_with(|| Current {
            began: at,
            last: at,
            error: error.clone(),
            failed: 0,
            succeeded: false,
            said: Throttle::new(1, REPEAT_SECONDS),
        });
        current.failed += 1;
        (current.last, current.error, current.succeeded) = (at, error.clone(), false);
        current.said.admit(at).map(|_| current.extent())
    }

    pub(super) fn succeeded(&mut self) {
        self.current.iter_mut().for_each(|current| current.succeeded = true);
    }

    /// The database is not locked any more, so a lock is no longer a reason for failures.
    pub(super) fn unlocked(&mut self) {
        if self.current.as_ref().is_some_and(|current| matches!(current.error, StoreError::Busy(_)))
        {
            self.succeeded();
        }
    }

    /// The outage, if nothing has succeeded since the last failure.
    fn lasting(&self) -> Option<&Current> {
        self.current.as_ref().filter(|current| !current.succeeded)
    }

    /// The outage for `status`, if nothing was written since the last failure.
    pub(super) fn outage(&self, now: UnixSeconds) -> Option<Outage> {
        let Current { began, error, .. } = self.lasting()?;
        let lasts = i64::try_from(began.elapsed().as_secs()).unwrap_or(0);
        Some(Outage { since: now.saturating_sub(lasts), error: error.to_string() })
    }

    /// Whether something failed within the last second, and nothing has succeeded since.
    pub(super) fn is_fresh(&self) -> bool {
        self.lasting().is_some_and(|current| current.last.elapsed() < FRESH)
    }

    /// Logs that the outage is over, once it is.
    pub(super) fn look(&mut self) {
        if let Some(Extent { failed, lasted }) = self.poll(Instant::now()) {
            let seconds = lasted.as_secs();
            info!(failed, seconds, "{OVER}");
        }
    }

    /// The outage, if it is over by now.
    fn poll(&mut self, at: Instant) -> Option<Extent> {
        let rests = |current: &mut Current| {
            current.succeeded && at.saturating_duration_since(current.last) >= REST
        };
        self.current.take_if(rests).map(|over| over.extent())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUSY: StoreError = StoreError::Busy(String::new());
    const FIRST: Extent = Extent { failed: 1, lasted: Duration::ZERO };

    fn extent(failed: u64, seconds: u64) -> Extent {
        Extent { failed, lasted: Duration::from_secs(seconds) }
    }

    /// Ten failures a second for three minutes: four messages in all.
    #[test]
    fn a_long_outage_is_told_sparsely() {
        let (mut outages, start) = (Outages::new(), Instant::now());
        let at = |tenths: u64| start + Duration::from_millis(100 * tenths);
        let reported: Vec<_> =
            (0..1_800).filter_map(|tenths| outages.failed(&BUSY, at(tenths))).collect();
        assert_eq!(reported, [FIRST, extent(601, 60), extent(1_201, 120)]);
        assert_eq!(outages.poll(at(3_000)), None, "nobody has tried since");
        outages.succeeded();
        let lasted = Duration::from_millis(179_900);
        assert_eq!(outages.poll(at(3_000)), Some(Extent { failed: 1_800, lasted }));
        assert_eq!(outages.poll(at(4_000)), None);
    }

    /// A success among failures does not end the outage.
    #[test]
    fn it_is_over_after_a_rest() {
        let (mut outages, start) = (Outages::new(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(outages.failed(&BUSY, at(0)), Some(FIRST));
        assert!(outages.lasting().is_some_and(|outage| outage.began == start));
        outages.succeeded();
        assert!(outages.lasting().is_none());
        assert_eq!(outages.poll(at(9)), None);
        assert_eq!(outages.failed(&BUSY, at(9)), None);
        assert_eq!(outages.poll(at(19)), None, "nothing succeeded after the last failure");
        outages.succeeded();
        assert_eq!(outages.poll(at(18)), None);
        assert_eq!(outages.poll(at(19)), Some(extent(2, 9)));
    }
}
