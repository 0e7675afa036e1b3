//! A recursive watch: one inotify watch for each directory of the trees (spec 1, 2.2 to 2.5).
//!
//! A follower opens it and gives it turns, on another thread than the runtime's. A directory is first watched and then
//! listed, so that what is put into it at any moment is either listed or causes an event. A watch stands for the
//! directory itself, however that is reached: a moved directory is found at its new place by its watch, and nothing in
//! it is missed meanwhile. Events are hints: those from before a move name old places, and the later ones of the move
//! correct that; if some were lost, the trees are looked at.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use shiftboss_actors::fs_events::{
    EventMask, EventOwned, Inotify, WatchDescriptor, WatchMask, Watches,
};
use shiftboss_actors::throttle::Throttle;
use tracing::{debug, warn};

use super::links::Links;
use super::paths::Changed;
use super::watch::{AddWatch, Trees, Wake, Watch, WatchError, changes};

/// A turn that finds more and more to do ends after this time, and another one begins.
const TURN_MAX: Duration = Duration::from_millis(500);
/// Most warnings in a period; more are counted.
const WARNINGS_MAX: u32 = 10;
const WARNINGS_SECONDS: u32 = 60;

/// A directory's root, by its number, and its path below that; that of a root is empty.
type Place = (usize, PathBuf);

pub struct TreeWatch {
    inotify: Inotify,
    watches: Watches,
    add: AddWatch,
    trees: Trees,
    by_watch: HashMap<WatchDescriptor, Place>,
    /// A watch that is not here is *detached*: its directory was moved, and is found at another place or unwatched.
    by_place: BTreeMap<Place, WatchDescriptor>,
    /// Directories that may not be read; their rights may be changed.
    unreadable: BTreeSet<Place>,
    links: Links,
    changed: Changed,
    /// Events were lost, or cannot be trusted: everything must be looked at.
    is_unsure: bool,
    /// There is more to be read already.
    is_pressed: bool,
    warnings: Throttle,
}

impl TreeWatch {
    /// Watches all directories of the trees that are not left out.
    pub fn open(trees: &Trees, add: AddWatch) -> Result<Self, WatchError> {
        let inotify = Inotify::new().map_err(WatchError::NoInstances)?;
        let mut watch = Self {
            watches: inotify.watches(),
            inotify,
            add,
            trees: trees.clone(),
            by_watch: HashMap::new(),
            by_place: BTreeMap::new(),
            unreadable: BTreeSet::new(),
            links: Links::default(),
            changed: Changed::default(),
            is_unsure: false,
            is_pressed: false,
            warnings: Throttle::new(WARNINGS_MAX, WARNINGS_SECONDS),
        };
        watch.links = Links::open(trees, &mut watch.add, &mut watch.watches)?;
        watch.find_all()?;
        Ok(watch)
    }

    pub fn directories(&self) -> usize {
        self.by_place.len()
    }

    #[cfg(test)]
    fn watched(&self) -> Vec<(PathBuf, WatchDescriptor)> {
        self.by_place.iter().map(|(place, watch)| (self.path(place), watch.clone())).collect()
    }

    /// Watches all trees. Their present content does not count as a change.
    fn find_all(&mut self) -> Result<(), WatchError> {
        let roots = (0..self.trees.roots.len()).map(|root| (root, PathBuf::new())).collect();
        self.find(roots, false)?;
        // What still looks inconsistent really is so: a directory that is mounted within itself.
        self.is_unsure = false;
        Ok(())
    }

    /// Looks at all trees anew, if events were lost.
    fn find_again_if_unsure(&mut self) -> Result<(), WatchError> {
        if !self.is_unsure {
            return Ok(());
        }
        if let Some(left_out) = self.warnings.admit(Instant::now()) {
            warn!(
                left_out,
                "Events were lost or cannot be trusted: looking at all directories again."
            );
        }
        self.changed.lose_some();
        self.by_place.clear();
        self.unreadable.clear();
        self.links.look_again()?;
        self.find_all()
    }

