//! `shiftboss serve`: checks what the daemon needs, then runs the supervision tree.
//!
//! Everything that touches the outside is made here, in the order that gives the clearest error messages, and passed to
//! [`shiftboss_actors::tree::run`]. No logic of the queue.

pub(super) mod configuration;
mod groups;
pub(super) mod init_system;
pub(super) mod locks;
pub(super) mod needs;
pub(super) mod signals;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use shiftboss_actors::clock::SystemClock;
use shiftboss_actors::connection::Operators;
use shiftboss_actors::file_watcher::Input;
use shiftboss_actors::service::Service;
use shiftboss_actors::tree::{self, Parts, TreeError};
use shiftboss_protocol::answers::live::Daemon;
use shiftboss_queue::error::StoreError;
use shiftboss_relay::Relays;
use tracing::{error, info, warn};

use crate::cli::{ServeArguments, ServeSettings};
use crate::exit::{ExitCode, Failure};
use crate::fetchers::Fetchers;
use crate::hint::{hint, remember};
use crate::lock;
use crate::logging;
use crate::process_usage;
use crate::signals::Signals;
use crate::socket::SocketFile;
use crate::standard_error;
use crate::stores::{self, Database, Opened, Policy};
use configuration::{Configuration, Wanted};
use groups::Groups;
use init_system::InitSystem;
use locks::Locks;

/// Shortest pause between two looks for fetchers to take over.
const TAKEOVER_LOOK_MIN: Duration = Duration::from_secs(1);

pub fn run(typed: ServeArguments) -> Result<(), Failure> {
    signals::ignore_hang_up();
    let settings = configuration::settle(&typed)?;
    logging::start(settings.common.said.log_format, &settings.common.said.log_level)?;
    remember(&settings.common.socket.path);
    let (configuration, wanted) = Configuration::new(typed, settings);
    let settings = configuration.in_force();
    let common = &settings.common;
    // Nothing is made before everything existing was checked, and the database is changed last.
    needs::faults(&settings.files()).into_iter().next().map_or(Ok(()), Err)?;
    let binder = SocketFile::prepare(&common.socket)?;
    let daemon = lock::this_process(&settings.database.name(), &common.input, &common.socket.path);
    let mut locks = Locks::take(daemon, settings.database.file())?;
    binder.require_free()?;
    let services = services(settings, wanted)?;
    let Opened { store, found } =
        stores::open(&settings.database, &settings.store, &settings.joining)?;
    let is_new = found.input_directory.is_none();
    let input = Input {
        path: common.input.clone(),
        known: found.input_directory,
        locked: Some(locks.directory.identity()),
        accept: common.said.accept_input,
        accept_after: common.said.accept_input_after,
        // A short time is kept to.
        retry_elsewhere: (settings.joining.takeover / 2).max(TAKEOVER_LOOK_MIN),
    };
    let parts = Parts {
        list_store: None,
        store,
        clock: Box::new(SystemClock),
        input,
        binder: Box::new(binder),
        connections_max: needs::connections_max(
            common.said.max_connections,
            settings.fetchers.len(),
        ),
        operators: operators(settings, &locks.daemon)?,
        services,
    };
    info!(
        database = %settings.database,
        input = %common.input.display(),
        socket = %common.socket.path.display(),
        pid = std::process::id(),
        "Starting."
    );
    if is_new {
        info!("This is a new queue: no daemon has used the database before.");
    }
    needs::warn_without_network(&settings.fetchers);
    if found.is_paused {
        warn!("The queue is paused: nothing is handed out until {}.", hint("resume"));
    }
    let database = settings.database.clone();
    let check = database.file().filter(|_| !found.was_clean).map(Path::to_owned);
    let ended = actix_rt::System::new().block_on(run_tree(parts, check, configuration, &mut locks));
    drop(locks);
    match ended {
        Ok(()) => {
            info!("Stopped.");
            Ok(())
        }
        Err(TreeError::Storage(StoreError::Corrupt(fault))) => Err(corrupt(&database, &fault)),
        Err(error) => Err(tree_failure(error)),
    }
}

