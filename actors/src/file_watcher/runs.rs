//! Keeping the store's runs current: registering new ones, deleting those that are gone (spec 4). A run is marked at
//! once, so that no more of its rows are handed out; the rows themselves are deleted in bounded steps.

use std::collections::BTreeSet;
use std::time::Duration;

use actix::prelude::*;
use tracing::{debug, info};

use super::FileWatcherActor;
use super::entry::Entry;
use super::faults::Cause;
use super::phase::Phase;
use crate::storage::messages::{STORE_RETRY, ask};
use crate::store::STEP_ROWS;
use shiftboss_protocol::model::Run;
use shiftboss_queue::error::StoreResult;
use shiftboss_queue::operation::{
    BeginDeletion, DeleteRuns, Each, RegisterRun, Registered, StoredRun,
};

/// Most runs that one transaction registers, so that it ends in time however many files there are.
const REGISTERED_AT_ONCE: usize = 250;
/// Pause between two steps of deletions, so that others can use the database.
const STEP_PAUSE: Duration = Duration::from_millis(1);
/// Pause after a step that failed: a full disk stays full for a while.
const STEP_RETRY: Duration = Duration::from_secs(1);

impl FileWatcherActor {
    /// Takes over what the store knows, to be compared with the directory. Deletions that an earlier daemon began go
    /// on. A run that is being deleted is not queued a second time: its file may have been made anew by the time a
    /// second deletion ended.
    pub(super) fn adopt(&mut self, known: &[StoredRun], ctx: &mut Context<Self>) {
        for stored in known.iter().cloned() {
            let run = stored.run.clone();
            if self.deleting.contains(&run) {
                continue;
            }
            let phase = if stored.deleting { Phase::Deleting } else { Phase::Stored(stored) };
            if matches!(phase, Phase::Deleting) {
                self.marked(run.clone(), ctx);
            }
            self.runs.insert(run, Entry { phase, known: true, ..Entry::default() });
        }
    }

    /// Makes runs known to the store and starts their tails. Nothing else is handled meanwhile.
    pub(super) fn register(&mut self, mut runs: Vec<Run>, ctx: &mut Context<Self>) {
        if runs.is_empty() {
            let postponed = self.postponed.take().unwrap_or_default();
            if !postponed.is_empty() {
                self.refresh(postponed, ctx);
            }
            return;
        }
        self.postponed.get_or_insert_default();
        let rest = split_off_rest(&mut runs);
        for run in &runs {
            if let Some(entry) = self.runs.get_mut(run) {
                entry.phase.enter(Phase::Registering);
                entry.known = true;
            }
        }
        let request = Each(runs.iter().cloned().map(RegisterRun).collect());
        let registered = ask(&self.storage, request).into_actor(self);
        ctx.wait(registered.map(|answers, watcher, ctx| {
            // If the whole transaction failed, it failed for each run.
            let answers = answers.unwrap_or_else(|error| vec![Err(error); runs.len()]);
            let mut later = BTreeSet::new();
            for (run, answer) in runs.into_iter().zip(answers) {
                if let Err(run) = watcher.registered(run, answer, ctx) {
                    later.insert(run);
                }
            }
            if !later.is_empty() {
                ctx.run_later(STORE_RETRY, |watcher, ctx| watcher.refresh(later, ctx));
            }
            watcher.register(rest, ctx);
        }));
    }

    /// Handles the store's answer; returns the run if it must be registered later.
    fn registered(
        &mut self,
        run: Run,
        answer: StoreResult<Registered>,
        ctx: &mut Context<Self>,
    ) -> Result<(), Run> {
        match answer {
            Ok(Registered::Run(stored)) => {
                debug!(%run, complete = stored.complete, "Registered.");
                self.faults.accept_file(&run, Cause::Elsewhere);
                self.begin(&run, stored, ctx);
                Ok(())
            }
            Ok(Registered::Elsewhere(reason)) => {
                self.reject_elsewhere(&run, &reason);
                Ok(())
            }
            Err(error) => {
                debug!(%run, %error, "A run could not be registered yet; trying again.");
                let entry = self.runs.get_mut(&run);
                entry.into_iter().for_each(|entry| entry.phase.enter(Phase::New));
                Err(run)
            }
        }
    }

