//! Opening a database, making a new one, taking over the Python supervisor's, and refusing what is not ours (spec 6).
//!
//! Order: a check of the plain file ([`mod@file`]); then whose tables it has; then the take-over, WAL mode and the
//! daemon's notes of itself. A refused file is left as it is.

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, Result};
use shiftboss_actors::clock::{Clock, SystemClock};
use shiftboss_queue::documents::{ARRIVING, DAEMON, INPUT, MOVED};
use shiftboss_queue::engine::Engine;
use shiftboss_queue::error::{StoreError, StoreResult};
use shiftboss_queue::record::Millis;
use shiftboss_sqlite::{
    Progress, SqliteRecords, TakenOver, Whose, at_once, beside, document, missing, set_aside,
    take_over, whose,
};
use tracing::{info, warn};

use super::changes::Changes;
use super::checkpoints::Checkpoints;
use super::file::{self, access, corrupt, failed, not_usable, stopped};
use super::lock_yielding::LockYielding;
use super::maintenance::{set_journal_mode, watch_files};
use super::options::{Options, Policy};
use super::store::SqliteStore;
use crate::exit::{ExitCode, Failure};
use crate::stores::Found;
use crate::stores::transfer::{gone, unfinished};

/// The first SQLite without a bug that could corrupt a database in WAL mode.
const SQLITE_VERSION_MIN: i32 = 3_051_003;
/// Largest page cache, in KiB. The kernel caches the file, too; and SQLite searches its whole cache after many commits.
const CACHE_KIB_MAX: i64 = 4 * 1024;
/// The log is cut to this size when it is begun anew.
const LOG_BYTES_MAX: i64 = 64 * 1024 * 1024;
/// How long the start waits for readers to leave, so that WAL mode can be entered.
const ENTER_WAL_PATIENCE: Duration = Duration::from_secs(30);
/// Most rows set aside by a take-over that are named.
const NAMED_MAX: u32 = 10;

impl SqliteStore {
    /// Opens the database at a path, made anew if there is none, taken over if it is the Python supervisor's.
    /// One that is refused is as it was.
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
        let mut connection = connect(path, options)?;
        let checkpoints =
            Checkpoints::new(&mut connection).map_err(failed("begin to use", path))?;
        let (engine, found) = start(connection, options).map_err(stopped("begin to use", path))?;
        let lock_yielding = LockYielding::new(&beside(path, "-shm"))
            .map_err(|source| access("open", path, source))?;
        // By now SQLite has all of them open; a link is looked at as well as what it leads to.
        let files = [given.to_owned(), beside(path, "-wal"), beside(path, "-shm")];
        let files = watch_files(files).map_err(|source| access("look at", path, source))?;
        Ok(Self {
            engine,
            checkpoints,
            files,
            changes: Changes::default(),
            lock_yielding,
            durability: options.durability,
            classic_lease: options.classic_lease(),
            found,
        })
    }
}

/// A connection to a sound database of this version.
fn connect(path: &Path, options: &Options) -> Result<Connection, Failure> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_with_flags(path, flags).map_err(failed("open", path))?;
    configure(&mut connection, options).map_err(failed("configure", path))?;
    // One that is refused keeps its log.
    let keep_log = DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE;
    connection
        .set_db_config(keep_log, file::is_hot(path, "-wal"))
        .map_err(failed("configure", path))?;
    let is_supervisors = look_inside(&connection, path)?;
    connection.set_db_config(keep_log, false).map_err(failed("configure", path))?;
    if is_supervisors {
        begin_taking_over(&mut connection, options).map_err(stopped("take over", path))?;
    }
    if let Some(what) = missing(&connection).map_err(stopped("read", path))? {
        return Err(corrupt(path, &what));
    }
    set_journal_mode(&connection, "wal", ENTER_WAL_PATIENCE)
        .map_err(failed("switch to WAL mode (no reader may be in)", path))?;
    Ok(connection)
}

/// Whether a database that can be read is the Python supervisor's, and not ours; others are refused.
fn look_inside(connection: &Connection, path: &Path) -> Result<bool, Failure> {
    if connection.is_readonly("main").map_err(failed("read", path))? {
        return Err(access("write to", path, io::ErrorKind::PermissionDenied.into()));
    }
    match whose(connection).map_err(stopped("read", path))? {
        Whose::Ours => {}
        Whose::Supervisors => return Ok(true),
        Whose::Nobodys => return Err(not_usable(path, "it has no tables")),
        Whose::Refused(why) => return Err(not_usable(path, &why)),
    }
    let name = path.display().to_string();
    if let Some(left) = document(connection, &MOVED).map_err(stopped("read", path))? {
        return Err(gone(&name, &left));
    }
    let begun = document(connection, &ARRIVING).map_err(stopped("read", path))?;
    begun.map_or(Ok(false), |begun| Err(unfinished(&name, &begun)))
}

fn begin_taking_over(connection: &mut Connection, options: &Options) -> StoreResult<()> {
    info!("It is the Python supervisor's database: it is taken over.");
    let tell = |Progress { doing, rows, of }| info!(doing, rows, of, "Taking the database over.");
    let taken = take_over(connection, &options.settings(), now(), tell)?;
    let TakenOver { keys, rows, in_flight, set_aside: aside } = taken;
    info!(keys, rows, "The database is taken over.");
    if in_flight > 0 {
        info!(
            jobs = in_flight,
            "Jobs were in flight without a lease: they get the lease of classic jobs, counted from their start."
        );
    }
    if aside > 0 {
        warn!(
            rows = aside,
            "Rows that cannot be read are set aside: `shiftboss check --database` names them."
        );
        for row in set_aside(connection, NAMED_MAX)? {
            warn!("Set aside: {row}.");
        }
    }
    Ok(())
}

fn now() -> Millis {
    SystemClock.millis()
}

fn start(connection: Connection, options: &Options) -> StoreResult<(Engine<SqliteRecords>, Found)> {
    let last = document(&connection, &DAEMON)?;
    let input = document(&connection, &INPUT)?.and_then(|input| input.identity);
    let records = SqliteRecords::new(connection)?.keeping(options.history);
    let mut engine = Engine::new(records, options.settings());
    let now = now();
    let started = at_once(engine.start(now, &options.noted(now.div_euclid(1_000))));
    started.or_else(|error| tolerate(error, options))?;
    let found = Found {
        was_clean: last.is_none_or(|last| last.running.is_none()),
        is_paused: engine.is_paused(),
        input_directory: input,
    };
    Ok((engine, found))
}

/// On a full disk an earlier daemon's notes will do. Requests fail until there is space again.
fn tolerate(error: StoreError, options: &Options) -> StoreResult<()> {
    if options.policy == Policy::Classic || !matches!(error, StoreError::Full(_)) {
        return Err(error);
    }
    warn!(%error, "The disk is full: requests wait until there is space for the database.");
    Ok(())
}

fn configure(connection: &mut Connection, options: &Options) -> Result<()> {
    connection.busy_handler(Some(wait_for_lock(options.busy_timeout)))?;
    connection.pragma_update(None, "synchronous", options.durability.synchronous())?;
    connection.pragma_update(None, "trusted_schema", false)?;
    connection.pragma_update(None, "cell_size_check", true)?;
    connection.pragma_update(None, "cache_size", -CACHE_KIB_MAX)?;
    connection.pragma_update(None, "journal_size_limit", LOG_BYTES_MAX)
}

/// Waits for another process's lock, up to `patience` by the clock. SQLite's own timeout adds up how long it meant to
/// sleep, which on a loaded machine is much less than it really slept.
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