    /// Takes an event in: what it changes, and which directories come and go by it.
    fn note(&mut self, event: &EventOwned) -> Result<(), WatchError> {
        let mask = event.mask;
        self.is_unsure |= mask.contains(EventMask::Q_OVERFLOW);
        self.links.note(event, &mut self.changed)?;
        let Some(place) = self.by_watch.get(&event.wd).cloned() else {
            return Ok(());
        };
        if !self.is_attached(&event.wd) {
            // If it is found at another place, its content counts as changed.
            self.by_watch.remove(&event.wd);
            let _ = self.watches.remove(event.wd.clone());
            return Ok(());
        }
        let is_gone = mask.contains(EventMask::IGNORED);
        if is_at_root(&place) && (is_gone || mask.contains(EventMask::MOVE_SELF)) {
            return Err(WatchError::Lost { path: self.path(&place) });
        }
        if is_gone {
            self.detach(&place);
            self.by_watch.remove(&event.wd);
        }
        let (root, above) = place;
        let place = (root, above.join(event.name.as_deref().unwrap_or_default()));
        if mask.contains(EventMask::ATTRIB) {
            return self.find_readable(&place);
        }
        event.name.as_ref().map_or(Ok(()), |_| self.note_name(place, mask))
    }

    /// The rights of a directory were changed: looks again at what could not be read there.
    fn find_readable(&mut self, place: &Place) -> Result<(), WatchError> {
        let found = self.unreadable.extract_if(.., |it| is_below(it, place)).collect();
        self.find(found, true)
    }

    fn note_name(&mut self, place: Place, mask: EventMask) -> Result<(), WatchError> {
        let is_dir = mask.contains(EventMask::ISDIR);
        if self.trees.globs.leaves_out(&self.trees.roots[place.0], &place.1, is_dir) {
            return Ok(());
        }
        self.is_unsure |= self.trees.globs.is_changed_by(&place.1);
        // A directory that moves takes files with it, for which there are no events; so does a link to one.
        let takes_files = match is_dir {
            true => mask.intersects(EventMask::MOVED_FROM | EventMask::MOVED_TO),
            false => {
                let is_made = mask.intersects(EventMask::CREATE | EventMask::MOVED_TO);
                is_made && self.path(&place).is_dir()
            }
        };
        if self.trees.globs.takes(&place.1, is_dir) || takes_files {
            self.changed.add(self.path(&place));
        }
        if is_dir && mask.contains(EventMask::MOVED_FROM) {
            self.detach(&place);
        }
        if is_dir && mask.intersects(EventMask::MOVED_FROM | EventMask::DELETE) {
            self.unreadable.retain(|it| !is_below(it, &place));
        }
        if is_dir && mask.intersects(EventMask::CREATE | EventMask::MOVED_TO) {
            self.find(vec![place], true)?;
        }
        Ok(())
    }

    /// Removes the watches of directories that were moved out of the trees. All events must be read.
    fn unwatch_detached(&mut self) {
        if self.by_watch.len() == self.by_place.len() {
            return;
        }
        let attached =
            |watch: &WatchDescriptor, place: &Place| self.by_place.get(place) == Some(watch);
        for (watch, _) in self.by_watch.extract_if(|watch, place| !attached(watch, place)) {
            // It may have gone with its directory.
            let _ = self.watches.remove(watch);
        }
    }

    /// Watches the directories at these places and all below them. With `is_news`, the content of one that had no watch
    /// counts as changed.
    fn find(&mut self, mut places: Vec<Place>, is_news: bool) -> Result<(), WatchError> {
        while let Some(place) = places.pop() {
            if let Some(is_new) = self.watch(&place)? {
                self.list(&place, is_new && is_news, &mut places)?;
            }
        }
        Ok(())
    }

