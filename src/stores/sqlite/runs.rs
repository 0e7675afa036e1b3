//! Runs and their rows: registering, adding, deleting in steps (spec 4).

use rusqlite::{OptionalExtension, Result, Row};
use shiftboss_actors::file_identity::{FileTimes, Position};
use shiftboss_actors::store::{Reading, Registered, RowBatch, StoredRun};
use shiftboss_protocol::model::{Row as Line, Run};

use super::error::rejected;
use super::partitions::partition_for;
use super::query::Query;
use super::rowids::RowidAllocator;
use super::rows::{Delivery, RunId};
use super::schema::TASKS_ID;
use super::session::Session;

/// A run with its counts and position; the columns of [`read_run`].
const RUNS: &str = "SELECT name, run.run_started, is_complete, rows, deleting,
        offset, lines, device, inode, checksum, content, modified, changed, stale
    FROM fetcher_runs AS run
    JOIN fetchers USING (fetcher_id)
    JOIN shiftboss_runs AS ours ON ours.fetcher_id = run.fetcher_id
        AND ours.run_started = run.run_started";

/// Its key, 1 if it waited, and its last_served.
type DeletedRow = (String, i64, Option<i64>);

fn read_run(row: &Row<'_>) -> Result<StoredRun> {
    let name: String = row.get(0)?;
    Ok(StoredRun {
        run: Run { fetcher: name.into(), started: row.get(1)? },
        complete: row.get(2)?,
        rows: row.get::<_, i64>(3)?.cast_unsigned(),
        deleting: row.get(4)?,
        position: read_position(row)?,
        stale: row.get(13)?,
    })
}

/// Numbers of 64 bits are kept as SQLite's signed ones, bit for bit.
fn read_position(row: &Row<'_>) -> Result<Option<Position>> {
    let number =
        |column| row.get::<_, Option<i64>>(column).map(|value| value.unwrap_or(0).cast_unsigned());
    if row.get::<_, Option<i64>>(5)?.is_none() {
        return Ok(None);
    }
    Ok(Some(Position {
        offset: number(5)?,
        lines: number(6)?,
        device: number(7)?,
        inode: number(8)?,
        checksum: number(9)?,
        content: row.get::<_, Option<i64>>(10)?.map(i64::cast_unsigned),
        verified: row
            .get::<_, Option<i64>>(11)?
            .zip(row.get(12)?)
            .map(|(modified, changed)| FileTimes { modified, changed }),
    }))
}

