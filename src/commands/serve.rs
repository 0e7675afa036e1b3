//! `shiftboss serve`: checks what the daemon stands on, then runs the supervision tree.
//!
//! Everything that touches the outside is made here, in the order in which it can fail with the
//! clearest message, and handed to [`shiftboss_actors::tree::run`]. No logic of the queue.

pub(super) mod configuration;
mod descriptors;
pub(super) mod failures;
mod init_system;
pub(super) mod needs;
pub(super) mod network;
mod services;
mod signals;

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use shiftboss_actors::clock::SystemClock;
use shiftboss_actors::connection::Operators;
use shiftboss_actors::directory::Directory;
use shiftboss_actors::file_watcher::Input;
use shiftboss_actors::live::Daemon;
use shiftboss_actors::store::StoreError;
use shiftboss_actors::tree::{self, Parts, TreeError};
use tracing::{error, info, warn};

use crate::cli::{ServeArguments, ServeSettings};
use crate::exit::{ExitCode, Failure};
use crate::lock::{self, LockFile};
use crate::logging;
use crate::signals::Signals;
use crate::socket::SocketFile;
use crate::stores::{self, Policy};
use configuration::Configuration;
use failures::{lock_failure, tree_failure};
use init_system::InitSystem;
use shiftboss_spool::Spool;

/// Runs the daemon until a signal stops it.
pub fn run(typed: ServeArguments) -> Result<(), Failure> {
    signals::ignore_hang_up();
    let settings = configuration::settle(&typed)?;
    logging::start(settings.log_format, &settings.log_level)?;
    let (configuration, wanted) = Configuration::new(typed, settings);
    let settings = configuration.in_force();
    // Nothing is made before all that is there was looked at, and the database is changed last.
    needs::faults(&settings.files()).into_iter().next().map_or(Ok(()), Err)?;
    let binder = SocketFile::prepare(&settings.socket)?;
    let mut locks = Locks::take(settings)?;
    binder.require_free()?;
    let new_spool = settings.spool.clone().filter(|spool| Spool::is_to_be_made(spool));
    let new_spool = new_spool.map(|spool| (!spool.exists(), spool));
    let services = services::of(&configuration, wanted)?;
    // Ours alone from here on: until its lock was taken it may have been another daemon's.
    locks.spool = new_spool;
    let opened = stores::open(&settings.database, &settings.store)?;
    let input = Input {
        path: settings.input.clone(),
        known: opened.input_directory,
        locked: Some(locks.directory.identity()),
        accept: settings.accept_input,
        accept_after: settings.accept_input_after,
    };
    let parts = Parts {
        store: opened.store,
        clock: Box::new(SystemClock),
        input,
        binder: Box::new(binder),
        connections_max: descriptors::connections_max(
            settings.connections_max,
            settings.fetchers.len(),
        ),
        operators: operators(settings, &locks.daemon),
        services,
    };
    info!(
        database = %settings.database.display(),
        input = %settings.input.display(),
        socket = %settings.socket.path.display(),
        pid = std::process::id(),
        "Starting."
    );
    network::warn_if_closed(&settings.fetchers);
    if opened.is_paused {
        warn!("The queue is paused: nothing is handed out until `shiftboss resume`.");
    }
    let unsound = Rc::new(RefCell::new(None));
    let database = settings.database.clone();
    let check = (!opened.was_clean).then(|| database.clone());
    let tree = run_tree(parts, check, configuration, Rc::clone(&unsound), &mut locks);
    let ended = actix_rt::System::new().block_on(tree);
    let unsound = unsound.borrow_mut().take();
    drop(locks);
    match (ended, unsound) {
        (_, Some(fault)) => Err(failures::corrupt(&database, &fault)),
        (Err(TreeError::Storage(StoreError::Corrupt(fault))), None) => {
            stores::mark(&database, &fault);
            Err(failures::corrupt(&database, &fault))
        }
        (Err(error), None) => Err(tree_failure(error)),
        (Ok(()), None) => {
            info!("Stopped.");
            Ok(())
        }
    }
}

/// Operators, and with them protocol 2: the Python supervisor knows neither.
fn operators(settings: &ServeSettings, daemon: &Daemon) -> Option<Operators> {
    (settings.store.policy != Policy::Classic).then(|| Operators {
        reader: stores::reader(&settings.database),
        daemon: Arc::new(daemon.clone()),
        group: settings.operator_group,
    })
}

