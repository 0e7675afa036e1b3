//! When to run something: after changes, once it is quiet (docs/spec/on-change.md), by the clock, or on request; one
//! run at a time. For `on-change`, `fetch --every` and the daemon's fetchers.
//!
//! Plain parts: [`machine`] decides when a run is due, [`paths`] keeps what changed, [`globs`] decides what counts,
//! [`links`] resolves paths; [`tree_watch`] and [`poll_watch`] watch. [`follower`] keeps a watch open; [`scheduler`]
//! starts runs. What a run does is behind [`scheduler::StartRun`]; [`command_runs`] is the one that starts a command.

pub mod command_runs;
pub mod follower;
pub mod globs;
pub mod links;
pub mod machine;
pub mod paths;
pub mod poll_watch;
pub mod scheduler;
pub mod status_file;
pub mod tree_watch;
pub mod watch;

use shiftboss_actors::fs_events::is_on_network;
use tracing::{info, warn};

use poll_watch::PollWatch;
use tree_watch::TreeWatch;
use watch::{AddWatch, Trees, Watch, WatchError};

/// Watches trees with inotify; if that is not possible, logs why, and looks at them every few seconds. May take long:
/// call it on another thread than the runtime's.
pub fn open(trees: &Trees, add: AddWatch) -> Result<Box<dyn Watch>, WatchError> {
    let opened = match trees.roots.iter().find(|root| is_on_network(root)) {
        Some(root) => Err(WatchError::Network { path: root.clone() }),
        None => TreeWatch::open(trees, add),
    };
    match opened {
        Ok(watch) => {
            info!(directories = watch.directories(), "Watching.");
            Ok(Box::new(watch))
        }
        Err(error) if error.can_poll() => {
            warn!(%error, "The trees are looked at every few seconds instead.");
            Ok(Box::new(PollWatch::open(trees.clone())?))
        }
        Err(error) => Err(error),
    }
}
