//! Saving what can be read of a damaged database into a new one: table by table, in the order of rowids,
//! over what cannot be read.
//!
//! Called by the command `recover`. What is derived is made anew from what was saved, as after a take-over by
//! another program; and every list is to be read again from its file, which re-arms nothing.

use std::path::Path;

use rusqlite::config::DbConfig;
use rusqlite::functions::FunctionFlags;
use rusqlite::types::Value;
use rusqlite::{Connection, OpenFlags, Params, Result, params_from_iter};
use shiftboss_protocol::fetcher_file::checksum;

use super::{file, leaves, schema};

/// Made from the others by the take-over.
const DERIVED: [&str; 1] = ["shiftboss_runs"];
/// Filled again from the lists' files.
const FROM_FILES: [&str; 3] = ["fetchers", "fetcher_runs", "queue"];
/// The version whose take-over makes everything anew that is derived.
const REFERENCE_VERSION: i64 = 2;
/// Rows whose run was lost come again from their lists.
const ORPHANS: &str = "
    INSERT OR IGNORE INTO shiftboss_state (name, value) VALUES ('made', 'recovered');
    INSERT OR IGNORE INTO shiftboss_counters (name, value) VALUES ('attempt', 0), ('row', 0),
        ('task', 0), ('single_tasks', 0), ('single_tasks_ended', 0), ('ended', 0), ('credit', 1000);
    DELETE FROM fetcher_runs WHERE fetcher_id NOT IN (SELECT fetcher_id FROM fetchers);
    DELETE FROM queue WHERE NOT EXISTS (SELECT 1 FROM fetcher_runs AS run
        WHERE run.fetcher_id = queue.fetcher_id AND run.run_started = queue.fetcher_run_started);
    -- Version 7 has all of it in the table.
    UPDATE queue SET last_served = served.attempt
    FROM shiftboss_last_served AS served JOIN fetchers USING (name)
    WHERE queue.last_served IS NULL AND served.attr_path = queue.attr_path
        AND fetchers.fetcher_id = queue.fetcher_id;
    UPDATE shiftboss_counters SET value = max(value,
        (SELECT coalesce(max(attempt), 0) FROM shiftboss_attempts),
        (SELECT coalesce(max(attempt), 0) FROM shiftboss_deliveries),
        (SELECT coalesce(max(last_served), 0) FROM queue),
        (SELECT coalesce(max(attempt), 0) FROM shiftboss_last_served)) WHERE name = 'attempt';
    -- So has version 11, whose attempts have no number of their end.
    UPDATE shiftboss_attempts SET ended = attempt + (SELECT coalesce(max(ended), 0) FROM shiftboss_attempts)
        WHERE ended IS NULL;
    UPDATE shiftboss_counters SET value = max(value,
        (SELECT coalesce(max(task), 0) FROM shiftboss_single_tasks)) WHERE name = 'task';
    UPDATE shiftboss_counters SET value = max(value, (SELECT count(*) FROM queue))
        WHERE name = 'row'";
const SINGLE_TASKS: &str = "shiftboss_single_tasks";
/// Puts single tasks back whose row of the queue is all that is left of them, with what that tells of their status: one
/// that is marked without being out has ended.
const TASKS_OF_QUEUE: &str = "INSERT INTO shiftboss_single_tasks
        (task, attr_path, checksum, added, status, started, payload)
    SELECT fetcher_run_started, queue.attr_path, checksum(payload), fetcher_run_started,
        CASE WHEN is_dequeued = 0 OR log.started IS NOT NULL OR EXISTS (
                SELECT 1 FROM shiftboss_deliveries AS delivery
                WHERE delivery.attr_path = queue.attr_path AND delivery.fetcher_id = 0
                    AND delivery.run_started = fetcher_run_started) THEN 'waiting'
            WHEN EXISTS (SELECT 1 FROM shiftboss_expired_leases AS lost
                WHERE lost.fetcher_id = 0 AND lost.attr_path = queue.attr_path
                    AND lost.run_started = fetcher_run_started AND dead_letter <> 0) THEN 'dead_letter'
            ELSE 'failed' END,
        iif(is_dequeued = 0, NULL, log.started), payload
    FROM queue LEFT JOIN log ON log.attr_path = queue.attr_path AND log.finished IS NULL
    WHERE queue.fetcher_id = 0 AND NOT EXISTS (
        SELECT 1 FROM shiftboss_single_tasks WHERE task = fetcher_run_started)";
