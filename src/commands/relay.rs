//! `shiftboss relay`: the supervision tree with a daemon's queue behind a broker in the place of a database.
//!
//! Like `serve` it makes everything that touches the outside, in the order that gives the clearest error messages.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use shiftboss_actors::clock::SystemClock;
use shiftboss_actors::connection::Operators;
use shiftboss_actors::file_watcher::Input;
use shiftboss_actors::tree::{self, Parts};
use shiftboss_relay::{Opened, open};
use tracing::{info, warn};

use super::serve::init_system::{InitSystem, starting};
use super::serve::locks::Locks;
use super::serve::{needs, signals, tree_failure};
use crate::cli::RelaySettings;
use crate::config::DaemonFiles;
use crate::exit::{ExitCode, Failure};
use crate::hint::{hint, remember};
use crate::lock;
use crate::logging;
use crate::process_usage;
use crate::signals::Signals;
use crate::socket::SocketFile;
use crate::standard_error;
use crate::stores::start_failure;

/// How often to ask again for a fetcher that another member has.
const RETRY_ELSEWHERE: Duration = Duration::from_secs(60);
/// The extra time that the init system is asked for with each message that no daemon has answered.
const START_PATIENCE: Duration = Duration::from_secs(180);

pub fn run(settings: RelaySettings) -> Result<(), Failure> {
    signals::ignore_hang_up();
    logging::start(settings.common.said.log_format, &settings.common.said.log_level)?;
    remember(&settings.common.socket.path);
    let (input, socket) = (Some(&*settings.common.input), Some(&*settings.common.socket.path));
    let files = DaemonFiles { database: None, input, socket };
    needs::faults(&files).into_iter().next().map_or(Ok(()), Err)?;
    let binder = SocketFile::prepare(&settings.common.socket)?;
    let daemon = lock::this_process(
        settings.link.broker.to_string().as_ref(),
        &settings.common.input,
        &settings.common.socket.path,
    );
    let mut locks = Locks::take(daemon, None)?;
    binder.require_free()?;
    let system = actix_rt::System::new();
    let signals = system.block_on(async { Signals::with_reloads() });
    let mut stop = pin!(signals::first(signals.map_err(Failure::of(ExitCode::Internal))?, None));
    let opened = system.block_on(async {
        tokio::select! {
            opened = open(settings.link.clone(), || starting(START_PATIENCE)) => opened.map(Some),
            () = &mut stop => Ok(None),
        }
    });
    let Some(Opened { store, list_store, found }) = opened.map_err(start_failure)? else {
        info!("Stopped.");
        return Ok(());
    };
    if found.is_paused {
        warn!("The queue is paused: nothing is handed out until {}.", hint("resume"));
    }
    let parts = Parts {
        store,
        list_store: Some(list_store),
        clock: Box::new(SystemClock),
        input: Input {
            path: settings.common.input.clone(),
            known: found.input_directory,
            locked: Some(locks.directory.identity()),
            accept: settings.common.said.accept_input,
            accept_after: settings.common.said.accept_input_after,
            retry_elsewhere: RETRY_ELSEWHERE,
        },
        binder: Box::new(binder),
        connections_max: needs::connections_max(settings.common.said.max_connections, 0),
        operators: Some(Operators {
            reader: None,
            daemon: Arc::new(locks.daemon.clone()),
            group: settings.common.operator_group,
            usage: process_usage::own,
            dropped_log_lines: standard_error::dropped_lines,
        }),
        services: Vec::new(),
    };
    info!(
        broker = %settings.link.broker,
        relay = settings.link.name,
        input = %settings.common.input.display(),
        socket = %settings.common.socket.path.display(),
        pid = std::process::id(),
        "Starting."
    );
    let mut init_system = InitSystem { at_ready: || locks.keep() };
    let ended = system.block_on(tree::run(parts, &mut init_system, stop));
    drop(locks);
    ended.map_err(tree_failure)?;
    info!("Stopped.");
    Ok(())
}
