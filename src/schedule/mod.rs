//! Runs on change: watches trees, waits for quiet, and has one run at a time (docs/spec/on-change.md).
//!
//! Plain parts: [`machine`] decides when a run is due, [`paths`] keeps what changed, [`globs`] what counts,
//! [`tree_watch`] and [`poll_watch`] watch. [`follower`] keeps a watch open; [`scheduler`] starts runs.
//! What a run does is behind [`scheduler::Runs`]; [`command_runs`] is the one that starts a command.

pub mod command_runs;
pub mod follower;
pub mod globs;
pub mod handover;
pub mod machine;
pub mod paths;
pub mod poll_watch;
pub mod scheduler;
pub mod status;
pub mod status_file;
pub mod tree_watch;
pub mod watch;

use rustix::fs::FsWord;
use tracing::warn;

use poll_watch::PollWatch;
use tree_watch::{AddWatch, TreeWatch};
use watch::{Trees, Watch, WatchError};

/// File systems that other machines may change without a word to this one (statfs(2)): NFS, SMB (three
/// kinds), 9P, Ceph, AFS, Coda, FUSE, VirtualBox's.
const NETWORK: [u32; 10] = [
    0x6969,
    0x517b,
    0xfe53_4d42,
    0xff53_4d42,
    0x0102_1997,
    0x00c3_6400,
    0x5346_414f,
    0x7375_7245,
    0x6573_5546,
    0x786f_4256,
];

/// Watches trees with inotify; where that cannot be, it is said why, and they are looked at every few
/// seconds. May take long: to be called beside the runtime's thread.
pub fn open<A: AddWatch + 'static>(trees: &Trees, adder: A) -> Result<Box<dyn Watch>, WatchError> {
    match on_network(trees).map_or_else(|| TreeWatch::open(trees, adder), Err) {
        Ok(watch) => {
            tracing::info!(directories = watch.directories(), "Watching.");
            Ok(Box::new(watch))
        }
        Err(error) if error.can_poll() => {
            warn!(%error, "The trees are looked at every few seconds instead.");
            Ok(Box::new(PollWatch::open(trees)?))
        }
        Err(error) => Err(error),
    }
}

fn on_network(trees: &Trees) -> Option<WatchError> {
    let is_network = |kind: FsWord| u32::try_from(kind).is_ok_and(|kind| NETWORK.contains(&kind));
    let root = trees.roots.iter().find(|root| {
        rustix::fs::statfs(root.as_path()).is_ok_and(|stat| is_network(stat.f_type))
    })?;
    Some(WatchError::Network { path: root.clone() })
}
