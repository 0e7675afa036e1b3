//! Entries of a spool: which of them is which run of the fetcher `@spool` (`shiftboss_spool`).
//!
//! Called through the trait [`Entries`]. An entry's run has one row and is complete from the start; what
//! happens to that row is what happens to any other. Its number is never used again, so what is still
//! known of an earlier entry's dispatch is not taken for this one's.

use rusqlite::{OptionalExtension, Row};
use shiftboss_actors::fetcher_file::checksum;
use shiftboss_actors::model::{Key, Position, Run, SPOOL_FETCHER, UnixSeconds};
use shiftboss_actors::store::{Batch, Entered, Entries, Entry, EntryState, Reading, StoreResult};

use super::SqliteStore;
use super::error::sorted;

/// The entries whose row is in the queue. A row's job was done when it is dispatched, its attempt is in
/// flight no longer, and was not one too many. Of a dispatch under the classic policy no flight is kept:
/// there the log must say that the key's job ended, or that the key was dispatched for another row since.
const ENTRIES: &str = "SELECT entry.name, entry.attr_path, is_dequeued <> 0
        AND NOT EXISTS (SELECT 1 FROM shiftboss_flights AS flight
            WHERE flight.attr_path = entry.attr_path AND flight.fetcher_id = queue.fetcher_id
                AND flight.run_started = entry.run_started)
        AND NOT EXISTS (SELECT 1 FROM shiftboss_tries AS tries
            WHERE tries.fetcher_id = queue.fetcher_id AND tries.run_started = entry.run_started
                AND tries.attr_path = entry.attr_path AND dead <> 0)
        AND (NOT EXISTS (SELECT 1 FROM log
                WHERE log.attr_path = entry.attr_path AND finished IS NULL)
            OR EXISTS (SELECT 1 FROM shiftboss_flights AS other
                WHERE other.attr_path = entry.attr_path))
    FROM shiftboss_spool AS entry
    JOIN queue ON queue.fetcher_run_started = entry.run_started
        AND queue.attr_path = entry.attr_path
        AND queue.fetcher_id = (SELECT fetcher_id FROM fetchers WHERE name = ?1)
    ORDER BY entry.name";

/// What is known of an entry's name.
struct Known {
    run: Run,
    line: i64,
    /// Its row is in the queue: nobody deleted it by hand.
    queued: bool,
}

impl Entries for SqliteStore {
    fn enter(&mut self, entry: &Entry, now: UnixSeconds) -> StoreResult<Entered> {
        self.mutation(|store| store.enter_entry(entry, now))
    }

    fn entries(&mut self) -> StoreResult<Vec<EntryState>> {
        self.all_entries().map_err(sorted)
    }

    fn forget_entry(&mut self, name: &str) -> StoreResult<()> {
        self.mutation(|store| match store.known_entry(name).map_err(sorted)? {
            Some(known) => store.drop_entry(name, &known.run),
            None => Ok(()),
        })
    }

    fn withdraw_entry(&mut self, name: &str) -> StoreResult<bool> {
        self.mutation(|store| {
            let Some(known) = store.known_entry(name).map_err(sorted)? else {
                return Ok(true);
            };
            if known.queued && !store.is_withdrawable(name).map_err(sorted)? {
                return Ok(false);
            }
            store.drop_entry(name, &known.run).map(|()| true)
        })
    }
}

fn run(started: i64) -> Run {
    Run { fetcher: SPOOL_FETCHER.into(), started }
}

/// Tells lines apart that came under the same name.
fn line_of(entry: &Entry) -> i64 {
    checksum(format!("{} {}", entry.row.key, entry.row.payload).as_bytes()).cast_signed()
}

