//! The queue's order: which job is next (spec 2 and 5). What a dispatch changes is in
//! [`deliveries`](super::deliveries).
//!
//! `queue.state` is always kept, so the next row is the first of an index of ready rows, or of the
//! index of held ones once the lease of its key's dispatch expired. Nothing here depends on how many
//! rows there are.

use rusqlite::ffi::SQLITE_CORRUPT_INDEX;
use rusqlite::{CachedStatement, Result, Row, Rows};
use shiftboss_actors::store::{Dispatched, LeaseHolder};
use shiftboss_protocol::model::UnixSeconds;

use super::candidates::{Next, PLAIN, Plain, plain};
use super::error::failure;
use super::partitions::Partitions;
use super::query::Query;
use super::rows::RunId;
use super::session::Session;

/// Rows of a partition whose key is not in flight, in order, but for the plain ones.
pub(super) const READY: &str =
    "SELECT last_started, order_jitter, attr_path, fetcher_id, fetcher_run_started
    FROM queue INDEXED BY shiftboss_ready WHERE partition = ?1 AND state = 2 AND state > 0
    ORDER BY last_started, order_jitter, attr_path, fetcher_id";
/// Rows of a partition whose key's lease expired, in order: started before ?2.
pub(super) const OVERDUE: &str =
    "SELECT last_started, order_jitter, attr_path, fetcher_id, fetcher_run_started
    FROM queue INDEXED BY shiftboss_held
    WHERE partition = ?1 AND state = -1 AND last_started < ?2
    ORDER BY last_started, order_jitter, attr_path, fetcher_id";
/// Unfinished log rows that were started before ?1, behind the row (?2, ?3), each with its key if that key's row records
/// the dispatch.
pub(super) const EXPIRING: &str = "SELECT log.started, log.rowid, queue.attr_path
    FROM log INDEXED BY shiftboss_unfinished LEFT JOIN queue INDEXED BY queue_attr_path_index
        ON queue.attr_path = log.attr_path AND state = -2
    WHERE finished IS NULL AND log.started < ?1 AND (log.started, log.rowid) > (?2, ?3)
    ORDER BY log.started, log.rowid LIMIT 2000";
