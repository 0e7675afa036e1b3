//! A recursive watch: one inotify watch for each directory of the trees (spec 1, 2.2 to 2.5).
//!
//! A follower opens it and takes turns with it, beside the runtime's thread. Which directory has which watch is
//! [`directories`]'s. Events are hints: where some were lost the trees are looked at.

mod directories;
#[cfg(test)]
mod tests;

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use shiftboss_actors::fs_events::{Inotify, WatchDescriptor, WatchMask, Watches};

use super::watch::{Trees, Turn, Wake, Watch, WatchError};
use directories::Directories;

/// A turn that finds more and more to do ends after so long, and another one begins.
const TURN_MAX: Duration = Duration::from_millis(500);

/// Puts a watch on a directory: the one system call that runs out. Tests have others.
pub type AddWatch =
    Box<dyn FnMut(&mut Watches, &Path, WatchMask) -> io::Result<WatchDescriptor> + Send>;

/// The system call itself.
pub fn kernel() -> AddWatch {
    Box::new(|watches, path, mask| watches.add(path, mask))
}

pub struct TreeWatch {
    inotify: Inotify,
    directories: Directories,
}

impl TreeWatch {
    /// Watches all directories of the trees that are not left out.
    pub fn open(trees: &Trees, add: AddWatch) -> Result<Self, WatchError> {
        let inotify = Inotify::new().map_err(WatchError::NoInstances)?;
        let mut directories = Directories::new(trees, inotify.watches(), add);
        directories.find_all()?;
        Ok(Self { inotify, directories })
    }

    pub fn directories(&self) -> usize {
        self.directories.len()
    }
}

impl Watch for TreeWatch {
    fn turn(&mut self) -> Result<Turn, WatchError> {
        let begun = Instant::now();
        let mut is_pressed = true;
        while is_pressed && begun.elapsed() < TURN_MAX {
            let mut noted = Ok(());
            let read = self.inotify.read(|event| {
                if noted.is_ok() {
                    noted = self.directories.note(&event);
                }
            });
            is_pressed = read.map_err(WatchError::Read)?;
            noted?;
            self.directories.find_again_if_unsure()?;
        }
        if !is_pressed {
            self.directories.unwatch_detached();
        }
        Ok(Turn { changed: self.directories.take_changed(), is_pressed })
    }

    fn wake(&self) -> Wake {
        Wake::Readable(self.inotify.descriptor())
    }
}
