//! Leased attempts: what protocol 2 says about them, and what happens when a lease expires.
//!
//! Called by the store's operations of those names. Time is the actor's: here a lease is a row of
//! `shiftboss_deliveries` that excludes its key until somebody says that it ended. `shiftboss_expired_leases`
//! counts, by queue row, the expired leases.

use rusqlite::Result;
use shiftboss_actors::store::{Ack, CompleteAttempt, ExpiredLease, Requeued, Retried};
use shiftboss_protocol::model::{Attempt, IDLE_COUNT_MAX, Idle, Key, TASKS_FETCHER, UnixSeconds};

use super::attempts::{EXPIRED, EndedAttempt, RELEASED, done};
use super::query::Query;
use super::rows::{Delivery, RunId};
use super::schema::TASKS_ID;
use super::session::Session;

/// Jobs in flight, up to ?2 leased ones and up to ?2 classic ones that were started from ?1 on.
pub(super) const IN_FLIGHT: &str = "SELECT
    (SELECT count(*) FROM (
        SELECT 1 FROM shiftboss_deliveries INDEXED BY shiftboss_leased
        WHERE lease IS NOT NULL LIMIT ?2))
    + (SELECT count(*) FROM (
        SELECT 1 FROM log INDEXED BY shiftboss_unfinished
        WHERE finished IS NULL AND started >= ?1 AND NOT EXISTS (
            SELECT 1 FROM shiftboss_deliveries AS held
            WHERE held.attr_path = log.attr_path AND held.lease IS NOT NULL)
        LIMIT ?2))";