/// Single tasks with a number that none was given, for the counter is not that far: a damaged page named it. They get
/// that of the row that they have in the queue, else they would be there twice; or a new one.
const WILD_TASKS: &str = "
    UPDATE OR IGNORE shiftboss_single_tasks AS wild
    SET task = coalesce((SELECT fetcher_run_started FROM queue
        WHERE fetcher_id = 0 AND attr_path = wild.attr_path AND queue.payload = wild.payload
            AND NOT EXISTS (SELECT 1 FROM shiftboss_single_tasks AS known
                WHERE known.task = fetcher_run_started)), task)
    FROM shiftboss_counters WHERE name = 'task' AND (task < 1 OR task > value);
    UPDATE OR IGNORE shiftboss_single_tasks AS wild SET task = numbered.number
    FROM (SELECT task AS old, value + row_number() OVER (ORDER BY task) AS number
        FROM shiftboss_single_tasks, shiftboss_counters
        WHERE name = 'task' AND (task < 1 OR task > value)) AS numbered
    WHERE task = old";
/// Which runs' lists are to be read again, and then pruned.
const READ_AGAIN: &str = "UPDATE fetcher_runs SET is_complete = 0 WHERE fetcher_id <> 0";
const STALE: &str = "UPDATE shiftboss_runs SET stale = 1 WHERE fetcher_id <> 0";

/// What became of one table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Saved {
    pub(crate) table: String,
    /// Rows that are in the new database.
    pub(crate) rows: u64,
    /// Ranges of rowids in which something could not be read.
    pub(crate) lost_ranges: u64,
    /// It has no rowids: it was read from both ends only.
    pub(crate) from_ends: bool,
}

impl Saved {
    /// Whether something was lost that no list's file brings back.
    pub(crate) fn lost_for_good(&self) -> bool {
        self.lost_ranges > 0 && !FROM_FILES.contains(&self.table.as_str())
    }
}

/// Saves what can be read of `old` into a new database, which is at `new` once it is complete. Errors
/// are in words.
pub(crate) fn recover(old: &Path, new: &Path) -> Result<Vec<Saved>, String> {
    let source = open_source(old).map_err(|error| format!("its schema cannot be read: {error}"))?;
    if schema::is_unreleased(&source).unwrap_or(false) {
        return Err("it is of an unreleased build: recover it with that build".to_owned());
    }
    let page_size: u32 = source
        .pragma_query_one(None, "page_size")
        .map_err(|error| format!("its page size is unknown: {error}"))?;
    let rowids = leaves::rowids(old, page_size as usize).map_err(|error| error.to_string())?;
    let mut saved = Vec::new();
    file::make_new(new, |target| -> Result<()> {
        file::make_schema(target)?;
        saved = copy_all(&source, target, &rowids)?;
        rebuild(target)?;
        target.execute(STALE, []).map(drop)
    })
    .map_err(|error| error.to_string())?;
    Ok(saved)
}

fn open_source(old: &Path) -> Result<Connection> {
    let source = Connection::open_with_flags(old, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    source.pragma_update(None, "cell_size_check", true)?;
    // Else a file that was cut off is not read at all. Nothing is written: it is open for reading.
    source.set_db_config(DbConfig::SQLITE_DBCONFIG_WRITABLE_SCHEMA, true)?;
    source.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()))?;
    Ok(source)
}

