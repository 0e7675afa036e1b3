//! Runs whose fetcher is another daemon's: their files are rejected, visibly, and tried again, for a fetcher may be
//! taken over. And the other side of that: runs of ours that another daemon took over meanwhile, and those that the store knows
//! otherwise than it did, for it went back to a backup.
//!
//! Who has a fetcher is the store's to say, when a run is registered ([`runs`](super::runs)). With one daemon nothing of this
//! happens.

use std::collections::{BTreeMap, BTreeSet};

use actix::prelude::*;
use tracing::{debug, warn};

use super::FileWatcherActor;
use super::entry::Entry;
use super::faults::Cause;
use super::phase::Phase;
use crate::storage::messages::{RunsChanged, STORE_RETRY, ask};
use shiftboss_protocol::model::Run;
use shiftboss_queue::operation::{Runs, StoredRun};

impl FileWatcherActor {
    /// The store has not taken a run: another daemon has its fetcher.
    pub(super) fn reject_elsewhere(&mut self, run: &Run, reason: &str) {
        let Some(entry) = self.runs.get_mut(run) else {
            return;
        };
        entry.phase.enter(Phase::Elsewhere);
        entry.known = false;
        let growing = entry.names.target().growing_name;
        if self.faults.reject_file(run, growing, Cause::Elsewhere, reason) {
            warn!(%run, reason, "The run's file is rejected.");
        }
    }

    /// Gives each of them another try, at the next look; whether there are any.
    pub(super) fn retry_elsewhere(&mut self) -> bool {
        let is_elsewhere =
            |(_, entry): &(&Run, &mut Entry)| matches!(entry.phase, Phase::Elsewhere);
        self.runs.iter_mut().filter(is_elsewhere).filter_map(wake).count() > 0
    }

    /// Of the fetchers of `runs` all runs are tried together, also those that the store was too busy for: whichever is missing
    /// when a fetcher is taken over leaves the queue.
    pub(super) fn add_unregistered(&mut self, runs: &mut BTreeSet<Run>) {
        let fetchers: BTreeSet<_> = runs.iter().map(|run| run.fetcher.clone()).collect();
        for fetcher in fetchers {
            let [first, last] =
                [i64::MIN, i64::MAX].map(|started| Run { fetcher: fetcher.clone(), started });
            runs.extend(self.runs.range_mut(first..=last).filter_map(wake));
        }
    }

    /// Waits until other daemons may have taken runs of ours, and looks; for the actor's whole life.
    pub(super) fn watch_ownership(&mut self, ctx: &mut Context<Self>) {
        let changed = self.storage.send(RunsChanged).into_actor(self);
        ctx.spawn(changed.map(|changed, watcher, ctx| {
            if changed.is_ok() {
                watcher.compare_ownership(ctx);
            }
        }));
    }

    /// Runs that the store does not know as ours any longer, or no longer as far as they were read, are registered again: so they are
    /// rejected, or read from where the store has them. Those that it has and we have not are gone.
    fn compare_ownership(&mut self, ctx: &mut Context<Self>) {
        let known = ask(&self.storage, Runs).into_actor(self);
        ctx.wait(known.map(|known, watcher, ctx| match known {
            Ok(known) => {
                watcher.give_up_all_but(&known, ctx);
                watcher.watch_ownership(ctx);
            }
            Err(error) => {
                debug!(%error, "Which runs are ours cannot be told yet; trying again.");
                ctx.run_later(STORE_RETRY, Self::compare_ownership);
            }
        }));
    }

    fn give_up_all_but(&mut self, known: &[StoredRun], ctx: &mut Context<Self>) {
        let mut changed = BTreeSet::new();
        let by_run: BTreeMap<&Run, &StoredRun> = known.iter().map(|it| (&it.run, it)).collect();
        for (run, entry) in &mut self.runs {
            let stored = by_run.get(run);
            if entry.is_stored() && stored.is_none_or(|stored| entry.is_ahead_of(stored)) {
                entry.phase.stop_tail();
                entry.phase.enter(Phase::New);
                entry.known = stored.is_some();
                changed.insert(run.clone());
            }
        }
        let is_strange = |stored: &&StoredRun| !self.runs.contains_key(&stored.run);
        let strange: Vec<StoredRun> = known.iter().filter(is_strange).cloned().collect();
        self.adopt(&strange, ctx);
        changed.extend(strange.into_iter().map(|stored| stored.run));
        self.refresh(changed, ctx);
    }
}

/// Has a run tried again, if it is another daemon's; returns it if it is to be registered.
fn wake((run, entry): (&Run, &mut Entry)) -> Option<Run> {
    if matches!(entry.phase, Phase::Elsewhere) {
        entry.phase.enter(Phase::New);
    }
    entry.is_new().then(|| run.clone())
}
