//! Checkpoints under load: when the log's pages go into the main file.
//!
//! Called by the store after each commit, in the place of SQLite's automatic checkpoint, which
//! counts pages of the log alone. What a checkpoint costs is the pages that it writes: few after
//! thousands of jobs, which share pages in the order of dispatch, and two or three for each row
//! that came or went, for those are scattered. Whoever waits for the next commit waits for it, so
//! it must stay short. When nothing happens at all [`upkeep`](super::upkeep) makes one.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use rusqlite::hooks::Wal;
use rusqlite::{Connection, Row};
use tracing::debug;

/// Pages in the log at which they are moved.
const PAGES_MAX: i64 = 16_000;
/// Rows that came or went since the last checkpoint at which the next one is made.
const ROWS_MAX: i64 = 500;
/// While a reader keeps the log from beginning anew, the next try is after so many pages more.
const PAGES_AGAIN: i64 = 4_000;

/// Moves what can be moved without waiting for anybody; says whether that was all.
pub(super) fn checkpoint(connection: &Connection) -> rusqlite::Result<bool> {
    let read = |row: &Row<'_>| Ok(row.get::<_, i64>(1)? == row.get::<_, i64>(2)?);
    connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], read)
}

/// How much there is to be moved.
#[derive(Debug, Default)]
pub(super) struct Checkpoints {
    /// Pages in the log after the last commit.
    pages: Arc<AtomicI64>,
    /// Rows that came or went since the last checkpoint.
    rows: i64,
    /// Pages that a reader keeps in the log.
    kept: i64,
}

impl Checkpoints {
    /// Takes checkpoints over from SQLite.
    pub(super) fn new(connection: &mut Connection) -> rusqlite::Result<Self> {
        let checkpoints = Self::default();
        let pages = Arc::clone(&checkpoints.pages);
        connection.wal_hook(Some(move |_: &mut Wal, count| {
            pages.store(i64::from(count), Ordering::Relaxed);
            Ok(())
        }))?;
        Ok(checkpoints)
    }

    /// So many rows came or went.
    pub(super) fn count_rows(&mut self, rows: i64) {
        self.rows += rows;
    }

    /// Makes a checkpoint if one is due.
    pub(super) fn after_commit(&mut self, connection: &Connection) {
        let pages = self.pages.load(Ordering::Relaxed);
        if pages < self.kept {
            // The log has begun anew.
            self.kept = 0;
        }
        let due = if self.kept > 0 { self.kept + PAGES_AGAIN } else { PAGES_MAX };
        if pages < due && (self.rows < ROWS_MAX || self.kept > 0) {
            return;
        }
        self.rows = 0;
        self.kept = match checkpoint(connection) {
            Ok(true) => 0,
            Ok(false) => pages,
            Err(error) => {
                // Nothing is lost, it is all in the log; a disk that stays full shows elsewhere.
                debug!(%error, "A checkpoint failed.");
                pages
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A database with small pages, and its checkpoints.
    fn database(directory: &tempfile::TempDir) -> (Connection, Checkpoints) {
        let mut connection = Connection::open(directory.path().join("db")).unwrap();
        connection.execute_batch("PRAGMA page_size = 512; PRAGMA journal_mode = WAL").unwrap();
        connection.execute_batch("CREATE TABLE t (content); PRAGMA synchronous = OFF").unwrap();
        let checkpoints = Checkpoints::new(&mut connection).unwrap();
        (connection, checkpoints)
    }

    /// Commits some 200 pages, many times; the most that were in the log at once.
    fn write(connection: &Connection, checkpoints: &mut Checkpoints, times: usize) -> i64 {
        let commit = |checkpoints: &mut Checkpoints| {
            connection.execute("INSERT INTO t VALUES (zeroblob(100000))", []).unwrap();
            checkpoints.after_commit(connection);
            checkpoints.pages.load(Ordering::Relaxed)
        };
        (0..times).map(|_| commit(checkpoints)).max().unwrap()
    }

    /// However much is written, the log stays short, and shorter where rows come and go.
    #[test]
    fn the_log_stays_short() {
        let directory = tempfile::tempdir().unwrap();
        let (connection, mut checkpoints) = database(&directory);
        let most = write(&connection, &mut checkpoints, 300);
        assert!((PAGES_MAX..PAGES_MAX + 500).contains(&most), "{most} pages");
        for _ in 0..20 {
            checkpoints.count_rows(ROWS_MAX);
            write(&connection, &mut checkpoints, 1);
            assert!(write(&connection, &mut checkpoints, 1) < 1_000);
        }
    }

    /// A reader keeps the log; it is not tried at every commit meanwhile, and the log begins anew
    /// when the reader has left.
    #[test]
    fn a_reader_keeps_the_log() {
        let directory = tempfile::tempdir().unwrap();
        let (connection, mut checkpoints) = database(&directory);
        let reader = Connection::open(directory.path().join("db")).unwrap();
        write(&connection, &mut checkpoints, 1);
        reader.execute_batch("BEGIN; SELECT count(*) FROM t").unwrap();
        let mut tries = Vec::new();
        for _ in 0..150 {
            write(&connection, &mut checkpoints, 1);
            tries.push(checkpoints.kept);
        }
        tries.dedup();
        assert!(tries.len() > 2, "{tries:?}");
        assert!(tries.windows(2).all(|two| two[1] - two[0] >= PAGES_AGAIN), "{tries:?}");
        reader.execute_batch("COMMIT").unwrap();
        write(&connection, &mut checkpoints, 40);
        assert_eq!(checkpoints.kept, 0);
        assert!(write(&connection, &mut checkpoints, 1) < PAGES_MAX);
    }
}
