//! A new file that a queue is moved into: made under a temporary name, filled in one transaction, and marked until the
//! move is ended. What is derived is made anew by what a take-over calls.

use std::cell::Cell;
use std::path::{Path, PathBuf};

use rusqlite::config::DbConfig;
use rusqlite::functions::FunctionFlags;
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, OpenFlags, Result, Statement, ToSql};
use shiftboss_protocol::fetcher_file::checksum;
use shiftboss_protocol::model::{TASKS_FETCHER, jitter};

use super::ARRIVING;
use crate::exit::{ExitCode, Failure};
use crate::stores::mark::{Mark, Moved};
use crate::stores::options::Durability;
use crate::stores::sqlite::file::{self, failed};
use crate::stores::sqlite::records::set_state;
use crate::stores::sqlite::recover::rebuild;
use crate::stores::sqlite::rowids::rowid;
use crate::stores::transfer::{Intake, Source, Table, Target, Value, occupied, read_all};

/// Pages kept in memory while it is filled, in KiB.
const CACHE_KIB: i64 = 64 * 1024;
/// Attempts whose end is not known come last: the take-over would take some for ended by somebody else.
const OPEN: &str = "CREATE TEMP TABLE open AS SELECT * FROM shiftboss_deliveries WHERE 0";
/// Single tasks have a run for each row.
const RUNS_OF_TASKS: &str = "
    INSERT INTO fetchers (fetcher_id, name)
        SELECT 0, ?1 WHERE EXISTS (SELECT 1 FROM queue WHERE fetcher_id = 0);
    INSERT INTO fetcher_runs (fetcher_id, run_started, is_complete)
        SELECT 0, fetcher_run_started, 1 FROM queue WHERE fetcher_id = 0";
const COUNTS: &str = "
    UPDATE shiftboss_counters SET value = (SELECT count(*) FROM queue) WHERE name = 'row';
    UPDATE shiftboss_counters SET value = (SELECT count(*) FROM shiftboss_single_tasks)
        WHERE name = 'single_tasks';
    UPDATE shiftboss_counters
        SET value = (SELECT count(*) FROM shiftboss_single_tasks WHERE status <> 'waiting')
        WHERE name = 'single_tasks_ended'";
/// The triggers set the states of their keys' rows.
const DELIVER: &str = "INSERT INTO shiftboss_deliveries SELECT * FROM open";

const STATE: &[&str] = &[
    "INSERT INTO shiftboss_state (name, value) SELECT 'paused', '1' WHERE ?1",
    "UPDATE shiftboss_counters SET value = ?2 WHERE name = 'task'",
    "UPDATE shiftboss_counters SET value = ?3 WHERE name = 'attempt'",
    "INSERT INTO sqlite_sequence (name, seq) VALUES ('fetchers', ?4)",
    "INSERT INTO shiftboss_state (name, value) SELECT 'lease', ?5 WHERE ?5 IS NOT NULL",
    "INSERT INTO shiftboss_state (name, value)
        SELECT 'max_single_tasks', ?6 WHERE ?6 IS NOT NULL",
    "INSERT INTO shiftboss_state (name, value)
        SELECT 'input_directory', ?7 WHERE ?7 IS NOT NULL",
    "INSERT INTO shiftboss_state (name, value) SELECT 'installation', ?8 WHERE ?8 IS NOT NULL",
    "UPDATE shiftboss_counters SET value = ?9 WHERE name = 'credit'",
    "INSERT INTO shiftboss_state (name, value)
        SELECT 'bump_share', ?10 WHERE ?10 IS NOT NULL",
];