impl SqliteStore {
    fn all_entries(&self) -> rusqlite::Result<Vec<EntryState>> {
        let read = |row: &Row<'_>| {
            let (name, key): (String, String) = (row.get(0)?, row.get(1)?);
            Ok(EntryState { name: name.into(), key: Key::stored(&key), done: row.get(2)? })
        };
        self.prepared(ENTRIES)?.query_map([SPOOL_FETCHER], read)?.collect()
    }

    fn known_entry(&self, name: &str) -> rusqlite::Result<Option<Known>> {
        let sql = "SELECT run_started, line, EXISTS (SELECT 1 FROM queue
                WHERE queue.fetcher_run_started = entry.run_started
                    AND queue.attr_path = entry.attr_path
                    AND queue.fetcher_id = (SELECT fetcher_id FROM fetchers WHERE name = ?2))
            FROM shiftboss_spool AS entry WHERE name = ?1";
        let read = |row: &Row<'_>| {
            Ok(Known { run: run(row.get(0)?), line: row.get(1)?, queued: row.get(2)? })
        };
        self.prepared(sql)?.query_row([name, SPOOL_FETCHER], read).optional()
    }

    /// Whether an entry's job waits, or is parked.
    fn is_withdrawable(&self, name: &str) -> rusqlite::Result<bool> {
        let sql = "SELECT is_dequeued = 0 OR EXISTS (SELECT 1 FROM shiftboss_tries AS tries
                WHERE tries.fetcher_id = queue.fetcher_id AND tries.run_started = entry.run_started
                    AND tries.attr_path = entry.attr_path AND dead <> 0)
            FROM shiftboss_spool AS entry
            JOIN queue ON queue.fetcher_run_started = entry.run_started
                AND queue.attr_path = entry.attr_path
                AND queue.fetcher_id = (SELECT fetcher_id FROM fetchers WHERE name = ?2)
            WHERE entry.name = ?1";
        self.prepared(sql)?.query_row([name, SPOOL_FETCHER], |row| row.get(0))
    }

    fn enter_entry(&mut self, entry: &Entry, now: UnixSeconds) -> StoreResult<Entered> {
        if let Some(known) = self.known_entry(&entry.name).map_err(sorted)? {
            if known.queued && known.line == line_of(entry) {
                return Ok(Entered::Known);
            }
            self.drop_entry(&entry.name, &known.run)?;
        }
        if self.keeps_waiting(entry)? {
            return Ok(Entered::Waits);
        }
        let run = self.next_run(now)?;
        let note = "INSERT INTO shiftboss_spool (name, run_started, attr_path, line)
            VALUES (?1, ?2, ?3, ?4)";
        let key = entry.row.key.as_str();
        self.execute(note, (&*entry.name, run.started, key, line_of(entry)))?;
        self.register(&run)?;
        let position = Position::default();
        let rows = vec![entry.row.clone()];
        self.add(&Batch {
            run,
            rows,
            skipped: 0,
            position,
            complete: true,
            reading: Reading::Onward,
        })?;
        Ok(Entered::Added)
    }

    /// Whether another entry with the same key is in the queue. One whose row was deleted by hand is
    /// not, and may be offered again itself.
    fn keeps_waiting(&mut self, entry: &Entry) -> StoreResult<bool> {
        let sql = "SELECT name FROM shiftboss_spool WHERE attr_path = ?1";
        let mut statement = self.prepared(sql).map_err(sorted)?;
        let other: Option<String> = statement
            .query_row([entry.row.key.as_str()], |row| row.get(0))
            .optional()
            .map_err(sorted)?;
        drop(statement);
        let Some(other) = other else {
            return Ok(false);
        };
        match self.known_entry(&other).map_err(sorted)? {
            Some(known) if !known.queued => self.drop_entry(&other, &known.run).map(|()| false),
            known => Ok(known.is_some()),
        }
    }

    /// The time, as runs of fetchers mostly have it, or the next number that was not used yet.
    fn next_run(&self, now: UnixSeconds) -> StoreResult<Run> {
        let sql = "UPDATE shiftboss_counters SET value = max(value + 1, ?1)
            WHERE name = 'spool' RETURNING value";
        let mut statement = self.prepared(sql).map_err(sorted)?;
        statement.query_row([now], |row| row.get(0)).map(run).map_err(sorted)
    }

    /// Takes an entry out, with its run.
    fn drop_entry(&mut self, name: &str, run: &Run) -> StoreResult<()> {
        self.execute("DELETE FROM shiftboss_spool WHERE name = ?1", [name])?;
        self.tally.flush(&self.connection).map_err(sorted)?;
        self.memory.forget_order();
        // Its row, and any that others put beside it.
        while self.delete_part(run, i64::MAX)?.is_none() {}
        Ok(())
    }
}
