//! Telling the store which runs there are: registering new ones, deleting those that are gone.

use std::collections::BTreeSet;

use actix::prelude::*;
use tracing::{debug, info};

use super::entry::Entry;
use super::phase::Phase;
use super::{DELETE_TIMEOUT, FileWatcherActor, STORE_RETRY};
use crate::storage::messages::{DeleteRun, ask};
use crate::store::{Each, RegisterRun, StoreError, StoreResult, StoredRun};
use shiftboss_protocol::model::Run;

impl FileWatcherActor {
    /// Makes runs known to the store and starts their tails. Nothing else is handled meanwhile.
    pub(super) fn register(&mut self, runs: Vec<Run>, ctx: &mut Context<Self>) {
        if runs.is_empty() {
            return;
        }
        for run in &runs {
            if let Some(entry) = self.runs.get_mut(run) {
                entry.phase.enter(Phase::Registering);
                entry.known = true;
            }
        }
        let request = Each(runs.iter().cloned().map(RegisterRun).collect());
        let registered = ask(&self.storage, request).into_actor(self);
        ctx.wait(registered.map(|answer, watcher, ctx| match answer {
            Ok(answers) => watcher.registered(runs, answers, ctx),
            Err(error) => watcher.register_later(runs, &error, ctx),
        }));
    }

    /// The store's answers, one for each run.
    fn registered(
        &mut self,
        runs: Vec<Run>,
        answers: Vec<StoreResult<StoredRun>>,
        ctx: &mut Context<Self>,
    ) {
        let mut rejected = (Vec::new(), None);
        for (run, answer) in runs.into_iter().zip(answers) {
            match answer {
                Ok(stored) => {
                    debug!(%run, complete = stored.complete, "Registered.");
                    self.begin(&run, stored, ctx);
                }
                Err(error) => {
                    rejected.0.push(run);
                    rejected.1 = Some(error);
                }
            }
        }
        if let (runs, Some(error)) = rejected {
            self.register_later(runs, &error, ctx);
        }
    }

    fn register_later(&mut self, runs: Vec<Run>, error: &StoreError, ctx: &mut Context<Self>) {
        debug!(%error, "Runs could not be registered yet; trying again.");
        for run in &runs {
            if let Some(entry) = self.runs.get_mut(run) {
                entry.phase.enter(Phase::New);
            }
        }
        let runs = runs.into_iter().collect();
        ctx.run_later(STORE_RETRY, |watcher, ctx| watcher.refresh(runs, ctx));
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
        self.delete(run.clone(), ctx);
    }

    fn delete(&mut self, run: Run, ctx: &mut Context<Self>) {
        let sent = self.storage.send(DeleteRun { run: run.clone() });
        let deleted = sent.timeout(DELETE_TIMEOUT).into_actor(self).map(
            move |answer: Result<StoreResult<()>, _>, watcher, ctx| {
                if matches!(answer, Ok(Ok(()))) {
                    watcher.deleted(&run, ctx);
                } else {
                    debug!(%run, ?answer, "A run could not be deleted yet; trying again.");
                    ctx.run_later(STORE_RETRY, |watcher, ctx| watcher.delete(run, ctx));
                }
            },
        );
        ctx.spawn(deleted);
    }

    fn deleted(&mut self, run: &Run, ctx: &mut Context<Self>) {
        // Its file may have been made anew meanwhile.
        self.runs.insert(run.clone(), Entry::default());
        self.refresh(BTreeSet::from([run.clone()]), ctx);
    }
}