    /// Both names of a run are gone: ends its tail and deletes its rows.
    pub(super) fn drop_run(&mut self, run: &Run, ctx: &mut Context<Self>) {
        self.take_back(run);
        let Some(entry) = self.runs.get_mut(run) else {
            return;
        };
        match &entry.phase {
            Phase::Deleting => return,
            _ if !entry.known => {
                self.runs.remove(run);
                return;
            }
            phase => phase.stop_tail(),
        }
        info!(%run, "A run's file is gone: its rows leave the queue.");
        entry.phase.enter(Phase::Deleting);
        self.mark(run.clone(), ctx);
    }

    /// Once storage answers that it is marked, no row of the run is handed out.
    fn mark(&mut self, run: Run, ctx: &mut Context<Self>) {
        let marked = ask(&self.storage, BeginDeletion(run.clone())).into_actor(self);
        ctx.spawn(marked.map(move |marked, watcher, ctx| match marked {
            Ok(true) => watcher.marked(run, ctx),
            Ok(false) => {
                ctx.run_later(STEP_PAUSE, |watcher, ctx| watcher.mark(run, ctx));
            }
            Err(error) => {
                debug!(%run, %error, "A run could not be deleted yet; trying again.");
                ctx.run_later(STORE_RETRY, |watcher, ctx| watcher.mark(run, ctx));
            }
        }));
    }

    fn marked(&mut self, run: Run, ctx: &mut Context<Self>) {
        self.deleting.push_back(run);
        if self.deleting.len() == 1 {
            ctx.run_later(STEP_PAUSE, Self::delete_step);
        }
    }

    /// One step at a time, however many runs are deleted: a worker's request waits for one step at most. A marked run
    /// is retried until it is gone; if the daemon stops in between, the mark stays, and the next start goes on.
    fn delete_step(&mut self, ctx: &mut Context<Self>) {
        let runs = self.deleting.iter().take(STEP_ROWS).cloned().collect();
        let step = ask(&self.storage, DeleteRuns { runs, limit: STEP_ROWS }).into_actor(self);
        ctx.spawn(step.map(|gone, watcher, ctx| {
            let pause = if gone.is_ok() { STEP_PAUSE } else { STEP_RETRY };
            let gone: Vec<Run> = watcher.deleting.drain(..gone.unwrap_or(0)).collect();
            if !watcher.deleting.is_empty() {
                ctx.run_later(pause, Self::delete_step);
            }
            gone.iter().for_each(|run| watcher.deleted(run, ctx));
        }));
    }

    fn deleted(&mut self, run: &Run, ctx: &mut Context<Self>) {
        // Its file may have been made anew meanwhile.
        self.runs.insert(run.clone(), Entry::default());
        self.refresh(BTreeSet::from([run.clone()]), ctx);
    }
}

/// Leaves as many runs as one transaction takes, and returns the rest. Those of a fetcher stay together: all of them
/// decide who owns it.
fn split_off_rest(runs: &mut Vec<Run>) -> Vec<Run> {
    let is_boundary = |at: &usize| runs[*at].fetcher != runs[*at - 1].fetcher;
    let end = (REGISTERED_AT_ONCE..runs.len()).find(is_boundary).unwrap_or(runs.len());
    runs.split_off(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lengths of the parts in which `fetchers` fetchers with `runs` runs each are registered.
    fn parts(fetchers: usize, runs: i64) -> Vec<usize> {
        let of = |fetcher| {
            (0..runs).map(move |started| Run { fetcher: format!("f{fetcher}").into(), started })
        };
        let mut left: Vec<Run> = (0..fetchers).flat_map(of).collect();
        let mut lengths = Vec::new();
        while !left.is_empty() {
            let rest = split_off_rest(&mut left);
            lengths.push(left.len());
            left = rest;
        }
        lengths
    }

    #[test]
    fn many_runs_are_registered_in_parts() {
        assert_eq!(parts(3, 1), [3]);
        assert_eq!(parts(600, 1), [250, 250, 100]);
        assert_eq!(parts(3, 200), [400, 200]);
        assert_eq!(parts(1, 900), [900]);
    }
}
