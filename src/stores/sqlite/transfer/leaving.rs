//! A queue in a file, from which it is moved: one transaction, in which nobody else writes, reads all of it, and ends with
//! the mark that it was moved.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, Row};

use super::LEFT;
use crate::exit::Failure;
use crate::stores::mark::Mark;
use crate::stores::sqlite::file::{self, failed, not_ours};
use crate::stores::sqlite::query::Query;
use crate::stores::sqlite::records::{set_state, state};
use crate::stores::sqlite::{damage, schema};
use crate::stores::transfer::{Each, Kind, Source, Table, Value};

/// How long somebody else who writes is waited for.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// What the file's name among all queues stands under in `shiftboss_state`: nothing of a file system is one, for numbers of
/// files are used again.
const IDENTITY: &str = "identity";
const NAME_IT: &str = "INSERT INTO shiftboss_state (name, value)
    SELECT ?1, lower(hex(randomblob(16))) WHERE NOT EXISTS (SELECT 1 FROM shiftboss_state WHERE name = ?1)";

/// The columns of a table. Who edits by hand may leave rows that hang on nothing; they stay behind.
fn select(table: Table) -> &'static str {
    match table {
        Table::State => {
            "SELECT coalesce((SELECT value FROM shiftboss_state WHERE name = 'paused'), '0') = '1',
                (SELECT value FROM shiftboss_counters WHERE name = 'task'),
                (SELECT value FROM shiftboss_counters WHERE name = 'attempt'),
                coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'fetchers'), 0),
                (SELECT CAST(value AS INTEGER) FROM shiftboss_state WHERE name = 'lease'),
                (SELECT CAST(value AS INTEGER) FROM shiftboss_state WHERE name = 'max_single_tasks'),
                (SELECT value FROM shiftboss_state WHERE name = 'input_directory'),
                (SELECT value FROM shiftboss_state WHERE name = 'installation'),
                coalesce((SELECT value FROM shiftboss_counters WHERE name = 'credit'), 1000),
                (SELECT CAST(value AS INTEGER) FROM shiftboss_state WHERE name = 'bump_share')"
        }
        Table::Fetchers => "SELECT fetcher_id, name FROM fetchers WHERE fetcher_id <> 0",
        Table::Runs => {
            "SELECT run.fetcher_id, run.run_started, is_complete <> 0, deleting <> 0, stale <> 0, skipped,
                offset, lines, device, inode, checksum, content, modified, changed,
                (SELECT known.name FROM shiftboss_relay_fetchers AS owned JOIN shiftboss_relays AS known USING (relay)
                    WHERE owned.name = fetchers.name)
            FROM fetcher_runs AS run JOIN fetchers USING (fetcher_id)
            JOIN shiftboss_runs AS ours
                ON ours.fetcher_id = run.fetcher_id AND ours.run_started = run.run_started
            WHERE run.fetcher_id <> 0"
        }
        Table::Queue => {
            "SELECT queue.fetcher_id, fetcher_run_started, queue.attr_path, payload, is_dequeued <> 0,
                last_served, coalesce(expired_leases, 0), coalesce(dead_letter, 0)
            FROM queue LEFT JOIN shiftboss_expired_leases AS lost
                ON lost.fetcher_id = queue.fetcher_id AND lost.run_started = fetcher_run_started
                AND lost.attr_path = queue.attr_path"
        }
        Table::Log => "SELECT attr_path, started, finished, exit_code FROM log",
        Table::LastServed => "SELECT attr_path, name, attempt FROM shiftboss_last_served",
        Table::Attempts => {
            "SELECT attempt, attr_path, fetcher_id, run_started, started, worker, NULL, 1,
                NULL, NULL, NULL, previous, NULL, finished, outcome, exit_code, took_ms, ended
            FROM shiftboss_attempts
            UNION ALL SELECT attempt, attr_path, fetcher_id, run_started, started, worker, lease,
                delivery_count, prev_started, prev_finished, prev_exit_code, prev_last_served,
                marked_runs, NULL, NULL, NULL, NULL, NULL FROM shiftboss_in_flight"
        }
        Table::SingleTasks => {
            "SELECT task, attr_path, added, status, payload FROM shiftboss_single_tasks"
        }
        Table::Accepted => "SELECT spool, name, inode, born, checksum FROM shiftboss_accepted",
        Table::Completions => {
            "SELECT minute, exit_code, jobs FROM shiftboss_completions WHERE jobs > 0"
        }
        Table::Hours => {
            "SELECT hour, fetcher, outcome, jobs, took_ms, revisits, revisit_seconds FROM shiftboss_hours WHERE jobs > 0"
        }
        Table::Holds => "SELECT attr_path, kind, since, until, reason, by FROM shiftboss_holds",
        Table::BackoffCounts => "SELECT attr_path, failures FROM shiftboss_backoff_counts",
        Table::Bumps => {
            "SELECT attr_path, since, by, attempt, last_attempt, kind, due, fetcher_id, run_started, retries FROM shiftboss_bumps ORDER BY place"
        }
    }
}

