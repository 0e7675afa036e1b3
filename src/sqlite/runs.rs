//! Runs and their rows: registering, adding, deleting in steps (spec 4).

use rusqlite::{OptionalExtension, Row};
use shiftboss_actors::model::{Position, Run};
use shiftboss_actors::store::{Batch, Deletion, StoreError, StoreResult, StoredRun};

use super::SqliteStore;
use super::error::sorted;
use super::slots::{Slots, slot_for};

/// A run with its counts and position; the columns of [`read_run`].
const RUNS: &str = "SELECT name, run.run_started, is_complete, rows, deleting,
        offset, lines, device, inode, checksum
    FROM fetcher_runs AS run
    JOIN fetchers USING (fetcher_id)
    JOIN shiftboss_runs AS ours ON ours.fetcher_id = run.fetcher_id
        AND ours.run_started = run.run_started";

fn read_run(row: &Row<'_>) -> rusqlite::Result<StoredRun> {
    let name: String = row.get(0)?;
    Ok(StoredRun {
        run: Run { fetcher: name.into(), started: row.get(1)? },
        complete: row.get::<_, i64>(2)? != 0,
        rows: row.get::<_, i64>(3)?.cast_unsigned(),
        deleting: row.get::<_, i64>(4)? != 0,
        position: read_position(row)?,
    })
}

/// Numbers of 64 bits are kept as SQLite's signed ones, bit for bit.
fn read_position(row: &Row<'_>) -> rusqlite::Result<Option<Position>> {
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
    }))
}

impl SqliteStore {
    pub(super) fn all_runs(&self) -> rusqlite::Result<Vec<StoredRun>> {
        self.prepared(RUNS)?.query_map([], read_run)?.collect()
    }

    fn fetcher_id(&self, run: &Run) -> StoreResult<Option<i64>> {
        let sql = "SELECT fetcher_id FROM fetchers WHERE name = ?1";
        let mut statement = self.prepared(sql).map_err(sorted)?;
        statement.query_row([&*run.fetcher], |row| row.get(0)).optional().map_err(sorted)
    }

    pub(super) fn register(&mut self, run: &Run) -> StoreResult<StoredRun> {
        let fetcher = "INSERT INTO fetchers (name) SELECT ?1
            WHERE NOT EXISTS (SELECT 1 FROM fetchers WHERE name = ?1)";
        self.execute(fetcher, [&*run.fetcher])?;
        let started = "INSERT INTO fetcher_runs (fetcher_id, run_started)
            SELECT fetcher_id, ?2 FROM fetchers WHERE name = ?1
            ON CONFLICT DO NOTHING";
        self.execute(started, (&*run.fetcher, run.started))?;
        let sql = format!("{RUNS} WHERE name = ?1 AND run.run_started = ?2");
        let mut statement = self.prepared(&sql).map_err(sorted)?;
        let stored = statement.query_row((&*run.fetcher, run.started), read_run).map_err(sorted)?;
        if stored.deleting {
            return Err(StoreError::Rejected(format!("run {run} is being deleted")));
        }
        Ok(stored)
    }

    pub(super) fn add(&mut self, batch: &Batch) -> StoreResult<()> {
        let fetcher_id =
            self.fetcher_id(&batch.run)?.filter(|id| self.slots.allow(*id, batch.run.started));
        let Some(fetcher_id) = fetcher_id else {
            return Err(StoreError::Rejected(format!("run {} is not known", batch.run)));
        };
        self.add_position(fetcher_id, batch)?;
        let slot = slot_for(&self.connection, fetcher_id, batch.run.started).map_err(sorted)?;
        let sql = "INSERT INTO queue
                (fetcher_id, fetcher_run_started, attr_path, payload, order_jitter, slot)
            VALUES (?1, ?2, ?3, ?4, ?5, ?6)
            ON CONFLICT (fetcher_run_started, fetcher_id, attr_path) DO UPDATE
            SET payload = excluded.payload WHERE payload <> excluded.payload";
        let mut statement = self.prepared(sql).map_err(sorted)?;
        for row in &batch.rows {
            let (key, jitter) = (row.key.as_str(), row.key.jitter());
            let run = batch.run.started;
            statement
                .execute((fetcher_id, run, key, &row.payload, jitter, slot))
                .map_err(sorted)?;
        }
        drop(statement);
        if slot > 0 && !self.slots.open.contains(&slot) {
            self.load_slots()?;
        }
        Ok(())
    }

    fn add_position(&self, fetcher_id: i64, batch: &Batch) -> StoreResult<()> {
        let Position { offset, lines, device, inode, checksum } = batch.position;
        let run = batch.run.started;
        // A file that is read from the start again has its faulty lines counted again.
        let position = "UPDATE shiftboss_runs
            SET skipped = ?3 + iif(coalesce(offset, 0) <= ?4, skipped, 0),
                offset = ?4, lines = ?5, device = ?6, inode = ?7, checksum = ?8
            WHERE fetcher_id = ?1 AND run_started = ?2";
        let mut statement = self.prepared(position).map_err(sorted)?;
        let updated = statement.execute((
            fetcher_id,
            run,
            batch.skipped.cast_signed(),
            offset.cast_signed(),
            lines.cast_signed(),
            device.cast_signed(),
            inode.cast_signed(),
            checksum.cast_signed(),
        ));
        if updated.map_err(sorted)? == 0 {
            return Err(StoreError::Rejected(format!("run {} is not known", batch.run)));
        }
        let complete = "UPDATE fetcher_runs SET is_complete = ?3
            WHERE fetcher_id = ?1 AND run_started = ?2 AND is_complete <> ?3";
        self.execute(complete, (fetcher_id, run, batch.complete))
    }

    pub(super) fn delete_step(&mut self, run: &Run, limit: usize) -> StoreResult<Deletion> {
        let Some(fetcher_id) = self.fetcher_id(run)? else {
            return Ok(Deletion::Done);
        };
        let mark = "UPDATE shiftboss_runs SET deleting = 1
            WHERE fetcher_id = ?1 AND run_started = ?2 AND deleting = 0";
        self.execute(mark, (fetcher_id, run.started))?;
        let rows = "DELETE FROM queue WHERE rowid IN (SELECT rowid FROM queue
            WHERE fetcher_run_started = ?2 AND fetcher_id = ?1 LIMIT ?3)";
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let mut statement = self.prepared(rows).map_err(sorted)?;
        let deleted = statement.execute((fetcher_id, run.started, limit)).map_err(sorted)?;
        drop(statement);
        let done = i64::try_from(deleted).unwrap_or(i64::MAX) < limit;
        if done {
            let run_row = "DELETE FROM fetcher_runs WHERE fetcher_id = ?1 AND run_started = ?2";
            self.execute(run_row, (fetcher_id, run.started))?;
        }
        self.load_slots()?;
        Ok(if done { Deletion::Done } else { Deletion::More })
    }

    /// Reads anew which runs have slots, and which are under deletion.
    pub(super) fn load_slots(&mut self) -> StoreResult<()> {
        self.slots = Slots::load(&self.connection).map_err(sorted)?;
        Ok(())
    }
}
