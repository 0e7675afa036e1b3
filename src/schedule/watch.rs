//! What a follower needs from a watch, how one fails, and what it asks of the system. [`super::tree_watch`] and
//! [`super::poll_watch`] implement it. No waiting here.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use shiftboss_actors::fs_events::{WatchDescriptor, WatchMask, Watches};
use thiserror::Error;

use super::globs::{GlobError, Globs};
use super::paths::Changed;

#[derive(Debug, Clone)]
pub struct Trees {
    /// Directories, as the user named them; changed paths begin with one of them.
    pub roots: Vec<PathBuf>,
    /// If nothing but files of the one root counts: those, as the user named them.
    pub files: Vec<PathBuf>,
    pub globs: Globs,
}

impl Trees {
    /// Trees of these roots. With one root, the rules of the repository that it is in count, if those of
    /// the trees do.
    pub fn new(roots: Vec<PathBuf>, mut globs: Globs) -> Self {
        if let [root] = roots.as_slice() {
            globs.enter_repository(root);
        }
        Self { roots, files: Vec::new(), globs }
    }

    /// The directory of some files, of which nothing counts but them: editors put a new file in place of
    /// the one that was watched. `None`: they are not all files of one directory.
    pub fn of_files(paths: &[PathBuf]) -> Option<Result<Self, GlobError>> {
        let parent = paths.first()?.parent()?;
        if !paths.iter().all(|path| path.is_file() && path.parent() == Some(parent)) {
            return None;
        }
        let names = paths.iter().map(|path| path.file_name().unwrap_or_default().to_string_lossy());
        let taken: Vec<String> = names.map(|name| format!("/{}", escaped(&name))).collect();
        // Named files count, whatever they are; nothing else in their directories does.
        let back = taken.iter().map(|glob| format!("!{glob}"));
        let left_out: Vec<String> = std::iter::once("/*/".to_owned()).chain(back).collect();
        let here = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
        let globs = Globs::new(&taken, &left_out, false);
        let (roots, files) = (vec![here.to_owned()], paths.to_vec());
        Some(globs.map(|globs| Self { roots, files, globs }))
    }
}

/// A name as a glob that matches nothing else.
fn escaped(name: &str) -> String {
    let special = |c: char| matches!(c, '*' | '?' | '[' | ']' | '\\' | '!' | '#' | ' ' | '{' | '}');
    name.chars().flat_map(|c| special(c).then_some('\\').into_iter().chain([c])).collect()
}

/// A watch on trees. Every call may take long, so it is called on another thread than the runtime's.
pub trait Watch: Send {
    /// Takes what happened until now, or a part of it.
    fn turn(&mut self) -> Result<Changed, WatchError>;

    /// When a turn is worth while.
    fn wake(&self) -> Wake;
}

#[derive(Debug, Clone)]
pub enum Wake {
    /// When this descriptor becomes readable.
    Readable(Arc<OwnedFd>),
    /// This long after the last turn.
    After(Duration),
}

/// Puts a watch on a directory: the only system call with a limited supply. Tests replace it.
pub type AddWatch =
    Box<dyn FnMut(&mut Watches, &Path, WatchMask) -> io::Result<WatchDescriptor> + Send>;

/// The system call itself.
pub fn kernel() -> AddWatch {
    Box::new(|watches, path, mask| watches.add(path, mask))
}

/// The events of a directory.
pub fn changes() -> WatchMask {
    WatchMask::CREATE
        | WatchMask::MODIFY
        | WatchMask::DELETE
        | WatchMask::MOVE
        | WatchMask::MOVE_SELF
        // Whether it can be read.
        | WatchMask::ATTRIB
        | WatchMask::ONLYDIR
        | WatchMask::EXCL_UNLINK
}

/// Why a watch cannot be had, or cannot go on.
#[derive(Debug, Error)]
pub enum WatchError {
    #[error(
        "inotify has no watches left after {watched} directories: raise fs.inotify.max_user_watches (sysctl)"
    )]
    NoWatches { watched: usize },
    #[error("cannot make an inotify instance: {0}; raise fs.inotify.max_user_instances (sysctl)")]
    NoInstances(#[source] io::Error),
    #[error("{} is on a network file system, which tells nothing of changes made elsewhere", path.display())]
    Network { path: PathBuf },
    /// A root is missing, or is not a readable directory.
    #[error("cannot watch {}: {source}", path.display())]
    Root { path: PathBuf, source: io::Error },
    #[error("{} is gone: it was removed, moved or unmounted", path.display())]
    Lost { path: PathBuf },
    #[error("{} leads elsewhere: a link on the way to it was changed", path.display())]
    Switched { path: PathBuf },
    #[error("cannot read from inotify: {0}")]
    Read(#[source] io::Error),
}

impl WatchError {
    /// Whether looking again and again still works.
    pub fn can_poll(&self) -> bool {
        matches!(self, Self::NoWatches { .. } | Self::NoInstances(_) | Self::Network { .. })
    }
}