/// As many as [`EXPIRING`] gives at once: a request waits for no more.
const EXPIRING_MAX: usize = 2_000;
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
        if let Some(job) = self.next_bumped(now, holder)? {
            return Ok(job);
        }
        while let Some(Next { key, plain }) = self.next_key(now)? {
            if let Some(job) = self.hand_out(&key, plain, now, holder)? {
                self.pass_bumps();
                return Ok(job);
            }
            // A key that came up twice may be in flight by now; the first one of a lookup cannot.
            if self.queue.cache.is_first() {
                return Err(disagreeing_indexes(&key));
            }
        }
        if self.may_be_shadowed()? { Ok(Dispatched::Later) } else { Ok(Dispatched::Nothing) }
    }

    /// Whether there is an eligible row, or may be one once leases that are over are seen to; and nothing is paused.
    pub(super) fn is_any_eligible(&self, now: UnixSeconds) -> Result<bool> {
        Ok(!self.queue.paused
            && (!self.first_eligible(now, 1)?.is_empty()
                || !self.edited_tasks()?.is_empty()
                || !self.expiring(now)?.is_empty()))
    }

    /// Log rows whose leases expired since it was last seen to.
    fn expiring(&self, now: UnixSeconds) -> Result<Vec<(i64, i64, Option<String>)>> {
        let seen = self.queue.cache.expired;
        if seen >= Some(self.last_expired(now)) {
            return Ok(Vec::new());
        }
        let (started, rowid) = seen.unwrap_or((i64::MIN, 0));
        self.rows(EXPIRING, (self.queue.policy.expired(now), started, rowid))
    }

    /// Behind all log rows whose leases are over.
    fn last_expired(&self, now: UnixSeconds) -> (i64, i64) {
        (self.queue.policy.expired(now).saturating_sub(1), i64::MAX)
    }

    /// Rows that record their dispatch are held like all others once its lease expired. Each unfinished log row is looked at
    /// once: there may be very many that are nobody's any more, and then a look takes part of them.
    fn extract_expired(&mut self, now: UnixSeconds) -> Result<()> {
        let expiring = self.expiring(now)?;
        for key in expiring.iter().filter_map(|(.., key)| key.as_deref()) {
            self.extract(key)?;
            self.queue.cache.forget_key(key);
        }
        let seen = match expiring.last() {
            Some((started, rowid, _)) if expiring.len() == EXPIRING_MAX => (*started, *rowid),
            _ => self.last_expired(now),
        };
        self.queue.cache.expired = self.queue.cache.expired.max(Some(seen));
        Ok(())
    }

    /// The key of the first eligible row.
    fn next_key(&mut self, now: UnixSeconds) -> Result<Option<Next>> {
        if let Some(next) = self.queue.cache.next_key(now) {
            return Ok(Some(next));
        }
        self.extract_expired(now)?;
        let eligible = self.first_eligible(now, self.queue.cache.wanted())?;
        let next = |(position, plain): Eligible| Next { key: position.2, plain };
        self.queue.cache.expect(eligible.into_iter().map(next), now);
        Ok(self.queue.cache.next_key(now))
    }

    /// The first eligible rows, at most `limit`, in order. Each partition has its rows in order; they are merged.
    pub(super) fn first_eligible(&self, now: UnixSeconds, limit: usize) -> Result<Vec<Eligible>> {
        let mut ordered: Vec<(CachedStatement<'_>, ReadPlain)> = Vec::new();
        for partition in &self.queue.partitions.open {
            let statement = |sql| self.connection.prepare_cached(&of_partition(sql, *partition));
            let mut overdue = statement(OVERDUE)?;
            overdue.raw_bind_parameter(2, self.queue.policy.expired(now))?;
            ordered.push((statement(PLAIN)?, plain));
            ordered.push((statement(READY)?, |_| Ok(None)));
            ordered.push((overdue, |_| Ok(None)));
        }
        let mut streams = Vec::with_capacity(ordered.len());
        for (statement, read) in &mut ordered {
            let mut stream = Stream { rows: statement.raw_query(), read: *read, next: None };
            stream.take_next(&self.queue.partitions)?;
            streams.push(stream);
        }
        let mut first = Vec::new();
        while first.len() < limit {
            streams.retain(|stream| stream.next.is_some());
            let Some(stream) =
                streams.iter_mut().min_by(|one, other| one.position().cmp(&other.position()))
            else {
                break;
            };
            first.extend(stream.take_next(&self.queue.partitions)?);
        }
        Ok(first)
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

/// How the rest of a row is read.
type ReadPlain = fn(&Row<'_>) -> Result<Option<Plain>>;

/// Eligible rows in order.
struct Stream<'s> {
    rows: Rows<'s>,
    read: ReadPlain,
    /// The first one that was not taken.
    next: Option<Eligible>,
}

impl Stream<'_> {
    /// Takes the next row and reads on. Rows of runs under deletion are left out: they count as gone.
    fn take_next(&mut self, partitions: &Partitions) -> Result<Option<Eligible>> {
        let next = self.next.take();
        while let Some(row) = self.rows.next()? {
            let position = (row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?);
            let run = RunId { fetcher_id: position.3, started: row.get(4)? };
            if partitions.allow(run) {
                self.next = Some((position, (self.read)(row)?));
                break;
            }
        }
        Ok(next)
    }

    fn position(&self) -> Option<&QueuePosition> {
        self.next.as_ref().map(|(position, _)| position)
    }
}

/// A statement for the rows of a partition: each has its own, so that all are read at once.
pub(super) fn of_partition(sql: &str, partition: i64) -> String {
    sql.replace("?1", &partition.to_string())
}

/// The order names a row that cannot be handed out.
pub(super) fn disagreeing_indexes(key: &str) -> rusqlite::Error {
    let why = format!("the indexes of the queue disagree about {key}: the file is damaged");
    failure(SQLITE_CORRUPT_INDEX, why)
}
