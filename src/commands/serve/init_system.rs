//! Reports the daemon's state to systemd. `serve` passes it to the supervision tree.

use std::env;
use std::os::unix::net::UnixDatagram;
use std::process;
use std::time::Duration;

use shiftboss_actors::tree::Lifecycle;
use tracing::{info, warn};

/// Shortest pause between two reports, however short the watchdog's time is.
const ALIVE_EVERY_MIN: Duration = Duration::from_millis(10);

/// Reports the daemon's state to systemd through NOTIFY_SOCKET; without that it does nothing.
pub(in crate::commands) struct InitSystem<F> {
    /// Called once workers can connect.
    pub(in crate::commands) at_ready: F,
}

fn tell(state: &str) {
    let Some(socket) = env::var_os("NOTIFY_SOCKET") else { return };
    let told = UnixDatagram::unbound().and_then(|own| own.send_to(state.as_bytes(), socket));
    if let Err(error) = told {
        warn!(%error, "The init system could not be notified.");
    }
}

/// How long the init system waits for a report of this process; `None`: for ever.
fn patience() -> Option<Duration> {
    let number = |name| env::var(name).ok().map(|text| text.parse::<u64>().unwrap_or(0));
    let is_ours = number("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(process::id()));
    number("WATCHDOG_USEC").filter(|patience| is_ours && *patience > 0).map(Duration::from_micros)
}

/// Asks the init system to wait this long for the start.
pub(in crate::commands) fn starting(patience: Duration) {
    tell(&format!("EXTEND_TIMEOUT_USEC={}", patience.as_micros()));
}

impl<F: FnMut()> Lifecycle for InitSystem<F> {
    fn ready(&mut self) {
        (self.at_ready)();
        info!("Ready: workers can connect.");
        tell("READY=1");
    }

    fn stopping(&mut self) {
        tell("STOPPING=1");
    }

    fn alive(&mut self) {
        tell("WATCHDOG=1");
    }

    fn alive_every(&self) -> Option<Duration> {
        // Half the time after which the init system would lose patience; none, if it has none.
        patience().map(|patience| (patience / 2).max(ALIVE_EVERY_MIN))
    }
}
