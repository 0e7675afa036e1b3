//! Dispatches: what one writes, and what its end writes (spec 2 and 5).
//!
//! [`dispatch`](super::dispatch) has chosen the key before. Most keys have
//! one row: they take the short way. All others are left to the one rule ([`derived_state`](super::derived_state)).

use std::sync::Arc;

use rusqlite::{OptionalExtension, Result, Row as SqlRow};
use shiftboss_actors::store::{Dispatched, LeaseHolder};
use shiftboss_protocol::model::{Attempt, Key, Row, UnixSeconds};

use super::attempts::done;
use super::candidates::{Candidate, History, LogRow, PLAIN_STATE, Plain, Rule, candidates};
use super::dispatch::disagreeing_indexes;
use super::dispatch_cache::PlainDelivery;
use super::options::Policy;
use super::query::{FromRow, Query};
use super::retries::EndedTask;
use super::rows::Delivery;
use super::schema::TASKS_ID;
use super::session::Session;

struct DispatchRecord<'a> {
    key: &'a str,
    /// All rows of the key.
    rows: &'a [Candidate],
    /// The one that is dispatched.
    row: &'a Candidate,
    history: &'a History,
    attempt: Attempt,
    now: UnixSeconds,
    /// To whom it is leased; `None`: to a classic worker, by the policy's lease.
    holder: Option<&'a LeaseHolder>,
}

impl DispatchRecord<'_> {
    /// The undispatched rows of the fetcher, in every run: all of them are dispatched now.
    fn marked(&self) -> impl Iterator<Item = &Candidate> {
        self.rows.iter().filter(|row| row.fetcher_id == self.row.fetcher_id && !row.again)
    }

    fn delivery(&self, delivery_count: i64, before: Option<LogRow>) -> Delivery {
        Delivery {
            attempt: self.attempt.0,
            fetcher_id: self.row.fetcher_id,
            run_started: self.row.run_started,
            started: self.now,
            delivery_count,
            worker: self.holder.map(|holder| Arc::clone(&holder.worker)),
            previous: self.row.last_served,
            prev_started: before.and_then(|(_, started, ..)| started),
        }
    }
}

