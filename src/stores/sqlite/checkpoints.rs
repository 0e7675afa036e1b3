//! Checkpoints under load: when the log's pages go into the main file.
//!
//! Called by the store after each commit, in the place of SQLite's automatic checkpoint, which
//! counts pages of the log alone. The cost of a checkpoint is the pages that it writes: few after thousands of jobs,
//! which share pages in the order of dispatch, and two or three for each row that came or went, because those are
//! scattered. All requests of that commit wait for it, and those that come meanwhile, so it must stay short. When
//! nothing happens at all [`maintenance`](super::maintenance) makes one.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use rusqlite::hooks::Wal;
use rusqlite::{Connection, Result};
use shiftboss_actors::store::Checkpoint;
use tracing::debug;

const LOG_BYTES: i64 = 32 * 1024 * 1024;
/// How many rows must have come or gone since the last checkpoint, with how many pages in the log, before the next one
/// is made: rows of a sorted list share pages, and scattered ones have two or three each.
const ROWS_MAX: usize = 250;
const ROWS_PAGES: i64 = 1250;
/// While a reader keeps the log from being restarted, the pause before the next try.
const TRY_AGAIN: Duration = Duration::from_millis(100);

/// Moves what can be moved without waiting; returns whether that was all.
pub(super) fn checkpoint(connection: &Connection) -> Result<Checkpoint> {
    let (busy, log, moved): (i64, i64, i64) =
        connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |row| row.try_into())?;
    // Busy: another process is making one, and nothing is known of the rest.
    Ok(if busy == 0 && log == moved { Checkpoint::Complete } else { Checkpoint::Partial })
}

/// How much there is to move.
#[derive(Debug)]
pub(super) struct Checkpoints {
    /// Pages in the log after the last commit.
    pages: Arc<AtomicI64>,
    /// Pages at which they are moved.
    pages_max: i64,
    rows: usize,
    /// When a try moved not all.
    kept: Option<Instant>,
}

impl Checkpoints {
    /// Takes checkpoints over from SQLite.
    pub(super) fn new(connection: &mut Connection) -> Result<Self> {
        let page_size: i64 = connection.pragma_query_one(None, "page_size")?;
        let pages = Arc::new(AtomicI64::new(0));
        let seen = Arc::clone(&pages);
        connection.wal_hook(Some(move |_: &mut Wal, count| {
            seen.store(i64::from(count), Ordering::Relaxed);
            Ok(())
        }))?;
        Ok(Self { pages, pages_max: LOG_BYTES / page_size.max(1), rows: 0, kept: None })
    }

    pub(super) fn count_rows(&mut self, rows: usize) {
        self.rows = self.rows.saturating_add(rows);
    }

