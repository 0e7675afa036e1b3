//! Entries of a spool, entering and leaving the queue. Part of the StorageActor.

use actix::prelude::*;

use super::StorageActor;
use super::messages::{Enter, ForgetEntries, KnownEntries};
use super::reply::Deferred;
use crate::store::Entered;

impl Handler<Enter> for StorageActor {
    type Result = Deferred<Vec<Entered>>;

    fn handle(&mut self, Enter(entries): Enter, ctx: &mut Self::Context) -> Self::Result {
        let now = self.clock.now();
        self.mutate_many(ctx, |store| entries.iter().map(|entry| store.enter(entry, now)).collect())
    }
}

impl Handler<KnownEntries> for StorageActor {
    type Result = MessageResult<KnownEntries>;

    fn handle(&mut self, _: KnownEntries, _: &mut Self::Context) -> Self::Result {
        // What is told must be on disk: on a word that a job is done its entry is removed.
        let known = self.commit().and_then(|()| self.store.entries());
        MessageResult(known.map_err(|error| self.noted(error)))
    }
}

impl Handler<ForgetEntries> for StorageActor {
    type Result = Deferred<()>;

    fn handle(
        &mut self,
        ForgetEntries(names): ForgetEntries,
        ctx: &mut Self::Context,
    ) -> Self::Result {
        self.mutate_many(ctx, |store| names.iter().try_for_each(|name| store.forget_entry(name)))
    }
}
