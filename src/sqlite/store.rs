//! The trait [`Store`], operation by operation: each is one call of the module that knows how, inside
//! the transaction that the StorageActor opened.

use shiftboss_actors::model::{Attempt, Idle, Key, Run, UnixSeconds};
use shiftboss_actors::store::{
    Batch, Checkpoint, Dispatch, Holder, InputDirectory, Lost, Requeued, Store, StoreResult,
    StoredRun, Told,
};

use super::error::sorted;
use super::{SqliteStore, damage};

impl Store for SqliteStore {
    fn begin(&mut self) -> StoreResult<()> {
        self.leave_room();
        self.statement("BEGIN IMMEDIATE")?;
        let noticed = self.notice_others();
        if noticed.is_err() {
            self.roll_back()?;
        }
        noticed
    }

    fn commit(&mut self) -> StoreResult<()> {
        let flushed = self.tally.flush(&self.connection).map_err(sorted);
        let result = flushed.and_then(|()| self.statement("COMMIT"));
        match result {
            Ok(()) => self.checkpoints.after_commit(&self.connection),
            Err(_) => self.roll_back()?,
        }
        self.courtesy.released();
        result
    }

    fn note_corrupt(&mut self, fault: &str) {
        if let Some((database, _)) = self.files.first() {
            damage::mark(database, fault);
        }
    }

    fn in_transaction(&self) -> bool {
        !self.connection.is_autocommit()
    }

    fn runs(&mut self) -> StoreResult<Vec<StoredRun>> {
        self.all_runs().map_err(sorted)
    }

    fn register_run(&mut self, run: &Run) -> StoreResult<StoredRun> {
        self.mutation(|store| store.register(run))
    }

    fn add_rows(&mut self, batch: &Batch) -> StoreResult<()> {
        self.mutation(|store| store.add(batch))
    }

    fn prune(&mut self, run: &Run, limit: usize) -> StoreResult<bool> {
        self.mutation(|store| store.prune_step(run, limit))
    }

    fn begin_deletion(&mut self, run: &Run) -> StoreResult<()> {
        self.mutation(|store| store.mark_deleting(run))
    }

    fn delete_runs(&mut self, runs: &[Run], limit: usize) -> StoreResult<usize> {
        self.mutation(|store| store.delete_step(runs, limit))
    }

    fn dispatch(&mut self, now: UnixSeconds, holder: Option<&Holder>) -> StoreResult<Dispatch> {
        self.mutation(|store| store.next_job(now, holder).map_err(sorted))
    }

    fn finish(&mut self, key: &Key, exit_code: i64, now: UnixSeconds) -> StoreResult<()> {
        self.mutation(|store| store.end_job(key.as_str(), exit_code, now).map_err(sorted))?;
        Ok(())
    }

    fn finish_and_dispatch(
        &mut self,
        key: &Key,
        exit_code: i64,
        now: UnixSeconds,
    ) -> StoreResult<Dispatch> {
        self.mutation(|store| {
            store.end_job(key.as_str(), exit_code, now).map_err(sorted)?;
            store.next_job(now, None).map_err(sorted)
        })
    }

    fn undo(&mut self, key: &Key, attempt: Attempt) -> StoreResult<bool> {
        self.mutation(|store| store.undo_dispatch(key, attempt).map_err(sorted))
    }

    fn finish_attempt(
        &mut self,
        attempt: Attempt,
        exit_code: i64,
        now: UnixSeconds,
    ) -> StoreResult<Told> {
        self.mutation(|store| store.end_attempt(attempt, exit_code, now).map_err(sorted))
    }

    fn release(&mut self, attempt: Attempt, now: UnixSeconds) -> StoreResult<Told> {
        self.mutation(|store| store.give_back(attempt, now).map_err(sorted))
    }

    fn expire(&mut self, attempt: Attempt, now: UnixSeconds) -> StoreResult<Option<Lost>> {
        self.mutation(|store| store.lose(attempt, now).map_err(sorted))
    }

    fn has_work(&mut self, now: UnixSeconds) -> StoreResult<bool> {
        self.is_any_eligible(now).map_err(sorted)
    }

    fn is_held(&mut self, attempt: Attempt) -> StoreResult<bool> {
        self.leased(attempt.0).map(|leased| leased.is_some()).map_err(sorted)
    }

    fn leases(&mut self) -> StoreResult<Vec<(Attempt, u32)>> {
        self.all_leases().map_err(sorted)
    }

    fn in_flight(&mut self, now: UnixSeconds) -> StoreResult<u64> {
        self.count_in_flight(now).map_err(sorted)
    }

    fn why_idle(&mut self, now: UnixSeconds) -> StoreResult<Idle> {
        self.reason_for_idleness(now).map_err(sorted)
    }

    fn retry(&mut self, key: &Key, fetcher: Option<&str>) -> StoreResult<Option<u64>> {
        self.mutation(|store| store.rearm_key(key, fetcher).map_err(sorted))
    }

    fn requeue(&mut self, key: &Key, now: UnixSeconds) -> StoreResult<Requeued> {
        self.mutation(|store| store.requeue_key(key, now).map_err(sorted))
    }

    fn set_paused(&mut self, paused: bool) -> StoreResult<()> {
        self.mutation(|store| store.pause(paused))
    }

    fn set_aside(&mut self, name: &str, reason: &str, now: UnixSeconds) -> StoreResult<()> {
        let sql = "INSERT INTO shiftboss_aside (name, reason, since) VALUES (?1, ?2, ?3)
            ON CONFLICT (name) DO UPDATE SET reason = excluded.reason";
        self.mutation(|store| store.execute(sql, (name, reason, now)))
    }

    fn clear_aside(&mut self, name: &str) -> StoreResult<()> {
        self.mutation(|store| store.execute("DELETE FROM shiftboss_aside WHERE name = ?1", [name]))
    }

    fn note_input(&mut self, input: &InputDirectory, now: UnixSeconds) -> StoreResult<()> {
        self.mutation(|store| store.set_input(input, now))
    }

    fn idle(&mut self) -> StoreResult<Checkpoint> {
        self.look_after()
    }

    fn close(&mut self) -> StoreResult<()> {
        self.shut()
    }
}
