//! The daemon's signals: two end it, one has its configuration read anew. Used by `serve`.

use nix::sys::signal::{SigHandler, Signal as StandardSignal};
use tokio::task::JoinHandle;
use tracing::{error, info, warn};

use super::configuration::Configuration;
use crate::cli::ServeSettings;
use crate::exit::Failure;
use crate::signals::{HANG_UP, SIGNAL_BASE, Signals};

/// Has SIGHUP do nothing until it is listened for: somebody may reload a daemon that is still starting.
#[allow(unsafe_code)]
pub(super) fn ignore_hang_up() {
    // SAFETY: to ignore a signal installs no handler.
    let ignored = unsafe { nix::sys::signal::signal(StandardSignal::SIGHUP, SigHandler::SigIgn) };
    if let Err(error) = ignored {
        warn!(%error, "SIGHUP cannot be ignored until the daemon is up.");
    }
}

/// Resolves at the first SIGTERM or SIGINT. A second one ends the process at once. SIGHUP
/// reloads meanwhile.
pub(super) async fn first(mut signals: Signals, configuration: Configuration) {
    let number = reload_until_end(&mut signals, configuration).await;
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
                    std::process::exit(SIGNAL_BASE + number);
                }
            }
        }
    });
}

async fn reload_until_end(signals: &mut Signals, mut configuration: Configuration) -> i32 {
    let mut reading = None;
    // One that comes while the file is being read has it read once more.
    let mut is_wanted = false;
    loop {
        if is_wanted && reading.is_none() {
            (reading, is_wanted) = (configuration.read_again(), false);
        }
        tokio::select! {
            number = signals.next() => match number {
                HANG_UP => is_wanted = true,
                number => return number,
            },
            read = finished(&mut reading) => {
                reading = None;
                match read {
                    Some(read) => configuration.take(read),
                    None => error!("Reading the configuration broke off; the old one stays in force."),
                }
            }
        }
    }
}

type Read = Result<ServeSettings, Failure>;

/// Resolves when the file was read; never, if it is not being read.
async fn finished(reading: &mut Option<JoinHandle<Read>>) -> Option<Read> {
    match reading {
        Some(reading) => reading.await.ok(),
        None => std::future::pending().await,
    }
}
