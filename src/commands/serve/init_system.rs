//! Tells systemd how the daemon is. `serve` hands it to the supervision tree.

use std::time::Duration;

use sd_notify::NotifyState;
use shiftboss_actors::tree::Lifecycle;
use tracing::{info, warn};

/// The init system is not told more often, however little patience it has.
const ALIVE_EVERY_MIN: Duration = Duration::from_millis(10);

/// Tells systemd, through NOTIFY_SOCKET, how the daemon is. Without one nobody is notified.
pub(in crate::commands) struct InitSystem<F> {
    /// What else is to be done once workers can connect.
    pub(in crate::commands) at_ready: F,
}

fn tell(state: NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(&[state]) {
        warn!(%error, "The init system could not be notified.");
    }
}

/// Has the init system wait for so long for what starts.
pub(in crate::commands) fn starting(patience: Duration) {
    tell(NotifyState::ExtendTimeoutUsec(patience.as_micros().try_into().unwrap_or(u32::MAX)));
}

impl<F: FnMut()> Lifecycle for InitSystem<F> {
    fn ready(&mut self) {
        (self.at_ready)();
        info!("Ready: workers can connect.");
        tell(NotifyState::Ready);
    }

    fn stopping(&mut self) {
        tell(NotifyState::Stopping);
    }

    fn alive(&mut self) {
        tell(NotifyState::Watchdog);
    }

    fn alive_every(&self) -> Option<Duration> {
        // Half the time after which the init system would lose patience; none, if it has none.
        let patience = sd_notify::watchdog_enabled().filter(|patience| !patience.is_zero());
        patience.map(|patience| (patience / 2).max(ALIVE_EVERY_MIN))
    }
}
