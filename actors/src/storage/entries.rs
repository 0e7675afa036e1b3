//! Entries of a spool, entering and leaving the queue. Part of the StorageActor.

use actix::prelude::*;

use super::StorageActor;
use super::messages::{Enter, ForgetEntries, KnownEntries, WithdrawEntries};
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

impl Handler<WithdrawEntries> for StorageActor {
    type Result = Deferred<Vec<bool>>;

    fn handle(
        &mut self,
        WithdrawEntries(names): WithdrawEntries,
        ctx: &mut Self::Context,
    ) -> Self::Result {
        self.mutate_many(ctx, |store| names.iter().map(|name| store.withdraw_entry(name)).collect())
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;
    use crate::clock::ManualClock;
    use crate::model::{Key, Row};
    use crate::store::{Entry, StoreError};
    use crate::testing::{MockStore, Trouble};
    use crate::vital::Vital;

    fn enter() -> Enter {
        let row = Row { key: Key::new("alpha").unwrap(), payload: "1".to_owned() };
        Enter(vec![Entry { name: "e".into(), row }])
    }

    /// An entry has entered when that is on disk, and what is told of entries is on disk.
    #[actix::test]
    async fn entries_are_told_of_after_the_commit() {
        let mock = MockStore::default();
        let (vital, _end) = Vital::new();
        let (drained, _) = oneshot::channel();
        let clock = Box::new(ManualClock::at(100));
        let storage = StorageActor::new(Box::new(mock.clone()), clock, vital, drained).start();
        let full = StoreError::Full("disk".to_owned());
        mock.trouble("commit", Trouble::Error(full.clone()));
        assert_eq!(storage.send(enter()).await.unwrap(), Err(full));
        let (entered, known) = (storage.send(enter()), storage.send(KnownEntries));
        assert_eq!(entered.await.unwrap(), Ok(vec![Entered::Added]));
        assert!(!known.await.unwrap().unwrap().is_empty());
        let calls = mock.calls();
        assert_eq!(calls[calls.len() - 3..], ["enter e", "commit", "entries"]);
        storage.send(ForgetEntries(vec!["e".into()])).await.unwrap().unwrap();
        assert!(storage.send(KnownEntries).await.unwrap().unwrap().is_empty());
    }
}
