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

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;
    use crate::clock::ManualClock;
    use crate::store::{EndedRun, FetcherRecord, StoreError};
    use crate::testing::{MockStore, Trouble};
    use crate::vital::Vital;

    fn record() -> FetcherRecord {
        let told = "7 lines".to_owned();
        FetcherRecord {
            name: "links".into(),
            state: "idle".to_owned(),
            run_started: None,
            last_run: Some(EndedRun { started: 90, ended: 95, exit_code: 0, told }),
            next_run: Some(190),
        }
    }

    fn start(mock: &MockStore) -> (Addr<StorageActor>, oneshot::Receiver<StoreError>) {
        let (vital, end) = Vital::new();
        let (drained, _) = oneshot::channel();
        let clock = Box::new(ManualClock::at(100));
        (StorageActor::new(Box::new(mock.clone()), clock, vital, drained).start(), end)
    }

    /// What is noted or forgotten is answered after the commit, and told when it is asked for.
    #[actix::test]
    async fn notes_are_answered_after_the_commit() {
        let mock = MockStore::default();
        let (storage, _end) = start(&mock);
        storage.send(NoteFetcher(record())).await.unwrap().unwrap();
        assert_eq!(mock.calls(), ["begin", "note_fetcher links", "commit"]);
        assert_eq!(storage.send(KnownFetchers).await.unwrap(), Ok(vec![record()]));
        storage.send(ForgetFetcher("links".into())).await.unwrap().unwrap();
        let calls = mock.calls();
        let expected = ["fetcher_records", "begin", "forget_fetcher links", "commit"];
        assert_eq!(calls[calls.len() - 4..], expected);
        assert_eq!(storage.send(KnownFetchers).await.unwrap(), Ok(vec![]));
    }

    /// A store that fails is told to whoever asked, at whichever step, and the next try is a new one.
    #[actix::test]
    async fn a_failing_store_is_told() {
        let mock = MockStore::default();
        let (storage, _end) = start(&mock);
        let full = StoreError::Full("disk".to_owned());
        for step in ["begin", "note_fetcher", "commit"] {
            mock.trouble(step, Trouble::Error(full.clone()));
            let noted = storage.send(NoteFetcher(record())).await.unwrap();
            assert_eq!(noted, Err(full.clone()), "{step}");
        }
        for step in ["begin", "forget_fetcher", "commit"] {
            mock.trouble(step, Trouble::Error(full.clone()));
            let forgotten = storage.send(ForgetFetcher("links".into())).await.unwrap();
            assert_eq!(forgotten, Err(full.clone()), "{step}");
        }
        mock.trouble("fetcher_records", Trouble::Error(full.clone()));
        assert_eq!(storage.send(KnownFetchers).await.unwrap(), Err(full));
        storage.send(NoteFetcher(record())).await.unwrap().unwrap();
        assert_eq!(storage.send(KnownFetchers).await.unwrap(), Ok(vec![record()]));
    }

    /// A store that cannot go on ends the actor, as it does for every other request.
    #[actix::test]
    async fn a_lost_store_ends_the_actor() {
        let mock = MockStore::default();
        let (storage, end) = start(&mock);
        let gone = StoreError::Fatal("gone".to_owned());
        mock.trouble("fetcher_records", Trouble::Error(gone.clone()));
        assert_eq!(storage.send(KnownFetchers).await.unwrap(), Err(gone.clone()));
        assert_eq!(end.await, Ok(gone));
    }
}
