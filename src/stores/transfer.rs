//! A queue on its way from a file to a server, or back: its tables, one after the other, and the order of steps that makes a move all
//! or nothing.
//!
//! Called by `shiftboss move`. Both ends have the same tables (`shiftboss_queue::tables`), so nothing is understood of what is moved, but
//! whose it is: a file has one daemon, and on a server the name of one is said. It locks nothing: whoever opens an end sees to it
//! that no daemon uses it.

use std::path::Path;

use rusqlite::Connection;
use shiftboss_postgres::tables as on_server;
use shiftboss_queue::tables::{TABLES, stays};
use shiftboss_sqlite::tables as in_file;
use tracing::info;

use super::mark::{self, Mark, Moved, gone, unfinished};
use super::postgres::transfer::Reserved;
use super::sqlite::stopped;
use super::start_failure;
use crate::exit::{ExitCode, Failure};

/// Progress is told after so many rows.
const PROGRESS_ROWS: u64 = 500_000;

/// Where a queue is moved from. Nobody changes it meanwhile.
pub(super) trait Source {
    /// As users name it.
    fn name(&self) -> String;

    /// One word that no other queue has, on any machine.
    fn identity(&mut self) -> Result<String, Failure>;

    /// The move that it is marked with.
    fn mark(&mut self) -> Result<Option<Mark>, Failure>;

    /// From now on no daemon uses it.
    fn leave(&mut self, mark: &Mark) -> Result<(), Failure>;
}

/// Where it is moved to.
pub(super) trait Target<S> {
    /// As users name it.
    fn name(&self) -> String;

    /// The move that was begun into it, and not ended.
    fn mark(&mut self) -> Result<Option<Mark>, Failure>;

    /// Removes what such a move left.
    fn discard(&mut self) -> Result<(), Failure>;

    /// Takes all in, durably, under a mark with which no daemon uses it; with an error nothing is left.
    fn fill(&mut self, mark: &Mark, source: &mut S) -> Result<Vec<Moved>, Failure>;

    /// The mark goes.
    fn open_up(&mut self) -> Result<(), Failure>;
}

/// Moves a queue. Whenever this is broken off, either the source is as it was, and what is in the target is discarded by
/// the next move; or the source is marked, and the next move only opens the target up.
pub(super) fn carry<S: Source>(
    source: &mut S,
    target: &mut impl Target<S>,
) -> Result<Vec<Moved>, Failure> {
    match (source.mark()?, target.mark()?) {
        (Some(left), Some(begun)) if left.number == begun.number => {
            target.open_up()?;
            return Ok(Vec::new());
        }
        (Some(left), _) => return Err(gone(&source.name(), &left)),
        (None, Some(begun)) if mark::is_of(&begun, &source.identity()?, &source.name()) => {
            target.discard()?;
        }
        (None, Some(begun)) => return Err(unfinished(&target.name(), &begun)),
        (None, None) => {}
    }
    let mut mark = mark::new(&source.identity()?, source.name());
    let moved = target.fill(&mark, source)?;
    mark.place = target.name();
    source.leave(&mark)?;
    target.open_up()?;
    Ok(moved)
}

/// There is something where a queue was to be moved to.
pub(super) fn occupied(text: String) -> Failure {
    Failure::new(ExitCode::CannotCreate, text)
}

/// Copies all tables of a file to a server, in the transactions that both have open. Sums are this daemon's.
pub(super) fn to_server(
    (file, path): (&Connection, &Path),
    server: &Reserved,
    daemon: i64,
) -> Result<Vec<Moved>, Failure> {
    let client = server.client();
    let cannot = || stopped("read", path);
    server.wait(on_server::begin(client))?;
    let mut moved = Vec::new();
    for table in TABLES {
        let columns = in_file::columns(file, table).map_err(cannot())?;
        let mut rows = Moved { table, rows: 0 };
        let mut filling =
            server.wait(on_server::Filling::begin(client, table, &columns, daemon))?;
        let read = in_file::read(file, table, &columns, |row| {
            if stays(table, row) {
                return Ok(());
            }
            count(&mut rows);
            server.wait(filling.add(row))
        });
        read.map_err(cannot())??;
        server.wait(filling.end())?;
        moved.push(rows);
    }
    server.wait(on_server::end(client, daemon))?;
    Ok(moved)
}

/// Copies all tables of a server, in the transaction that is open there, to a file that has none yet.
pub(super) fn to_file(
    server: &Reserved,
    (file, path): (&Connection, &Path),
) -> Result<Vec<Moved>, Failure> {
    let client = server.client();
    let cannot = || stopped("fill", path);
    let mut moved = Vec::new();
    for table in TABLES {
        let columns = in_file::columns(file, table).map_err(cannot())?;
        let mut rows = Moved { table, rows: 0 };
        let mut reading = server.wait(on_server::Reading::begin(client, table, &columns))?;
        let mut filling = in_file::Filling::begin(file, table, &columns).map_err(cannot())?;
        while let Some(row) = server.wait(reading.next())? {
            let row = reading.values(&row).map_err(start_failure)?;
            if !stays(table, &row) {
                count(&mut rows);
                filling.add(&row).map_err(cannot())?;
            }
        }
        moved.push(rows);
    }
    Ok(moved)
}

fn count(moved: &mut Moved) {
    moved.rows += 1;
    if moved.rows.is_multiple_of(PROGRESS_ROWS) {
        info!(table = moved.table, rows = moved.rows, "The queue is being moved.");
    }
}
