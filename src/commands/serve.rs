//! `shiftboss serve`: checks what the daemon stands on, then runs the supervision tree.
//!
//! Everything that touches the outside is made here, in the order in which it can fail with the
//! clearest message, and handed to [`shiftboss_actors::tree::run`]. No logic of the queue.

mod descriptors;
mod guests;

use std::cell::RefCell;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use shiftboss_actors::clock::SystemClock;
use shiftboss_actors::reports::Reports;
use shiftboss_actors::tree::{self, Lifecycle, Parts, TreeError};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing::{error, info, warn};

use crate::cli::ServeSettings;
use crate::exit::{ExitCode, Failure};
use crate::lock::{self, Holder, LockError, LockFile};
use crate::reports::DatabaseReports;
use crate::socket::{SocketDoor, SocketError};
use crate::sqlite::{self, OpenError, Policy, SqliteStore};

/// Runs the daemon until it is told to stop.
///
/// # Errors
/// What is wrong at the start, and why the daemon had to end.
pub fn run(settings: &ServeSettings) -> Result<(), Failure> {
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
        connections_max: descriptors::connections_max(settings.connections_max),
        reports: reports(settings),
        guests: guests::of(settings)?,
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
    let ended = actix_rt::System::new().block_on(run_tree(parts, check, Rc::clone(&unsound)));
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
    unsound: Rc<RefCell<Option<Failure>>>,
) -> Result<(), TreeError> {
    let signals = Signals::new().map_err(TreeError::Socket)?;
    let stop = async move {
        tokio::select! {
            () = signals.first() => {}
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

fn socket_failure(error: SocketError) -> Failure {
    let code = match error {
        SocketError::Alive(_) => ExitCode::AlreadyRunning,
        SocketError::TooLong { .. } | SocketError::NoSuchGroup(_) => ExitCode::Configuration,
        SocketError::NotASocket(_) | SocketError::System { .. } => ExitCode::CannotCreate,
    };
    Failure::new(code, error.to_string())
}

fn lock_failure(error: LockError) -> Failure {
    let code = match error {
        LockError::Held { .. } | LockError::Watched { .. } | LockError::Taken { .. } => {
            ExitCode::AlreadyRunning
        }
        LockError::Io { .. } => ExitCode::CannotCreate,
    };
    Failure::new(code, error.to_string())
}

fn open_failure(error: OpenError) -> Failure {
    let code = match error {
        OpenError::Emptied(_) | OpenError::Corrupt { .. } => ExitCode::BadData,
        OpenError::Access { .. } | OpenError::LinkToNowhere { .. } => ExitCode::CannotCreate,
        OpenError::Sqlite { .. } => ExitCode::StoreIo,
        OpenError::NotADatabase(_) | OpenError::Foreign { .. } | OpenError::Newer { .. } => {
            ExitCode::Configuration
        }
        OpenError::OldLibrary(_) => ExitCode::Internal,
    };
    Failure::new(code, error.to_string())
}

fn tree_failure(error: TreeError) -> Failure {
    let code = match error {
        TreeError::Storage(_) => ExitCode::StoreIo,
        TreeError::Input { .. } => ExitCode::Configuration,
        TreeError::Socket(_) => ExitCode::CannotCreate,
        TreeError::Panicked(_) => ExitCode::Internal,
    };
    Failure::new(code, error.to_string())
}

/// The signals that end the daemon, and the one that does nothing yet.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
}

impl Signals {
    fn new() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    /// Resolves at the first SIGTERM or SIGINT. A second one ends the process at once.
    async fn first(mut self) {
        let number = self.next().await;
        info!(signal = number, "Stopping; a second signal ends the daemon at once.");
        actix_rt::spawn(async move {
            let number = self.next().await;
            warn!(signal = number, "A second signal: ending at once.");
            std::process::exit(128 + number);
        });
    }

    async fn next(&mut self) -> i32 {
        loop {
            tokio::select! {
                _ = self.terminate.recv() => return SignalKind::terminate().as_raw_value(),
                _ = self.interrupt.recv() => return SignalKind::interrupt().as_raw_value(),
                _ = self.hang_up.recv() => info!("SIGHUP is ignored: there is nothing to reload."),
            }
        }
    }
}

/// Tells systemd, through NOTIFY_SOCKET, how the daemon is. Without one nobody is told.
struct InitSystem;

impl InitSystem {
    fn tell(state: sd_notify::NotifyState<'_>) {
        if let Err(error) = sd_notify::notify(&[state]) {
            warn!(%error, "The init system could not be told.");
        }
    }
}

impl Lifecycle for InitSystem {
    fn ready(&mut self) {
        info!("Ready: workers can connect.");
        Self::tell(sd_notify::NotifyState::Ready);
    }

    fn stopping(&mut self) {
        Self::tell(sd_notify::NotifyState::Stopping);
    }

    fn alive(&mut self) {
        Self::tell(sd_notify::NotifyState::Watchdog);
    }

    fn alive_every(&self) -> Option<Duration> {
        // Half the time after which the init system would lose patience.
        sd_notify::watchdog_enabled().map(|patience| patience / 2)
    }
}
