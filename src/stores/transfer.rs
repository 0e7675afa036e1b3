//! A queue on its way from a file to a server, or back: the order of steps that makes a move all or nothing, its marks, and its tables,
//! one after the other.
//!
//! Called by `shiftboss move`, which has the file's lock. Both ends have the same tables (`shiftboss_queue::tables`),
//! so a move need not understand what it moves, except who owns it: a file has one daemon, and for a server a daemon is
//! named. A mark is a document of a queue that was moved away, or is incomplete: no daemon uses either.
//!
//! Whenever a move is broken off, either the source is unchanged, and the next move discards what is in the target; or
//! the source is marked, and the next move only releases the target.

use std::path::Path;
use std::time::SystemTime;

use rusqlite::Connection;
use shiftboss_postgres::tables as on_server;
use shiftboss_protocol::url::Url;
use shiftboss_queue::documents::{ARRIVING, MOVED};
use shiftboss_queue::tables::{TABLES, for_file, for_member};
use shiftboss_sqlite::tables as in_file;
use tracing::info;

/// Which move it was, and the place at its other end. After the last `@` its number names the queue that was moved,
/// because two machines may have places of the same name.
pub(super) use shiftboss_queue::documents::Move as Mark;

use super::postgres::Server;
use super::postgres::transfer::{Reserved, Whose};
use super::sqlite::stopped;
use super::sqlite::transfer::{self as file, Leaving};
use super::start_failure;
use crate::exit::{ExitCode, Failure};

/// After how many rows progress is reported.
const PROGRESS_ROWS: u64 = 500_000;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Moved {
    pub(crate) table: &'static str,
    pub(crate) rows: u64,
}

impl Moved {
    fn count(&mut self) {
        self.rows += 1;
        if self.rows.is_multiple_of(PROGRESS_ROWS) {
            info!(table = self.table, rows = self.rows, "The queue is being moved.");
        }
    }
}

/// Moves a queue from a file to a server; `daemon` has its lists there.
pub(crate) fn move_in(from: &Path, to: &Url, daemon: &str) -> Result<Vec<Moved>, Failure> {
    let server = Server::new(to)?;
    let source = Leaving::open(from)?;
    let target = Reserved::take(&server, true)?;
    let (from, identity) = (source.name(), source.identity()?);
    let marks = (source.document(&MOVED)?, target.mark(&ARRIVING)?);
    if is_moved((&from, &identity), &target.name, marks)? {
        target.open_up()?;
        return Ok(Vec::new());
    }
    let mut mark = new_mark(&identity, from);
    // The remains of a broken-off move are deleted in the same transaction.
    let moved = target.fill(daemon, &mark, |whose| to_server(&source, &target, whose))?;
    mark.place.clone_from(&target.name);
    source.leave(&mark)?;
    target.open_up()?;
    Ok(moved)
}

/// Moves a queue from a server to a new file.
pub(crate) fn move_out(from: &Url, to: &Path) -> Result<Vec<Moved>, Failure> {
    let server = Server::new(from)?;
    let to = file::absolute(to)?;
    let begun = file::begun(&to);
    let source = Reserved::take(&server, false)?;
    source.begin_to_read()?;
    let (name, identity) = (to.display().to_string(), source.identity()?);
    let marks = (source.mark(&MOVED)?, begun.clone());
    if is_moved((&source.name, &identity), &name, marks)? {
        file::open_up(&to)?;
        return Ok(Vec::new());
    }
    if begun.is_some() {
        file::discard(&to)?;
    }
    let mut mark = new_mark(&identity, source.name.clone());
    let moved =
        file::arrive(&to, &mark, source.bytes()?, |tables| to_file(&source, (tables, &to)))?;
    mark.place = name;
    source.leave(&mark)?;
    file::open_up(&to)?;
    Ok(moved)
}

/// Whether the queue of this name and identity was moved, and only the last step is missing. Otherwise it must be moved
/// from the beginning.
fn is_moved(
    (from, identity): (&str, &str),
    to: &str,
    marks: (Option<Mark>, Option<Mark>),
) -> Result<bool, Failure> {
    match marks {
        (Some(left), Some(begun)) if left.number == begun.number => Ok(true),
        (Some(left), _) => Err(gone(from, &left)),
        (None, Some(begun)) if !is_of(&begun, identity, from) => Err(unfinished(to, &begun)),
        (None, _) => Ok(false),
    }
}

/// Of a new move of the queue of this identity; none has the same number.
pub(super) fn new_mark(identity: &str, place: String) -> Mark {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Mark { number: format!("{}-{}@{identity}", now.as_nanos(), std::process::id()), place }
}

/// Whether the queue of this identity was moved from this place. A copy of it elsewhere is another one.
fn is_of(mark: &Mark, identity: &str, place: &str) -> bool {
    let moved = mark.number.rsplit_once('@').map(|(_, moved)| moved);
    mark.place == place && moved == Some(identity)
}

/// The error for a queue that was moved away.
pub(super) fn gone(name: &str, left: &Mark) -> Failure {
    let text = format!("the queue of {name} was moved to {}: use that", left.place);
    Failure::new(ExitCode::Configuration, text)
}

/// The error for a queue whose move was broken off.
pub(super) fn unfinished(name: &str, begun: &Mark) -> Failure {
    let text = format!(
        "a move into {name} was broken off: run the same `shiftboss move` again where {} is, which ends it or begins anew",
        begun.place
    );
    Failure::new(ExitCode::Configuration, text)
}

/// Copies a file to a server, in the open transactions of both. `whose`: the daemon that gets what no relay owns, and
/// since when.
fn to_server(file: &Leaving, server: &Reserved, whose: Whose) -> Result<Vec<Moved>, Failure> {
    let (client, Whose { daemon, member, now }) = (server.client(), whose);
    let cannot = || stopped("read", &file.path);
    let arrival = server.wait(on_server::Arrival::begin(client))?;
    let mut moved = Vec::new();
    for table in TABLES {
        let columns = in_file::columns(&file.connection, table).map_err(cannot())?;
        let begun = on_server::Filling::begin(client, table, &columns, daemon);
        let mut filling = server.wait(begun)?;
        let mut rows = Moved { table, rows: 0 };
        let read = in_file::read(&file.connection, table, &columns, |row| {
            rows.count();
            server.wait(filling.add(row))
        });
        read.map_err(cannot())??;
        server.wait(filling.end())?;
        moved.push(rows);
    }
    let (documents, lists) = (file.documents()?, file.lists()?);
    for (name, text) in for_member(documents, &member, lists, now) {
        server.note(&name, &text)?;
    }
    server.wait(arrival.end(client, daemon, &member))?;
    Ok(moved)
}

/// Copies a server, in the transaction that is open there, to a file that has empty tables.
fn to_file(server: &Reserved, (file, path): (&Connection, &Path)) -> Result<Vec<Moved>, Failure> {
    let cannot = || stopped("fill", path);
    let mut moved = Vec::new();
    for table in TABLES {
        let columns = in_file::columns(file, table).map_err(cannot())?;
        let mut filling = in_file::Filling::begin(file, table, &columns).map_err(cannot())?;
        let mut rows = Moved { table, rows: 0 };
        let begun = on_server::Reading::begin(server.client(), table, &columns);
        let mut reading = server.wait(begun)?;
        while let Some(row) = server.wait(reading.next())? {
            rows.count();
            filling.add(&reading.values(&row).map_err(start_failure)?).map_err(cannot())?;
        }
        moved.push(rows);
    }
    for (name, text) in for_file(server.documents()?) {
        file::note(file, path, &name, &text)?;
    }
    Ok(moved)
}
