//! A recursive watch: one inotify watch for each directory of the trees (spec 1, 2.2 to 2.5).
//!
//! The ChangeActor opens it and takes turns with it, beside the runtime's thread. A directory is watched
//! first and listed then, so that what is put into it at any moment is either listed or told. Events
//! are hints: where they cannot be trusted (an overflow, a moved directory) the trees are looked at.

mod list;
mod table;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::ffi::OsStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;
use tracing::{debug, warn};

use super::globs::Globs;
use super::paths::Changed;
use super::watch::{Trees, Turn, Wake, Watch, WatchError};
use list::{Kind, Lister};
use table::{Node, Table};

/// Room for the events of one read; each takes 16 bytes and its padded name.
const BUFFER_BYTES: usize = 64 * 1024;
/// A turn that finds more and more to do ends after so long, and another one begins.
const TURN_MAX: Duration = Duration::from_millis(500);

/// Puts a watch on a directory: the one system call that runs out, behind a trait for tests.
pub trait AddWatch: Send {
    /// Watches `path`, and returns the watch's number; that of a watch that is on it already.
    ///
    /// # Errors
    /// `ENOSPC` when the user's watches are used up.
    fn add(&self, inotify: &OwnedFd, path: &Path, flags: WatchFlags) -> Result<i32, Errno>;
}

/// The kernel's own.
#[derive(Debug, Clone, Copy)]
pub struct Kernel;

impl AddWatch for Kernel {
    fn add(&self, inotify: &OwnedFd, path: &Path, flags: WatchFlags) -> Result<i32, Errno> {
        inotify::add_watch(inotify, path, flags)
    }
}

/// Watches trees.
pub struct TreeWatch<A> {
    inotify: Arc<OwnedFd>,
    adder: A,
    roots: Vec<PathBuf>,
    globs: Globs,
    table: Table,
    lister: Lister,
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
}

impl<A: AddWatch> TreeWatch<A> {
    /// Watches all directories of the trees that are not left out.
    ///
    /// # Errors
    /// When a root cannot be watched, or the user's watches or instances are used up.
    pub fn open(trees: &Trees, adder: A) -> Result<Self, WatchError> {
        let flags = CreateFlags::NONBLOCK | CreateFlags::CLOEXEC;
        let inotify = inotify::init(flags).map_err(|e| WatchError::NoInstances(e.into()))?;
        let mut watch = Self {
            inotify: Arc::new(inotify),
            adder,
            roots: trees.roots.clone(),
            globs: trees.globs.clone(),
            table: Table::default(),
            lister: Lister::default(),
            unlisted: Vec::new(),
            moved: Vec::new(),
            former: HashSet::new(),
            is_listing_anew: false,
            changed: Changed::default(),
            is_unsure: false,
            buffer: vec![MaybeUninit::uninit(); BUFFER_BYTES].into(),
        };
        watch.add_roots()?;
        watch.list_all()?;
        Ok(watch)
    }

    /// How many directories are watched.
    #[must_use]
    pub fn directories(&self) -> usize {
        self.table.len()
    }

