//! `shiftboss relay`: the supervision tree with a daemon's queue behind a broker in the place of a database.
//!
//! As `serve` it makes everything that touches the outside, in the order in which it can fail with the clearest message.

use std::sync::Arc;
use std::time::Duration;

use shiftboss_actors::clock::SystemClock;
use shiftboss_actors::connection::Operators;
use shiftboss_actors::file_watcher::Input;
use shiftboss_actors::tree::{self, Parts, TreeError};
use tracing::{info, warn};

use super::serve::init_system::InitSystem;
use super::serve::locks::Locks;
use super::serve::{needs, signals, tree_failure};
use crate::broker;
use crate::cli::RelaySettings;
use crate::config::DaemonFiles;
use crate::exit::Failure;
use crate::lock;
use crate::logging;
use crate::process_usage;
use crate::signals::Signals;
use crate::socket::SocketFile;
use crate::standard_error;

/// How often a fetcher that somebody else has is asked for again.
const RETRY_ELSEWHERE: Duration = Duration::from_secs(60);

pub fn run(settings: RelaySettings) -> Result<(), Failure> {
    signals::ignore_hang_up();
    logging::start(settings.log_format, &settings.log_level)?;
    let (input, socket) = (Some(&*settings.input), Some(&*settings.socket.path));
    let files = DaemonFiles { database: None, input, socket, spool: None };
    needs::faults(&files).into_iter().next().map_or(Ok(()), Err)?;
    let binder = SocketFile::prepare(&settings.socket)?;
    let daemon = lock::this_process(
        settings.link.broker.to_string().as_ref(),
        &settings.input,
        &settings.socket.path,
    );
    let mut locks = Locks::take(daemon, None)?;
    binder.require_free()?;
    let broker::Opened { store, list_store, found, reader } = broker::open(settings.link.clone())?;
    if found.is_paused {
        warn!("The queue is paused: nothing is handed out until `shiftboss resume`.");
    }
    let parts = Parts {
        store,
        list_store: Some(list_store),
        clock: Box::new(SystemClock),
        input: Input {
            path: settings.input.clone(),
            known: found.input_directory,
            locked: Some(locks.directory.identity()),
            accept: settings.accept_input,
            accept_after: settings.accept_input_after,
            retry_elsewhere: RETRY_ELSEWHERE,
        },
        binder: Box::new(binder),
        connections_max: needs::connections_max(settings.connections_max, 0),
        operators: Some(Operators {
            reader,
            daemon: Arc::new(locks.daemon.clone()),
            group: settings.operator_group,
            usage: process_usage::own,
            dropped_log_lines: standard_error::dropped_lines,
        }),
        services: Vec::new(),
    };
    info!(
        broker = %settings.link.broker,
        relay = settings.link.name,
        input = %settings.input.display(),
        socket = %settings.socket.path.display(),
        pid = std::process::id(),
        "Starting."
    );
    let ended = actix_rt::System::new().block_on(run_tree(parts, &mut locks));
    drop(locks);
    ended.map_err(tree_failure)?;
    info!("Stopped.");
    Ok(())
}

async fn run_tree(parts: Parts, locks: &mut Locks) -> Result<(), TreeError> {
    let signals = Signals::with_reloads().map_err(TreeError::Socket)?;
    let stop = signals::first(signals, None);
    tree::run(parts, &mut InitSystem { at_ready: || locks.keep() }, stop).await
}
