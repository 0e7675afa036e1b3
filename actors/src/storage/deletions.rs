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

use super::StorageActor;
use super::messages::DeleteRun;
use super::reply::{Deferred, Reply, deferred};
use crate::store::{BeginDeletion, DeleteRuns, STEP_ROWS, StoreResult};
use shiftboss_protocol::model::Run;

/// Pause between two steps, so that others get at the database.
const STEP_PAUSE: Duration = Duration::from_millis(1);
/// Pause after a step that failed: a full disk stays full for a while.
const STEP_RETRY: Duration = Duration::from_secs(1);

/// A run that is marked, and who waits until it is gone.
pub(super) struct Deletion {
    run: Run,
    reply: Reply<StoreResult<()>>,
}

impl Handler<DeleteRun> for StorageActor {
    type Result = Deferred<StoreResult<()>>;

    fn handle(&mut self, DeleteRun { run }: DeleteRun, ctx: &mut Self::Context) -> Self::Result {
        let (result, reply) = deferred();
        self.submit(ctx, BeginDeletion(run.clone()), |actor, ctx, marked| match marked {
            Ok(()) => actor.marked(ctx, Deletion { run, reply }),
            // Nothing was begun; who asked asks again.
            Err(error) => reply.send(Err(error)),
        });
        result
    }
}

impl StorageActor {
    /// The mark of a run is on disk.
    fn marked(&mut self, ctx: &mut Context<Self>, deletion: Deletion) {
        // One that is asked for twice comes twice, in order: the second finds it gone.
        self.deletions.push_back(deletion);
        if self.deletions.len() == 1 {
            ctx.run_later(STEP_PAUSE, Self::delete_step);
        }
    }

    fn delete_step(&mut self, ctx: &mut Context<Self>) {
        let first = self.deletions.iter().take(STEP_ROWS);
        let runs = first.map(|deletion| deletion.run.clone()).collect();
        self.submit(ctx, DeleteRuns { runs, limit: STEP_ROWS }, |actor, ctx, gone| {
            let pause = if gone.is_ok() { STEP_PAUSE } else { STEP_RETRY };
            for Deletion { reply, .. } in actor.deletions.drain(..gone.unwrap_or(0)) {
                reply.send(Ok(()));
            }
            if !actor.deletions.is_empty() {
                ctx.run_later(pause, Self::delete_step);
            }
        });
    }
}
