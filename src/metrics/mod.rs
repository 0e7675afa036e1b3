//! Metrics of a queue and its daemon, for `shiftboss metrics` and the web page's `/metrics`: what is measured.
//! [`families`] writes them.
//!
//! The state of the queue is from the database, whether or not a daemon runs; the daemon's own counters are from the
//! daemon. Neither is asked for anything that grows with the queue.

mod families;

use std::time::{Duration, Instant};

use shiftboss_actors::clock::{Clock, SystemClock};
use shiftboss_protocol::answers::live::DaemonMetrics;
use shiftboss_protocol::verbs::Metrics;
use shiftboss_sqlite::beside;

use crate::client;
use crate::exit::Failure;
use crate::live;
use crate::lock::LockState;
use crate::target::{self, Target};
use crate::view::health::Snapshot;

pub const PATIENCE: Duration = Duration::from_secs(2);
/// The policy of a daemon that speaks the classic protocol alone.
pub const CLASSIC: &str = "classic";

#[derive(Debug)]
pub struct Scrape {
    snapshot: Snapshot,
    /// `None`: none runs, or it does not answer us.
    daemon: Option<DaemonMetrics>,
    /// Bytes of the database's file and of its log; none of a database on a server.
    files: Option<[u64; 2]>,
    took: Duration,
}

impl Scrape {
    pub fn take(target: Target) -> Result<Self, Failure> {
        let begun = Instant::now();
        let queue = target::ask(&target.database, |reader, now| reader.status(now))?;
        let snapshot = live::snapshot(target, queue, SystemClock.now());
        let daemon = ask(&snapshot);
        let files = snapshot.target.database.file().map(|path| {
            ["", "-wal"].map(|end| beside(path, end).metadata().map_or(0, |found| found.len()))
        });
        Ok(Self { snapshot, daemon, files, took: begun.elapsed() })
    }

    /// As OpenMetrics text, version 1.0.
    pub fn text(self) -> String {
        families::text(self)
    }
}

/// The daemon's counters, if it answers. Under `--classic`, and in older versions, there is no such request.
pub fn ask(snapshot: &Snapshot) -> Option<DaemonMetrics> {
    let LockState::By(daemon) = &snapshot.target.daemon else { return None };
    if !snapshot.is_served() || snapshot.queue.policy.as_deref() == Some(CLASSIC) {
        return None;
    }
    Some(client::ask(&daemon.socket, Metrics {}, PATIENCE).ok()?.object)
}
