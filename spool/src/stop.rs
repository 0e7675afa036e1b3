//! A signal to stop that ends every wait at once: that of readers, the monitor, the heartbeat.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;

use super::error::NoneIf;

const WAIT_MAX: Duration = Duration::from_secs(3600);

/// A signal to stop, once and for all; its clones are the same signal. It can be read from once it was given.
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

    /// Whether it was given.
    pub fn is_set(&self) -> bool {
        let mut polled = [PollFd::new(&self.0, PollFlags::IN)];
        poll(&mut polled, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
    }

    /// Waits for the signal; whether it came in `time`.
    #[must_use]
    pub fn wait(&self, time: Duration) -> bool {
        let start = Instant::now();
        while !self.is_set() && start.elapsed() < time {
            // What could be wrong with the descriptor would not mend: the time still ends it.
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
    // Rounded up, for a wait of less than a tick must not become a busy one. Longer waits are several.
    let limit = Timespec::try_from(time.min(WAIT_MAX) + Duration::from_micros(1)).ok();
    poll(descriptors, limit.as_ref()).none_if(Errno::INTR).map(drop)
}

/// Lets a short time pass.
pub(crate) fn pause(time: Duration) {
    let _ = wait_for(&mut [], time);
}