impl Session<'_> {
    /// Dispatches the row of a key whose turn it is; `None` if none of them may be.
    pub(super) fn hand_out(
        &mut self,
        key: &str,
        plain: Option<Plain>,
        now: UnixSeconds,
        holder: Option<&LeaseHolder>,
    ) -> Result<Option<Dispatched>> {
        let known = match plain {
            Some((history, row)) => Some((history, vec![row])),
            None => candidates(self, key)?,
        };
        let Some((history, mut rows)) = known else {
            return Ok(None);
        };
        let expired = self.queue.policy.expired(now);
        let rule = Rule { policy: self.queue.policy, partitions: &self.queue.partitions, expired };
        let Some(chosen) = rule.choose(&rows) else {
            return Ok(None);
        };
        let attempt = self.queue.counters.next_attempt();
        let (row, history) = (&rows[chosen], &history);
        let record = DispatchRecord { key, rows: &rows, row, history, attempt, now, holder };
        self.record_dispatch(&record)?;
        self.bump_goes_out(key, rows[chosen].run(), attempt.0)?;
        let payload = rows.swap_remove(chosen).payload;
        Ok(Some(Dispatched::Job(attempt, Row { key: Key::stored(key), payload })))
    }

    fn record_dispatch(&mut self, record: &DispatchRecord<'_>) -> Result<()> {
        let DispatchRecord { key, rows, row, history, .. } = *record;
        let fair = matches!(self.queue.policy, Policy::Fair { .. });
        self.queue.cache.note_start(record.attempt);
        self.queue.cache.take_plain(key);
        // Rows of older runs of the same fetcher are nobody's any more.
        let is_older = |other: &&Candidate| {
            other.expired_leases.is_some()
                && other.fetcher_id == row.fetcher_id
                && other.run_started != row.run_started
        };
        for older in rows.iter().filter(is_older) {
            self.forget_expired_leases(key, older.run())?;
        }
        if history.has_deliveries {
            // Before the log forgets when an earlier dispatch began.
            self.extract(key)?;
        }
        let (log_rowid, before) = self.start_log(key, record.now, history.log)?;
        let is_plain = fair && row.state == PLAIN_STATE;
        if is_plain && record.holder.is_none() {
            self.mark_plain(record, before)?;
            // The clock may have been set back.
            let expired = &mut self.queue.cache.expired;
            *expired = Some((record.now.saturating_sub(1), i64::MAX)).min(*expired);
        } else {
            if fair {
                self.record_delivery(record, before)?;
            }
            self.mark(record, fair)?;
        }
        if is_plain {
            let delivery = record.delivery(1, before);
            self.queue.cache.remember(key, PlainDelivery { log_rowid, delivery });
        }
        for marked in record.marked() {
            self.queue.counters.count_pending(marked.run(), -1);
        }
        Ok(())
    }

    /// The row of a plain key is marked, and is the record of its dispatch: one write for two, and none at its end.
    fn mark_plain(&self, record: &DispatchRecord<'_>, before: Option<LogRow>) -> Result<()> {
        let DispatchRecord { key, row, now, attempt, .. } = *record;
        let (_, started, finished, exit_code) = before.unwrap_or_default();
        let sql =
            "UPDATE queue SET is_dequeued = 1, state = -2, last_started = ?2, last_served = ?3,
                prev_started = ?4, prev_finished = ?5, prev_exit_code = ?6, prev_last_served = ?7
            WHERE rowid = ?1 AND state = 1";
        let values = (row.rowid, now, attempt.0, started, finished, exit_code, row.last_served);
        match self.change(sql, values)? {
            0 => Err(disagreeing_indexes(key)),
            _ => Ok(()),
        }
    }

    fn mark(&self, record: &DispatchRecord<'_>, fair: bool) -> Result<()> {
        let state = if fair && record.holder.is_none() { -1 } else { 0 };
        let last_served = if fair { Some(record.attempt.0) } else { record.row.last_served };
        let DispatchRecord { key, rows, row, now, .. } = *record;
        if rows.len() == 1 {
            let mark = "UPDATE queue
                SET is_dequeued = 1, last_started = ?2, state = ?3, last_served = ?4
                WHERE rowid = ?1 AND state <> 0";
            return match self.change(mark, (row.rowid, now, state, last_served))? {
                0 => Err(disagreeing_indexes(key)),
                _ => Ok(()),
            };
        }
        let served = "UPDATE queue SET last_served = ?3 WHERE attr_path = ?1 AND +fetcher_id = ?2";
        self.run(served, (key, row.fetcher_id, last_served))?;
        let mark = "UPDATE queue SET is_dequeued = 1
            WHERE attr_path = ?1 AND fetcher_id = ?2 AND is_dequeued = 0";
        self.run(mark, (key, row.fetcher_id))?;
        self.set_last_started(key, Some(now))?;
        self.recompute(key)
    }

    /// Says which row of the log that is, and what it was before.
    fn start_log(
        &self,
        key: &str,
        now: UnixSeconds,
        known: Option<LogRow>,
    ) -> Result<(i64, Option<LogRow>)> {
        let mut before = known;
        if before.is_none() {
            let sql = "INSERT INTO log (attr_path, started) VALUES (?1, ?2)
                ON CONFLICT (attr_path) DO NOTHING";
            if self.change(sql, (key, now))? > 0 {
                return Ok((self.connection.last_insert_rowid(), None));
            }
            // Somebody set the row's last_started to NULL by hand: the key ran all the same.
            let sql = "SELECT rowid, started, finished, exit_code FROM log WHERE attr_path = ?1";
            before = self.row(sql, [key]).optional()?;
        }
        let Some((rowid, ..)) = before else {
            return Err(disagreeing_indexes(key));
        };
        let sql = "UPDATE log SET started = ?2, finished = NULL, exit_code = NULL
            WHERE rowid = ?1";
        self.run(sql, (rowid, now))?;
        Ok((rowid, before))
    }

    /// Keeps what undoing this dispatch must restore.
    fn record_delivery(
        &mut self,
        record: &DispatchRecord<'_>,
        before: Option<LogRow>,
    ) -> Result<()> {
        let DispatchRecord { key, rows, row, history, .. } = *record;
        let earlier = if history.has_deliveries {
            // Those whose row is gone have nothing left to lose.
            let is_gone = |old: &Delivery| !rows.iter().any(|row| old.run() == row.run());
            self.retire_all_expired(key, is_gone)?
        } else {
            Vec::new()
        };
        let same = earlier.iter().filter(|delivery| delivery.run() == row.run());
        // Of a classic attempt that is out still the row is dispatched; its lease may have expired since.
        let classic = same.filter(|_| row.again).map(|delivery| delivery.delivery_count).max();
        let count = 1 + classic.max(row.expired_leases).unwrap_or(0);
        let delivery = record.delivery(count, before);
        let sql = "INSERT INTO shiftboss_deliveries (attr_path, attempt, fetcher_id, run_started,
                started, delivery_count, worker, lease, prev_started, prev_finished, prev_exit_code,
                prev_last_served, marked_runs)
            VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)";
        let (_, started, finished, exit_code) = before.unwrap_or_default();
        let marked: Vec<_> = record.marked().map(|row| row.run_started.to_string()).collect();
        let values = (
            key,
            delivery.attempt,
            delivery.fetcher_id,
            delivery.run_started,
            delivery.started,
            delivery.delivery_count,
            &delivery.worker,
            record.holder.map(|holder| holder.lease_seconds),
            started,
            finished,
            exit_code,
            row.last_served,
            format!("[{}]", marked.join(",")),
        );
        self.run(sql, values)
    }

    /// Records the end of a key's job. False: the log does not know the key, and nothing changes.
    pub(super) fn end_job(&mut self, key: &str, exit_code: i64, now: UnixSeconds) -> Result<bool> {
        let plain = match self.queue.cache.take_plain(key) {
            None => self.plain_delivery(key)?,
            known => known,
        };
        let known: Option<(i64, Option<i64>, Option<i64>)> = match &plain {
            Some(plain) => Some((plain.log_rowid, None, None)),
            None => {
                let sql = "SELECT rowid, finished, exit_code FROM log WHERE attr_path = ?1";
                self.row(sql, [key]).optional()?
            }
        };
        let Some((log_rowid, finished, code_before)) = known else {
            return Ok(false);
        };
        let sql = "UPDATE log SET finished = ?2, exit_code = ?3 WHERE rowid = ?1";
        if self.change(sql, (log_rowid, now, exit_code))? == 0 {
            return Err(disagreeing_indexes(key));
        }
        match (plain, finished) {
            (Some(plain), _) => {
                self.complete_plain(key, &plain, exit_code, now)?;
                let task = EndedTask { run: plain.delivery.run(), retried: 0 };
                self.settle(key, Some(task), exit_code, now)?;
            }
            // Said again: the last one stands, and is not counted twice.
            (None, Some(finished)) => {
                let code = code_before.unwrap_or(0);
                self.queue.counters.uncount_done(self.connection, finished / 60, code)?;
                // The key may be known to be next, with what its log row said before.
                self.queue.cache.forget_order();
                self.note_task_end(key, exit_code)?;
            }
            (None, None) => self.complete_delivery(key, exit_code, now)?,
        }
        self.queue.counters.count_done(now / 60, exit_code);
        Ok(true)
    }

    /// What the cache forgot of a dispatch that its row records.
    fn plain_delivery(&self, key: &str) -> Result<Option<PlainDelivery>> {
        let sql = "SELECT last_served, fetcher_id, fetcher_run_started, log.started, 1, NULL,
                prev_last_served, prev_started, log.rowid
            FROM queue JOIN log ON log.attr_path = ?1 AND finished IS NULL
            WHERE queue.attr_path = ?1 AND state = -2 AND last_served IS NOT NULL";
        let read = |row: &SqlRow<'_>| {
            Ok(PlainDelivery { log_rowid: row.get(8)?, delivery: Delivery::from_row(row)? })
        };
        self.with(sql, |statement| statement.query_row([key], read)).optional()
    }

    /// The usual end: the key has one row, which is dispatched, and one delivery.
    fn complete_plain(
        &mut self,
        key: &str,
        plain: &PlainDelivery,
        exit_code: i64,
        now: UnixSeconds,
    ) -> Result<()> {
        if plain.delivery.worker.is_some() {
            // A leased row was out of the order all the time.
            return self.retire(key, &plain.delivery, done(exit_code), now);
        }
        // Its row was the record; the log's end makes it one no longer.
        self.keep_attempt(key, &plain.delivery, done(exit_code), now)
    }

    /// The attempt in flight ended, and with it earlier ones of its fetcher whose
    /// leases expired.
    pub(super) fn complete_delivery(
        &mut self,
        key: &str,
        exit_code: i64,
        now: UnixSeconds,
    ) -> Result<()> {
        let (mut left, mut task) = (self.deliveries(key)?, None);
        if let Some(last) = left.pop() {
            task = Some(self.ending(key, last.run())?);
            self.retire(key, &last, done(exit_code), now)?;
            left = self.retire_all_expired(key, |other| other.fetcher_id == last.fetcher_id)?;
            // A classic attempt before the expired leases may be the one that ended.
            self.forget_expired_leases(key, last.run())?;
            if last.fetcher_id == TASKS_ID {
                self.end_task(key, last.run_started, exit_code)?;
            }
        } else {
            self.note_task_end(key, exit_code)?;
        }
        // Other rows of the key may come before those that are known to be next.
        self.queue.cache.forget_order();
        if left.is_empty() {
            self.recompute_idle(key)?
        } else {
            self.recompute(key)?
        }
        self.settle(key, task, exit_code, now)?;
        self.arm_if_bumped(key)
    }
}
