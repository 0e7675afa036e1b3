//! Arrivals in one directory, by inotify: nothing but what is renamed into it, which is how entries
//! come. Network file systems tell nothing of other hosts, so the reader polls as well.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;

use super::name::EntryName;

/// At least one event with the longest name; some dozens of usual ones.
const BUFFER_BYTES: usize = 8 * 1024;

#[derive(Debug)]
pub(crate) struct Watch {
    descriptor: OwnedFd,
}

/// What arrived since the last time.
#[derive(Debug, Default)]
pub(crate) struct Arrivals {
    pub names: Vec<EntryName>,
    /// Some arrivals are missing: the directory must be listed.
    pub missed: bool,
    /// The directory is gone, or the watch is: another is needed.
    pub ended: bool,
}

impl Watch {
    /// Watches a directory; none where nothing can be watched.
    pub fn new(path: &Path) -> Option<Self> {
        let descriptor = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).ok()?;
        let flags = WatchFlags::MOVED_TO
            | WatchFlags::DELETE_SELF
            | WatchFlags::MOVE_SELF
            | WatchFlags::ONLYDIR;
        inotify::add_watch(&descriptor, path, flags).ok()?;
        Some(Self { descriptor })
    }

    /// Readable when something arrived.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }

    /// Everything that arrived, without waiting.
    pub fn drain(&self) -> Arrivals {
        let mut buffer = [MaybeUninit::uninit(); BUFFER_BYTES];
        let mut reader = inotify::Reader::new(&self.descriptor, &mut buffer);
        let mut arrivals = Arrivals::default();
        let gone = ReadFlags::IGNORED | ReadFlags::DELETE_SELF | ReadFlags::MOVE_SELF;
        loop {
            match reader.next() {
                Ok(event) => {
                    arrivals.missed |= event.events().contains(ReadFlags::QUEUE_OVERFLOW);
                    arrivals.ended |= event.events().intersects(gone);
                    let name = event.file_name().map(std::ffi::CStr::to_bytes);
                    arrivals.names.extend(name.and_then(|name| EntryName::new(name).ok()));
                }
                Err(Errno::INTR) => {}
                Err(Errno::WOULDBLOCK) => return arrivals,
                Err(_) => return Arrivals { ended: true, ..arrivals },
            }
        }
    }
}
