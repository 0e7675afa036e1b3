//! Deleting runs: marked at once, gone in steps (spec 4). Part of the StorageActor.
//!
//! A deletion that is asked for is only marked, in the shared transaction: from that commit on no
//! row of the run is handed out. The rows go in bounded steps with pauses between them, so that a
//! worker's request waits for one step at most, however many runs go at once. What was marked is
//! tried until it is gone; a stop in between leaves the mark, and the next start goes on.
//!
//! Rows that a changed file lists no longer go by the same steps, each asked for by the run's tail.

use std::time::Duration;

use actix::prelude::*;
use tokio::sync::oneshot;

use super::StorageActor;
use super::messages::{DeleteRun, PruneRun};
use super::reply::Deferred;
use crate::model::Run;
use crate::store::{StoreError, StoreResult};

/// Rows deleted in one step, of one run or of several; a run counts as a row of its own.
const STEP_ROWS: usize = 500;
/// Pause between two steps, so that others get at the database.
const STEP_PAUSE: Duration = Duration::from_millis(1);
/// Pause after a step that failed: a full disk stays full for a while.
const STEP_RETRY: Duration = Duration::from_secs(1);

/// A run that is marked, and who waits until it is gone.
pub(super) struct Deletion {
    run: Run,
    reply: oneshot::Sender<StoreResult<()>>,
}

/// The mark of a run is on disk.
#[derive(Message)]
#[rtype(result = "()")]
struct Marked(Deletion);

/// The next step.
#[derive(Message)]
#[rtype(result = "()")]
struct DeleteStep;

impl Handler<DeleteRun> for StorageActor {
    type Result = ResponseFuture<StoreResult<()>>;

    fn handle(&mut self, DeleteRun { run }: DeleteRun, ctx: &mut Self::Context) -> Self::Result {
        let (reply, answer) = oneshot::channel();
        let this = ctx.address();
        self.mutate(ctx, |store| store.begin_deletion(&run)).then(move |marked| match marked {
            Ok(()) => this.do_send(Marked(Deletion { run, reply })),
            // Nothing was begun; who asked asks again.
            Err(error) => drop(reply.send(Err(error))),
        });
        Box::pin(async move { answer.await.unwrap_or_else(|_| Err(stopping())) })
    }
}

impl Handler<Marked> for StorageActor {
    type Result = ();

    fn handle(&mut self, Marked(deletion): Marked, ctx: &mut Self::Context) {
        // One that is asked for twice comes twice, in order: the second finds it gone.
        self.deletions.push_back(deletion);
        if self.deletions.len() == 1 {
            ctx.notify_later(DeleteStep, STEP_PAUSE);
        }
    }
}

impl Handler<DeleteStep> for StorageActor {
    type Result = ();

    fn handle(&mut self, _: DeleteStep, ctx: &mut Self::Context) {
        let step = self.delete_step(ctx);
        let pause = if step.is_ok() { STEP_PAUSE } else { STEP_RETRY };
        for Deletion { reply, .. } in self.deletions.drain(..step.unwrap_or(0)) {
            // Nobody waits any longer: the run is gone all the same.
            let _ = reply.send(Ok(()));
        }
        if !self.deletions.is_empty() {
            ctx.notify_later(DeleteStep, pause);
        }
    }
}

impl Handler<PruneRun> for StorageActor {
    type Result = Deferred<bool>;

    fn handle(&mut self, PruneRun { run }: PruneRun, ctx: &mut Self::Context) -> Self::Result {
        self.mutate_many(ctx, |store| store.prune(&run, STEP_ROWS))
    }
}

impl StorageActor {
    /// One step, committed; returns how many of the first deletions are over.
    fn delete_step(&mut self, ctx: &mut Context<Self>) -> StoreResult<usize> {
        let first = self.deletions.iter().take(STEP_ROWS);
        let runs: Vec<Run> = first.map(|deletion| deletion.run.clone()).collect();
        let step = self.mutate_many(ctx, |store| store.delete_runs(&runs, STEP_ROWS));
        let gone = step.into_result()?;
        self.commit()?;
        Ok(gone)
    }
}

fn stopping() -> StoreError {
    StoreError::Busy("the daemon is stopping".to_owned())
}