/// What becomes of a row.
fn inserts(table: Table) -> &'static [&'static str] {
    match table {
        Table::State => STATE,
        Table::Fetchers => &["INSERT INTO fetchers (fetcher_id, name) VALUES (?1, ?2)"],
        Table::Runs => &[
            "INSERT INTO fetcher_runs (fetcher_id, run_started, is_complete) VALUES (?1, ?2, ?3)",
            "INSERT INTO shiftboss_runs (fetcher_id, run_started, deleting, stale, skipped,
                offset, lines, device, inode, checksum, content, modified, changed)
            VALUES (?1, ?2, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)",
            "INSERT INTO shiftboss_relays (name, process, epoch, lost, joined)
            SELECT ?15, '', (SELECT coalesce(max(epoch), 0) + 1 FROM shiftboss_relays), 2, 0
            WHERE ?15 IS NOT NULL ON CONFLICT (name) DO NOTHING",
            "INSERT OR IGNORE INTO shiftboss_relay_fetchers (name, relay)
            SELECT fetchers.name, relay FROM fetchers JOIN shiftboss_relays ON shiftboss_relays.name = ?15
            WHERE fetcher_id = ?1",
        ],
        Table::Queue => &[
            "INSERT INTO queue (fetcher_id, fetcher_run_started, attr_path, payload, is_dequeued,
                last_served, order_jitter, rowid)
            VALUES (?1, ?2, ?3, ?4, ?5, ?6, jitter(?3), next_rowid(?3))",
            "INSERT INTO shiftboss_expired_leases
                (fetcher_id, run_started, attr_path, expired_leases, dead_letter)
            SELECT ?1, ?2, ?3, ?7, ?8 WHERE ?7 > 0",
        ],
        Table::Log => {
            &["INSERT INTO log (attr_path, started, finished, exit_code) VALUES (?1, ?2, ?3, ?4)"]
        }
        Table::LastServed => {
            &["INSERT INTO shiftboss_last_served (attr_path, name, attempt) VALUES (?1, ?2, ?3)"]
        }
        Table::Attempts => &[
            "INSERT INTO shiftboss_attempts (attempt, attr_path, fetcher_id, run_started, started,
                worker, finished, outcome, exit_code, took_ms, ended, previous)
            SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?14, ?15, ?16, ?17, ?18, ?12 WHERE ?15 IS NOT NULL",
            "INSERT INTO open (attempt, attr_path, fetcher_id, run_started, started, worker, lease,
                delivery_count, prev_started, prev_finished, prev_exit_code, prev_last_served, marked_runs)
            SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13 WHERE ?15 IS NULL",
        ],
        Table::SingleTasks => &[
            "INSERT INTO shiftboss_single_tasks (task, attr_path, checksum, added, status, payload)
            VALUES (?1, ?2, checksum(?5), ?3, ?4, ?5)",
        ],
        Table::Accepted => &[
            "INSERT INTO shiftboss_accepted (spool, name, inode, born, checksum)
            VALUES (?1, ?2, ?3, ?4, ?5)",
        ],
        Table::Completions => &[
            "INSERT INTO shiftboss_completions (minute, exit_code, jobs) VALUES (?1, ?2, ?3)",
        ],
        Table::Hours => &["INSERT INTO shiftboss_hours
                (hour, fetcher, outcome, jobs, took_ms, revisits, revisit_seconds)
            VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)"],
        Table::Holds => &[
            "INSERT INTO shiftboss_holds (attr_path, kind, since, until, reason, by)
            VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        ],
        Table::BackoffCounts => {
            &["INSERT INTO shiftboss_backoff_counts (attr_path, failures) VALUES (?1, ?2)"]
        }
        Table::Bumps => &[
            "INSERT INTO shiftboss_bumps (attr_path, since, by, attempt, last_attempt, kind, due, fetcher_id, run_started,
                retries)
            VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
        ],
    }
}

/// Bytes are texts, too.
impl ToSql for Value {
    fn to_sql(&self) -> Result<ToSqlOutput<'_>> {
        let value = match self {
            Self::Integer(value) => value.map(ValueRef::Integer),
            Self::Text(text) => text.as_ref().map(|text| ValueRef::Text(text.as_bytes())),
            Self::Bytes(bytes) => bytes.as_ref().map(|bytes| ValueRef::Text(bytes)),
        };
        Ok(ToSqlOutput::Borrowed(value.unwrap_or(ValueRef::Null)))
    }
}

/// See the module's documentation.
pub(in crate::stores) struct Arriving {
    path: PathBuf,
    begun: Option<Mark>,
}

impl Arriving {
    /// The caller has its lock.
    pub(in crate::stores) fn open(path: &Path) -> std::result::Result<Self, Failure> {
        let path =
            std::path::absolute(path).map_err(|error| file::access("look at", path, error))?;
        // For writing: the move may have been killed in the middle of its last step.
        let read = |connection| super::mark(&connection, ARRIVING).ok().flatten();
        let begun = open_to_write(&path).ok().and_then(read);
        Ok(Self { path, begun })
    }
}

fn open_to_write(path: &Path) -> Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    Connection::open_with_flags(path, flags)
}

impl Target for Arriving {
    fn name(&self) -> String {
        self.path.display().to_string()
    }

    fn mark(&mut self) -> std::result::Result<Option<Mark>, Failure> {
        Ok(self.begun.clone())
    }

    fn discard(&mut self) -> std::result::Result<(), Failure> {
        let path = &self.path;
        std::fs::remove_file(path).map_err(|error| file::access("remove", path, error))
    }