    /// Watches the directory at a place. Returns whether it had no watch before; `None`: there is nothing to list.
    fn watch(&mut self, place: &Place) -> Result<Option<bool>, WatchError> {
        let path = self.path(place);
        let mut mask = changes();
        mask.set(WatchMask::DONT_FOLLOW, !is_at_root(place));
        let watch = match (self.add)(&mut self.watches, &path, mask) {
            Ok(watch) => watch,
            Err(error) => return self.unwatchable(place, error).map(|()| None),
        };
        let known = self.by_watch.get(&watch).cloned();
        if let Some(known) = known.as_ref().filter(|_| self.is_attached(&watch)) {
            if known == place || is_at_root(known) {
                return Ok(None);
            }
            if place.0 == known.0 && place.1.starts_with(&known.1) {
                debug!(path = %path.display(), "A directory is found within itself.");
                self.is_unsure = true;
                return Ok(None);
            }
            self.detach(known);
        }
        self.detach(place);
        self.by_watch.insert(watch.clone(), place.clone());
        self.by_place.insert(place.clone(), watch);
        Ok(Some(known.is_none()))
    }

    fn unwatchable(&mut self, place: &Place, error: io::Error) -> Result<(), WatchError> {
        let path = self.path(place);
        match Errno::from_io_error(&error) {
            Some(Errno::NOSPC) => {
                return Err(WatchError::NoWatches { watched: self.directories() });
            }
            _ if is_at_root(place) => return Err(WatchError::Root { path, source: error }),
            // It is gone, or something else has its name now.
            Some(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
            _ => {
                self.unreadable.insert(place.clone());
                if let Some(left_out) = self.warnings.admit(Instant::now()) {
                    warn!(path = %path.display(), %error, left_out, "A directory cannot be watched: changes in it are not seen until its rights are changed.");
                }
            }
        }
        Ok(())
    }

    /// Lists a directory: `found` gets those that are in it.
    fn list(
        &mut self,
        place: &Place,
        is_news: bool,
        found: &mut Vec<Place>,
    ) -> Result<(), WatchError> {
        let (number, below) = place;
        let root = &self.trees.roots[*number];
        self.trees.globs.enter(&root.join(below));
        let listed = match self.trees.globs.list(root, below) {
            Ok(listed) => listed,
            Err(source) if is_at_root(place) => {
                return Err(WatchError::Root { path: root.clone(), source });
            }
            // It is gone again, or its rights forbid it; then its events come all the same.
            Err(error) => {
                debug!(%error, "A directory could not be listed.");
                return Ok(());
            }
        };
        for (path, is_dir) in listed {
            if is_news && self.trees.globs.takes(&path, is_dir) {
                self.changed.add(root.join(&path));
            }
            if is_dir {
                found.push((*number, path));
            }
        }
        Ok(())
    }

    /// Takes the directory at a place, and all below it, for moved.
    fn detach(&mut self, place: &Place) {
        let below = self.by_place.range(place..).map(|(found, _)| found);
        let below = below.take_while(|found| is_below(found, place));
        for found in below.cloned().collect::<Vec<_>>() {
            self.by_place.remove(&found);
        }
    }

    fn is_attached(&self, watch: &WatchDescriptor) -> bool {
        self.by_watch.get(watch).and_then(|place| self.by_place.get(place)) == Some(watch)
    }

    fn path(&self, (root, below): &Place) -> PathBuf {
        self.trees.roots[*root].join(below)
    }
}

impl Watch for TreeWatch {
    fn turn(&mut self) -> Result<Changed, WatchError> {
        let begun = Instant::now();
        self.is_pressed = true;
        while self.is_pressed && begun.elapsed() < TURN_MAX {
            let mut events = Vec::new();
            let read = self.inotify.read(|event| events.push(event.to_owned()));
            self.is_pressed = read.map_err(WatchError::Read)?;
            events.iter().try_for_each(|event| self.note(event))?;
            self.find_again_if_unsure()?;
        }
        if !self.is_pressed {
            self.unwatch_detached();
        }
        Ok(std::mem::take(&mut self.changed))
    }

    fn wake(&self) -> Wake {
        match self.is_pressed {
            true => Wake::After(Duration::ZERO),
            false => Wake::Readable(self.inotify.descriptor()),
        }
    }
}

/// Whether it is that place, or below it.
fn is_below(it: &Place, place: &Place) -> bool {
    it.0 == place.0 && it.1.starts_with(&place.1)
}

fn is_at_root((_, below): &Place) -> bool {
    below.as_os_str().is_empty()
}
