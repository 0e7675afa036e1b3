//! Opening a database, making a new one, and refusing what is none of ours (spec 6).
//!
//! Order: a look at the plain file ([`mod@file`]); then what it holds; then WAL mode and the migrations.
//! A file that is refused is left as it is.

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags, Result};
use shiftboss_actors::store::RetryRules;
use shiftboss_protocol::model::TASKS_FETCHER;
use tracing::warn;

use super::adopt::record_dispatches;
use super::bumps::Bumps;
use super::changes::Changes;
use super::checkpoints::Checkpoints;
use super::dispatch_cache::DispatchCache;
use super::file::{access, corrupt, failed, foreign, not_ours};
use super::lock_yielding::LockYielding;
use super::maintenance::{set_journal_mode, watch_files};
use super::options::{Options, Policy};
use super::partitions::Partitions;
use super::query::Query;
use super::records::{is_paused, set_state, state};
use super::schema::TASKS_ID;
use super::session::{Queue, Session};
use super::store::SqliteStore;
use super::write_behind::WriteBehindCounters;
use super::{damage, file, listings, relays, schema, transfer};
use crate::exit::{ExitCode, Failure};

/// The first SQLite without a bug that could corrupt a database in WAL mode.
const SQLITE_VERSION_MIN: i32 = 3_051_003;
/// Statements that are kept prepared: some sixty, and two for each partition.
const STATEMENTS_MAX: usize = 192;
/// Page cache at the most, in KiB. The kernel has the file too; and SQLite searches its whole cache
/// after many a commit.
const CACHE_KIB_MAX: i64 = 4 * 1024;
/// The log is cut to this size when it is begun anew.
const LOG_BYTES_MAX: i64 = 64 * 1024 * 1024;
/// How long the start waits for readers to leave, so that WAL mode can be entered.
const ENTER_WAL_PATIENCE: Duration = Duration::from_secs(30);
/// Runs of lists that are named as the fetcher of single tasks is.
const LISTS_OF_THE_NAME: &str = "DELETE FROM fetcher_runs WHERE fetcher_id IN (
    SELECT fetcher_id FROM fetchers WHERE name = ?1 AND fetcher_id <> ?2)";

impl SqliteStore {
    /// Opens the database at a path, made anew if there is none, migrated if it is older.
    ///
    /// # Errors
    /// Why it is refused, and what to do. It is as it was then.
    pub fn open(given: &Path, options: &Options) -> Result<Self, Failure> {
        if rusqlite::version_number() < SQLITE_VERSION_MIN {
            let version = rusqlite::version();
            let text = format!(
                "built with SQLite {version}, which can corrupt databases in WAL mode: build with 3.51.3 or newer"
            );
            return Err(Failure::new(ExitCode::Internal, text));
        }
        file::look(given)?;
        let path = &file::found_or_made(given)?;
        let mut connection = Self::connect(path, options)?;
        let started = start(&mut connection, options);
        let (was_clean, queue) = started.map_err(failed("begin to use", path))?;
        let lock_yielding = LockYielding::new(&file::beside(path, "-shm"))
            .map_err(|source| access("open", path, source))?;
        // By now SQLite has all of them open; a link is looked at as well as what it leads to.
        let files = [given.to_owned(), file::beside(path, "-wal"), file::beside(path, "-shm")];
        let files = watch_files(files).map_err(|source| access("look at", path, source))?;
        let (durability, changes) = (options.durability, Changes::default());
        Ok(Self { connection, queue, files, changes, lock_yielding, durability, was_clean })
    }

    /// A connection to a sound database of this version.
    fn connect(path: &Path, options: &Options) -> Result<Connection, Failure> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mut connection =
            Connection::open_with_flags(path, flags).map_err(failed("open", path))?;
        configure(&mut connection, options).map_err(failed("configure", path))?;
        // One that is refused keeps its log.
        let keep_log = DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE;
        connection
            .set_db_config(keep_log, file::is_hot(path, "-wal"))
            .map_err(failed("configure", path))?;
        fault_inside(&connection, path).map_err(failed("read", path))?.map_or(Ok(()), Err)?;
        connection.set_db_config(keep_log, false).map_err(failed("configure", path))?;
        set_journal_mode(&connection, "wal", ENTER_WAL_PATIENCE)
            .map_err(failed("switch to WAL mode (no reader may be in)", path))?;
        schema::migrate(&mut connection).map_err(failed("migrate", path))?;
        match damage::missing(&connection).map_err(failed("read", path))? {
            Some(what) => Err(corrupt(path, &what)),
            None => Ok(connection),
        }
    }
}

/// Begins to use a database: whether its last daemon closed it, and what is kept in memory of it.
fn start(connection: &mut Connection, options: &Options) -> Result<(bool, Queue)> {
    listings::prepare(connection)?;
    let is_fair = options.policy != Policy::Classic;
    let checkpoints = Checkpoints::new(connection)?;
    let was_clean = state(connection, "clean")?.as_deref() != Some("0");
    note_start(connection, options).or_else(|error| tolerate(error, options))?;
    let mut queue = Queue {
        policy: options.policy,
        partitions: Partitions::load(connection)?,
        checkpoints,
        cache: DispatchCache::default(),
        counters: WriteBehindCounters::load(connection, options.history)?,
        bumps: Bumps::load(connection, options.policy, options.bump_share)?,
        backoff: options.backoff.clone().filter(|_| is_fair),
        retries: if is_fair { options.retries.clone() } else { RetryRules::default() },
        paused: is_paused(connection)?,
        max_single_tasks: options.max_single_tasks.into(),
        max_expired_leases: options.max_expired_leases.into(),
        has_relays: relays::are_any(connection)?,
    };
    // What triggers do for others is done by `derived_state` from here on.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false)?;
    let mut session = Session::new(connection, &mut queue);
    session.restore_tasks()?;
    session.resolve_bumps()?;
    session.forget_all_stale()?;
    session.end_backoff_without_rule()?;
    drop(session);
    Ok((was_clean, queue))
}

