//! Finds directories: the roots, what is in them, what came by a move, and all again.
//!
//! A part of [`super::TreeWatch`]. A directory is watched first and listed then.

use std::ffi::OsStr;
use std::path::Path;

use rustix::fs::inotify::{self, WatchFlags};
use rustix::io::Errno;
use tracing::{debug, warn};

use super::super::watch::WatchError;
use super::list::list;
use super::table::Node;
use super::{AddWatch, TreeWatch};

impl<A: AddWatch> TreeWatch<A> {
    pub(super) fn add_roots(&mut self) -> Result<(), WatchError> {
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

    /// Watches a directory that was found at `path`. What is in it is news, unless it was known.
    pub(super) fn adopt(
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
                if let Some(left_out) = self.may_warn() {
                    warn!(path = %path.display(), %error, left_out, "A directory cannot be watched: changes in it are not seen.");
                }
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
    pub(super) fn list_all(&mut self) -> Result<(), WatchError> {
        while let Some((node, is_news)) = self.unlisted.pop() {
            self.list(node, is_news)?;
        }
        Ok(())
    }

    pub(super) fn list(&mut self, node: Node, is_news: bool) -> Result<(), WatchError> {
        let (directory, mut relative) = (self.table.path(node), self.table.relative(node));
        self.globs.enter(&directory, &relative);
        let mut path = directory.clone();
        let listed = list(&directory, self.table.is_root(node), |name, is_dir| {
            path.push(name);
            relative.push(name);
            let found = self.found(node, name, &path, &relative, is_dir, is_news);
            path.pop();
            relative.pop();
            found
        });
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

    pub(super) fn found(
        &mut self,
        parent: Node,
        name: &OsStr,
        path: &Path,
        relative: &Path,
        is_dir: bool,
        is_news: bool,
    ) -> Result<(), WatchError> {
        if self.globs.leaves_out(relative, is_dir) {
            return Ok(());
        }
        if is_news && self.globs.takes(relative, is_dir) {
            self.changed.add(path.to_owned());
        }
        let is_news = is_news || self.is_listing_anew;
        if is_dir { self.adopt(parent, name, path, is_news) } else { Ok(()) }
    }

    pub(super) fn remove(&mut self, node: Node) {
        for watch in self.table.remove(node) {
            self.unwatch(watch);
        }
        let table = &self.table;
        // Nodes are used again: what is unlisted must be what it was when it was put there.
        self.unlisted.retain(|(unlisted, _)| table.is_there(*unlisted));
    }

    /// Lists the moved directories anew, with all below them. Events must be read to the end.
    pub(super) fn list_moved(&mut self) -> Result<(), WatchError> {
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
            self.unwatch(watch);
        }
        listed
    }

    /// Removes a watch whose directory is in no tree any more.
    pub(super) fn unwatch(&self, watch: i32) {
        if self.table.of_watch(watch).is_none() {
            let _ = inotify::remove_watch(&*self.inotify, watch);
        }
    }

    /// Looks at all trees anew; watches that lead nowhere any more are removed.
    pub(super) fn rescan(&mut self) -> Result<(), WatchError> {
        if let Some(left_out) = self.may_warn() {
            warn!(
                left_out,
                "Events were lost or cannot be trusted: looking at all directories again."
            );
        }
        self.changed.lose_some();
        let former = std::mem::take(&mut self.table);
        self.unlisted.clear();
        self.moved.clear();
        self.add_roots()?;
        self.list_all()?;
        // What looks doubtful now is so: a directory that is mounted within itself.
        (self.is_unsure, self.moved) = (false, Vec::new());
        former.watches().for_each(|watch| self.unwatch(watch));
        Ok(())
    }
}
