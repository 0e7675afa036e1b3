//! The daemon's signals: two end it, one has its configuration read anew. Used by `serve`.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing::{info, warn};

use super::configuration::Configuration;

/// The signals, listened for from the first moment on.
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
}

impl Signals {
    /// # Errors
    /// When the runtime has no room for them.
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    /// Resolves at the first SIGTERM or SIGINT. A second one ends the process at once. SIGHUP
    /// reloads meanwhile.
    pub(super) async fn first(mut self, mut configuration: Configuration) {
        let number = self.next(|| configuration.reload()).await;
        info!(signal = number, "Stopping; a second signal ends the daemon at once.");
        actix_rt::spawn(async move {
            let number = self.next(|| info!("SIGHUP is ignored: the daemon is stopping.")).await;
            warn!(signal = number, "A second signal: ending at once.");
            std::process::exit(128 + number);
        });
    }

    async fn next(&mut self, mut hung_up: impl FnMut()) -> i32 {
        loop {
            tokio::select! {
                _ = self.terminate.recv() => return SignalKind::terminate().as_raw_value(),
                _ = self.interrupt.recv() => return SignalKind::interrupt().as_raw_value(),
                _ = self.hang_up.recv() => hung_up(),
            }
        }
    }
}