/// Ends of single tasks' jobs that somebody wrote into the log while no daemon ran.
const EDITED: &str =
    "SELECT EXISTS (SELECT 1 FROM shiftboss_single_tasks WHERE exit_code IS NOT NULL)";

/// See the module's documentation. Without [`Source::leave`] the file stays as it was.
pub(in crate::stores) struct Leaving {
    connection: Connection,
    path: PathBuf,
}

impl Leaving {
    /// The caller has its lock.
    pub(in crate::stores) fn open(path: &Path) -> Result<Self, Failure> {
        file::look(path)?;
        let path =
            std::path::absolute(path).map_err(|error| file::access("look at", path, error))?;
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection =
            Connection::open_with_flags(&path, flags).map_err(failed("open", &path))?;
        connection
            .busy_timeout(BUSY_TIMEOUT)
            .and_then(|()| connection.execute_batch("BEGIN IMMEDIATE"))
            .map_err(failed("write to", &path))?;
        let leaving = Self { connection, path };
        if let Some(why) = leaving.unfit().map_err(failed("read", &leaving.path))? {
            return Err(why);
        }
        // Before anything is moved: the target has it from the beginning on.
        let named = leaving.connection.execute(NAME_IT, [IDENTITY]);
        named
            .and_then(|_| leaving.connection.execute_batch("COMMIT; BEGIN IMMEDIATE"))
            .map_err(failed("write to", &leaving.path))?;
        Ok(leaving)
    }

    fn unfit(&self) -> rusqlite::Result<Option<Failure>> {
        let (connection, path) = (&self.connection, self.path.display());
        let of_version = schema::version(connection)?;
        if of_version != schema::VERSION {
            let known = schema::VERSION;
            return Ok(Some(not_ours(format!(
                "the database {path} has version {of_version}, and only one of version {known} is moved: start `shiftboss serve` on it once, which brings it up to date, and stop it"
            ))));
        }
        if let Some(what) = damage::missing(connection)? {
            return Ok(Some(file::corrupt(&self.path, &what)));
        }
        let is_fair = state(connection, "policy")?.as_deref() == Some("fair");
        if !is_fair || connection.value(EDITED, [])? {
            return Ok(Some(not_ours(format!(
                "the database {path} was used without leases last (--classic, the Python supervisor), or edited by hand: start `shiftboss serve` on it once, which sees to that, and stop it"
            ))));
        }
        Ok(None)
    }
}

fn value(row: &Row<'_>, at: usize, kind: Kind) -> rusqlite::Result<Value> {
    Ok(match kind {
        Kind::Integer => Value::Integer(row.get(at)?),
        Kind::Text => {
            Value::Text(row.get::<_, Option<String>>(at)?.map(|text| text.replace('\0', "\\0")))
        }
        Kind::Key | Kind::Bytes => {
            Value::Bytes(row.get_ref(at)?.as_bytes_or_null()?.map(<[u8]>::to_vec))
        }
    })
}

impl Source for Leaving {
    fn name(&self) -> String {
        self.path.display().to_string()
    }

    fn identity(&mut self) -> Result<String, Failure> {
        let named = state(&self.connection, IDENTITY).map_err(failed("read", &self.path))?;
        Ok(named.unwrap_or_default())
    }

    fn mark(&mut self) -> Result<Option<Mark>, Failure> {
        super::mark(&self.connection, LEFT).map_err(failed("read", &self.path))
    }

    fn read(&mut self, table: Table, each: Each<'_>) -> Result<(), Failure> {
        let cannot = || failed("read", &self.path);
        let mut statement = self.connection.prepare(select(table)).map_err(cannot())?;
        let mut rows = statement.query([]).map_err(cannot())?;
        while let Some(row) = rows.next().map_err(cannot())? {
            let columns = table.columns().iter().enumerate();
            let values: rusqlite::Result<Vec<Value>> =
                columns.map(|(at, (_, kind))| value(row, at, *kind)).collect();
            each(&values.map_err(cannot())?)?;
        }
        Ok(())
    }

    fn leave(&mut self, mark: &Mark) -> Result<(), Failure> {
        let marked = set_state(&self.connection, LEFT, &mark.to_string());
        marked
            .and_then(|()| self.connection.execute_batch("COMMIT"))
            .map_err(failed("mark as moved", &self.path))
    }
}
