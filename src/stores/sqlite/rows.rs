//! Rows of the tables that several modules name or read.

use std::sync::Arc;

use super::query::columns;

/// A run in the tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct RunId {
    pub(super) fetcher_id: i64,
    pub(super) started: i64,
}

columns!(RunId { fetcher_id, started });

impl RunId {
    /// As the parameters ?1 and ?2 of a statement.
    pub(super) fn pair(self) -> (i64, i64) {
        (self.fetcher_id, self.started)
    }
}

/// An attempt whose end is not known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Delivery {
    pub(super) attempt: i64,
    pub(super) fetcher_id: i64,
    pub(super) run_started: i64,
    pub(super) started: i64,
    /// Which try of its row this is.
    pub(super) delivery_count: i64,
    /// `None`: a classic worker.
    pub(super) worker: Option<Arc<str>>,
    /// The attempt before, in which a row of its fetcher and key was dispatched.
    pub(super) previous: Option<i64>,
    /// When its key was started before.
    pub(super) prev_started: Option<i64>,
}

columns!(Delivery {
    attempt,
    fetcher_id,
    run_started,
    started,
    delivery_count,
    worker,
    previous,
    prev_started
});

impl Delivery {
    pub(super) fn run(&self) -> RunId {
        RunId { fetcher_id: self.fetcher_id, started: self.run_started }
    }
}
