//! Dispatches: what one writes, and what its end writes (spec 2 and 5).
//!
//! Called by the store's operations; [`dispatch`](super::dispatch) has chosen before. Most keys have
//! one row: they take the short way. All others are left to the one rule ([`derived_state`](super::derived_state)).

use std::sync::Arc;
use std::time::Instant;

use rusqlite::{OptionalExtension, Row};
use shiftboss_actors::store::LeaseHolder;
use shiftboss_protocol::model::{Attempt, UnixSeconds, jitter};

use super::attempts::{Delivery, Outcome};
use super::dispatch::{Candidate, History, LogRow};
use super::dispatch_cache::PlainDelivery;
use super::tasks::TASKS_ID;
use super::{Policy, SqliteStore};

/// A dispatch about to be written.
pub(super) struct DispatchRecord<'a> {
    pub(super) attempt: Attempt,
    pub(super) now: UnixSeconds,
    /// To whom it is leased; `None`: to a classic worker, by the policy's lease.
    pub(super) holder: Option<&'a LeaseHolder>,
}

impl SqliteStore {
    /// Writes that the chosen one of a key's rows is dispatched.
    pub(super) fn record_dispatch(
        &mut self,
        key: &str,
        rows: &[Candidate],
        chosen: usize,
        history: &History,
        record: &DispatchRecord<'_>,
    ) -> rusqlite::Result<()> {
        let (row, now) = (&rows[chosen], record.now);
        let fair = matches!(self.policy, Policy::Fair { .. });
        self.cache.take_plain(key);
        self.overtake(key, rows, row)?;
        self.start_log(key, now, history.log.is_some())?;
        if fair {
            let delivery = self.record_delivery(key, rows, row, record, history)?;
            self.set_last_served(key, &row.fetcher, record.attempt)?;
            let is_plain = rows.len() == 1 && row.fetcher_id != TASKS_ID;
            if is_plain && !history.has_deliveries && row.expired_leases.is_none() {
                self.cache.remember(key, PlainDelivery { rowid: row.rowid, delivery });
            }
        }
        let held = if fair && record.holder.is_none() { 2 } else { 0 };
        self.mark(key, rows, row, now, held)?;
        self.count_dispatched(rows, row.fetcher_id);
        Ok(())
    }

    /// Marks the undispatched rows of the chosen one's fetcher.
    fn mark(
        &self,
        key: &str,
        rows: &[Candidate],
        row: &Candidate,
        now: UnixSeconds,
        state: i64,
    ) -> rusqlite::Result<()> {
        if rows.len() == 1 {
            let mark = "UPDATE queue SET is_dequeued = 1, last_started = ?2, state = ?3
                WHERE rowid = ?1";
            self.prepared(mark)?.execute((row.rowid, now, state))?;
            return Ok(());
        }
        let mark = "UPDATE queue SET is_dequeued = 1
            WHERE attr_path = ?1 AND fetcher_id = ?2 AND is_dequeued = 0";
        self.prepared(mark)?.execute((key, row.fetcher_id))?;
        self.set_last_started(key, Some(now))?;
        self.recompute(key)
    }

    fn log_row(&self, key: &str) -> rusqlite::Result<Option<LogRow>> {
        let sql = "SELECT started, finished, exit_code FROM log WHERE attr_path = ?1";
        let read = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
        self.prepared(sql)?.query_row([key], read).optional()
    }

    fn start_log(&self, key: &str, now: UnixSeconds, known: bool) -> rusqlite::Result<()> {
        let sql = if known {
            "UPDATE log SET started = ?2, finished = NULL, exit_code = NULL WHERE attr_path = ?1"
        } else {
            "INSERT INTO log (attr_path, started) VALUES (?1, ?2)"
        };
        self.prepared(sql)?.execute((key, now)).map(|_| ())
    }

    /// All undispatched rows of (fetcher, key), in every run, are dispatched now.
    fn count_dispatched(&mut self, rows: &[Candidate], fetcher_id: i64) {
        for row in rows.iter().filter(|row| row.fetcher_id == fetcher_id && !row.again) {
            self.counters.count_pending(fetcher_id, row.run_started, -1);
        }
    }