async fn run_tree(
    parts: Parts,
    check: Option<PathBuf>,
    configuration: Configuration,
    unsound: Rc<RefCell<Option<String>>>,
    locks: &mut Locks,
) -> Result<(), TreeError> {
    let signals = Signals::with_reloads().map_err(TreeError::Socket)?;
    let stop = async move {
        tokio::select! {
            () = signals::first(signals, configuration) => {}
            fault = checked(check) => *unsound.borrow_mut() = Some(fault),
        }
    };
    tree::run(parts, &mut InitSystem::new(|| locks.keep()), stop).await
}

/// After an unclean stop: reads the whole database in the background. Resolves, with what is wrong, only
/// when it is corrupt.
async fn checked(database: Option<PathBuf>) -> String {
    if let Some(path) = database {
        info!("The daemon was not stopped cleanly: checking the database in the background.");
        // Marked at once: the daemon may be ended before it gets to say so.
        let check = move || {
            let checked = stores::quick_check(&path);
            if let Err(StoreError::Corrupt(fault)) = &checked {
                stores::mark(&path, fault);
            }
            checked
        };
        match tokio::task::spawn_blocking(check).await {
            Ok(Err(StoreError::Corrupt(fault))) => {
                error!(fault, "The database is corrupt.");
                return fault;
            }
            Ok(Err(error)) => warn!(%error, "The database could not be checked."),
            Ok(Ok(())) => info!("The database is sound."),
            Err(error) => warn!(%error, "The check of the database did not finish."),
        }
    }
    std::future::pending().await
}

/// The locks of a running daemon, released when dropped. Unless they were [kept](Locks::keep), the start
/// was refused, and what it made is removed.
struct Locks {
    /// Who has them.
    daemon: Daemon,
    /// The database, if there was none.
    made: Option<PathBuf>,
    /// The spool, if there was none, and whether its directory was made.
    spool: Option<(bool, PathBuf)>,
    database: LockFile,
    socket: LockFile,
    input: InputDirectory,
    directory: Directory,
}

impl Locks {
    fn take(settings: &ServeSettings) -> Result<Self, Failure> {
        let daemon = lock::this_process(&settings.database, &settings.input, &settings.socket.path);
        let input = InputDirectory::make(&settings.input)?;
        let database = lock::take(&settings.database, &daemon).map_err(lock_failure)?;
        Ok(Self {
            made: (!settings.database.exists()).then(|| settings.database.clone()),
            spool: None,
            database,
            socket: lock::take(&settings.socket.path, &daemon).map_err(lock_failure)?,
            directory: lock::take_directory(&settings.input).map_err(lock_failure)?,
            input,
            daemon,
        })
    }

    /// The daemon is up: what it made stays.
    fn keep(&mut self) {
        (self.made, self.spool) = (None, None);
        self.database.keep();
        self.socket.keep();
        self.input.made.clear();
    }
}

impl Drop for Locks {
    /// Before the locks go. Nobody was answered from what such a database has, and lists are read again.
    fn drop(&mut self) {
        for ending in ["", "-wal", "-shm"] {
            if let Some(made) = &self.made {
                let mut file = made.clone().into_os_string();
                file.push(ending);
                let _ = std::fs::remove_file(file);
            }
        }
        if let Some((is_directory_made, spool)) = &self.spool {
            // What stays is a spool all the same.
            let _ = Spool::remove_unused(spool, *is_directory_made);
        }
    }
}

/// The input directory. Those that were made for it are removed when it is dropped.
struct InputDirectory {
    made: Vec<PathBuf>,
}

impl InputDirectory {
    fn make(input: &Path) -> Result<Self, Failure> {
        let is_missing = |path: &&Path| !path.as_os_str().is_empty() && !path.exists();
        let missing = input.ancestors().take_while(is_missing).map(Path::to_owned).collect();
        std::fs::create_dir_all(input).map_err(|error| {
            let text = format!("cannot make the input directory {}: {error}", input.display());
            Failure::new(ExitCode::CannotCreate, text)
        })?;
        Ok(Self { made: missing })
    }
}

impl Drop for InputDirectory {
    fn drop(&mut self) {
        // One in which somebody has put something meanwhile stays.
        let _ = self.made.iter().try_for_each(std::fs::remove_dir);
    }
}