/// Operators, and with them protocol 2: the Python supervisor knows neither.
fn operators(settings: &ServeSettings, daemon: &Daemon) -> Result<Option<Operators>, Failure> {
    if settings.store.policy == Policy::Classic {
        return Ok(None);
    }
    let reader = Some(stores::reader(&settings.database)?);
    let (daemon, group) = (Arc::new(daemon.clone()), settings.common.operator_group);
    let (usage, dropped_log_lines) = (process_usage::own, standard_error::dropped_lines);
    Ok(Some(Operators { reader, daemon, group, usage, dropped_log_lines }))
}

async fn run_tree(
    parts: Parts,
    check: Option<PathBuf>,
    configuration: Configuration,
    locks: &mut Locks,
) -> Result<(), TreeError> {
    let signals = Signals::with_reloads().map_err(TreeError::Socket)?;
    let mut unsound = None;
    let stop = async {
        tokio::select! {
            () = signals::first(signals, Some(configuration)) => {}
            fault = checked(check) => unsound = Some(fault),
        }
    };
    let ended = tree::run(parts, &mut InitSystem { at_ready: || locks.keep() }, stop).await;
    // This is why the tree was stopped, whatever its own result is.
    unsound.map_or(ended, |fault| Err(TreeError::Storage(StoreError::Corrupt(fault))))
}

/// After an unclean stop: reads the whole database in the background. Resolves only if it is corrupt, with what is
/// wrong.
async fn checked(database: Option<PathBuf>) -> String {
    if let Some(path) = database {
        info!("The daemon was not stopped cleanly: checking the database in the background.");
        // Marked at once: the daemon may be killed before it can report it.
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

/// The services in the tree, besides its own actors.
fn services(settings: &ServeSettings, wanted: Wanted) -> Result<Vec<Box<dyn Service>>, Failure> {
    let mut services: Vec<Box<dyn Service>> = Vec::new();
    if let Some(broker) = &settings.broker {
        let (file, operators) = (settings.database.file(), settings.relay_operators.clone());
        services.push(Box::new(Relays::new(broker.clone(), operators, file.map(Path::to_owned))));
    }
    // Without a file there are no managed fetchers; those of a former daemon are then forgotten. Their files are beside
    // the daemon's own.
    let beside = settings.database.file().unwrap_or(&settings.common.socket.path).to_owned();
    services.push(Box::new(Fetchers::new(settings.common.input.clone(), beside, wanted.fetchers)));
    services.push(Box::new(Groups::new(wanted.groups)));
    Ok(services)
}

/// Damage found while it was used. A file is not used again until it has been checked.
fn corrupt(database: &Database, fault: &str) -> Failure {
    let Some(file) = database.file() else {
        let text =
            format!("{database} is corrupt: {fault}. Restore a backup with the server's own tools");
        return Failure::new(ExitCode::BadData, text);
    };
    stores::mark(file, fault);
    let path = file.display();
    let text = format!(
        "the database {path} is corrupt: {fault}. It is not used any more. Restore a backup, or save what can be \
         read with `shiftboss move --salvage {path} NEW`; `shiftboss check --database {path}` tells all that is wrong, \
         and allows its use if nothing is"
    );
    Failure::new(ExitCode::BadData, text)
}

pub(super) fn tree_failure(error: TreeError) -> Failure {
    let code = match error {
        TreeError::Storage(StoreError::Displaced(_))
        | TreeError::Unready(StoreError::Displaced(_)) => ExitCode::AlreadyRunning,
        TreeError::Storage(StoreError::Newer(_)) | TreeError::Unready(StoreError::Newer(_)) => {
            ExitCode::Configuration
        }
        TreeError::Storage(_) | TreeError::Hangs => ExitCode::StoreIo,
        TreeError::Unready(_) => ExitCode::Unavailable,
        TreeError::Input { .. } | TreeError::WrongSetting(_) => ExitCode::Configuration,
        TreeError::Socket(_) => ExitCode::CannotCreate,
        TreeError::Panicked(_) => ExitCode::Internal,
    };
    Failure::new(code, error.to_string())
}
