//! Metrics of a queue and its daemon, for `shiftboss metrics` and the page's `/metrics`: what is measured. How it is written is
//! in [`families`].
//!
//! The database tells how the queue is, whether or not a daemon runs; the daemon what it counts of itself. Neither is asked
//! for anything that grows with the queue.

mod families;

use std::path::Path;
use std::time::{Duration, Instant};

use shiftboss_actors::clock::{Clock, SystemClock};
use shiftboss_actors::live::DaemonMetrics;
use shiftboss_protocol::model::UnixSeconds;
use shiftboss_protocol::verbs::Metrics;
use shiftboss_queue::answers::{DaemonState, DaemonStatus, QueueStatus, RelayStatus};

use crate::client;
use crate::exit::{ExitCode, Failure};
use crate::lock::LockState;
use crate::target::{self, Target};
use crate::up::Up;

/// How long the daemon may take.
pub const PATIENCE: Duration = Duration::from_secs(2);
/// The policy of a daemon that speaks the classic protocol alone.
pub const CLASSIC: &str = "classic";

/// What was measured at one time.
#[derive(Debug)]
pub struct Scrape {
    now: UnixSeconds,
    queue: QueueStatus,
    /// A daemon runs, and answers, or cannot be asked by us.
    is_up: bool,
    /// `None`: none runs, or it tells us nothing.
    daemon: Option<DaemonMetrics>,
    /// Bytes of the database's file and of its log; none of a database on a server.
    files: Option<[u64; 2]>,
    took: Duration,
}

impl Scrape {
    /// # Errors
    /// When the database cannot be read.
    pub fn take(target: &Target) -> Result<Self, Failure> {
        let begun = Instant::now();
        let queue = target::ask(&target.database, |reader, now| reader.status(now))?;
        let is_classic = queue.policy.as_deref() == Some(CLASSIC);
        let (is_up, daemon) = match &target.daemon {
            LockState::By(_) if is_classic => (true, None),
            LockState::By(daemon) => ask(&daemon.socket),
            LockState::Free | LockState::Unknown(_) => {
                (Up::of(target, &queue) == Up::Running, None)
            }
        };
        let files = target.database.file().map(|path| {
            let mut log = path.as_os_str().to_owned();
            log.push("-wal");
            let size = |path: &Path| path.metadata().map_or(0, |found| found.len());
            [size(path), size(log.as_ref())]
        });
        let now = SystemClock.now();
        Ok(Self { now, queue, is_up, daemon, files, took: begun.elapsed() })
    }

    /// As OpenMetrics text, version 1.0.
    pub fn text(self) -> String {
        families::text(self)
    }
}

/// Whether a daemon answers, and what. One that we may not ask is taken to be well, and so is an older one, which knows no such request.
pub fn ask(socket: &Path) -> (bool, Option<DaemonMetrics>) {
    match client::ask(socket, Metrics {}, PATIENCE) {
        Ok(answer) => (true, Some(answer.object)),
        Err(failure) => {
            (matches!(failure.code(), ExitCode::Denied | ExitCode::Configuration), None)
        }
    }
}

fn daemon_state(daemon: &DaemonStatus) -> &'static str {
    match daemon.state {
        DaemonState::Running => "running",
        DaemonState::Draining => "draining",
        DaemonState::Stopped => "stopped",
        DaemonState::Silent => "silent",
    }
}

fn relay_state(relay: &RelayStatus) -> &'static str {
    match (relay.gone, relay.silent) {
        (false, _) => "joined",
        (true, true) => "silent",
        (true, false) => "stopped",
    }
}
