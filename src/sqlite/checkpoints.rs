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