impl Session<'_> {
    /// The asker's own; none of single tasks, which may be very many.
    pub(super) fn all_runs(&self) -> Result<Vec<StoredRun>> {
        let sql = format!(
            "{RUNS} WHERE run.fetcher_id <> {TASKS_ID} AND (SELECT relay
                FROM shiftboss_relay_fetchers AS own WHERE own.name = fetchers.name) IS ?1"
        );
        self.connection.prepare_cached(&sql)?.query_map([self.relay], read_run)?.collect()
    }

    /// `None`: its fetcher is not known, or somebody else's.
    pub(super) fn run_id(&self, run: &Run) -> Result<Option<RunId>> {
        if !self.is_own(&run.fetcher)? {
            return Ok(None);
        }
        let sql = "SELECT fetcher_id FROM fetchers WHERE name = ?1";
        let fetcher_id = self.value(sql, [&*run.fetcher]).optional()?;
        Ok(fetcher_id.map(|fetcher_id| RunId { fetcher_id, started: run.started }))
    }

    pub(super) fn register(&mut self, run: &Run) -> Result<Registered> {
        if let Some(why) = self.take_fetcher(&run.fetcher)? {
            return Ok(Registered::Elsewhere(why));
        }
        let fetcher = "INSERT INTO fetchers (name) SELECT ?1
            WHERE NOT EXISTS (SELECT 1 FROM fetchers WHERE name = ?1)";
        self.run(fetcher, [&*run.fetcher])?;
        for started in [
            "INSERT INTO fetcher_runs (fetcher_id, run_started)
            SELECT fetcher_id, ?2 FROM fetchers WHERE name = ?1 ON CONFLICT DO NOTHING",
            "INSERT INTO shiftboss_runs (fetcher_id, run_started)
            SELECT fetcher_id, ?2 FROM fetchers WHERE name = ?1 ON CONFLICT DO NOTHING",
        ] {
            self.run(started, (&*run.fetcher, run.started))?;
        }
        // Whoever asks reads on from the position.
        let ahead = "UPDATE shiftboss_runs SET stale = 1 WHERE stale = 2 AND run_started = ?2
            AND fetcher_id = (SELECT fetcher_id FROM fetchers WHERE name = ?1)";
        self.run(ahead, (&*run.fetcher, run.started))?;
        let sql = format!("{RUNS} WHERE name = ?1 AND run.run_started = ?2");
        let mut statement = self.connection.prepare_cached(&sql)?;
        let stored = statement.query_row((&*run.fetcher, run.started), read_run)?;
        if stored.deleting {
            return Err(rejected(format!("run {run} is being deleted")));
        }
        Ok(Registered::Run(stored))
    }

    pub(super) fn add(&mut self, batch: &RowBatch) -> Result<()> {
        let Some(run) = self.run_id(&batch.run)?.filter(|run| self.queue.partitions.allow(*run))
        else {
            return Err(rejected(format!("run {} is not known", batch.run)));
        };
        self.add_position(run, batch)?;
        self.add_as_read(run, batch.reading, &batch.rows)
    }

    /// Adds rows that are read on, and leaves the run's position where it is: until that moves, the run is stale for whoever
    /// registers it next, for its file may not have these rows any more. False: the run is not known, or under deletion.
    pub(super) fn add_further_rows(&mut self, run: &Run, rows: &[Line]) -> Result<bool> {
        let Some(run) = self.run_id(run)?.filter(|run| self.queue.partitions.allow(*run)) else {
            return Ok(false);
        };
        let ahead = "UPDATE shiftboss_runs SET stale = 2
            WHERE fetcher_id = ?1 AND run_started = ?2 AND stale = 0";
        self.run(ahead, run.pair())?;
        if !self.is_registered(run)? {
            return Ok(false);
        }
        self.add_as_read(run, Reading::Onward, rows).map(|()| true)
    }

    fn is_registered(&self, run: RunId) -> Result<bool> {
        let sql =
            "SELECT EXISTS (SELECT 1 FROM fetcher_runs WHERE fetcher_id = ?1 AND run_started = ?2)";
        self.value(sql, run.pair())
    }

    fn add_as_read(&mut self, run: RunId, reading: Reading, rows: &[Line]) -> Result<()> {
        let listing = self.note_reading(run, reading)?;
        let partition = partition_for(self.connection, run)?;
        self.add_rows(run, partition, rows)?;
        if let Some(listing) = listing {
            let mut keys = rows.iter().map(|row| row.key.as_str());
            keys.try_for_each(|key| self.note_listed(listing, key))?;
        }
        self.queue.partitions.open(partition);
        Ok(())
    }

    pub(super) fn add_rows(&mut self, run: RunId, partition: i64, rows: &[Line]) -> Result<()> {
        let mut rowids = RowidAllocator::load(self.connection)?;
        let mut added = 0;
        for row in rows {
            added += i64::from(self.add_row(run, partition, row, &mut rowids)?);
        }
        rowids.store(self.connection)?;
        self.queue.checkpoints.count_rows(added);
        self.count(run, added, added)
    }

    /// Adds a row; false when it was there already, and only its payload counts.
    fn add_row(
        &mut self,
        run: RunId,
        partition: i64,
        row: &Line,
        rowids: &mut RowidAllocator,
    ) -> Result<bool> {
        let known = "SELECT started, attr_path IS NOT NULL AND finished IS NULL,
                EXISTS (SELECT 1 FROM queue WHERE queue.attr_path = ?1)
                    OR EXISTS (SELECT 1 FROM shiftboss_deliveries AS delivery
                        WHERE delivery.attr_path = ?1)
                    OR EXISTS (SELECT 1 FROM shiftboss_holds AS hold WHERE hold.attr_path = ?1)
                    OR EXISTS (SELECT 1 FROM shiftboss_bumps AS bump WHERE bump.attr_path = ?1)
                    OR EXISTS (SELECT 1 FROM shiftboss_expired_leases AS lost
                        WHERE lost.fetcher_id = ?2 AND lost.run_started = ?3
                            AND lost.attr_path = ?1),
                coalesce(
                    (SELECT max(last_served) FROM queue
                        WHERE queue.attr_path = ?1 AND +queue.fetcher_id = ?2),
                    (SELECT attempt FROM fetchers JOIN shiftboss_last_served USING (name)
                        WHERE fetcher_id = ?2 AND attr_path = ?1))
            FROM (SELECT 1) LEFT JOIN log ON log.attr_path = ?1";
        let insert = "INSERT INTO queue (fetcher_id, fetcher_run_started, attr_path, payload,
                order_jitter, partition, last_started, last_served, state, rowid)
            VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)
            ON CONFLICT (fetcher_run_started, fetcher_id, attr_path) DO NOTHING";
        let again = "UPDATE queue SET payload = ?4 WHERE payload <> ?4
            AND fetcher_id = ?1 AND fetcher_run_started = ?2 AND attr_path = ?3";
        let key = row.key.as_str();
        let (fetcher_id, run) = run.pair();
        let (started, in_flight, is_known, served): (Option<i64>, bool, bool, Option<i64>) =
            self.row(known, (key, fetcher_id, run))?;
        // What a row is beside others, or while its key is leased or held, the rule knows.
        let is_judged = is_known || in_flight || fetcher_id == TASKS_ID;
        let (state, jitter) = (if is_judged { 0 } else { 1 }, row.key.jitter());
        let inserted = rowids.claim(jitter, |rowid| {
            let payload = &row.payload;
            let values =
                (fetcher_id, run, key, payload, jitter, partition, started, served, state, rowid);
            self.change(insert, values)
        })?;
        if inserted == 0 {
            self.run(again, (fetcher_id, run, key, &row.payload))?;
            return Ok(false);
        }
        if is_judged {
            // Single tasks do not replace each other.
            if fetcher_id != TASKS_ID {
                self.forget_earlier(key, RunId { fetcher_id, started: run })?;
            }
            self.extract(key)?;
            self.recompute(key)?;
        }
        Ok(true)
    }

    fn add_position(&self, run: RunId, batch: &RowBatch) -> Result<()> {
        let Position { offset, lines, device, inode, checksum, content, verified } = batch.position;
        let (fetcher_id, run) = run.pair();
        // A file that is read from the start again has its faulty lines counted again.
        let position = "UPDATE shiftboss_runs
            SET skipped = ?3 + iif(?12 AND coalesce(offset, 0) <= ?4, skipped, 0),
                offset = ?4, lines = ?5, device = ?6, inode = ?7, checksum = ?8,
                content = ?9, modified = ?10, changed = ?11, stale = iif(stale = 2, 0, stale)
            WHERE fetcher_id = ?1 AND run_started = ?2
                AND (?13 IS NULL OR coalesce(offset, 0) IN (?13, ?4))
                AND (NOT ?14 OR stale <> 0 OR coalesce(offset, 0) = ?4)";
        let is_onward = batch.reading == Reading::Onward;
        let values = (
            fetcher_id,
            run,
            batch.skipped.cast_signed(),
            offset.cast_signed(),
            lines.cast_signed(),
            device.cast_signed(),
            inode.cast_signed(),
            checksum.cast_signed(),
            content.map(u64::cast_signed),
            verified.map(|times| times.modified),
            verified.map(|times| times.changed),
            is_onward,
            batch.from.filter(|_| is_onward).map(u64::cast_signed),
            batch.by_range,
        );
        if self.change(position, values)? == 0 {
            return Err(rejected(batch.unexpected()));
        }
        let complete = "UPDATE fetcher_runs SET is_complete = ?3
            WHERE fetcher_id = ?1 AND run_started = ?2 AND is_complete <> ?3";
        self.run(complete, (fetcher_id, run, batch.complete))
    }

    /// Marks a run for its deletion, on disk and in memory.
    pub(super) fn mark_deleting(&mut self, run: RunId) -> Result<()> {
        let mark = "UPDATE shiftboss_runs SET deleting = 1
            WHERE fetcher_id = ?1 AND run_started = ?2 RETURNING partition";
        if let Some(partition) = self.value(mark, run.pair()).optional()? {
            self.queue.partitions.begin_deletion(run, partition);
        }
        Ok(())
    }

    /// Deletes up to `limit` rows and runs; returns how many of the first runs are gone.
    pub(super) fn delete_step(&mut self, runs: &[Run], limit: usize) -> Result<usize> {
        self.queue.counters.flush(self.connection)?;
        let mut left = i64::try_from(limit).unwrap_or(i64::MAX);
        for (gone, run) in runs.iter().enumerate() {
            if left <= 0 {
                return Ok(gone);
            }
            match self.delete_part(run, left)? {
                Some(rows) => left -= rows + 1,
                None => return Ok(gone),
            }
        }
        Ok(runs.len())
    }

    /// Deletes up to `limit` rows of a run, and the run with its last row: then it returns how
    /// many those were.
    fn delete_part(&mut self, run: &Run, limit: i64) -> Result<Option<i64>> {
        let Some(run) = self.run_id(run)? else {
            return Ok(Some(0));
        };
        if self.queue.partitions.allow(run) {
            self.mark_deleting(run)?;
        }
        let recorded = "SELECT attr_path FROM shiftboss_row_deliveries WHERE attr_path IN (
            SELECT attr_path FROM queue
            WHERE fetcher_run_started = ?2 AND fetcher_id = ?1 ORDER BY attr_path LIMIT ?3)";
        let recorded: Vec<String> = self.values(recorded, (run.fetcher_id, run.started, limit))?;
        recorded.iter().try_for_each(|key| self.extract(key))?;
        let sql = "DELETE FROM queue WHERE rowid IN (SELECT rowid FROM queue
                WHERE fetcher_run_started = ?2 AND fetcher_id = ?1 ORDER BY attr_path LIMIT ?3)
            RETURNING attr_path, is_dequeued = 0, last_served";
        let rows: Vec<DeletedRow> = self.rows(sql, (run.fetcher_id, run.started, limit))?;
        let deleted = self.are_deleted(run, &rows)?;
        if deleted >= limit {
            return Ok(None);
        }
        self.end_listing(run)?;
        // The fetcher may go with it: what ended counts as its.
        self.queue.counters.hours.flush(self.connection)?;
        self.delete_empty(run)?;
        self.queue.partitions.end_deletion(run);
        Ok(Some(deleted))
    }

    /// Deletes the rows of these keys of a run.
    pub(super) fn delete_keys(&mut self, run: RunId, keys: &[&str]) -> Result<()> {
        let sql = "DELETE FROM queue
            WHERE fetcher_run_started = ?2 AND fetcher_id = ?1 AND attr_path = ?3
            RETURNING attr_path, is_dequeued = 0, last_served";
        let mut deleted = Vec::new();
        for key in keys {
            self.extract(key)?;
            deleted.extend(self.row(sql, (run.fetcher_id, run.started, key)).optional()?);
            self.forget_expired_leases(key, run)?;
        }
        self.are_deleted(run, &deleted).map(|_| ())
    }

    /// Sees to what depends on rows that were deleted; says how many.
    fn are_deleted(&mut self, run: RunId, deleted: &[DeletedRow]) -> Result<i64> {
        for (key, _, last_served) in deleted {
            if let Some(attempt) = last_served {
                self.keep_last_served(key, run.fetcher_id, *attempt)?;
            }
            self.drop_expired_deliveries(key, run)?;
            self.recompute(key)?;
        }
        let pending: i64 = deleted.iter().map(|(_, pending, _)| pending).sum();
        let count = i64::try_from(deleted.len()).unwrap_or(i64::MAX);
        self.queue.checkpoints.count_rows(count);
        self.queue.bumps.note_deletion(deleted.iter().map(|(key, ..)| key.as_str()));
        self.count(run, -count, -pending)?;
        Ok(count)
    }

    /// A dispatch whose lease expired has nothing left to be handed out; one in flight stays known, and
    /// one that is leased is its worker's.
    pub(super) fn drop_expired_deliveries(&mut self, key: &str, run: RunId) -> Result<()> {
        let sql = "SELECT started FROM log WHERE attr_path = ?1 AND finished IS NULL";
        let in_flight: Option<i64> = self.value(sql, [key]).optional()?;
        let is_meant = |delivery: &Delivery| {
            delivery.worker.is_none()
                && delivery.run() == run
                && Some(delivery.started) != in_flight
        };
        self.retire_all_expired(key, is_meant).map(|_| ())
    }

    /// Deletes a run without rows, and with its last run the fetcher.
    pub(super) fn delete_empty(&self, run: RunId) -> Result<()> {
        for sql in [
            "DELETE FROM fetcher_runs WHERE fetcher_id = ?1 AND run_started = ?2",
            "DELETE FROM shiftboss_runs WHERE fetcher_id = ?1 AND run_started = ?2",
            "DELETE FROM shiftboss_expired_leases WHERE fetcher_id = ?1 AND run_started = ?2",
        ] {
            self.run(sql, run.pair())?;
        }
        let sql = "DELETE FROM fetchers WHERE fetcher_id = ?1
            AND NOT EXISTS (SELECT 1 FROM fetcher_runs WHERE fetcher_id = ?1)";
        self.run(sql, [run.fetcher_id])
    }
}
