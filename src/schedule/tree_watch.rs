//! A recursive watch: one inotify watch for each directory of the trees (spec 1, 2.2 to 2.5).
//!
//! A follower opens it and takes turns with it, beside the runtime's thread. A directory is watched
//! first and listed then, so that what is put into it at any moment is either listed or causes an event. Events
//! are hints: where they cannot be trusted (an overflow, a moved directory) the trees are looked at.

mod discover;
mod events;
mod list;
mod table;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::io::Errno;
use shiftboss_actors::throttle::{Throttle, Verdict};

use super::globs::Globs;
use super::paths::Changed;
use super::watch::{Trees, Turn, Wake, Watch, WatchError};
use table::{Node, Table};

/// Room for the events of one read; each takes 16 bytes and its padded name.
const BUFFER_BYTES: usize = 64 * 1024;
/// A turn that finds more and more to do ends after so long, and another one begins.
const TURN_MAX: Duration = Duration::from_millis(500);

/// Warnings in a period; what is more is counted.
const WARNINGS_MAX: u32 = 10;
const WARNINGS_SECONDS: u32 = 60;

/// How often moved directories are listed anew in a turn. One that has two places (mounted at another)
/// would move from one to the other for ever; all is looked at once then, and it is watched at either.
const LIST_ROUNDS_MAX: u32 = 8;

/// Puts a watch on a directory: the one system call that runs out, behind a trait for tests.
pub trait AddWatch: Send {
    /// Watches `path`, and returns the watch's number; that of a watch that is on it already.
    fn add(&self, inotify: &OwnedFd, path: &Path, flags: WatchFlags) -> Result<i32, Errno>;
}

#[derive(Debug, Clone, Copy)]
pub struct Kernel;

impl AddWatch for Kernel {
    fn add(&self, inotify: &OwnedFd, path: &Path, flags: WatchFlags) -> Result<i32, Errno> {
        inotify::add_watch(inotify, path, flags)
    }
}

pub struct TreeWatch<A> {
    inotify: Arc<OwnedFd>,
    adder: A,
    roots: Vec<PathBuf>,
    globs: Globs,
    table: Table,
    /// Directories that are watched and were not listed yet, and whether what is in them is news.
    unlisted: Vec<(Node, bool)>,
    /// Directories that were moved, or that something was moved out of: as soon as all events are read
    /// and their paths are right again, they are listed anew. Events from before a move lead astray.
    moved: Vec<Node>,
    /// The watches below those, while they are listed anew. What is in such a directory is no news.
    former: HashSet<i32>,
    is_listing_anew: bool,
    changed: Changed,
    /// Events were lost, or cannot be trusted: all is to be looked at.
    is_unsure: bool,
    buffer: Box<[MaybeUninit<u8>]>,
    warnings: Throttle,
}

impl<A: AddWatch> TreeWatch<A> {
    /// Watches all directories of the trees that are not left out.
    pub fn open(trees: &Trees, adder: A) -> Result<Self, WatchError> {
        let flags = CreateFlags::NONBLOCK | CreateFlags::CLOEXEC;
        let inotify = inotify::init(flags).map_err(|e| WatchError::NoInstances(e.into()))?;
        let mut watch = Self {
            inotify: Arc::new(inotify),
            adder,
            roots: trees.roots.clone(),
            globs: trees.globs.clone(),
            table: Table::default(),
            unlisted: Vec::new(),
            moved: Vec::new(),
            former: HashSet::new(),
            is_listing_anew: false,
            changed: Changed::default(),
            is_unsure: false,
            buffer: vec![MaybeUninit::uninit(); BUFFER_BYTES].into(),
            warnings: Throttle::new(WARNINGS_MAX, WARNINGS_SECONDS),
        };
        watch.add_roots()?;
        watch.list_all()?;
        (watch.is_unsure, watch.moved) = (false, Vec::new());
        Ok(watch)
    }

    pub fn directories(&self) -> usize {
        self.table.len()
    }

    fn add(&self, path: &Path, more: WatchFlags) -> Result<i32, Errno> {
        let flags = WatchFlags::CREATE
            | WatchFlags::MODIFY
            | WatchFlags::DELETE
            | WatchFlags::MOVE
            | WatchFlags::MOVE_SELF
            | WatchFlags::ONLYDIR
            | WatchFlags::EXCL_UNLINK;
        self.adder.add(&self.inotify, path, flags | more)
    }

    /// Whether a warning may be given, and how many were not since the last one.
    fn may_warn(&mut self) -> Option<u64> {
        match self.warnings.admit(Instant::now()) {
            Verdict::Log { suppressed_before } => Some(suppressed_before),
            Verdict::Suppress => None,
        }
    }

    fn used_up(&self) -> WatchError {
        WatchError::NoWatches { watched: self.table.len() }
    }
}

impl<A: AddWatch> Watch for TreeWatch<A> {
    fn turn(&mut self) -> Result<Turn, WatchError> {
        let begun = Instant::now();
        let (mut is_pressed, mut rounds) = (true, 0);
        while is_pressed && begun.elapsed() < TURN_MAX {
            is_pressed = self.read()?;
            self.list_all()?;
            if !is_pressed && !self.moved.is_empty() {
                self.is_unsure |= rounds == LIST_ROUNDS_MAX;
                self.list_moved()?;
                (is_pressed, rounds) = (true, rounds + 1);
            }
            if self.is_unsure {
                self.rescan()?;
            }
        }
        Ok(Turn { changed: std::mem::take(&mut self.changed), is_pressed })
    }

    fn wake(&self) -> Wake {
        Wake::Readable(Arc::clone(&self.inotify))
    }
}