    pub(super) fn after_commit(&mut self, connection: &Connection) {
        let pages = self.pages.load(Ordering::Relaxed);
        let is_much = pages >= self.pages_max || self.rows >= ROWS_MAX && pages >= ROWS_PAGES;
        if !is_much || self.kept.is_some_and(|tried| tried.elapsed() < TRY_AGAIN) {
            return;
        }
        let moved = checkpoint(connection);
        if let Err(error) = &moved {
            // Nothing is lost, it is all in the log; a disk that stays full shows elsewhere.
            debug!(%error, "A checkpoint failed.");
        }
        if matches!(moved, Ok(Checkpoint::Complete)) {
            self.rows = 0;
            self.pages.store(0, Ordering::Relaxed);
            self.kept = None;
        } else {
            self.kept = Some(Instant::now());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    /// A database with small pages, and its checkpoints.
    fn database(directory: &tempfile::TempDir) -> (Connection, Checkpoints) {
        let mut connection = Connection::open(directory.path().join("db")).unwrap();
        connection.execute_batch("PRAGMA page_size = 512; PRAGMA journal_mode = WAL").unwrap();
        connection.execute_batch("CREATE TABLE t (content); PRAGMA synchronous = OFF").unwrap();
        let mut checkpoints = Checkpoints::new(&mut connection).unwrap();
        assert_eq!(checkpoints.pages_max, 65_536);
        checkpoints.pages_max = 4_000;
        (connection, checkpoints)
    }

    /// Commits some 200 pages, many times; the most that were in the log at once.
    fn write(connection: &Connection, checkpoints: &mut Checkpoints, times: usize) -> i64 {
        let commit = |checkpoints: &mut Checkpoints| {
            connection.execute("INSERT INTO t VALUES (zeroblob(100000))", []).unwrap();
            let pages = checkpoints.pages.load(Ordering::Relaxed);
            checkpoints.after_commit(connection);
            pages
        };
        (0..times).map(|_| commit(checkpoints)).max().unwrap()
    }

    /// However much is written, the log stays short, and shorter where rows come and go.
    #[test]
    fn the_log_stays_short() {
        let directory = tempfile::tempdir().unwrap();
        let (connection, mut checkpoints) = database(&directory);
        let most = write(&connection, &mut checkpoints, 100);
        assert!((4_000..4_500).contains(&most), "{most} pages");
        let mut write_rows = || {
            checkpoints.count_rows(ROWS_MAX);
            write(&connection, &mut checkpoints, 1)
        };
        write_rows(); // The old content of the log goes.
        let most = (0..100).map(|_| write_rows()).max().unwrap();
        assert!((ROWS_PAGES..ROWS_PAGES + 500).contains(&most), "{most} pages");
    }

    /// A reader keeps the log; it is not tried at every commit meanwhile, and the log begins anew
    /// soon after the reader has left.
    #[test]
    fn a_reader_keeps_the_log() {
        let directory = tempfile::tempdir().unwrap();
        let (connection, mut checkpoints) = database(&directory);
        let reader = Connection::open(directory.path().join("db")).unwrap();
        write(&connection, &mut checkpoints, 1);
        reader.execute_batch("BEGIN; SELECT count(*) FROM t").unwrap();
        write(&connection, &mut checkpoints, 30);
        let tried = checkpoints.kept.expect("tried in vain");
        write(&connection, &mut checkpoints, 1);
        assert!(checkpoints.kept == Some(tried) || tried.elapsed() >= TRY_AGAIN);
        reader.execute_batch("COMMIT").unwrap();
        checkpoints.kept = tried.checked_sub(TRY_AGAIN);
        write(&connection, &mut checkpoints, 1);
        assert_eq!(checkpoints.kept, None);
        assert!(write(&connection, &mut checkpoints, 1) < 4_000);
    }

    /// Set when a checkpoint has its lock, and waits for the reader.
    static WAITS: AtomicBool = AtomicBool::new(false);

    fn wait_for_the_reader(_tries: i32) -> bool {
        WAITS.store(true, Ordering::Relaxed);
        std::thread::park_timeout(Duration::from_millis(1));
        true
    }

    /// While another process makes a checkpoint nothing is known of the rest.
    #[test]
    fn a_busy_checkpoint_is_not_complete() {
        let directory = tempfile::tempdir().unwrap();
        let (connection, mut checkpoints) = database(&directory);
        write(&connection, &mut checkpoints, 1);
        let reader = Connection::open(directory.path().join("db")).unwrap();
        reader.execute_batch("BEGIN; SELECT count(*) FROM t").unwrap();
        write(&connection, &mut checkpoints, 1);
        let mut other = Connection::open(directory.path().join("db")).unwrap();
        let waiting = std::thread::spawn(move || {
            other.busy_handler(Some(wait_for_the_reader)).unwrap();
            other.execute_batch("PRAGMA wal_checkpoint(RESTART)").unwrap();
        });
        let until = Instant::now() + Duration::from_secs(20);
        while !WAITS.load(Ordering::Relaxed) {
            assert!(Instant::now() < until, "the other one never began");
            std::thread::yield_now();
        }
        assert_eq!(checkpoint(&connection), Ok(Checkpoint::Partial));
        reader.execute_batch("COMMIT").unwrap();
        waiting.join().unwrap();
    }
}
