//! A daemon that does not answer: what is logged, how long until the next try, and whether there
//! is to be one.

use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant};

use shiftboss_protocol::backoff::Backoff;
use shiftboss_protocol::client::ClientError;
use tracing::{debug, info, warn};

use super::Slot;
use crate::worker::pool::State;

/// The first delay of a new try.
const RETRY_FIRST: Duration = Duration::from_millis(100);
const RETRY_LONGEST: Duration = Duration::from_secs(10);
/// A worker beats so often within a lease.
pub(super) const BEATS_PER_LEASE: u32 = 3;

/// A request that is not answered.
pub(super) struct Trouble {
    backoff: Backoff,
    since: Option<Instant>,
}

impl Trouble {
    /// With short leases there is no time for long delays.
    pub(super) fn new(lease: Duration) -> Self {
        let longest = RETRY_LONGEST.min(lease / (2 * BEATS_PER_LEASE));
        Self { backoff: Backoff::new(RETRY_FIRST, longest), since: None }
    }
}

impl Slot {
    /// Waits before the next try; an error says that there is to be none.
    pub(super) async fn wait_out(
        &mut self,
        error: ClientError,
        trouble: &mut Trouble,
    ) -> Result<(), ClientError> {
        let delay = self.delay(&error, trouble);
        let since = *trouble.since.get_or_insert_with(Instant::now);
        let deadline = self.pool.borrow().patience(since);
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.is_zero()) {
            return Err(error);
        }
        let stop = self.stopping();
        let stopped = self.changes.wait_for(|pool| pool.stop > stop);
        let _ = tokio::time::timeout(left.map_or(delay, |left| left.min(delay)), stopped).await;
        Ok(())
    }

    /// How long to wait before the next try; logs the first time that there has to be one.
    pub(super) fn delay(&self, error: &ClientError, trouble: &mut Trouble) -> Duration {
        debug!(%error, "A request was not answered.");
        if self.is_news(State::Silent, true) {
            warn!(%error, "The daemon does not answer; trying again until it does.");
        }
        // Shortened by up to a half: a daemon that was restarted does not meet all workers at once.
        trouble.backoff.next_delay().mul_f64(0.5 + random_share() / 2.0)
    }

    /// The daemon has said something.
    pub(super) fn is_answered(&self) {
        if self.is_news(State::Silent, false) {
            info!("The daemon answers again.");
        }
        if self.is_news(State::Classic, self.is_classic) {
            let protocol = if self.is_classic { "the classic protocol" } else { "protocol 2" };
            info!("The daemon speaks {protocol}.");
        }
    }

    /// Notes whether something is so without waking anybody. True: no slot has noted it yet.
    pub(super) fn is_news(&self, state: State, is_so: bool) -> bool {
        let mut is_news = false;
        self.pool.send_if_modified(|pool| {
            is_news = pool.is_news(state, is_so);
            false
        });
        is_news
    }
}

/// From 0 to 1. The standard library seeds its hashes at random; nothing here has to be secret.
fn random_share() -> f64 {
    (RandomState::new().hash_one(0_u8) >> 11) as f64 / (1_u64 << 53) as f64
}
