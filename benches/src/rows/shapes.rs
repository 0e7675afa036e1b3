//! Rows 6 and 7: what a request costs at several sizes, in the shapes that made it grow once.
//!
//! A shape is written as a version-2 database of the Python supervisor, in plain SQL, and taken
//! over by the daemon: so nothing of ours decides what it looks like.

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use crate::bare::key;
use rusqlite::Connection;
use shiftboss_protocol::model::jitter;
use tempfile::TempDir;

use super::Setting;
use super::latency::ask;
use crate::load::{self, Plan};
use crate::report::{Figure, per_second};
use crate::servers::{Server, new_home};

/// The tables as the Python supervisor makes them.
const REFERENCE: &str = include_str!("reference.sql");
/// How long one size of one shape is measured.
const TIME: Duration = Duration::from_secs(2);
/// Rows that come later, so that work does not run out while it is measured.
const WAITING: usize = 100_000;
/// Started long ago; and just now, so that the lease holds.
const LONG_AGO: i64 = 1_500_000_000;

/// What the queue looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// Every row waits.
    Waiting,
    /// Every row was dispatched and its job ended.
    Dispatched,
    /// Two fetchers list the same keys, and each key is in flight for one of them.
    TwoFetchers,
    /// An older run still waits under a newer one whose rows were dispatched.
    OldUnderNew,
    /// As many log rows as queue rows without an end, of keys that are listed no longer.
    Unfinished,
}

impl Shape {
    const ALL: [Self; 4] =
        [Self::Dispatched, Self::TwoFetchers, Self::OldUnderNew, Self::Unfinished];

    fn name(self) -> &'static str {
        match self {
            Self::Waiting => "every row waits",
            Self::Dispatched => "every row dispatched",
            Self::TwoFetchers => "two fetchers, the same keys, all in flight",
            Self::OldUnderNew => "an old run undispatched under a newer one dispatched",
            Self::Unfinished => "as many unfinished log rows",
        }
    }
}

pub fn rows(setting: &Setting) -> io::Result<Vec<Figure>> {
    let mut figures = Vec::new();
    let sizes = [1_000, setting.largest / 10, setting.largest];
    for shape in Shape::ALL {
        let [small, middle, large] = sizes.map(|size| rates(setting, shape, size));
        let (small, middle, large) = (small?, middle?, large?);
        figures.push(figure(6, shape, sizes, [small.0, middle.0, large.0]));
        figures.push(figure(7, shape, sizes, [small.1, middle.1, large.1]));
    }
    Ok(figures)
}

fn figure(row: u32, shape: Shape, sizes: [usize; 3], rates: [f64; 3]) -> Figure {
    let asked = if row == 6 { "NOJOBS" } else { "DONE+next" };
    let ratio = rates[0] / rates[2];
    Figure {
        row,
        what: format!("{asked}: {}", shape.name()),
        measured: format!("{} rows: {}", sizes[2], per_second(rates[2])),
        compared: format!(
            "{} rows: {}; {} rows: {}: costs {ratio:.2}x",
            sizes[0],
            per_second(rates[0]),
            sizes[1],
            per_second(rates[1])
        ),
        target: "at most 2x",
        met: Some(ratio <= 2.0),
    }
}

/// Requests a second in a shape of that size: without any work, and with some that came later.
fn rates(setting: &Setting, shape: Shape, size: usize) -> io::Result<(f64, f64)> {
    let home = build(setting, shape, size)?;
    let mut server = Server::shiftboss(&setting.program, home.path(), &[])?;
    let idle = drive(&server, true)?;
    let list = server.input("spare.1.txt.part");
    let lines = (size..size + WAITING).map(|number| format!("{} 1.0 -> 2.0\n", key(number)));
    fs::write(&list, lines.collect::<String>())?;
    fs::rename(&list, server.input("spare.1.txt"))?;
    server.wait(|server| Ok(server.run("spare")?["complete"] == true))?;
    let busy = drive(&server, false)?;
    server.stop()?;
    Ok((idle, busy))
}

fn drive(server: &Server, without_work: bool) -> io::Result<f64> {
    let load = load::run(&Plan {
        without_work,
        ..Plan::at(vec![server.socket.clone()], server.protocol, 8, TIME)
    })?;
    Ok(load.rate)
}