/// On a full disk an earlier daemon's notes stand as well. Requests fail until there is space again.
fn tolerate(error: rusqlite::Error, options: &Options) -> Result<()> {
    let is_full = error.sqlite_error_code() == Some(ErrorCode::DiskFull);
    if options.policy == Policy::Classic || !is_full {
        return Err(error);
    }
    warn!(%error, "The disk is full: requests wait until there is space for the database.");
    Ok(())
}

/// Notes what status shows of this daemon, and that it has not been stopped yet.
fn note_start(connection: &Connection, options: &Options) -> Result<()> {
    let (policy, bump_share) = match options.policy {
        Policy::Classic => ("classic", 0),
        Policy::Fair { .. } => ("fair", options.bump_share),
    };
    let transaction = connection.unchecked_transaction()?;
    if options.policy != Policy::Classic {
        record_dispatches(&transaction)?;
    }
    for (name, value) in [
        ("clean", "0"),
        ("durability", options.durability.name()),
        ("policy", policy),
        ("lease", &options.policy.lease().to_string()),
        ("bump_share", &bump_share.to_string()),
        ("max_single_tasks", &options.max_single_tasks.to_string()),
        ("pid", &std::process::id().to_string()),
    ] {
        set_state(&*transaction, name, value)?;
    }
    transaction
        .run("INSERT OR REPLACE INTO shiftboss_state VALUES ('started', unixepoch())", [])?;
    // What an earlier daemon left out, this one finds out for itself.
    transaction.run("DELETE FROM shiftboss_rejected_files", [])?;
    // No list may have that name; one that the Python supervisor took in goes.
    transaction.run(LISTS_OF_THE_NAME, (TASKS_FETCHER, TASKS_ID))?;
    if options.policy == Policy::Classic {
        transaction.execute_batch(&schema::extract_all())?;
        transaction.run("DELETE FROM shiftboss_deliveries", [])?;
        // It knows no single tasks; they come back with the other policy.
        transaction.run("DELETE FROM fetcher_runs WHERE fetcher_id = ?1", [TASKS_ID])?;
        // The Python supervisor knows no pause, and nobody could end it.
        transaction.run("DELETE FROM shiftboss_state WHERE name = 'paused'", [])?;
    }
    transaction.commit()
}

fn configure(connection: &mut Connection, options: &Options) -> Result<()> {
    connection.busy_handler(Some(wait_for_lock(options.busy_timeout)))?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
    // Plans must not depend on bound values: SQLite would compile statements anew at every call.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    connection.pragma_update(None, "synchronous", options.durability.synchronous())?;
    connection.pragma_update(None, "foreign_keys", true)?;
    connection.pragma_update(None, "trusted_schema", false)?;
    connection.pragma_update(None, "cell_size_check", true)?;
    connection.pragma_update(None, "cache_size", -CACHE_KIB_MAX)?;
    connection.pragma_update(None, "journal_size_limit", LOG_BYTES_MAX)
}

/// Waits for a lock of somebody else, up to `patience` by the clock. SQLite's own timeout adds up how long it meant
/// to sleep, which on a loaded machine is much less than it did.
#[allow(clippy::disallowed_methods)] // The thread is the store's own, and SQLite's handler sleeps as well.
fn wait_for_lock(patience: Duration) -> impl FnMut(i32) -> bool + Send + 'static {
    let mut since = Instant::now();
    move |tries| {
        if tries == 0 {
            since = Instant::now();
        }
        let left = patience.saturating_sub(since.elapsed());
        std::thread::sleep(left.min(Duration::from_millis(1 << tries.min(6))));
        !left.is_zero()
    }
}

/// What speaks against a database that can be read: it is not a supervisor's, or of a version that we do not know.
fn fault_inside(connection: &Connection, path: &Path) -> Result<Option<Failure>> {
    if connection.is_readonly("main")? {
        let source = io::ErrorKind::PermissionDenied.into();
        return Ok(Some(access("write to", path, source)));
    }
    let application = connection.pragma_query_one(None, "application_id")?;
    let version = schema::version(connection)?;
    if let Err(fault) = file::check_application(path, application, version) {
        return Ok(Some(fault));
    }
    if schema::is_too_old(connection)? {
        let path = path.display();
        return Ok(Some(not_ours(format!(
            "the database {path} has version {version} with the tables of an unreleased build before version 5, which this program does not upgrade: start a build of version 5 or 6 on it first; or move the file away, and all lists are read again into a new one"
        ))));
    }
    for table in schema::PUBLIC_TABLES {
        if !connection.table_exists(None, table)? {
            return Ok(Some(foreign(
                path,
                &format!("version {version}, without the table {table}"),
            )));
        }
    }
    transfer::fault(connection, path)
}
