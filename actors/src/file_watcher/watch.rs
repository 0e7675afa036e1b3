//! The inotify watch on the input directory. Used by the FileWatcherActor alone.
//!
//! Events are hints; the truth is the directory. One watch, drained without waiting: the watcher drains it when the
//! descriptor becomes readable, and before any request is answered that there is no work.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;

use tokio::io::unix::AsyncFd;

use crate::directory::Directory;
use crate::fs_events::{Event, EventMask, Inotify, WatchMask, readiness};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Happened {
    /// It came into being, by creation or link.
    Created,
    Modified,
    /// Its rights, owner, times or links changed.
    Attributes,
    Closed,
    /// It was moved here; the number is that of the move, and the other end of the move has it, too.
    MovedHere(u32),
    /// It was moved away, here under another name or out of the directory; see [`MovedHere`](Self::MovedHere).
    MovedAway(u32),
    Removed,
}

/// One drain of the watch.
#[derive(Debug, Default)]
pub struct Events {
    /// What happened to names, in order.
    pub names: Vec<(OsString, Happened)>,
    /// Events were lost: look at everything.
    pub overflow: bool,
    /// The directory itself was removed, moved or unmounted.
    pub lost: bool,
}

pub struct Watch {
    inotify: Inotify,
    ready: Rc<AsyncFd<Arc<OwnedFd>>>,
}

impl Watch {
    pub fn new(directory: &Directory) -> io::Result<Self> {
        let inotify = Inotify::new()?;
        let mask = WatchMask::CREATE
            | WatchMask::MODIFY
            | WatchMask::ATTRIB
            | WatchMask::CLOSE_WRITE
            | WatchMask::MOVED_FROM
            | WatchMask::MOVED_TO
            | WatchMask::DELETE
            | WatchMask::DELETE_SELF
            | WatchMask::MOVE_SELF
            | WatchMask::ONLYDIR;
        inotify.watches().add(directory.path(), mask)?;
        if !directory.is_at_its_path() {
            return Err(io::ErrorKind::NotFound.into());
        }
        let ready = Rc::new(readiness(inotify.descriptor())?);
        Ok(Self { inotify, ready })
    }

    /// Becomes readable when there may be events. Clear its readiness before draining.
    pub fn ready(&self) -> Rc<AsyncFd<Arc<OwnedFd>>> {
        Rc::clone(&self.ready)
    }

    /// Takes all events that are there now.
    pub fn drain(&mut self) -> io::Result<Events> {
        let mut events = Events::default();
        while self.inotify.read(|event| events.note(&event))? {}
        Ok(events)
    }
}

impl Events {
    fn note(&mut self, event: &Event<'_>) {
        if event.mask.contains(EventMask::Q_OVERFLOW) {
            self.overflow = true;
        }
        let gone =
            EventMask::DELETE_SELF | EventMask::MOVE_SELF | EventMask::UNMOUNT | EventMask::IGNORED;
        if event.mask.intersects(gone) {
            self.lost = true;
        }
        if let (Some(name), Some(happened)) = (event.name, happened(event.mask, event.cookie)) {
            let same =
                self.names.last().is_some_and(|(last, what)| last == name && *what == happened);
            if !same {
                self.names.push((name.to_owned(), happened));
            }
        }
    }
}

fn happened(mask: EventMask, cookie: u32) -> Option<Happened> {
    let table = [
        (EventMask::CREATE, Happened::Created),
        (EventMask::MODIFY, Happened::Modified),
        (EventMask::ATTRIB, Happened::Attributes),
        (EventMask::CLOSE_WRITE, Happened::Closed),
        (EventMask::MOVED_TO, Happened::MovedHere(cookie)),
        (EventMask::MOVED_FROM, Happened::MovedAway(cookie)),
        (EventMask::DELETE, Happened::Removed),
    ];
    table.iter().find(|(bit, _)| mask.contains(*bit)).map(|(_, what)| *what)
}
