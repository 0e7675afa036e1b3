//! Runs of the daemon's own fetchers, noted and told. Part of the StorageActor.

use actix::prelude::*;

use super::StorageActor;
use super::messages::{ForgetFetcher, KnownFetchers, NoteFetcher};
use super::reply::Deferred;

impl Handler<NoteFetcher> for StorageActor {
    type Result = Deferred<()>;

    fn handle(
        &mut self,
        NoteFetcher(record): NoteFetcher,
        ctx: &mut Self::Context,
    ) -> Self::Result {
        self.mutate(ctx, |store| store.note_fetcher(&record))
    }
}

impl Handler<KnownFetchers> for StorageActor {
    type Result = MessageResult<KnownFetchers>;

    fn handle(&mut self, _: KnownFetchers, _: &mut Self::Context) -> Self::Result {
        let known = self.store.fetcher_records();
        MessageResult(known.map_err(|error| self.noted(error)))
    }
}

impl Handler<ForgetFetcher> for StorageActor {
    type Result = Deferred<()>;

    fn handle(
        &mut self,
        ForgetFetcher(name): ForgetFetcher,
        ctx: &mut Self::Context,
    ) -> Self::Result {
        self.mutate(ctx, |store| store.forget_fetcher(&name))
    }
}