    fn add_roots(&mut self) -> Result<(), WatchError> {
        for path in self.roots.clone() {
            let failed =
                |error: Errno| WatchError::Root { path: path.clone(), source: error.into() };
            let watch = match self.add(&path, WatchFlags::empty()) {
                Ok(watch) => watch,
                Err(Errno::NOSPC) => return Err(self.used_up()),
                Err(error) => return Err(failed(error)),
            };
            // Two roots may be one directory.
            if self.table.of_watch(watch).is_none() {
                let node = self.table.insert(None, path.as_os_str(), watch);
                self.unlisted.push((node, false));
            }
        }
        Ok(())
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

    fn used_up(&self) -> WatchError {
        WatchError::NoWatches { watched: self.table.len() }
    }

    /// Watches a directory that was found at `path`. What is in it is news, unless it was known.
    fn adopt(
        &mut self,
        parent: Node,
        name: &OsStr,
        path: &Path,
        is_news: bool,
    ) -> Result<(), WatchError> {
        let watch = match self.add(path, WatchFlags::DONT_FOLLOW) {
            Ok(watch) => watch,
            Err(Errno::NOSPC) => return Err(self.used_up()),
            // It is gone, or something else has its name now.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(()),
            Err(error) => {
                warn!(path = %path.display(), error = %io::Error::from(error), "A directory cannot be watched: changes in it are not seen.");
                return Ok(());
            }
        };
        match self.table.of_watch(watch) {
            Some(known) if self.table.is_at(known, parent, name) => {}
            // What is known of the way there is out of date.
            Some(known) if self.table.is_root(known) || self.table.is_within(parent, known) => {
                debug!(path = %path.display(), "A directory is found within itself.");
                self.is_unsure |= !self.table.is_root(known);
            }
            Some(known) => {
                self.moved.extend(self.table.parent(known).into_iter().chain([known]));
                self.table.put(known, parent, name);
            }
            None => {
                let is_news = is_news && !self.former.contains(&watch);
                let node = self.table.insert(Some(parent), name, watch);
                self.unlisted.push((node, is_news));
            }
        }
        Ok(())
    }

    /// Lists directories until all that are watched are listed.
    fn list_all(&mut self) -> Result<(), WatchError> {
        while let Some((node, is_news)) = self.unlisted.pop() {
            self.list(node, is_news)?;
        }
        Ok(())
    }

    fn list(&mut self, node: Node, is_news: bool) -> Result<(), WatchError> {
        let (directory, mut relative) = (self.table.path(node), self.table.relative(node));
        self.globs.enter(&directory, &relative);
        let mut path = directory.clone();
        let mut lister = std::mem::take(&mut self.lister);
        let listed = lister.list(&directory, |name, kind| {
            path.push(name);
            relative.push(name);
            let found = self.found(node, name, &path, &relative, kind, is_news);
            path.pop();
            relative.pop();
            found
        });
        self.lister = lister;
        match listed? {
            Err(error) if self.table.is_root(node) => {
                Err(WatchError::Root { path: directory, source: error.into() })
            }
            // It is gone again, or its rights forbid it; then its events come all the same.
            Err(error) => {
                debug!(%error, "A directory could not be listed.");
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    fn found(
        &mut self,
        parent: Node,
        name: &OsStr,
        path: &Path,
        relative: &Path,
        kind: Kind,
        is_news: bool,
    ) -> Result<(), WatchError> {
        let is_dir = kind == Kind::Directory;
        if self.globs.leaves_out(relative, is_dir) {
            return Ok(());
        }
        if is_news && self.globs.takes(relative, is_dir) {
            self.changed.add(path.to_owned());
        }
        let is_news = is_news || self.is_listing_anew;
        if is_dir { self.adopt(parent, name, path, is_news) } else { Ok(()) }
    }

    /// Handles the events that are there, up to a buffer of them. Says whether there were any.
    fn read(&mut self) -> Result<bool, WatchError> {
        let mut buffer = std::mem::take(&mut self.buffer);
        let read = rustix::io::read(&*self.inotify, &mut *buffer);
        let outcome = match read {
            Ok((bytes, _)) => self.take(bytes).map(|()| true),
            Err(Errno::WOULDBLOCK) => Ok(false),
            Err(Errno::INTR) => Ok(true),
            Err(error) => Err(WatchError::Read(error.into())),
        };
        self.buffer = buffer;
        outcome
    }

    /// Handles events as the kernel packs them: watch, mask, cookie, length of the name, name.
    fn take(&mut self, mut bytes: &[u8]) -> Result<(), WatchError> {
        while let Some((head, rest)) = bytes.split_first_chunk::<16>() {
            let word = |at: usize| {
                u32::from_ne_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]])
            };
            let length = usize::try_from(word(12)).unwrap_or(usize::MAX).min(rest.len());
            let (name, rest) = rest.split_at(length);
            let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
            let flags = ReadFlags::from_bits_retain(word(4));
            self.note(word(0).cast_signed(), flags, OsStr::from_bytes(name))?;
            bytes = rest;
        }
        Ok(())
    }

    fn note(&mut self, watch: i32, flags: ReadFlags, name: &OsStr) -> Result<(), WatchError> {
        if flags.contains(ReadFlags::QUEUE_OVERFLOW) {
            self.is_unsure = true;
        }
        let Some(node) = self.table.of_watch(watch) else {
            return Ok(());
        };
        if flags.contains(ReadFlags::IGNORED) {
            return self.forget(node);
        }
        if flags.contains(ReadFlags::MOVE_SELF) {
            return self.verify(node);
        }
        if name.is_empty() {
            return Ok(());
        }
        self.note_name(node, flags, name)
    }

    fn note_name(&mut self, node: Node, flags: ReadFlags, name: &OsStr) -> Result<(), WatchError> {
        let is_dir = flags.contains(ReadFlags::ISDIR);
        let relative = self.table.relative(node).join(name);
        if self.globs.leaves_out(&relative, is_dir) {
            return Ok(());
        }
        let path = self.table.path(node).join(name);
        self.is_unsure |= self.globs.is_changed_by(&relative);
        // A directory that goes takes files with it, whose names nobody tells.
        let takes_files = is_dir && flags.contains(ReadFlags::MOVED_FROM);
        if takes_files || self.globs.takes(&relative, is_dir) {
            self.changed.add(path.clone());
        }
        if is_dir && flags.intersects(ReadFlags::CREATE | ReadFlags::MOVED_TO) {
            let before = self.unlisted.len();
            self.adopt(node, name, &path, true)?;
            if flags.contains(ReadFlags::MOVED_TO) && self.unlisted.len() == before {
                // It was known at another place: its files have new paths.
                self.changed.add(path);
            }
        }
        Ok(())
    }

    /// The kernel has taken a watch off: its directory is gone.
    fn forget(&mut self, node: Node) -> Result<(), WatchError> {
        if self.table.is_root(node) {
            return Err(WatchError::Lost { path: self.table.path(node) });
        }
        self.remove(node);
        Ok(())
    }

    /// A directory was moved. Whether it is where it is thought to be, now, its watch's number tells.
    fn verify(&mut self, node: Node) -> Result<(), WatchError> {
        let path = self.table.path(node);
        let flags =
            if self.table.is_root(node) { WatchFlags::empty() } else { WatchFlags::DONT_FOLLOW };
        match self.add(&path, flags) {
            Ok(watch) if watch == self.table.watch(node) => Ok(()),
            _ if self.table.is_root(node) => Err(WatchError::Lost { path }),
            Err(Errno::NOSPC) => Err(self.used_up()),
            other => {
                self.remove(node);
                // What is there now came by a move that is told, or its watch is known elsewhere.
                self.is_unsure |= other.is_ok_and(|watch| self.table.of_watch(watch).is_none());
                Ok(())
            }
        }
    }

    fn remove(&mut self, node: Node) {
        for watch in self.table.remove(node) {
            self.take_off(watch);
        }
        let table = &self.table;
        // Nodes are used again: what is unlisted must be what it was when it was put there.
        self.unlisted.retain(|(unlisted, _)| table.is_there(*unlisted));
    }

    /// Lists the moved directories anew, with all below them. Events must be read to the end.
    fn list_moved(&mut self) -> Result<(), WatchError> {
        let moved = std::mem::take(&mut self.moved);
        for node in moved {
            if self.table.is_there(node) {
                self.former.extend(self.table.remove_below(node));
                self.unlisted.push((node, false));
            }
        }
        let table = &self.table;
        self.unlisted.retain(|(unlisted, _)| table.is_there(*unlisted));
        self.is_listing_anew = true;
        let listed = self.list_all();
        self.is_listing_anew = false;
        for watch in std::mem::take(&mut self.former) {
            self.take_off(watch);
        }
        listed
    }

    /// Takes a watch off whose directory is in no tree any more.
    fn take_off(&self, watch: i32) {
        if self.table.of_watch(watch).is_none() {
            let _ = inotify::remove_watch(&*self.inotify, watch);
        }
    }

    /// Looks at all trees anew; watches that lead nowhere any more are taken off.
    fn rescan(&mut self) -> Result<(), WatchError> {
        self.is_unsure = false;
        self.changed.lose_some();
        let former = std::mem::take(&mut self.table);
        self.unlisted.clear();
        self.moved.clear();
        self.add_roots()?;
        self.list_all()?;
        former.watches().for_each(|watch| self.take_off(watch));
        Ok(())
    }
}

impl<A: AddWatch> Watch for TreeWatch<A> {
    fn turn(&mut self) -> Result<Turn, WatchError> {
        let begun = Instant::now();
        let mut is_pressed = true;
        while is_pressed && begun.elapsed() < TURN_MAX {
            is_pressed = self.read()?;
            self.list_all()?;
            if !is_pressed && !self.moved.is_empty() {
                self.list_moved()?;
                is_pressed = true;
            }
            if self.is_unsure {
                warn!(
                    directories = self.table.len(),
                    "Events were lost or cannot be trusted: looking at all directories again."
                );
                self.rescan()?;
            }
        }
        Ok(Turn { changed: std::mem::take(&mut self.changed), is_pressed })
    }

    fn wake(&self) -> Wake {
        Wake::Readable(Arc::clone(&self.inotify))
    }
}
