//! The queue's order: which job is next (spec 2 and 5). What a dispatch changes is in
//! [`deliveries`](super::deliveries).
//!
//! `queue.state` is always kept, so the next row is the first of an index of ready rows, or of the
//! index of held ones once the lease of its key's dispatch expired. Nothing here depends on how many
//! rows there are.

use rusqlite::ffi::SQLITE_CORRUPT_INDEX;
use rusqlite::{Result, Row};
use shiftboss_actors::store::{Dispatched, LeaseHolder};
use shiftboss_protocol::model::UnixSeconds;

use super::candidates::{Next, PLAIN, Plain, plain};
use super::error::failure;
use super::query::Query;
use super::rows::RunId;
use super::session::Session;

/// Rows of a partition whose key is not in flight, in order: the plain ones (?2 is 1) or the others (2).
pub(super) const READY: &str =
    "SELECT last_started, order_jitter, attr_path, fetcher_id, fetcher_run_started
    FROM queue INDEXED BY shiftboss_ready WHERE partition = ?1 AND state = ?2 AND state > 0
    ORDER BY last_started, order_jitter, attr_path, fetcher_id";
/// Rows of a partition whose key's lease expired, in order.
pub(super) const HELD: &str =
    "SELECT last_started, order_jitter, attr_path, fetcher_id, fetcher_run_started
    FROM queue INDEXED BY shiftboss_held
    WHERE partition = ?1 AND state < 0 AND last_started < ?2
    ORDER BY last_started, order_jitter, attr_path, fetcher_id";
/// Where a row is in the order; `None` comes first, as NULL does.
pub(super) type QueuePosition = (Option<i64>, Option<i64>, String, i64);

/// An eligible row; a plain one with all that its dispatch needs.
type Eligible = (QueuePosition, Option<Plain>);
impl Session<'_> {
    /// Takes the next job and marks it.
    pub(super) fn next_job(
        &mut self,
        now: UnixSeconds,
        holder: Option<&LeaseHolder>,
    ) -> Result<Dispatched> {
        if self.queue.paused {
            return Ok(Dispatched::Nothing);
        }
        while let Some(Next { key, plain }) = self.next_key(now)? {
            if let Some(job) = self.hand_out(&key, plain, now, holder)? {
                return Ok(job);
            }
            // A key that came up twice may be in flight by now; the first one of a lookup cannot.
            if self.queue.cache.is_first() {
                return Err(disagreeing_indexes(&key));
            }
        }
        if self.may_be_shadowed()? { Ok(Dispatched::Later) } else { Ok(Dispatched::Nothing) }
    }

    /// Whether there is an eligible row, and nothing is paused.
    pub(super) fn is_any_eligible(&self, now: UnixSeconds) -> Result<bool> {
        Ok(!self.queue.paused
            && (!self.first_eligible(now, 1)?.is_empty() || !self.edited_tasks()?.is_empty()))
    }

    /// The key of the first eligible row.
    fn next_key(&mut self, now: UnixSeconds) -> Result<Option<Next>> {
        if let Some(next) = self.queue.cache.next_key(now) {
            return Ok(Some(next));
        }
        let eligible = self.first_eligible(now, self.queue.cache.wanted())?;
        let next = |(position, plain): Eligible| Next { key: position.2, plain };
        self.queue.cache.expect(eligible.into_iter().map(next), now);
        Ok(self.queue.cache.next_key(now))
    }

    /// The first eligible rows, at most `limit`, in order.
    pub(super) fn first_eligible(&self, now: UnixSeconds, limit: usize) -> Result<Vec<Eligible>> {
        let expired = self.queue.policy.expired(now);
        let mut first = Vec::new();
        for partition in &self.queue.partitions.open {
            self.first_of(PLAIN, [partition], plain, limit, &mut first)?;
            self.first_of(READY, [partition, &2], |_| Ok(None), limit, &mut first)?;
            self.first_of(HELD, [partition, &expired], |_| Ok(None), limit, &mut first)?;
        }
        Ok(first)
    }

    /// Merges the first rows of a query into `first`, of which the first `limit` stay. Those of runs
    /// under deletion are left out: they count as gone.
    fn first_of(
        &self,
        sql: &'static str,
        parameters: impl rusqlite::Params,
        read: fn(&Row<'_>) -> Result<Option<Plain>>,
        limit: usize,
        first: &mut Vec<Eligible>,
    ) -> Result<()> {
        let (known, last) = (first.len(), first.get(limit - 1).map(|(last, _)| last.clone()));
        self.with(sql, |statement| {
            let mut rows = statement.query(parameters)?;
            while first.len() < known + limit
                && let Some(row) = rows.next()?
            {
                let position = (row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?);
                if last.as_ref().is_some_and(|last| position > *last) {
                    break;
                }
                let run = RunId { fetcher_id: position.3, started: row.get(4)? };
                if self.queue.partitions.allow(run) {
                    first.push((position, read(row)?));
                }
            }
            Ok(())
        })?;
        if known > 0 && first.len() > known {
            // A stable sort merges two lists that are in order.
            first.sort_by(|(one, _), (other, _)| one.cmp(other));
        }
        first.truncate(limit);
        Ok(())
    }

    /// A row of an older run may be eligible once a newer run's deletion got to its key.
    fn may_be_shadowed(&mut self) -> Result<bool> {
        if self.queue.partitions.deleting.is_empty() {
            return Ok(false);
        }
        self.queue.counters.flush(self.connection)?;
        // One query over all runs: there may be very many, and all of one fetcher.
        let sql = "SELECT EXISTS (
            SELECT 1 FROM shiftboss_runs AS older JOIN (
                SELECT fetcher_id, max(run_started) AS run_started
                FROM shiftboss_runs WHERE deleting <> 0 GROUP BY fetcher_id
            ) AS gone USING (fetcher_id)
            WHERE older.run_started < gone.run_started
                AND older.deleting = 0 AND older.pending > 0)";
        self.value(sql, [])
    }
}

/// The order names a row that cannot be handed out.
pub(super) fn disagreeing_indexes(key: &str) -> rusqlite::Error {
    let why = format!("the indexes of the queue disagree about {key}: the file is damaged");
    failure(SQLITE_CORRUPT_INDEX, why)
}
