//! A queue on its way from a file to a server, or back: its tables, one after the other, and the order of steps that makes a move all
//! or nothing.
//!
//! Called by `shiftboss move`. Both ends have the same tables (`shiftboss_queue::tables`), so nothing is understood of what is moved, but
//! whose it is: a file has one daemon, and on a server the name of one is said. It locks nothing: whoever opens an end sees to it
//! that no daemon uses it.

use std::path::Path;
use std::sync::Arc;

use rusqlite::Connection;
use shiftboss_postgres::tables as on_server;
use shiftboss_protocol::model::UnixSeconds;
use shiftboss_queue::records::StoreResult;
use shiftboss_queue::tables::{Column, Documents, TABLES, Value, for_file, for_member};
use shiftboss_sqlite::tables as in_file;
use tracing::info;

use super::mark::{self, Mark, Moved, gone, unfinished};
use super::postgres::transfer::Reserved;
use super::sqlite::{failed, stopped};
use super::start_failure;
use crate::exit::{ExitCode, Failure};

/// Progress is told after so many rows.
const PROGRESS_ROWS: u64 = 500_000;
const DOCUMENTS: &str = "documents";

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

/// Copies a file to a server, in the transactions that both have open. What no relay has is this daemon's, from the time on.
pub(super) fn to_server(
    (file, path): (&Connection, &Path),
    server: &Reserved,
    (daemon, member, now): (i64, &str, UnixSeconds),
) -> Result<Vec<Moved>, Failure> {
    let client = server.client();
    let cannot = || stopped("read", path);
    let filling = |table| -> Result<_, Failure> {
        let columns = in_file::columns(file, table).map_err(cannot())?;
        let begun = on_server::Filling::begin(client, table, &columns, daemon);
        Ok((server.wait(begun)?, columns))
    };
    let arrival = server.wait(on_server::Arrival::begin(client))?;
    let mut moved = Vec::new();
    for table in TABLES {
        let (mut filling, columns) = filling(table)?;
        let mut rows = Moved { table, rows: 0 };
        let read = in_file::read(file, table, &columns, |row| {
            count(&mut rows);
            server.wait(filling.add(row))
        });
        read.map_err(cannot())??;
        server.wait(filling.end())?;
        moved.push(rows);
    }
    let lists = lists(file).map_err(failed("read", path))?;
    let (mut filling, columns) = filling(DOCUMENTS)?;
    let mut documents = Documents::new();
    let read = in_file::read(file, DOCUMENTS, &columns, |row| keep(&mut documents, row));
    read.map_err(cannot())??;
    for (name, text) in for_member(documents, member, lists, now) {
        server.wait(filling.add(&[&name, &text].map(|it| Value::Text(it.as_bytes()))))?;
    }
    server.wait(filling.end())?;
    server.wait(arrival.end(client, daemon, member))?;
    Ok(moved)
}

/// Copies a server, in the transaction that is open there, to a file that has empty tables.
pub(super) fn to_file(
    server: &Reserved,
    (file, path): (&Connection, &Path),
) -> Result<Vec<Moved>, Failure> {
    let cannot = || stopped("fill", path);
    let filling = |table| -> StoreResult<_> {
        let columns = in_file::columns(file, table)?;
        Ok((in_file::Filling::begin(file, table, &columns)?, columns))
    };
    let mut moved = Vec::new();
    for table in TABLES {
        let (mut filling, columns) = filling(table).map_err(cannot())?;
        let mut rows = Moved { table, rows: 0 };
        read(server, table, &columns, |row| {
            count(&mut rows);
            filling.add(row).map_err(cannot())
        })?;
        moved.push(rows);
    }
    let (mut filling, columns) = filling(DOCUMENTS).map_err(cannot())?;
    let mut documents = Documents::new();
    read(server, DOCUMENTS, &columns, |row| keep(&mut documents, row))?;
    for (name, text) in for_file(documents) {
        let row = [&name, &text].map(|it| Value::Text(it.as_bytes()));
        filling.add(&row).map_err(cannot())?;
    }
    Ok(moved)
}

fn read(
    server: &Reserved,
    table: &str,
    columns: &[Column],
    mut each: impl FnMut(&[Value<'_>]) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut reading = server.wait(on_server::Reading::begin(server.client(), table, columns))?;
    while let Some(row) = server.wait(reading.next())? {
        each(&reading.values(&row).map_err(start_failure)?)?;
    }
    Ok(())
}

/// Fetchers that have lists.
fn lists(file: &Connection) -> rusqlite::Result<Vec<Arc<str>>> {
    let sql = "SELECT name FROM names WHERE fetcher IN (SELECT fetcher FROM runs)";
    file.prepare(sql)?.query_map([], |row| row.get(0))?.collect()
}

fn keep(documents: &mut Documents, row: &[Value<'_>]) -> Result<(), Failure> {
    let text = |at: usize| {
        let bytes = row.get(at).and_then(|it| it.text()).unwrap_or_default();
        String::from_utf8_lossy(bytes).into_owned()
    };
    documents.insert(text(0), text(1));
    Ok(())
}

fn count(moved: &mut Moved) {
    moved.rows += 1;
    if moved.rows.is_multiple_of(PROGRESS_ROWS) {
        info!(table = moved.table, rows = moved.rows, "The queue is being moved.");
    }
}