    /// Keeps what undoing this dispatch must restore.
    fn record_delivery(
        &self,
        key: &str,
        rows: &[Candidate],
        row: &Candidate,
        record: &DispatchRecord<'_>,
        history: &History,
    ) -> rusqlite::Result<Delivery> {
        let earlier =
            if history.has_deliveries { self.live_deliveries(key, rows)? } else { Vec::new() };
        let before = history.log.unwrap_or_default();
        let same =
            earlier.iter().filter(|delivery| delivery.is_of(row.fetcher_id, row.run_started));
        // Of a classic attempt that is out still the row is dispatched; its lease may have expired since.
        let classic = same.filter(|_| row.again).map(|delivery| delivery.delivery_count).max();
        let expired_leases = classic.max(row.expired_leases);
        let marked = rows.iter().filter(|other| other.fetcher_id == row.fetcher_id && !other.again);
        let marked: Vec<String> = marked.map(|other| other.run_started.to_string()).collect();
        let delivery = Delivery {
            attempt: record.attempt.0,
            fetcher_id: row.fetcher_id,
            run_started: row.run_started,
            started: record.now,
            delivery_count: 1 + expired_leases.unwrap_or(0),
            worker: record.holder.map(|holder| Arc::clone(&holder.worker)),
            handed_out: Some(Instant::now()),
        };
        let sql = "INSERT INTO shiftboss_deliveries (attr_path, attempt, fetcher_id, run_started,
                started, delivery_count, worker, lease, prev_started, prev_finished, prev_exit_code,
                prev_last_served, marked_runs)
            VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)";
        self.prepared(sql)?.execute((
            key,
            delivery.attempt,
            delivery.fetcher_id,
            delivery.run_started,
            delivery.started,
            delivery.delivery_count,
            &delivery.worker,
            record.holder.map(|holder| holder.lease_seconds),
            before.0,
            before.1,
            before.2,
            row.last_served,
            format!("[{}]", marked.join(",")),
        ))?;
        Ok(delivery)
    }

    /// The earlier dispatches of a key; those whose row is gone have nothing left to lose.
    fn live_deliveries(&self, key: &str, rows: &[Candidate]) -> rusqlite::Result<Vec<Delivery>> {
        let mut deliveries = self.deliveries(key)?;
        let is_live = |delivery: &Delivery| {
            rows.iter().any(|row| delivery.is_of(row.fetcher_id, row.run_started))
        };
        for stale in deliveries.extract_if(.., |delivery| !is_live(delivery)) {
            self.retire_expired(key, &stale)?;
        }
        Ok(deliveries)
    }

    pub(super) fn set_last_served(
        &self,
        key: &str,
        fetcher: &str,
        attempt: Attempt,
    ) -> rusqlite::Result<()> {
        let sql = "INSERT INTO shiftboss_last_served (order_jitter, attr_path, name, attempt)
            VALUES (?1, ?2, ?3, ?4)
            ON CONFLICT (order_jitter, attr_path, name) DO UPDATE SET attempt = excluded.attempt";
        self.prepared(sql)?.execute((jitter(key), key, fetcher, attempt.0)).map(|_| ())
    }

    /// Records the end of a key's job. False: the log does not know the key, and nothing changes.
    pub(super) fn end_job(
        &mut self,
        key: &str,
        exit_code: i64,
        now: UnixSeconds,
    ) -> rusqlite::Result<bool> {
        let plain = self.cache.take_plain(key);
        let known = match plain {
            Some(_) => Some((None, None)),
            None => self.log_row(key)?.map(|(_, finished, exit_code)| (finished, exit_code)),
        };
        let Some((finished, code_before)) = known else {
            return Ok(false);
        };
        let sql = "UPDATE log SET finished = ?2, exit_code = ?3 WHERE attr_path = ?1";
        self.prepared(sql)?.execute((key, now, exit_code))?;
        match (plain, finished) {
            (Some(plain), _) => self.complete_plain(key, &plain, exit_code, now)?,
            // Said again: the last one stands, and is not counted twice.
            (None, Some(finished)) => {
                self.uncount_done(finished, code_before.unwrap_or(0))?;
                self.note_task_end(key, exit_code)?;
            }
            (None, None) => self.complete_delivery(key, exit_code, now)?,
        }
        self.counters.count_done(now / 60, exit_code);
        self.forget_old_counts(now)?;
        Ok(true)
    }

    /// The usual end: the key has one row, which is dispatched, and one delivery.
    fn complete_plain(
        &self,
        key: &str,
        plain: &PlainDelivery,
        exit_code: i64,
        now: UnixSeconds,
    ) -> rusqlite::Result<()> {
        self.retire(key, &plain.delivery, Outcome::Done(exit_code), now)?;
        if plain.delivery.worker.is_some() {
            // A leased row was out of the order all the time.
            return Ok(());
        }
        let sql = "UPDATE queue SET state = 0 WHERE rowid = ?1";
        self.prepared(sql)?.execute([plain.rowid]).map(|_| ())
    }

    /// The attempt in flight ended, and with it earlier ones of its fetcher whose
    /// leases expired.
    pub(super) fn complete_delivery(
        &mut self,
        key: &str,
        exit_code: i64,
        now: UnixSeconds,
    ) -> rusqlite::Result<()> {
        let mut deliveries = self.deliveries(key)?;
        if let Some(last) = deliveries.pop() {
            self.retire(key, &last, Outcome::Done(exit_code), now)?;
            for earlier in
                deliveries.extract_if(.., |delivery| delivery.fetcher_id == last.fetcher_id)
            {
                self.retire_expired(key, &earlier)?;
            }
            // A classic attempt before the expired leases may be the one that ended.
            self.forget_expired_leases(key, last.fetcher_id, last.run_started)?;
            if last.fetcher_id == TASKS_ID {
                self.end_task(key, last.run_started, exit_code)?;
            }
        } else {
            self.note_task_end(key, exit_code)?;
        }
        // Other rows of the key may come before those that are known to be next.
        self.cache.forget_order();
        if deliveries.is_empty() { self.recompute_idle(key) } else { self.recompute(key) }
    }
}
