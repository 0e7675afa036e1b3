//! Syncs several files at the same time. Used by [`Disk`](super::layer::Disk).
//!
//! A journal writes what several wait for in one commit, with one flush of the disk; one after the other
//! each wait is a commit of its own. So each file is waited for by a thread of its own, which lives no
//! longer than the wait; starting it costs a hundredth of one.

use std::os::fd::BorrowedFd;
use std::thread;

use rustix::fs::fsync;
use rustix::io::Errno;

use super::layer::again;

/// Syncs all of a few files; the first that failed, by its place, and why.
pub(super) fn sync(files: &[BorrowedFd<'_>]) -> Result<(), (usize, Errno)> {
    let Some((first, others)) = files.split_first() else { return Ok(()) };
    let results = thread::scope(|scope| {
        let waits: Vec<_> = others
            .iter()
            .map(|file| {
                let wait = move || again(|| fsync(file));
                (file, thread::Builder::new().name("spool-sync".into()).spawn_scoped(scope, wait))
            })
            .collect();
        let mut results = vec![again(|| fsync(first))];
        results.extend(waits.into_iter().map(|(file, wait)| match wait {
            // What a thread that panicked waited for is not known to be on disk.
            Ok(wait) => wait.join().unwrap_or(Err(Errno::IO)),
            // No room for a thread.
            Err(_) => again(|| fsync(file)),
        }));
        results
    });
    let mut all = results.into_iter().enumerate();
    all.try_for_each(|(place, result)| result.map_err(|errno| (place, errno)))
}
