//! Waiting: for a signal to stop, which ends every wait at once (of readers, the monitor, the heartbeat), and for
//! arrivals in one directory, by inotify: only for renames into it, which is how entries come. Network file systems do
//! not report other hosts' changes, so the reader polls as well.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;

use super::error::NoneIf;
use super::name::EntryName;

/// At least one event with the longest name; some dozens of usual ones.
const BUFFER_BYTES: usize = 8 * 1024;
const WAIT_MAX: Duration = Duration::from_secs(3600);

/// A permanent signal to stop; its clones are the same signal. It becomes readable once given.
#[derive(Debug, Clone)]
pub struct Stop(Arc<OwnedFd>);

impl Stop {
    /// A signal that was not given yet. It needs a descriptor.
    pub fn new() -> io::Result<Self> {
        let signal = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self(Arc::new(signal)))
    }

    /// Gives the signal. May be called from a signal handler's thread, and more than once.
    pub fn stop(&self) {
        // The counter is full only if it was written before.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    pub fn is_set(&self) -> bool {
        let mut polled = [PollFd::new(&self.0, PollFlags::IN)];
        poll(&mut polled, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
    }

    /// Waits for the signal; returns whether it came within `time`.
    #[must_use]
    pub fn wait(&self, time: Duration) -> bool {
        let start = Instant::now();
        while !self.is_set() && start.elapsed() < time {
            // An error of the descriptor would not go away: the time limit still ends the wait.
            self.wait_with(None, time.saturating_sub(start.elapsed())).unwrap_or_default();
        }
        self.is_set()
    }

    /// Waits for the signal, or for something to read from `other`, for at most `time`.
    pub(crate) fn wait_with(
        &self,
        other: Option<BorrowedFd<'_>>,
        time: Duration,
    ) -> Result<(), Errno> {
        let descriptors = [Some(self.0.as_fd()), other].into_iter().flatten();
        let mut polled: Vec<_> =
            descriptors.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        wait_for(&mut polled, time)
    }
}

/// Waits until one of these can be read, a Unix signal comes, or the time is over.
fn wait_for(descriptors: &mut [PollFd<'_>], time: Duration) -> Result<(), Errno> {
    // Rounded up, because a wait of less than a tick must not become a busy loop. Longer waits are split.
    let limit = Timespec::try_from(time.min(WAIT_MAX) + Duration::from_micros(1)).ok();
    poll(descriptors, limit.as_ref()).none_if(Errno::INTR).map(drop)
}

pub(crate) fn pause(time: Duration) {
    let _ = wait_for(&mut [], time);
}

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
    /// Watches a directory; none if it cannot be watched.
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
