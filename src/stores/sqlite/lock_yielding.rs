//! LockYielding: under continuous load the write lock is left free now and then, for edits by hand.
//!
//! SQLite has no queue for its lock. A connection that finds it taken tries again, in the end every 100 ms, and gives
//! up after its timeout. A daemon that begins a transaction as soon as the last one ended leaves the lock free so
//! briefly that some never get it. So now and then the lock is left free for longer than they sleep, if another process
//! has the database open at all. Asked by the store before it begins a transaction.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::{Flock, FlockOffsetType, FlockType, fcntl_getlk};
use tracing::debug;

/// Longer than SQLite's busy handler sleeps between two tries (where it is compiled without `usleep`
/// it sleeps whole seconds; such a one is served by chance only).
const REST: Duration = Duration::from_millis(110);
/// How often the lock is left free for that long: twice in the shortest usual timeout, 5 s.
const REST_EVERY: Duration = Duration::from_secs(2);
/// The byte of the log's index on which every process that has the database open in WAL mode keeps
/// a shared lock (the "dead man's switch" of SQLite's file format).
const OPENED_BYTE: u64 = 128;

/// When the lock was left free.
pub(super) struct LockYielding {
    /// The log's index. Never closed: that would drop the locks of every connection to it that this
    /// process has, SQLite's own among them.
    index: Arc<File>,
    /// When the last transaction ended.
    released: Instant,
    /// When the lock was last left free for long enough, or no other process was there to want it.
    rested: Instant,
}

impl LockYielding {
    /// For a database whose log's index is at `index`.
    pub(super) fn new(index: &Path) -> std::io::Result<Self> {
        let (now, index) = (Instant::now(), Arc::new(File::open(index)?));
        // The unit tests open databases by the ten thousand, and share none with another process.
        if !cfg!(test) {
            std::mem::forget(Arc::clone(&index));
        }
        Ok(Self { index, released: now, rested: now })
    }

    pub(super) fn released(&mut self) {
        self.released = Instant::now();
    }

    /// Before the next transaction: lets others at the lock, if it is time.
    #[allow(clippy::disallowed_methods)] // The thread is the store's own, and would wait as well.
    pub(super) fn wait(&mut self) {
        if let Some(pause) = self.pause() {
            debug!(?pause, "The lock is left free for others.");
            std::thread::sleep(pause);
        }
    }

    fn pause(&mut self) -> Option<Duration> {
        self.due(Instant::now()).filter(|_| self.others_have_it_open())
    }

    /// How long it would have to wait if anybody else were there.
    fn due(&mut self, now: Instant) -> Option<Duration> {
        let free = now.duration_since(self.released);
        if free < REST && now.duration_since(self.rested) < REST_EVERY {
            return None;
        }
        self.rested = now;
        REST.checked_sub(free)
    }

    /// Whether another process has the database open. If that is not known, it may well be.
    fn others_have_it_open(&self) -> bool {
        let lock = Flock {
            start: OPENED_BYTE,
            length: 1,
            pid: None,
            typ: FlockType::WriteLock,
            offset_type: FlockOffsetType::Set,
        };
        fcntl_getlk(&self.index, &lock).map_or(true, |held| held.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new() -> LockYielding {
        let directory = tempfile::tempdir().unwrap();
        let index = directory.path().join("index");
        File::create(&index).unwrap();
        LockYielding::new(&index).unwrap()
    }

    /// Under unbroken load the lock is left free once in a while; a time without load is as good.
    #[test]
    fn the_lock_is_left_free_at_times() {
        let mut yielding = new();
        let start = yielding.rested;
        let mut pauses = Vec::new();
        for millis in (0..10_000).step_by(10) {
            let now = start + Duration::from_millis(millis);
            if !(5_000..5_500).contains(&millis) {
                pauses.extend(yielding.due(now).map(|pause| (millis, pause)));
                yielding.released = now;
            }
        }
        let rest = REST - Duration::from_millis(10);
        assert_eq!(pauses, [(2_000, rest), (4_000, rest), (7_500, rest), (9_500, rest)]);
    }

    /// This process does not count as another: there is no one to yield to.
    #[test]
    fn alone_there_is_no_pause() {
        let mut yielding = new();
        yielding.rested = yielding.rested.checked_sub(REST_EVERY).unwrap();
        yielding.released();
        assert_eq!(yielding.pause(), None);
    }
}
