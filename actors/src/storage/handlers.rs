//! One handler a message of the StorageActor: each names the store's operation, nothing more. Those of
//! protocol 2 are in [`sessions`](super::sessions).
//!
//! Called by actix; the transaction around them is [`StorageActor::mutate`].

use actix::prelude::*;
use tracing::{debug, info};

use super::messages::{
    AddRows, ClearAside, Dispatch, Finish, KnownRuns, NoteInput, Ping, RegisterRuns, SetAside,
    Shutdown, Undo,
};
use super::reply::{Deferred, Dispatched};
use super::{StorageActor, UNDO_RETRY};
use crate::store::{Holder, Store, StoreError, StoreResult, StoredRun};

impl Handler<Dispatch> for StorageActor {
    type Result = Deferred<Dispatched>;

    fn handle(&mut self, Dispatch { holder }: Dispatch, ctx: &mut Self::Context) -> Self::Result {
        self.take_work(ctx, holder.as_ref())
    }
}

impl Handler<Finish> for StorageActor {
    type Result = Deferred<Dispatched>;

    fn handle(&mut self, finish: Finish, ctx: &mut Self::Context) -> Self::Result {
        self.finish_and_take(ctx, finish)
    }
}

impl StorageActor {
    /// Takes the next job for somebody. It makes no work for those who wait.
    pub(super) fn take_work(
        &mut self,
        ctx: &mut Context<Self>,
        holder: Option<&Holder>,
    ) -> Deferred<Dispatched> {
        let (now, roused) = (self.clock.now(), self.roused);
        let undo = ctx.address().recipient();
        let taken = self
            .mutate(ctx, |store| Ok(Dispatched { dispatch: store.dispatch(now, holder)?, undo }));
        self.roused = roused;
        if let Some(holder) = holder {
            let attempt = taken.peek().ok().and_then(Dispatched::attempt);
            self.begin_lease(ctx, attempt, holder);
        }
        taken
    }

    fn finish_and_take(
        &mut self,
        ctx: &mut Context<Self>,
        Finish { key, exit_code }: Finish,
    ) -> Deferred<Dispatched> {
        let now = self.clock.now();
        let undo = ctx.address().recipient();
        self.mutate(ctx, move |store| {
            Ok(Dispatched { dispatch: store.finish_and_dispatch(&key, exit_code, now)?, undo })
        })
    }
}

impl Handler<Undo> for StorageActor {
    type Result = ();

    fn handle(&mut self, Undo { key, attempt }: Undo, ctx: &mut Self::Context) {
        let this = ctx.address();
        let undone = self.mutate(ctx, |store| store.undo(&key, attempt));
        if undone.peek() == Ok(&true) {
            self.leases.end(attempt);
        }
        undone.then(move |result| match result {
            Ok(true) => {
                info!(attempt = attempt.0, "A job that did not arrive is back in the queue.")
            }
            Ok(false) => debug!(attempt = attempt.0, "Nothing to undo."),
            // Out otherwise until its lease ends: try until it is written.
            Err(_) => drop(actix::spawn(async move {
                tokio::time::sleep(UNDO_RETRY).await;
                this.do_send(Undo { key, attempt });
            })),
        });
    }
}

impl Handler<KnownRuns> for StorageActor {
    type Result = MessageResult<KnownRuns>;

    fn handle(&mut self, _: KnownRuns, _: &mut Self::Context) -> Self::Result {
        let runs = self.store.runs();
        MessageResult(runs.map_err(|error| self.noted(error)))
    }
}

impl Handler<RegisterRuns> for StorageActor {
    type Result = Deferred<Vec<StoreResult<StoredRun>>>;

    fn handle(&mut self, message: RegisterRuns, ctx: &mut Self::Context) -> Self::Result {
        self.mutate(ctx, |store| {
            let register = |run| match store.register_run(run) {
                Err(rejected @ StoreError::Rejected(_)) => Ok(Err(rejected)),
                registered => registered.map(Ok),
            };
            message.runs.iter().map(register).collect()
        })
    }
}

impl Handler<AddRows> for StorageActor {
    type Result = Deferred<()>;

    fn handle(&mut self, AddRows(batch): AddRows, ctx: &mut Self::Context) -> Self::Result {
        let add = |store: &mut dyn Store| store.add_rows(&batch);
        if batch.rows.is_empty() { self.mutate(ctx, add) } else { self.mutate_many(ctx, add) }
    }
}

impl Handler<SetAside> for StorageActor {
    type Result = Deferred<()>;

    fn handle(&mut self, message: SetAside, ctx: &mut Self::Context) -> Self::Result {
        let now = self.clock.now();
        self.mutate(ctx, |store| store.set_aside(&message.name, &message.reason, now))
    }
}

impl Handler<ClearAside> for StorageActor {
    type Result = Deferred<()>;

    fn handle(&mut self, message: ClearAside, ctx: &mut Self::Context) -> Self::Result {
        self.mutate(ctx, |store| store.clear_aside(&message.name))
    }
}

impl Handler<NoteInput> for StorageActor {
    type Result = Deferred<()>;

    fn handle(&mut self, NoteInput(input): NoteInput, ctx: &mut Self::Context) -> Self::Result {
        let now = self.clock.now();
        self.mutate(ctx, |store| store.note_input(&input, now))
    }
}

impl Handler<Ping> for StorageActor {
    type Result = ();

    fn handle(&mut self, _: Ping, _: &mut Self::Context) {}
}

impl Handler<Shutdown> for StorageActor {
    type Result = MessageResult<Shutdown>;

    fn handle(&mut self, _: Shutdown, ctx: &mut Self::Context) -> Self::Result {
        let _ = self.commit();
        let closed = self.store.close();
        ctx.stop();
        MessageResult(closed)
    }
}
