//! What the ChangeActor needs of a watch, and how one fails. [`super::tree_watch`] and
//! [`super::poll_watch`] are the two there are. No waiting here.

use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;

use super::globs::Globs;
use super::paths::Changed;

/// What is watched.
#[derive(Debug, Clone)]
pub struct Trees {
    /// Directories, as the user named them; changed paths begin with one of them.
    pub roots: Vec<PathBuf>,
    /// What counts in them.
    pub globs: Globs,
}

/// A watch on trees. Everything may take long: it is called beside the runtime's thread.
pub trait Watch: Send {
    /// Takes all that happened until now.
    ///
    /// # Errors
    /// When it cannot go on; another one must take its place.
    fn turn(&mut self) -> Result<Turn, WatchError>;

    /// When a turn is worth while.
    fn wake(&self) -> Wake;
}

/// What a turn found.
#[derive(Debug, Default)]
pub struct Turn {
    /// What changed, and counts.
    pub changed: Changed,
    /// Whether there is more to be taken already.
    pub is_pressed: bool,
}

/// When a watch is to be asked.
#[derive(Debug, Clone)]
pub enum Wake {
    /// When this descriptor becomes readable.
    Readable(Arc<OwnedFd>),
    /// So long after the last turn.
    After(Duration),
}

/// Why a watch cannot be had, or cannot go on.
#[derive(Debug, Error)]
pub enum WatchError {
    /// The user's watches are used up.
    #[error(
        "inotify has no watches left after {watched} directories: raise fs.inotify.max_user_watches (sysctl)"
    )]
    NoWatches {
        /// Directories that have one.
        watched: usize,
    },
    /// The user's inotify instances or this process's descriptors are used up.
    #[error("cannot make an inotify instance: {0}; raise fs.inotify.max_user_instances (sysctl)")]
    NoInstances(#[source] io::Error),
    /// A file system that tells nothing of what other machines change.
    #[error("{} is on a network file system, which tells nothing of changes made elsewhere", path.display())]
    Network {
        /// The root.
        path: PathBuf,
    },
    /// A root is not there, or is no directory that can be read.
    #[error("cannot watch {}: {source}", path.display())]
    Root {
        /// The root.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A root was removed, moved or unmounted.
    #[error("{} is gone: it was removed, moved or unmounted", path.display())]
    Lost {
        /// The root.
        path: PathBuf,
    },
    /// Events cannot be read.
    #[error("cannot read from inotify: {0}")]
    Read(#[source] io::Error),
}

impl WatchError {
    /// Whether looking again and again still works.
    #[must_use]
    pub fn can_poll(&self) -> bool {
        matches!(self, Self::NoWatches { .. } | Self::NoInstances(_) | Self::Network { .. })
    }
}