fn copy_all(source: &Connection, target: &mut Connection, rowids: &[i64]) -> Result<Vec<Saved>> {
    target.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false)?;
    target.pragma_update(None, "foreign_keys", false)?;
    target.create_scalar_function("checksum", 1, FunctionFlags::SQLITE_UTF8, |context| {
        Ok(checksum(context.get_raw(0).as_bytes()?).cast_signed())
    })?;
    let transaction = target.transaction()?;
    let mut saved: Vec<Saved> = Vec::new();
    for table in schema::tables()? {
        if !DERIVED.contains(&table.as_str()) {
            transaction.execute(&format!("DELETE FROM {table}"), [])?;
            saved.push(Copy::new(source, &transaction, &table)?.run(rowids)?);
        }
    }
    transaction.execute_batch(WILD_TASKS)?;
    let found = transaction.execute(TASKS_OF_QUEUE, [])?;
    if let Some(singles) = saved.iter_mut().find(|saved| saved.table == SINGLE_TASKS) {
        singles.rows += found as u64;
    }
    transaction.execute_batch(ORPHANS)?;
    transaction.execute(READ_AGAIN, [])?;
    transaction.commit()?;
    Ok(saved)
}

/// Makes everything anew that is derived.
pub(super) fn rebuild(target: &mut Connection) -> Result<()> {
    target.pragma_update(None, "user_version", REFERENCE_VERSION)?;
    schema::migrate(target)
}

/// One table on its way.
struct Copy<'a> {
    source: &'a Connection,
    target: &'a Connection,
    /// The columns that both have; the rowid, if both have one, is the first.
    columns: Vec<String>,
    saved: Saved,
}

impl<'a> Copy<'a> {
    fn new(source: &'a Connection, target: &'a Connection, table: &str) -> Result<Self> {
        let sql = "SELECT here.name FROM pragma_table_info(?1) AS here
            WHERE NOT (?2 AND here.pk = 1 AND here.type = 'INTEGER'
                AND (SELECT count(*) FROM pragma_table_info(?1) WHERE pk > 0) = 1)";
        let rowids_of = format!("SELECT rowid FROM {table} LIMIT 0");
        // The reference's log has none.
        let has_rowid = [source, target].iter().all(|has| has.prepare(&rowids_of).is_ok());
        let names = |connection: &Connection| -> Result<Vec<String>> {
            let mut statement = connection.prepare(sql)?;
            statement.query_map((table, has_rowid), |row| row.get(0))?.collect()
        };
        let mut columns = names(target)?;
        let known = names(source)?;
        columns.retain(|name| known.contains(name));
        // An older database has no such table; or nothing but its rowid.
        if has_rowid && !columns.is_empty() {
            columns.insert(0, "rowid".to_owned());
        }
        let saved =
            Saved { table: table.to_owned(), rows: 0, lost_ranges: 0, from_ends: !has_rowid };
        Ok(Self { source, target, columns, saved })
    }

    /// Copies the table; `rowids` are all that the file's leaves name, of whichever table.
    fn run(mut self, rowids: &[i64]) -> Result<Saved> {
        if self.columns.is_empty() {
            return Ok(self.saved);
        }
        if self.saved.from_ends {
            self.by_key()?
        } else {
            self.by_rowid(rowids)?
        }
        let count = format!("SELECT count(*) FROM {}", self.saved.table);
        let rows: i64 = self.target.query_row(&count, [], |row| row.get(0))?;
        self.saved.rows = rows.cast_unsigned();
        Ok(self.saved)
    }

    /// Reads on behind each place that cannot be read, at the next rowid that any leaf of the file names: the
    /// first one from which on can be read again. So no row between two such places is passed over. What was
    /// read says nothing of where to go on: a damaged page may name any rowid.
    fn by_rowid(&mut self, rowids: &[i64]) -> Result<()> {
        for (tried, from) in [i64::MIN].iter().chain(rowids).enumerate() {
            let (rows, stop) = self.scan("rowid >= ?1 ORDER BY rowid", [*from])?;
            let is_another = rows > 0 || tried == 0;
            self.saved.lost_ranges += u64::from(is_another && stop == Stop::Unreadable);
            if stop == Stop::End {
                break;
            }
        }
        Ok(())
    }

