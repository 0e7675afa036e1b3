//! The daemon's signals: two end it, one makes it reload its configuration. Used by `serve`.

use std::rc::Rc;

use nix::sys::signal::Signal as StandardSignal;
use tokio::sync::Mutex;
use tracing::{info, warn};

use super::configuration::Configuration;
use crate::signals::{HANG_UP, SIGNAL_BASE, Signals, ignore};
use crate::standard_error;

/// Ignores SIGHUP until it is handled: an operator may reload a daemon that is still starting.
pub(in crate::commands) fn ignore_hang_up() {
    if let Err(error) = ignore(StandardSignal::SIGHUP) {
        warn!(%error, "SIGHUP cannot be ignored until the daemon is up.");
    }
}

/// Resolves at the first SIGTERM or SIGINT. A second one ends the process at once. SIGHUP
/// reloads meanwhile, if there is a configuration.
pub(in crate::commands) async fn first(mut signals: Signals, configuration: Option<Configuration>) {
    let configuration = configuration.map(|configuration| Rc::new(Mutex::new(configuration)));
    let number = loop {
        match signals.next().await {
            // One that comes while the file is being read has it read once more.
            HANG_UP => match &configuration {
                Some(configuration) => _ = actix_rt::spawn(reload(Rc::clone(configuration))),
                None => {
                    info!("SIGHUP is ignored: there is no configuration file to be read again.")
                }
            },
            number => break number,
        }
    };
    info!(
        signal = number,
        "Stopping. Another signal, a second after this one or later, ends the daemon at once."
    );
    actix_rt::spawn(async move {
        loop {
            match signals.next().await {
                HANG_UP => info!("SIGHUP is ignored: the daemon is stopping."),
                number => {
                    warn!(signal = number, "A second signal: ending at once.");
                    standard_error::exit(SIGNAL_BASE + number);
                }
            }
        }
    });
}

async fn reload(configuration: Rc<Mutex<Configuration>>) {
    configuration.lock().await.reload().await;
}
