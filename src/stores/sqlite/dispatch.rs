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
/// Rows whose key's lease expired, in order: started before ?1.
pub(super) const HELD: &str =
    "SELECT log.started, order_jitter, queue.attr_path, fetcher_id, fetcher_run_started
    FROM log INDEXED BY shiftboss_unfinished
    CROSS JOIN queue INDEXED BY queue_attr_path_index ON queue.attr_path = log.attr_path
    WHERE finished IS NULL AND log.started < ?1 AND state < 0
    ORDER BY log.started, order_jitter, queue.attr_path, fetcher_id";
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

    /// The first eligible rows, at most `limit`, in order. Each partition has its rows in order; they are merged.
    pub(super) fn first_eligible(&self, now: UnixSeconds, limit: usize) -> Result<Vec<Eligible>> {
        let mut held = self.connection.prepare_cached(HELD)?;
        held.raw_bind_parameter(1, self.queue.policy.expired(now))?;
        let mut ordered: Vec<(CachedStatement<'_>, ReadPlain)> = vec![(held, |_| Ok(None))];
        for partition in &self.queue.partitions.open {
            let [plain_rows, others] =
                [of_partition(PLAIN, *partition), of_partition(READY, *partition)];
            ordered.push((self.connection.prepare_cached(&plain_rows)?, plain));
            ordered.push((self.connection.prepare_cached(&others)?, |_| Ok(None)));
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
