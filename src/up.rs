//! Whether a daemon works on a queue: the one rule of `status --check`, `/healthz`, the page, metrics and `top`. Pure; it asks
//! nobody, and whether a daemon that runs also answers is for whoever asks it.

use shiftboss_queue::answers::{DaemonState, DaemonStatus, QueueStatus};

use crate::lock::LockState;
use crate::stores::Database;
use crate::target::Target;

/// Of the daemon at a target's socket, or of any daemon where a database is the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Up {
    Running,
    /// Not the one whose socket was given, but others of the queue.
    OthersOnly,
    Down,
    /// Why it is not known.
    Unknown(&'static str),
}

impl Up {
    pub fn of(target: &Target, queue: &QueueStatus) -> Self {
        let is_on_server = matches!(target.database, Database::Server(_));
        match &target.daemon {
            LockState::By(_) => Self::Running,
            LockState::Unknown(_) if running(&queue.daemons) > 0 => Self::Running,
            LockState::Free if running(&queue.daemons) > 0 => Self::OthersOnly,
            LockState::Unknown(why) if !is_on_server => Self::Unknown(why),
            LockState::Free | LockState::Unknown(_) => Self::Down,
        }
    }
}

/// How many of a queue's daemons run: by what they write into its database.
pub fn running(daemons: &[DaemonStatus]) -> usize {
    daemons.iter().filter(|daemon| runs(daemon)).count()
}

pub fn runs(daemon: &DaemonStatus) -> bool {
    matches!(daemon.state, DaemonState::Running | DaemonState::Draining)
}
