//! Single tasks, added by connections and accepted from spools. Part of the StorageActor.

use actix::prelude::*;
use tokio::time::Instant;

use super::StorageActor;
use super::messages::{AcceptEntries, AddTasks, ForgetAccepted, KnownAccepted};
use super::reply::Deferred;
use crate::store::Added;

impl Handler<AddTasks> for StorageActor {
    type Result = Deferred<Vec<Added>>;

    fn handle(&mut self, AddTasks(tasks): AddTasks, ctx: &mut Self::Context) -> Self::Result {
        let now = self.clock.now();
        self.mutate(ctx, |store| tasks.iter().map(|task| store.add_task(task, now)).collect())
    }
}

impl Handler<AcceptEntries> for StorageActor {
    type Result = MessageResult<AcceptEntries>;

    /// In a transaction of its own, which the store syncs: it has ended when this is answered.
    fn handle(
        &mut self,
        AcceptEntries(entries): AcceptEntries,
        ctx: &mut Self::Context,
    ) -> Self::Result {
        // Who is in the open one is told by the commit itself.
        let _ = self.commit();
        let accepted = self.store.accept(&entries, self.clock.now());
        if accepted.is_ok() {
            (self.dirty, self.roused) = (true, true);
            self.last_commit = Instant::now();
            self.complaints.succeeded();
            self.serve_waiting(ctx);
        }
        MessageResult(accepted.map_err(|error| self.noted(error)))
    }
}

impl Handler<KnownAccepted> for StorageActor {
    type Result = MessageResult<KnownAccepted>;

    fn handle(&mut self, _: KnownAccepted, _: &mut Self::Context) -> Self::Result {
        let known = self.store.accepted();
        MessageResult(known.map_err(|error| self.noted(error)))
    }
}

impl Handler<ForgetAccepted> for StorageActor {
    type Result = Deferred<()>;

    fn handle(
        &mut self,
        ForgetAccepted(ids): ForgetAccepted,
        ctx: &mut Self::Context,
    ) -> Self::Result {
        self.mutate(ctx, |store| ids.iter().try_for_each(|id| store.forget_accepted(id)))
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;
    use crate::clock::ManualClock;
    use crate::model::{Key, Row};
    use crate::storage::messages::{Dispatch, Wait, Work};
    use crate::store::{EntryId, Holder, SpoolEntry, StoreError};
    use crate::testing::{MockStore, Trouble};
    use crate::vital::Vital;

    fn start(mock: &MockStore) -> Addr<StorageActor> {
        let (vital, _end) = Vital::new();
        let (drained, _) = oneshot::channel();
        let clock = Box::new(ManualClock::at(100));
        StorageActor::new(Box::new(mock.clone()), clock, vital, drained).start()
    }

    fn task(key: &str) -> Row {
        Row { key: Key::new(key).unwrap(), payload: "1".to_owned() }
    }

    fn entry(name: &str) -> SpoolEntry {
        let id = EntryId { spool: "s".into(), name: name.into(), inode: 7, born: 8, checksum: 9 };
        SpoolEntry { id, task: task(name) }
    }

    /// Tasks that are added share a commit, after which each is told, and whoever waits for work gets it.
    #[actix::test]
    async fn what_is_added_is_told_after_the_commit() {
        let mock = MockStore::default();
        let storage = start(&mock);
        let full = StoreError::Full("disk".to_owned());
        mock.trouble("commit", Trouble::Error(full.clone()));
        assert_eq!(storage.send(AddTasks(vec![task("a")])).await.unwrap(), Err(full));
        let holder = Holder { worker: "w".into(), lease_seconds: 60 };
        mock.inside().jobs.clear();
        let waiting = storage.send(Wait { holder });
        assert!(matches!(
            storage.send(Dispatch { holder: None }).await.unwrap(),
            Ok(Work::Nothing)
        ));
        let (a, b) = (task("a"), task("b"));
        let added = storage.send(AddTasks(vec![a, b.clone(), b])).await.unwrap().unwrap();
        assert_eq!(added, [Added::Added, Added::Added, Added::Known]);
        match waiting.await.unwrap().unwrap() {
            Work::Job(job) => assert_eq!(job.job().key.as_str(), "a"),
            other => panic!("no job: {other:?}"),
        }
    }

    /// Entries are accepted in a transaction of their own, behind the one that is open; and remembered until
    /// they are forgotten.
    #[actix::test]
    async fn entries_are_accepted_apart() {
        let mock = MockStore::default();
        let storage = start(&mock);
        let added = storage.send(AddTasks(vec![task("a")]));
        let accepted = storage.send(AcceptEntries(vec![entry("b"), entry("b")])).await.unwrap();
        assert_eq!(accepted, Ok(vec![Added::Added, Added::Known]));
        assert_eq!(added.await.unwrap(), Ok(vec![Added::Added]));
        assert_eq!(mock.calls(), ["begin", "add task a 1", "commit", "accept 2", "add task b 1"]);
        let known = storage.send(KnownAccepted).await.unwrap().unwrap();
        assert_eq!(known, [entry("b").id]);
        storage.send(ForgetAccepted(known)).await.unwrap().unwrap();
        assert_eq!(storage.send(KnownAccepted).await.unwrap(), Ok(Vec::new()));
        let full = StoreError::Full("disk".to_owned());
        mock.trouble("accept", Trouble::Error(full.clone()));
        assert_eq!(storage.send(AcceptEntries(vec![entry("c")])).await.unwrap(), Err(full));
    }
}
