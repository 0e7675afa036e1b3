//! Which complete files are to be compared with what was read of them, and when: each once it has rested,
//! after it was read, and after any change of its times, also while no daemon ran (spec 4, "Life").
//!
//! A file whose times are those stored as verified is left alone. The comparing, and what follows when a
//! file has changed, is its tail's.

use std::collections::BTreeSet;

use actix::prelude::*;

use super::FileWatcherActor;
use super::phase::Phase;
use crate::directory::FileState;
use crate::run_reader::times_of;
use crate::store::StoredRun;
use shiftboss_protocol::model::Run;

/// Runs that are looked at in one second. A look costs microseconds, and registering them a little more.
const RUNS_PER_TICK: usize = 256;

impl FileWatcherActor {
    /// A complete run was read, or is known to be: its file is to be looked into once it rests.
    pub(super) fn verify_later(&mut self, run: &Run) {
        if let Some(entry) = self.runs.get_mut(run)
            && !std::mem::replace(&mut entry.unverified, true)
        {
            self.unverified.push_back(run.clone());
        }
    }

    /// Once a second: starts tails for files that rest.
    pub(super) fn reconcile(&mut self, ctx: &mut Context<Self>) {
        let count = self.unverified.len().min(RUNS_PER_TICK);
        let turn: BTreeSet<Run> = self.unverified.drain(..count).collect();
        for run in &turn {
            if let Some(entry) = self.runs.get_mut(run) {
                entry.unverified = false;
                entry.due = true;
            }
        }
        self.refresh(turn.clone(), ctx);
        for run in turn {
            // Others are looked at again when their tails have ended.
            if self.runs.get(&run).is_some_and(|entry| matches!(entry.phase, Phase::Complete(_))) {
                self.verify_later(&run);
            }
        }
    }
}

/// Whether a file holds just what is stored of it, as far as its times tell.
pub(super) fn is_verified(stored: &StoredRun, file: Option<FileState>) -> bool {
    let verified = stored.position.and_then(|at| at.verified);
    !stored.stale && verified.is_some() && verified == file.map(|file| times_of(&file))
}
