//! What events mean for the table of watched directories, and which of them are changes.
//!
//! A part of [`super::TreeWatch`]. Where an event's place is out of date, for a directory above it was moved
//! since, it may do the wrong thing here: the moved directory is listed anew afterwards.

use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use rustix::fs::inotify::{self, ReadFlags, WatchFlags};
use rustix::io::Errno;

use super::super::watch::WatchError;
use super::table::Node;
use super::{AddWatch, TreeWatch};

impl<A: AddWatch> TreeWatch<A> {
    /// Handles the events that are there, up to a buffer of them. Says whether there were any.
    pub(super) fn read(&mut self) -> Result<bool, WatchError> {
        let inotify = Arc::clone(&self.inotify);
        let mut buffer = std::mem::take(&mut self.buffer);
        let mut events = inotify::Reader::new(&*inotify, &mut buffer);
        let mut is_any = false;
        loop {
            match events.next() {
                Ok(event) => {
                    let name = event.file_name().map(CStr::to_bytes).unwrap_or_default();
                    self.note(event.wd(), event.events(), OsStr::from_bytes(name))?;
                    is_any = true;
                }
                Err(Errno::WOULDBLOCK) => break,
                Err(Errno::INTR) => continue,
                Err(error) => return Err(WatchError::Read(error.into())),
            }
            if events.is_buffer_empty() {
                break;
            }
        }
        self.buffer = buffer;
        Ok(is_any)
    }

    pub(super) fn note(
        &mut self,
        watch: i32,
        flags: ReadFlags,
        name: &OsStr,
    ) -> Result<(), WatchError> {
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

    pub(super) fn note_name(
        &mut self,
        node: Node,
        flags: ReadFlags,
        name: &OsStr,
    ) -> Result<(), WatchError> {
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
    pub(super) fn forget(&mut self, node: Node) -> Result<(), WatchError> {
        if self.table.is_root(node) {
            return Err(WatchError::Lost { path: self.table.path(node) });
        }
        self.remove(node);
        Ok(())
    }

    /// A directory was moved. Whether it is where it is thought to be, now, its watch's number tells.
    pub(super) fn verify(&mut self, node: Node) -> Result<(), WatchError> {
        let path = self.table.path(node);
        let flags =
            if self.table.is_root(node) { WatchFlags::empty() } else { WatchFlags::DONT_FOLLOW };
        match self.add(&path, flags) {
            Ok(watch) if watch == self.table.watch(node) => Ok(()),
            _ if self.table.is_root(node) => Err(WatchError::Lost { path }),
            Err(Errno::NOSPC) => Err(self.used_up()),
            other => {
                self.remove(node);
                // What is there now came by a move that has an event, or its watch is known elsewhere.
                self.is_unsure |= other.is_ok_and(|watch| self.table.of_watch(watch).is_none());
                Ok(())
            }
        }
    }
}
