//! Runs whose fetcher belongs to another daemon: their files are rejected, visibly, and tried again, because a fetcher
//! may be taken over. Also the reverse: our runs that another daemon took over meanwhile, and those whose position in
//! the store has changed because it was restored from a backup.
//!
//! The store decides who owns a fetcher when a run is registered ([`runs`](super::runs)). With one daemon none of this
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

    /// Has each of them tried again at the next look; returns whether there are any.
    pub(super) fn retry_elsewhere(&mut self) -> bool {
        let is_elsewhere =
            |(_, entry): &(&Run, &mut Entry)| matches!(entry.phase, Phase::Elsewhere);
        self.runs.iter_mut().filter(is_elsewhere).filter_map(wake).count() > 0
    }

    /// Adds all other unregistered runs of the fetchers of `runs`, also those that the store was too busy for: a run
    /// that is missing when its fetcher is taken over leaves the queue.
    pub(super) fn add_unregistered(&mut self, runs: &mut BTreeSet<Run>) {
        let fetchers: BTreeSet<_> = runs.iter().map(|run| run.fetcher.clone()).collect();
        for fetcher in fetchers {
            let [first, last] =
                [i64::MIN, i64::MAX].map(|started| Run { fetcher: fetcher.clone(), started });
            runs.extend(self.runs.range_mut(first..=last).filter_map(wake));
        }
    }

    /// Waits until other daemons may have taken over runs of ours, and then looks; for the actor's whole life.
    pub(super) fn watch_ownership(&mut self, ctx: &mut Context<Self>) {
        let changed = self.storage.send(RunsChanged).into_actor(self);
        ctx.spawn(changed.map(|changed, watcher, ctx| {
            if changed.is_ok() {
                watcher.compare_ownership(ctx);
            }
        }));
    }

    /// Registers again every run that the store no longer knows as ours, or has less of than was read: so it is
    /// rejected, or read from the store's position. Runs that only the store has are deleted: their files are gone.
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

/// Has a run of another daemon's fetcher tried again; returns it if it must be registered.
fn wake((run, entry): (&Run, &mut Entry)) -> Option<Run> {
    if matches!(entry.phase, Phase::Elsewhere) {
        entry.phase.enter(Phase::New);
    }
    entry.is_new().then(|| run.clone())
}