    fn fill(
        &mut self,
        mark: &Mark,
        source: &mut dyn Source,
    ) -> std::result::Result<Vec<Moved>, Failure> {
        if self.path.symlink_metadata().is_ok() {
            let path = self.path.display();
            let text = format!("{path} exists already: remove it, or choose another name");
            return Err(occupied(text));
        }
        let (mut moved, mut why) = (Vec::new(), None);
        let made = file::make_new(&self.path, |connection| {
            let filled = Filling { connection, path: &self.path }.run(mark, source);
            filled.map(|all| moved = all).map_err(|failure| {
                let text = failure.to_string();
                why = Some(failure);
                text
            })
        });
        match (made, why) {
            (Ok(()), _) => Ok(moved),
            (Err(_), Some(why)) => Err(why),
            (Err(error), None) => {
                let text = format!("cannot make {}: {error}", self.path.display());
                Err(Failure::new(ExitCode::CannotCreate, text))
            }
        }
    }

    fn open_up(&mut self) -> std::result::Result<(), Failure> {
        let opened = open_to_write(&self.path).and_then(|connection| {
            connection.execute("DELETE FROM shiftboss_state WHERE name = ?1", [ARRIVING])
        });
        opened.map(drop).map_err(failed("open up", &self.path))
    }
}

/// A database that is made.
struct Filling<'a> {
    connection: &'a mut Connection,
    path: &'a Path,
}

impl Filling<'_> {
    fn run(self, mark: &Mark, source: &mut dyn Source) -> std::result::Result<Vec<Moved>, Failure> {
        let Self { connection, path } = self;
        prepare(connection).map_err(failed("make", path))?;
        let moved = read_all(source, &mut Rows { connection, path, statements: Vec::new() })?;
        finish(connection, mark).map_err(failed("fill", path))?;
        Ok(moved)
    }
}

/// Makes the schema, and begins the transaction. Whatever is written of a file that is not whole is of no use, so nothing
/// is synced before its end.
fn prepare(connection: &mut Connection) -> Result<()> {
    file::make_schema(connection)?;
    connection.pragma_update(None, "synchronous", "off")?;
    connection.pragma_update(None, "cache_size", -CACHE_KIB)?;
    connection.pragma_update(None, "foreign_keys", false)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false)?;
    add_functions(connection)?;
    connection.execute_batch(OPEN)?;
    connection.execute_batch("BEGIN; DELETE FROM sqlite_sequence")
}

fn add_functions(connection: &Connection) -> Result<()> {
    let flags = FunctionFlags::SQLITE_UTF8;
    connection.create_scalar_function("checksum", 1, flags, |context| {
        Ok(checksum(context.get_raw(0).as_bytes()?).cast_signed())
    })?;
    connection.create_scalar_function("jitter", 1, flags, |context| {
        Ok(jitter(context.get_raw(0).as_str()?))
    })?;
    let sequence = Cell::new(0);
    connection.create_scalar_function("next_rowid", 1, flags, move |context| {
        sequence.set(sequence.get() + 1);
        Ok(rowid(jitter(context.get_raw(0).as_str()?), sequence.get()))
    })
}

/// All that is derived.
fn finish(connection: &mut Connection, mark: &Mark) -> Result<()> {
    for sql in RUNS_OF_TASKS.split(';') {
        let mut statement = connection.prepare(sql)?;
        let parameters = statement.parameter_count();
        statement.execute(&[&TASKS_FETCHER as &dyn ToSql][..parameters])?;
    }
    connection.execute_batch(COUNTS)?;
    connection.execute_batch("COMMIT")?;
    rebuild(connection)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, true)?;
    let transaction = connection.transaction()?;
    transaction.execute(DELIVER, [])?;
    // What status shows until a daemon notes its own.
    set_state(&*transaction, "policy", "fair")?;
    set_state(&*transaction, "durability", Durability::Power.name())?;
    set_state(&*transaction, ARRIVING, &mark.to_string())?;
    transaction.commit()
}

/// Inserts the rows of one table after the other.
struct Rows<'a> {
    connection: &'a Connection,
    path: &'a Path,
    statements: Vec<Statement<'a>>,
}

impl Rows<'_> {
    fn insert(&mut self, row: &[Value]) -> Result<()> {
        for statement in &mut self.statements {
            for at in 1..=statement.parameter_count() {
                statement.raw_bind_parameter(at, &row[at - 1])?;
            }
            statement.raw_execute()?;
        }
        Ok(())
    }
}

impl Intake for Rows<'_> {
    fn begin(&mut self, table: Table) -> std::result::Result<(), Failure> {
        let statements = inserts(table).iter().map(|sql| self.connection.prepare(sql));
        self.statements = statements.collect::<Result<_>>().map_err(failed("fill", self.path))?;
        Ok(())
    }

    fn add(&mut self, row: &[Value]) -> std::result::Result<(), Failure> {
        self.insert(row).map_err(failed("fill", self.path))
    }

    fn end(&mut self) -> std::result::Result<(), Failure> {
        self.statements.clear();
        Ok(())
    }
}