    /// A table that lies in the order of its key: what is between its two ends is one range.
    fn by_key(&mut self) -> Result<()> {
        let sql = "SELECT group_concat(name || ' DESC') FROM
            (SELECT name FROM pragma_table_info(?1) WHERE pk > 0 ORDER BY pk)";
        let backward: String = self.target.query_row(sql, [&self.saved.table], |row| row.get(0))?;
        let forward = backward.replace(" DESC", "");
        if self.scan(&format!("1 ORDER BY {forward}"), [])?.1 != Stop::End {
            self.saved.lost_ranges += 1;
            self.scan(&format!("1 ORDER BY {backward}"), [])?;
        }
        Ok(())
    }

    /// Copies rows until their end, until one cannot be read, or, by rowids, until one that was copied before. Says how
    /// many were copied. Rows that could be read, but are none of the table's, are lost.
    fn scan(&mut self, which: &str, parameters: impl Params) -> Result<(u64, Stop)> {
        let (table, columns) = (&self.saved.table, self.columns.join(", "));
        let places = vec!["?"; self.columns.len()].join(", ");
        let insert = format!("INSERT OR IGNORE INTO {table} ({columns}) VALUES ({places})");
        let select = format!("SELECT {columns} FROM {table} WHERE {which}");
        let is_there = format!("SELECT 1 FROM {table} WHERE rowid = ?1");
        let mut insert = self.target.prepare_cached(&insert)?;
        let mut copied = 0;
        let Ok(mut select) = self.source.prepare_cached(&select) else {
            return Ok((copied, Stop::Unreadable));
        };
        let mut rows = select.query(parameters)?;
        loop {
            let values: Result<Vec<Value>> = match rows.next() {
                Ok(Some(row)) => (0..self.columns.len()).map(|column| row.get(column)).collect(),
                Ok(None) => return Ok((copied, Stop::End)),
                Err(_) => return Ok((copied, Stop::Unreadable)),
            };
            // What is no text, or of a wrong type, was overwritten: STRICT tables refuse it.
            let Ok(values) = values else {
                self.saved.lost_ranges += 1;
                continue;
            };
            let rowid = values.first().filter(|_| !self.saved.from_ends).cloned();
            match (insert.execute(params_from_iter(values)), rowid) {
                (Ok(1), _) => copied += 1,
                (Ok(_), Some(rowid))
                    if self.target.prepare_cached(&is_there)?.exists([&rowid])? =>
                {
                    return Ok((copied, Stop::Known));
                }
                (Err(error), _) if !is_refused(&error) => return Err(error),
                // Another row has its key, or it has none: it was overwritten.
                _ => self.saved.lost_ranges += 1,
            }
        }
    }
}

/// Where copying rows ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stop {
    /// There are no more.
    End,
    /// The next one cannot be read.
    Unreadable,
    /// The next one was copied before.
    Known,
}

