//! Which complete files are to be compared with what was read of them, and when: each once it has rested,
//! after it was read, and after any change of its times, also while no daemon ran (spec 4, "Life").
//!
//! A file whose times are those stored as verified is left alone. The comparing, and what follows when a
//! file has changed, is its tail's.

use std::collections::BTreeSet;

use actix::prelude::*;

use super::FileWatcherActor;
use super::entry::Entry;
use super::phase::Phase;
use crate::directory::FileState;
use crate::store::StoredRun;
use shiftboss_protocol::model::Run;

/// Runs that are looked at in one second. A look costs microseconds, and registering them a little more.
const RUNS_PER_TICK: usize = 256;

impl FileWatcherActor {
    /// Once a second: starts tails for files that rest.
    pub(super) fn reconcile(&mut self, ctx: &mut Context<Self>) {
        let is_next = |(_, entry): &(&Run, &mut Entry)| {
            let is_complete = matches!(entry.phase, Phase::Complete(_));
            entry.unverified && is_complete && entry.names.is_rested()
        };
        let mut turn = BTreeSet::new();
        for (run, entry) in self.runs.iter_mut().filter(is_next).take(RUNS_PER_TICK) {
            entry.due = true;
            turn.insert(run.clone());
        }
        self.refresh(turn, ctx);
    }
}

/// Whether a file holds just what is stored of it, as far as its times tell.
pub(super) fn is_verified(stored: &StoredRun, file: Option<FileState>) -> bool {
    let verified = stored.position.and_then(|at| at.verified);
    !stored.stale && verified.is_some() && verified == file.map(|file| file.times())
}
