//! What is said in the log about workers: limited, since a worker can go wrong as fast as it can
//! connect (spec 1: after an answer it does not know the stock worker spins without sleeping).
//!
//! Used by the ConnectionActor alone. The limit is the log's, so it is one for all connections.

use std::cell::RefCell;
use std::fmt::Display;
use std::time::Instant;

use tracing::warn;

use super::ConnectionActor;
use crate::throttle::{Throttle, Verdict};

/// As many warnings are logged in [`PERIOD_SECONDS`].
const BURST: u32 = 100;
/// The period of the limit.
const PERIOD_SECONDS: u32 = 60;

thread_local! {
    /// All connections live on one arbiter, that is, on one thread.
    static COMPLAINTS: RefCell<Throttle> = const { RefCell::new(Throttle::new(BURST, PERIOD_SECONDS)) };
}

impl ConnectionActor {
    /// Warns of what the peer did, or did not get, unless that was said too often lately.
    pub(super) fn complain(&self, what: &str, why: impl Display) {
        let (verdict, total) = COMPLAINTS
            .with_borrow_mut(|complaints| (complaints.admit(Instant::now()), complaints.total()));
        match verdict {
            Verdict::Log { suppressed_before: 0 } => warn!(peer = %self.peer(), %why, "{what}"),
            Verdict::Log { suppressed_before: left_out } => {
                warn!(peer = %self.peer(), %why, left_out, total, "{what} Others were left out.");
            }
            Verdict::Suppress => {}
        }
    }
}