/// A directory whose database has been taken over already.
///
/// # Errors
/// When it cannot be made.
pub fn build(setting: &Setting, shape: Shape, size: usize) -> io::Result<TempDir> {
    let home = new_home()?;
    let path = home.path().join("state.db");
    write(&path, shape, size).map_err(io::Error::other)?;
    for run in if shape == Shape::OldUnderNew { 1..=2 } else { 1..=1 } {
        fs::write(home.path().join(format!("input/a.{run}.txt")), "")?;
    }
    if shape == Shape::TwoFetchers {
        fs::write(home.path().join("input/b.1.txt"), "")?;
    }
    let server = Server::shiftboss(&setting.program, home.path(), &[])?;
    ask(&server.socket, "NOTHING\n")?;
    server.stop()?;
    Ok(home)
}

fn write(path: &Path, shape: Shape, size: usize) -> rusqlite::Result<()> {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let now = now.map_or(LONG_AGO, |since| since.as_secs().cast_signed());
    let connection = Connection::open(path)?;
    connection.execute_batch("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;")?;
    connection.execute_batch(REFERENCE)?;
    connection.execute_batch("BEGIN")?;
    let queue = |fetcher, run, keys: std::ops::Range<usize>, dispatched, started| {
        fill(&connection, fetcher, run, keys, dispatched, started)
    };
    match shape {
        Shape::Waiting => queue("a", 1, 0..size, false, None)?,
        Shape::Dispatched => queue("a", 1, 0..size, true, Some((LONG_AGO, true)))?,
        Shape::TwoFetchers => {
            queue("a", 1, 0..size / 2, true, Some((now, false)))?;
            queue("b", 1, 0..size / 2, false, None)?;
        }
        Shape::OldUnderNew => {
            queue("a", 1, 0..size / 2, false, None)?;
            queue("a", 2, 0..size / 2, true, Some((LONG_AGO, true)))?;
        }
        Shape::Unfinished => {
            queue("a", 1, 0..size, true, Some((now, false)))?;
            connection.execute("DELETE FROM queue", [])?;
        }
    }
    connection.execute_batch("UPDATE queue SET last_started = log.started FROM log WHERE log.attr_path = queue.attr_path AND last_started IS NULL; COMMIT")
}

/// A database of the supervisor's whose log has so many keys, each with its start.
///
/// # Errors
/// When it cannot be made.
pub fn write_log(path: &Path, keys: usize, started: impl Fn(usize) -> i64) -> rusqlite::Result<()> {
    let connection = Connection::open(path)?;
    connection.execute_batch("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;")?;
    connection.execute_batch(REFERENCE)?;
    connection.execute_batch("BEGIN")?;
    let sql = "INSERT INTO log (attr_path, started, finished, exit_code) VALUES (?1, ?2, ?2, 0)";
    let mut entry = connection.prepare(sql)?;
    for number in 0..keys {
        entry.execute((key(number), started(number)))?;
    }
    connection.execute_batch("COMMIT")
}

/// Adds rows of a run, and their keys to the log if they were started.
fn fill(
    connection: &Connection,
    fetcher: &str,
    run: i64,
    keys: std::ops::Range<usize>,
    dispatched: bool,
    log: Option<(i64, bool)>,
) -> rusqlite::Result<()> {
    connection.execute("INSERT OR IGNORE INTO fetchers (name) VALUES (?1)", [fetcher])?;
    let sql = "SELECT fetcher_id FROM fetchers WHERE name = ?1";
    let id: i64 = connection.query_row(sql, [fetcher], |row| row.get(0))?;
    let sql = "INSERT INTO fetcher_runs (fetcher_id, run_started, is_complete) VALUES (?1, ?2, 1)";
    connection.execute(sql, (id, run))?;
    let mut row = connection.prepare(
        "INSERT INTO queue (fetcher_id, fetcher_run_started, attr_path, payload, is_dequeued,
            order_jitter, last_started) VALUES (?1, ?2, ?3, '1.0 -> 2.0', ?4, ?5, ?6)",
    )?;
    let mut entry = connection.prepare(
        "INSERT INTO log (attr_path, started, finished, exit_code) VALUES (?1, ?2, ?3, 0)",
    )?;
    for number in keys {
        let key = key(number);
        row.execute((id, run, &key, dispatched, jitter(&key), log.map(|log| log.0)))?;
        if let Some((started, ended)) = log {
            entry.execute((&key, started, ended.then_some(started + 1)))?;
        }
    }
    Ok(())
}
