//! `shiftboss serve`: checks what the daemon stands on, then runs the supervision tree.
//!
//! Everything that touches the outside is made here, in the order in which it can fail with the
//! clearest message, and handed to [`shiftboss_actors::tree::run`]. No logic of the queue.

pub(super) mod configuration;
mod descriptors;
mod failures;
mod guests;
mod init_system;
mod signals;

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use shiftboss_actors::clock::SystemClock;
use shiftboss_actors::reports::Reports;
use shiftboss_actors::tree::{self, Parts, TreeError};
use tracing::{error, info, warn};

use crate::cli::{ServeArguments, ServeSettings};
use crate::exit::{ExitCode, Failure};
use crate::lock::{self, Holder, LockFile};
use crate::logging;
use crate::reports::DatabaseReports;
use crate::socket::SocketDoor;
use crate::sqlite::{self, Policy, SqliteStore};
use configuration::Configuration;
use failures::{lock_failure, open_failure, socket_failure, tree_failure};
use init_system::InitSystem;
use signals::Signals;

/// Runs the daemon until it is told to stop.
///
/// # Errors
/// What is wrong at the start, and why the daemon had to end.
pub fn run(typed: ServeArguments) -> Result<(), Failure> {
    signals::ignore_hang_up();
    let settings = configuration::settle(&typed)?;
    logging::start(settings.log_format, &settings.log_level)?;
    let (configuration, wanted) = Configuration::new(typed, settings);
    let settings = configuration.in_force();
    descriptors::raise_limit();
    let locks = Locks::take(settings)?;
    let door = SocketDoor::prepare(&settings.socket).map_err(socket_failure)?;
    let store = SqliteStore::open(&settings.database, &settings.store).map_err(open_failure)?;
    let clean = store.was_clean();
    let parts = Parts {
        store: Box::new(store),
        clock: Box::new(SystemClock),
        input: settings.input.clone(),
        door: Box::new(door),
        connections_max: descriptors::connections_max(
            settings.connections_max,
            settings.fetchers.len(),
        ),
        reports: reports(settings),
        guests: guests::of(&configuration, wanted)?,
    };
    info!(
        database = %settings.database.display(),
        input = %settings.input.display(),
        socket = %settings.socket.path.display(),
        pid = std::process::id(),
        "Starting."
    );
    let unsound = Rc::new(RefCell::new(None));
    let check = (!clean).then(|| settings.database.clone());
    let tree = run_tree(parts, check, configuration, Rc::clone(&unsound));
    let ended = actix_rt::System::new().block_on(tree);
    let unsound = unsound.borrow_mut().take();
    drop(locks);
    match (ended, unsound) {
        (_, Some(failure)) => Err(failure),
        (Err(error), None) => Err(tree_failure(error)),
        (Ok(()), None) => {
            info!("Stopped.");
            Ok(())
        }
    }
}

/// Operators' answers, and with them protocol 2: the Python supervisor knows neither.
fn reports(settings: &ServeSettings) -> Option<Arc<dyn Reports>> {
    match settings.store.policy {
        Policy::Fair { .. } => Some(Arc::new(DatabaseReports(settings.database.clone()))),
        Policy::Classic => None,
    }
}

async fn run_tree(
    parts: Parts,
    check: Option<PathBuf>,
    configuration: Configuration,
    unsound: Rc<RefCell<Option<Failure>>>,
) -> Result<(), TreeError> {
    let signals = Signals::new().map_err(TreeError::Socket)?;
    let stop = async move {
        tokio::select! {
            () = signals.first(configuration) => {}
            failure = checked(check) => *unsound.borrow_mut() = Some(failure),
        }
    };
    tree::run(parts, &mut InitSystem, stop).await
}

/// After an unclean stop: reads the whole database in the background. Resolves only when it is
/// corrupt.
async fn checked(database: Option<PathBuf>) -> Failure {
    let Some(path) = database else {
        return std::future::pending().await;
    };
    info!("The daemon was not stopped cleanly: checking the database in the background.");
    let looked_at = path.clone();
    match tokio::task::spawn_blocking(move || sqlite::quick_check(&looked_at)).await {
        Ok(Err(fault)) => {
            error!(fault, "The database is corrupt.");
            Failure::new(
                ExitCode::StoreIo,
                format!(
                    "the database {} is corrupt: {fault}. Stop using it; restore a backup, or \
                     save what can be read with `sqlite3 OLD .recover | sqlite3 NEW`",
                    path.display()
                ),
            )
        }
        Ok(Ok(())) => {
            info!("The database is sound.");
            std::future::pending().await
        }
        Err(error) => {
            warn!(%error, "The check of the database did not finish.");
            std::future::pending().await
        }
    }
}

/// The locks of a running daemon, released when dropped.
struct Locks {
    _database: LockFile,
    _socket: LockFile,
    _input: std::os::fd::OwnedFd,
}

impl Locks {
    fn take(settings: &ServeSettings) -> Result<Self, Failure> {
        require_directory(&settings.database, "database")?;
        require_directory(&settings.socket.path, "socket")?;
        require_different(&settings.database, &settings.socket.path)?;
        make_input(&settings.input)?;
        let holder =
            Holder::this_process(&settings.database, &settings.input, &settings.socket.path);
        Ok(Self {
            _database: lock::take(&settings.database, &holder).map_err(lock_failure)?,
            _socket: lock::take(&settings.socket.path, &holder).map_err(lock_failure)?,
            _input: lock::take_directory(&settings.input).map_err(lock_failure)?,
        })
    }
}

fn require_directory(file: &Path, what: &str) -> Result<(), Failure> {
    let parent = match file.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        None => Path::new("/"),
    };
    if parent.is_dir() {
        return Ok(());
    }
    let text = format!(
        "the directory {} for the {what} does not exist: make it, owned by the daemon's user",
        parent.display()
    );
    Err(Failure::new(ExitCode::CannotCreate, text))
}

/// Each has a lock file beside it: with one path the daemon would be in its own way.
fn require_different(database: &Path, socket: &Path) -> Result<(), Failure> {
    if lock::file_of(database) != lock::file_of(socket) {
        return Ok(());
    }
    let text = format!("{} cannot be both database and socket: give two paths", database.display());
    Err(Failure::new(ExitCode::Usage, text))
}

fn make_input(input: &Path) -> Result<(), Failure> {
    std::fs::create_dir_all(input).map_err(|error| {
        let text = format!("cannot make the input directory {}: {error}", input.display());
        Failure::new(ExitCode::CannotCreate, text)
    })
}