impl Session<'_> {
    pub(super) fn complete_attempt(
        &mut self,
        &CompleteAttempt { attempt, exit_code }: &CompleteAttempt,
        now: UnixSeconds,
    ) -> Result<Ack> {
        if let Some(key) = self.queue.cache.take_leased(attempt) {
            // The usual end: nothing else is known of the key.
            self.end_job(&key, exit_code, now)?;
            return Ok(Ack::Recorded);
        }
        let Some((key, delivery)) = self.leased(attempt.0)? else {
            return self.end_ended(attempt, exit_code, now);
        };
        if !self.end_job(&key, exit_code, now)? {
            // Somebody removed the log row meanwhile. The job was done all the same.
            self.log_end(&key, delivery.started, now, exit_code)?;
            self.complete_delivery(&key, exit_code, now)?;
        }
        if self.leased(attempt.0)?.is_some() {
            // Somebody ended it in the log, without triggers.
            self.take_back(&key, &delivery, done(exit_code), now, false)?;
            if delivery.fetcher_id == TASKS_ID {
                self.end_task(&key, delivery.run_started, exit_code)?;
            }
        }
        Ok(Ack::Recorded)
    }

    /// The end of an attempt that ended before.
    fn end_ended(&mut self, attempt: Attempt, exit_code: i64, now: UnixSeconds) -> Result<Ack> {
        let Some((key, ended)) = self.ended(attempt.0)? else {
            return Ok(Ack::Unknown);
        };
        if ended.outcome != "expired" {
            return Ok(if ended.outcome == "done" { Ack::Recorded } else { Ack::Stale });
        }
        // It counts unless the key was handed to somebody since.
        let sql =
            "SELECT NOT EXISTS (SELECT 1 FROM queue WHERE attr_path = ?1 AND last_served > ?2)
            AND NOT EXISTS (SELECT 1 FROM shiftboss_last_served
                WHERE attr_path = ?1 AND attempt > ?2)
            AND NOT EXISTS (SELECT 1 FROM shiftboss_attempts INDEXED BY shiftboss_returned_attempts
                WHERE attr_path = ?1 AND attempt > ?2 AND outcome IN ('released', 'expired'))";
        if !self.value(sql, (&key, attempt.0))? {
            return Ok(Ack::Stale);
        }
        self.end_late(&key, ended, exit_code, now)?;
        Ok(Ack::Recorded)
    }

    /// A job ended after its lease: its row is dispatched again, to nobody, and ended.
    fn end_late(
        &mut self,
        key: &str,
        mut late: EndedAttempt,
        exit_code: i64,
        now: UnixSeconds,
    ) -> Result<()> {
        let Delivery { attempt, fetcher_id, run_started, started, .. } = late.delivery;
        let sql = "UPDATE queue SET is_dequeued = 1 WHERE attr_path = ?1 AND fetcher_id = ?2
            AND fetcher_run_started <= ?3 AND (fetcher_id <> 0 OR fetcher_run_started = ?3)
            AND is_dequeued = 0 RETURNING fetcher_id, fetcher_run_started";
        self.mark_rows(sql, (key, fetcher_id, run_started), -1)?;
        self.set_last_served(key, fetcher_id, attempt)?;
        let before = "SELECT (SELECT started FROM log WHERE attr_path = ?1)";
        late.delivery.prev_started = self.value(before, [key])?;
        self.queue.counters.hours.recount_late(&late, done(exit_code), now);
        let number = self.queue.counters.next_end(self.connection)?;
        let sql = "UPDATE shiftboss_attempts
            SET outcome = 'done', finished = ?2, exit_code = ?3, ended = ?4 WHERE attempt = ?1";
        self.run(sql, (attempt, now, exit_code, number))?;
        // Earlier classic attempts would bring the row back.
        self.retire_all_expired(key, |delivery| delivery.fetcher_id == fetcher_id)?;
        self.forget_expired_leases(key, late.delivery.run())?;
        self.log_end(key, started, now, exit_code)?;
        self.queue.cache.forget_key(key);
        if fetcher_id == TASKS_ID {
            self.end_task(key, run_started, exit_code)?;
        }
        let task = self.ending(key, late.delivery.run())?;
        self.end_late_bump(attempt)?;
        self.recompute(key)?;
        self.settle(key, Some(task), exit_code, now)?;
        self.arm_if_bumped(key)
    }

    /// Writes a log row of a job that ended, whatever was there before.
    fn log_end(
        &mut self,
        key: &str,
        started: UnixSeconds,
        finished: UnixSeconds,
        exit_code: i64,
    ) -> Result<()> {
        let sql = "INSERT INTO log (attr_path, started, finished, exit_code)
            VALUES (?1, ?2, ?3, ?4) ON CONFLICT (attr_path) DO UPDATE
            SET started = excluded.started, finished = excluded.finished,
                exit_code = excluded.exit_code";
        self.run(sql, (key, started, finished, exit_code))?;
        self.queue.counters.count_done(finished / 60, exit_code);
        self.set_last_started(key, Some(started))
    }

    /// The attempt is the asker's from now on: its worker may have come from elsewhere.
    pub(super) fn heartbeat(&self, attempt: Attempt) -> Result<Ack> {
        if self.leased(attempt.0)?.is_none() {
            return Ok(Ack::Stale);
        }
        if self.lease_of(attempt)? != self.relay {
            self.take_lease(attempt)?;
        }
        Ok(Ack::Recorded)
    }

    pub(super) fn release_attempt(&mut self, attempt: Attempt, now: UnixSeconds) -> Result<Ack> {
        if let Some((key, delivery)) = self.leased(attempt.0)? {
            self.take_back(&key, &delivery, RELEASED, now, true)?;
            return Ok(Ack::Recorded);
        }
        Ok(match self.ended(attempt.0)? {
            Some((_, ended)) if ended.outcome == "released" => Ack::Recorded,
            Some(_) => Ack::Stale,
            None => Ack::Unknown,
        })
    }

    /// Gives a key's job back that is in flight, whoever has it.
    pub(super) fn requeue_key(&mut self, key: &Key, now: UnixSeconds) -> Result<Requeued> {
        let key = key.as_str();
        let expired = self.queue.policy.expired(now);
        let is_held =
            |delivery: &Delivery| delivery.worker.is_some() || delivery.started >= expired;
        self.extract(key)?;
        if let Some(delivery) = self.deliveries(key)?.pop().filter(is_held) {
            self.take_back(key, &delivery, RELEASED, now, true)?;
            return Ok(Requeued::Back(Attempt(delivery.attempt)));
        }
        Ok(if self.is_listed(key)? { Requeued::NotInFlight } else { Requeued::Unknown })
    }

    pub(super) fn is_listed(&self, key: &str) -> Result<bool> {
        let sql = "SELECT EXISTS (SELECT 1 FROM queue WHERE attr_path = ?1)";
        self.value(sql, [key])
    }

    pub(super) fn expire_lease(
        &mut self,
        attempt: Attempt,
        now: UnixSeconds,
    ) -> Result<Option<ExpiredLease>> {
        // Who sees to it by now knows when it ends.
        let is_own = self.lease_of(attempt)? == self.relay;
        let Some((key, delivery)) = self.leased(attempt.0)?.filter(|_| is_own) else {
            return Ok(None);
        };
        let dead_letter = delivery.delivery_count >= self.queue.max_expired_leases;
        let single = delivery.fetcher_id == TASKS_ID;
        if dead_letter {
            // Earlier classic attempts of the row would bring it back.
            let of_row = |other: &Delivery| other.run() == delivery.run();
            self.retire_all_expired(&key, |other| {
                other.attempt < delivery.attempt && of_row(other)
            })?;
        }
        self.take_back(&key, &delivery, EXPIRED, now, !dead_letter)?;
        self.record_expired_lease(&key, &delivery, dead_letter)?;
        self.recompute(&key)?;
        if dead_letter && single {
            self.set_task_ended(delivery.run_started, "dead_letter")?;
            self.derive_row(&key)?;
        }
        if dead_letter {
            self.arm_if_bumped(&key)?;
        }
        let worker = delivery.worker.unwrap_or_default();
        Ok(Some(ExpiredLease { key: Key::stored(&key), worker, dead_letter, single }))
    }

    fn record_expired_lease(
        &self,
        key: &str,
        delivery: &Delivery,
        dead_letter: bool,
    ) -> Result<()> {
        let sql = "INSERT INTO shiftboss_expired_leases
                (fetcher_id, run_started, attr_path, expired_leases, dead_letter)
            SELECT ?1, ?2, ?3, ?4, ?5 WHERE EXISTS (SELECT 1 FROM queue
                WHERE fetcher_run_started = ?2 AND fetcher_id = ?1 AND attr_path = ?3)
            ON CONFLICT (fetcher_id, run_started, attr_path) DO UPDATE
            SET expired_leases = excluded.expired_leases, dead_letter = excluded.dead_letter";
        let Delivery { fetcher_id, run_started, delivery_count, .. } = delivery;
        self.run(sql, (fetcher_id, run_started, key, delivery_count, dead_letter))
    }

    pub(super) fn forget_expired_leases(&self, key: &str, run: RunId) -> Result<()> {
        let sql = "DELETE FROM shiftboss_expired_leases
            WHERE fetcher_id = ?1 AND run_started = ?2 AND attr_path = ?3";
        self.run(sql, (run.fetcher_id, run.started, key))
    }

    pub(super) fn all_leases(&self) -> Result<Vec<(Attempt, u32)>> {
        let sql = "SELECT attempt, lease FROM shiftboss_deliveries INDEXED BY shiftboss_leased
            WHERE lease IS NOT NULL AND (SELECT relay FROM shiftboss_relay_leases AS own
                WHERE own.attempt = shiftboss_deliveries.attempt) IS ?1";
        let leases = self.rows::<(i64, u32)>(sql, [self.relay])?;
        Ok(leases.into_iter().map(|(attempt, seconds)| (Attempt(attempt), seconds)).collect())
    }

    /// Jobs that are out: leased ones, and classic ones whose lease lives. Of a relay, those that are leased through it.
    pub(super) fn count_in_flight(&self, now: UnixSeconds) -> Result<u64> {
        if self.relay.is_some() {
            return Ok(self.all_leases()?.len() as u64);
        }
        let sql =
            "SELECT count(*) FROM shiftboss_in_flight WHERE lease IS NOT NULL OR started >= ?1";
        let since = self.queue.policy.expired(now);
        self.value(sql, [since]).map(i64::cast_unsigned)
    }

    /// Why there may be nothing to hand out. Each part stops counting at the limit.
    pub(super) fn reason_for_idleness(&self, now: UnixSeconds) -> Result<Idle> {
        if self.queue.paused {
            let waiting = self.first_eligible(now, IDLE_COUNT_MAX as usize)?.len();
            return Ok(Idle::Paused(u32::try_from(waiting).unwrap_or(IDLE_COUNT_MAX)));
        }
        let since = self.queue.policy.expired(now);
        let jobs: u32 = self.value(IN_FLIGHT, (since, IDLE_COUNT_MAX))?;
        Ok(if jobs == 0 { Idle::Nothing } else { Idle::Busy(jobs.min(IDLE_COUNT_MAX)) })
    }

    /// Puts dispatched rows of a key back that are not in flight; of one fetcher only, if one is named.
    pub(super) fn rearm_key(&mut self, key: &Key, fetcher: Option<&str>) -> Result<Retried> {
        let key = key.as_str();
        if !self.is_listed(key)? {
            return Ok(Retried::Unknown);
        }
        if self.is_on_hold(key)? {
            return Ok(Retried::Held);
        }
        self.arm(key, fetcher).map(Retried::Back)
    }

    /// Puts back what has ended of a key; says how many rows and tasks.
    pub(super) fn arm(&mut self, key: &str, fetcher: Option<&str>) -> Result<u64> {
        self.forget_delay(key, fetcher)?;
        let is_meant = fetcher.is_none_or(|name| name == TASKS_FETCHER);
        let tasks = if is_meant { self.retry_tasks(key)? } else { 0 };
        self.extract(key)?;
        let sql = "UPDATE queue SET is_dequeued = 0 WHERE attr_path = ?1 AND is_dequeued <> 0
            AND (?2 IS NULL OR fetcher_id = (SELECT fetcher_id FROM fetchers WHERE name = ?2))
            AND NOT EXISTS (SELECT 1 FROM shiftboss_deliveries AS delivery
                WHERE delivery.attr_path = ?1 AND delivery.fetcher_id = queue.fetcher_id)
            AND NOT EXISTS (SELECT 1 FROM queue AS newer
                WHERE newer.attr_path = ?1 AND +newer.fetcher_id = queue.fetcher_id
                    AND +newer.fetcher_run_started > queue.fetcher_run_started)
            RETURNING fetcher_id, fetcher_run_started";
        let runs = self.mark_rows(sql, (key, fetcher), 1)?;
        runs.iter().try_for_each(|run| self.forget_expired_leases(key, *run))?;
        self.recompute(key)?;
        Ok(runs.len() as u64 + tasks)
    }
}
