//! Records of what arrived, one key after the other, from the temporary tables `moved_*`.

use std::collections::BTreeMap;
use std::sync::Arc;

use rusqlite::{Connection, Result, Row};
use shiftboss_protocol::model::{Attempt, Key, LeaseHolder};
use shiftboss_queue::context::Context;
use shiftboss_queue::counts::Tally;
use shiftboss_queue::record::{
    Backoff, Before, Bump, DeadBecause, Due, FetcherId, Flight, Hold, LastRun, ListRow, Record,
    Retry, SingleStatus, Task,
};
use shiftboss_queue::records::Change;
use shiftboss_queue::rules::clocks;

use crate::ask::Ask;
use crate::code;
use crate::save::Saver;

/// A row that was armed then waits for nobody, whether its fetcher was served or not.
const NEVER: Attempt = Attempt(-1);
/// Keys that are read together.
const STEP: i64 = 1_000;

/// Makes records, and writes them.
pub(super) struct Writer<'a> {
    pub(super) connection: &'a Connection,
    pub(super) saver: Saver<'a>,
    pub(super) context: Context,
    /// That of single tasks, too.
    pub(super) names: BTreeMap<Arc<str>, FetcherId>,
    pub(super) counts: &'a mut Tally,
}

impl Writer<'_> {
    pub(super) fn run(mut self) -> Result<()> {
        let mut behind = 0;
        loop {
            let sql =
                "SELECT rowid, key, what FROM moved_keys WHERE rowid > ?1 ORDER BY rowid LIMIT ?2";
            let keys = self
                .connection
                .rows::<(i64, String, i64)>(sql, (behind, STEP), |row| row.try_into())?;
            let Some((last, ..)) = keys.last() else { return Ok(()) };
            behind = *last;
            for (_, key, what) in keys {
                self.write(&key, what)?;
            }
        }
    }

    fn write(&mut self, key: &str, what: i64) -> Result<()> {
        let mut record = self.record(key, what)?;
        let mut counts = Tally::default();
        counts.change(&Record::new(record.key.clone()), &record);
        self.counts.merge(&counts);
        clocks::look(&mut record, &self.context);
        let (key, place) = (record.key.clone(), record.place(&self.context));
        self.saver.change(Change { before: None, key, now: Some((record, place)) }).map(drop)
    }

    /// `what`: in which tables there is something of it.
    fn record(&self, key: &str, what: i64) -> Result<Record> {
        let mut record = Record { since: Some(0), ..Record::new(Key::stored(key)) };
        let has = |part: i64| what & part != 0;
        if has(2) {
            self.add_last(&mut record)?;
        }
        if has(4) {
            self.add_served(&mut record)?;
        }
        if has(8) {
            self.add_attempts(&mut record)?;
        }
        if has(1) {
            self.add_rows(&mut record)?;
        }
        if has(16) {
            self.add_singles(&mut record)?;
        }
        if has(32) {
            self.add_holds(&mut record)?;
            self.add_bumps(&mut record)?;
        }
        Ok(record)
    }

    fn add_last(&self, record: &mut Record) -> Result<()> {
        let sql = "SELECT started, finished, exit_code FROM moved_log WHERE key = ?1";
        record.last = self.connection.first(sql, [record.key.as_str()], last_run)?;
        record.is_claimed = record.last.is_some_and(|last| last.finished.is_none());
        Ok(())
    }

    fn add_served(&self, record: &mut Record) -> Result<()> {
        let sql = "SELECT name, attempt FROM moved_last_served WHERE key = ?1";
        let key = record.key.as_str();
        for (name, attempt) in
            self.connection.rows::<(String, i64)>(sql, [key], |row| row.try_into())?
        {
            if let Some(fetcher) = self.names.get(&*name) {
                record.served.insert(*fetcher, Attempt(attempt));
            }
        }
        let sql = "SELECT fetcher, max(served) FROM moved_queue WHERE key = ?1 AND served IS NOT NULL GROUP BY fetcher";
        for (fetcher, attempt) in
            self.connection.rows::<(i64, i64)>(sql, [key], |row| row.try_into())?
        {
            record.served.insert(FetcherId(fetcher), Attempt(attempt));
        }
        Ok(())
    }

    /// The last one that ended, and the one that is out.
    fn add_attempts(&self, record: &mut Record) -> Result<()> {
        let sql = "SELECT coalesce(max(attempt), 0), coalesce(max(started_ms / 1000 = ?2), 0) FROM moved_attempts
            WHERE key = ?1 AND outcome <> 'undone'";
        let started = record.last.map(|last| last.started);
        let ended =
            self.connection.first(sql, (record.key.as_str(), started), |row| row.try_into())?;
        let (last, is_its): (i64, bool) = ended.unwrap_or_default();
        record.last_attempt = Attempt(last);
        self.add_flight(record)?;
        // Somebody else started it, and may be at it, if no attempt began then.
        record.is_claimed &= record.flight.is_none() && !is_its;
        Ok(())
    }

    /// The last attempt that did not end; the leases of those before it expired (`rest.sql`).
    fn add_flight(&self, record: &mut Record) -> Result<()> {
        let sql = "SELECT attempt, fetcher, run_started, worker, lease, started_ms, prev_started, prev_finished, prev_exit_code, prev_served,
                fetcher = 0 OR fetcher IN (SELECT fetcher FROM moved_fetchers), delivery_count
            FROM moved_attempts WHERE key = ?1 AND outcome IS NULL ORDER BY attempt DESC LIMIT 1";
        let out = self.connection.first(sql, [record.key.as_str()], |row| {
            let (worker, lease): (Option<String>, Option<u32>) = (row.get(3)?, row.get(4)?);
            let holder = worker.zip(lease).map(|(worker, lease_seconds)| LeaseHolder {
                worker: worker.into(),
                lease_seconds,
            });
            let started: Option<i64> = row.get(6)?;
            let last = match started {
                Some(started) => {
                    Some(LastRun { started, finished: row.get(7)?, exit_code: row.get(8)? })
                }
                None => None,
            };
            let served = row.get::<_, Option<i64>>(9)?.map(Attempt);
            let (attempt, fetcher) = (Attempt(row.get(0)?), FetcherId(row.get(1)?));
            // The number of a fetcher that is gone is known no more; but its name, if it was served with it.
            let with_it = record.served.iter().find(|served| *served.1 == attempt);
            let gone = with_it.map(|served| *served.0).or_else(|| self.names.get("").copied());
            let is_known = row.get::<_, bool>(10)?;
            let fetcher = gone.filter(|_| !is_known).unwrap_or(fetcher);
            let flight = Flight {
                attempt,
                task: code::task_of((fetcher.0, row.get(2)?)),
                holder,
                started: row.get(5)?,
                owner: None,
                before: Before { last, served, bump: None, ahead: None },
            };
            Ok((flight, row.get::<_, u32>(11)?))
        })?;
        if let Some((flight, deliveries)) = out {
            record.served.insert(flight.task.fetcher(), flight.attempt);
            if deliveries > 1 {
                record.extras.expired.push((flight.task, deliveries - 1));
            }
            record.flight = Some(flight);
        }
        Ok(())
    }

    /// Rows of lists; and what is said of leases of single tasks.
    fn add_rows(&self, record: &mut Record) -> Result<()> {
        let sql = "SELECT fetcher, run_started, dispatched, expired, dead, CAST(payload AS BLOB), EXISTS (
                SELECT 1 FROM moved_attempts AS out, json_each(out.marked) WHERE out.attempt = ?2 AND out.fetcher = moved_queue.fetcher
                    AND json_each.value = moved_queue.run_started)
            FROM moved_queue WHERE key = ?1 ORDER BY fetcher, run_started";
        let out = record.flight.as_ref().map(|it| it.attempt.0);
        let rows = self.connection.rows(sql, (record.key.as_str(), out), |row| {
            let task = code::task_of((row.get(0)?, row.get(1)?));
            let payload = String::from_utf8_lossy(row.get_ref(5)?.as_bytes()?).into_owned();
            Ok((task, row.get(2)?, row.get::<_, u32>(3)?, row.get(4)?, payload, row.get(6)?))
        })?;
        for (task, is_dispatched, expired, is_dead, payload, is_out) in rows {
            let is_known = record.extras.expired.iter().any(|it| it.0 == task);
            if expired > 0 && !is_known {
                record.extras.expired.push((task, expired));
            }
            let Task::Row { fetcher, run } = task else { continue };
            if is_dead {
                record.extras.dead.push((task, DeadBecause::Leases));
            }
            let before = record.flight.as_ref().and_then(|it| it.before.served);
            let armed = match (is_dispatched || is_dead, is_out) {
                // It waits again if the attempt is given back.
                (true, true) => before.unwrap_or(Attempt(0)),
                (true, false) => NEVER,
                (false, _) => record.highest(),
            };
            record.rows.push(ListRow { fetcher, run, armed, reading: 0, payload: Some(payload) });
        }
        Ok(())
    }

    /// They themselves are copied later, for a key may have a million.
    fn add_singles(&self, record: &mut Record) -> Result<()> {
        let sql = "SELECT status, count(*), min(task) FROM moved_single_tasks WHERE key = ?1 AND task IS NOT ?2 GROUP BY status";
        let out = record.flight.as_ref().and_then(|it| match it.task {
            Task::Single { number } => Some(number),
            Task::Row { .. } => None,
        });
        let counts = self.connection.rows(sql, (record.key.as_str(), out), |row| {
            Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?.unsigned_abs(), row.get(2)?))
        })?;
        for (word, count, first) in counts {
            match SingleStatus::of_word(&word) {
                Some(SingleStatus::Failed) => record.singles.failed = count,
                Some(SingleStatus::DeadLetter) => record.singles.dead = count,
                _ => (record.singles.waiting, record.singles.first) = (count, Some(first)),
            }
        }
        Ok(())
    }

    fn add_holds(&self, record: &mut Record) -> Result<()> {
        let key = record.key.as_str();
        let sql = "SELECT failures FROM moved_backoff_counts WHERE key = ?1";
        let failures = self.connection.first(sql, [key], |row| row.get(0))?;
        record.extras.backoff = failures.map(|failures| Backoff { failures, until: None });
        let sql = "SELECT kind, since, until, reason, held_by FROM moved_holds WHERE key = ?1";
        let holds = self.connection.rows(sql, [key], |row| {
            let (since, until) = (row.get(1)?, row.get::<_, Option<i64>>(2)?);
            let until = until.map(|until| due(since, until));
            let (reason, by) = (row.get(3)?, row.get::<_, String>(4)?.into());
            Ok((row.get::<_, String>(0)?, Hold { since, until, reason, by }))
        })?;
        for (kind, hold) in holds {
            if kind == "hold" {
                record.extras.hold = Some(hold);
            } else {
                let none = Backoff { failures: 1, until: None };
                record.extras.backoff.get_or_insert(none).until = hold.until;
            }
        }
        Ok(())
    }

    fn add_bumps(&self, record: &mut Record) -> Result<()> {
        let sql = "SELECT rowid, since, bumped_by, kind, due, fetcher, run_started, retries, attempt FROM moved_bumps WHERE key = ?1";
        let bumps = self.connection.rows(sql, [record.key.as_str()], |row| {
            let (number, since) = (row.get(0)?, row.get(1)?);
            if row.get_ref(3)?.as_str()? == "bump" {
                let by = row.get::<_, String>(2)?.into();
                return Ok((Some(Bump { number, since, by }), None, row.get(8)?));
            }
            let task = code::task_of((row.get(5)?, row.get(6)?));
            let due = row.get::<_, Option<i64>>(4)?.map(|until| self::due(since, until));
            let lane = if due.is_none() { number } else { 0 };
            Ok((None, Some(Retry { task, number: row.get(7)?, due, lane }), row.get(8)?))
        })?;
        for (bump, retry, out) in bumps {
            record.extras.retries.extend(retry);
            match (&mut record.flight, out) {
                (Some(flight), Some::<i64>(_)) => flight.before.bump = bump,
                _ => record.extras.bump = record.extras.bump.take().or(bump),
            }
        }
        Ok(())
    }
}

fn last_run(row: &Row<'_>) -> Result<LastRun> {
    Ok(LastRun { started: row.get(0)?, finished: row.get(1)?, exit_code: row.get(2)? })
}

/// What is due then, as was said in this second.
fn due(since: i64, until: i64) -> Due {
    let (at, since) = (until.saturating_mul(1_000), since.saturating_mul(1_000));
    Due { at, delay: at.saturating_sub(since).max(0), clock: 0 }
}
