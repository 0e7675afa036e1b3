//! Frees unlinked files behind the back of whoever unlinked them. Used by [`Disk`](super::layer::Disk).
//!
//! A file that has blocks is freed by whoever has it open last, and on ext4 that sleeps, for longer than
//! the whole removal of an entry takes. So it is held open while it is unlinked, and closed by one of a
//! few threads. What is held is bounded; what does not fit is closed by the caller. A process that ends
//! has the kernel close the rest.

use std::os::fd::OwnedFd;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;

/// Threads that close: they sleep more than they work.
const THREADS: usize = 4;
/// Files that wait to be freed, at most. Until then their space is not free.
const WAITING_MAX: usize = 256;

/// Closes files, elsewhere if there is room.
#[derive(Debug, Default)]
pub(super) struct Freeing(OnceLock<Option<SyncSender<OwnedFd>>>);

impl Freeing {
    /// Closes a file.
    pub fn close(&self, file: OwnedFd) {
        if let Some(queue) = self.0.get_or_init(start) {
            // Without room the error has it, and closes it here.
            drop(queue.try_send(file));
        }
    }
}

/// Starts the threads, which end with the sender. None if there is no room for one.
fn start() -> Option<SyncSender<OwnedFd>> {
    let (queue, files) = sync_channel(WAITING_MAX);
    let files = Arc::new(Mutex::new(files));
    let mut started = 0;
    for _ in 0..THREADS {
        let files = Arc::clone(&files);
        let thread = thread::Builder::new().name("spool-free".into());
        started += usize::from(thread.spawn(move || close_all(&files)).is_ok());
    }
    (started > 0).then_some(queue)
}

fn close_all(files: &Mutex<Receiver<OwnedFd>>) {
    loop {
        // Waiting with the lock held has the others wait for the lock: one wakes for one file.
        let file = files.lock().unwrap_or_else(PoisonError::into_inner).recv();
        match file {
            Ok(file) => drop(file),
            Err(_) => return,
        }
    }
}