fn is_refused(error: &rusqlite::Error) -> bool {
    use rusqlite::ErrorCode::{ConstraintViolation, TypeMismatch};
    matches!(error.sqlite_error_code(), Some(ConstraintViolation | TypeMismatch))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is saved of a database that these statements make: of one table, and where the new one is.
    fn saved(statements: &str, table: &str) -> (Saved, Connection) {
        let directory = tempfile::tempdir().unwrap();
        let (old, new) = (directory.path().join("old.db"), directory.path().join("new.db"));
        Connection::open(&old).unwrap().execute_batch(statements).unwrap();
        let saved = recover(&old, &new).unwrap();
        let saved = saved.into_iter().find(|saved| saved.table == table).unwrap();
        (saved, Connection::open(new).unwrap())
    }

    fn keys(new: &Connection, table: &str) -> Vec<String> {
        let mut find = new.prepare(&format!("SELECT attr_path FROM {table} ORDER BY 1")).unwrap();
        find.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
    }

    /// A row that was overwritten, so that it is none of the table's, is counted as lost; the others are saved.
    #[test]
    fn refused_rows_are_counted() {
        let attempts =
            "CREATE TABLE shiftboss_attempts (attempt INTEGER PRIMARY KEY, attr_path, fetcher_id,
                run_started, started, finished, outcome);
            INSERT INTO shiftboss_attempts VALUES (1, 'alpha', 1, 1, 1, 1, 'done'),
                (2, 'bravo', 'text', 1, 1, 1, 'done'), (3, NULL, 1, 1, 1, 1, 'done'),
                (4, 'delta', 1, 1, 1, 1, 'done')";
        let (saved, new) = saved(attempts, "shiftboss_attempts");
        assert_eq!((saved.rows, saved.lost_ranges, saved.lost_for_good()), (2, 2, true));
        assert_eq!(keys(&new, "shiftboss_attempts"), ["alpha", "delta"]);
    }

    /// Of two rows with one key the first one stays, and the other is counted as lost.
    #[test]
    fn duplicates_are_counted() {
        let log = "CREATE TABLE log (attr_path, started, finished, exit_code);
            INSERT INTO log VALUES ('alpha', 1, 1, 0), ('alpha', 2, 2, 0), ('bravo', 3, 3, 0)";
        let (saved, new) = saved(log, "log");
        assert_eq!((saved.rows, saved.lost_ranges, saved.from_ends), (2, 1, false));
        let started = "SELECT started FROM log WHERE attr_path = 'alpha'";
        assert_eq!(new.query_row(started, [], |row| row.get::<_, i64>(0)), Ok(1));
    }

    /// The reference's log has no rowids: it is read in the order of its keys.
    #[test]
    fn the_reference_s_log_is_saved() {
        let log = "CREATE TABLE log (attr_path TEXT PRIMARY KEY, started INTEGER NOT NULL, finished INTEGER,
                exit_code INTEGER) STRICT, WITHOUT ROWID;
            INSERT INTO log VALUES ('bravo', 2, NULL, NULL), ('alpha', 1, 1, 0)";
        let (saved, new) = saved(log, "log");
        assert_eq!((saved.rows, saved.lost_ranges, saved.from_ends), (2, 0, true));
        assert_eq!(keys(&new, "log"), ["alpha", "bravo"]);
    }

    /// A single task with a wild number is its row's of the queue, and no second one; without a row it gets the
    /// next number.
    #[test]
    fn wild_tasks_are_no_second_ones() {
        let tasks = "CREATE TABLE fetchers (fetcher_id INTEGER PRIMARY KEY, name);
            INSERT INTO fetchers VALUES (0, '@tasks');
            CREATE TABLE fetcher_runs (fetcher_id, run_started, is_complete);
            INSERT INTO fetcher_runs VALUES (0, 7, 1), (0, 8, 1);
            CREATE TABLE queue (fetcher_id, fetcher_run_started, attr_path, payload, is_dequeued);
            INSERT INTO queue VALUES (0, 7, 'alpha', '1', 0), (0, 8, 'bravo', '1', 0);
            CREATE TABLE shiftboss_counters (name, value);
            INSERT INTO shiftboss_counters VALUES ('task', 9);
            CREATE TABLE shiftboss_single_tasks (task INTEGER PRIMARY KEY, attr_path, checksum, added, payload);
            INSERT INTO shiftboss_single_tasks VALUES (-1, 'alpha', 1, 1, '1'),
                (8, 'bravo', 1, 1, '1'), (9223372036854775807, 'bravo', 1, 1, '1')";
        let (saved, new) = saved(tasks, "shiftboss_single_tasks");
        assert_eq!((saved.rows, saved.lost_ranges), (3, 0));
        let numbers = "SELECT group_concat(task || attr_path) FROM shiftboss_single_tasks";
        let numbers: String = new.query_row(numbers, [], |row| row.get(0)).unwrap();
        assert_eq!(numbers, "7alpha,8bravo,10bravo");
        let counter = "SELECT value FROM shiftboss_counters WHERE name = 'task'";
        assert_eq!(new.query_row(counter, [], |row| row.get::<_, i64>(0)), Ok(10));
    }
}
