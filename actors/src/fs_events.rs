//! An inotify instance: its events, read without waiting, and the file systems that have no events for other machines'
//! changes.
//!
//! The watch on the input directory and those on the trees of `on-change` use it. It decides nothing.

use std::ffi::OsStr;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

pub use inotify::{EventMask, EventOwned, WatchDescriptor, WatchMask, Watches};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Room for the events of one read; each takes 16 bytes and its padded name.
const BUFFER_BYTES: usize = 64 * 1024;

/// File systems that other machines may change without an event here (statfs(2)): NFS, SMB (three kinds), 9P, Ceph,
/// AFS, Coda, FUSE, VirtualBox's.
const NETWORK: [u32; 10] = [
    0x6969,
    0x517b,
    0xfe53_4d42,
    0xff53_4d42,
    0x0102_1997,
    0x00c3_6400,
    0x5346_414f,
    0x7375_7245,
    0x6573_5546,
    0x786f_4256,
];

/// Whether a directory is on a network file system, as far as is known.
pub fn is_on_network(path: &Path) -> bool {
    rustix::fs::statfs(path)
        .is_ok_and(|stat| u32::try_from(stat.f_type).is_ok_and(|kind| NETWORK.contains(&kind)))
}

pub type Event<'a> = inotify::Event<&'a OsStr>;

pub struct Inotify {
    instance: inotify::Inotify,
    descriptor: Arc<OwnedFd>,
    buffer: Vec<u8>,
}

impl Inotify {
    pub fn new() -> io::Result<Self> {
        let instance = inotify::Inotify::init()?;
        let descriptor = Arc::new(instance.as_fd().try_clone_to_owned()?);
        Ok(Self { instance, descriptor, buffer: vec![0; BUFFER_BYTES] })
    }

    pub fn watches(&self) -> Watches {
        self.instance.watches()
    }

    /// Passes on the events that are there now, up to one buffer full. Returns whether there may be more.
    pub fn read(&mut self, take: impl FnMut(Event<'_>)) -> io::Result<bool> {
        match self.instance.read_events(&mut self.buffer) {
            Ok(events) => {
                events.for_each(take);
                Ok(true)
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(true),
            Err(error) => Err(error),
        }
    }

    pub fn descriptor(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.descriptor)
    }
}

/// Waits for a descriptor in the runtime. Clear its readiness before reading.
#[allow(unsafe_code)]
pub fn readiness(descriptor: Arc<OwnedFd>) -> io::Result<AsyncFd<Arc<OwnedFd>>> {
    // SAFETY: an `Arc<OwnedFd>` keeps its descriptor open, and the same, for as long as it lives, and
    // the `AsyncFd` owns one from here on.
    unsafe { AsyncFd::register_with_interest(descriptor, Interest::READABLE) }.map_err(Into::into)
}
