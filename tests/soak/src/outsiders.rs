//! Everybody else who has the database open: a reader who stays for a minute, and an operator who edits by hand.
//!
//! Each is a plain SQLite connection, as any program's, in a thread of its own. The edits are of keys
//! of one fetcher, which this file writes too, so that what is checked of the others holds.

use std::fs;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rusqlite::{Connection, OpenFlags};

use crate::Soak;
use crate::ledger::BY_HAND;

/// Pause between two edits.
const EDIT_PAUSE: Duration = Duration::from_millis(10);
/// The longest time for which a reader holds its transaction.
const STAY_MAX: Duration = Duration::from_secs(60);
/// How long after it left the log must be small again.
const SETTLE: Duration = Duration::from_secs(5);
/// What writers are told to set (docs/operating.md).
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// Lines of the fetcher that is edited, and the edits after which it writes a new list.
const LINES: usize = 2_000;
/// Keys that are edited: more than are listed, so that some are in the log alone.
const KEYS: usize = 2_200;
const EDITS_A_RUN: usize = 400;

/// What an operator does to a key (?1).
const EDITS: [&str; 6] = [
    "UPDATE queue SET is_dequeued = 1 WHERE attr_path = ?1",
    "UPDATE log SET started = 0 WHERE attr_path = ?1",
    "UPDATE queue SET is_dequeued = 0 WHERE attr_path = ?1",
    "UPDATE log SET finished = unixepoch(), exit_code = 255
        WHERE attr_path = ?1 AND finished IS NULL",
    "INSERT OR REPLACE INTO log (attr_path, started, finished, exit_code)
        SELECT ?1, unixepoch(), unixepoch(), 0",
    "UPDATE queue SET is_dequeued = 1
        WHERE attr_path BETWEEN ?1 AND substr(?1, 1, 9) || '~'",
];

/// Holds a read transaction for a minute, leaves, and looks at the log some seconds later.
pub fn stay(soak: &Arc<Soak>) -> io::Result<()> {
    let stay = STAY_MAX.min(soak.time / 4);
    while soak.goes_on(SETTLE) {
        let jobs = soak.jobs();
        soak.figures().staying = Some(jobs);
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY;
        let connection = Connection::open_with_flags(soak.path("state.db"), flags);
        let connection = connection.map_err(io::Error::other)?;
        let sql = "BEGIN; SELECT count(*) FROM log;";
        connection.execute_batch(sql).map_err(io::Error::other)?;
        let stayed = soak.goes_on(stay);
        drop(connection);
        if stayed && soak.goes_on(SETTLE) {
            soak.look_at_log_after_reader()?;
        }
        soak.figures().staying = None;
    }
    Ok(())
}

/// Edits rows and the log by hand, one transaction each. That one is refused is a fault: a writer with
/// this busy timeout gets through.
pub fn edit(soak: &Arc<Soak>) -> io::Result<()> {
    let connection = Connection::open(soak.path("state.db")).map_err(io::Error::other)?;
    connection.busy_timeout(BUSY_TIMEOUT).map_err(io::Error::other)?;
    let mut number = 0;
    while soak.goes_on(EDIT_PAUSE) {
        if number % EDITS_A_RUN == 0 {
            replace_list(soak, number / EDITS_A_RUN)?;
        }
        let key = format!("{BY_HAND}/{:06}", number * 7 % KEYS);
        let edit = EDITS[number % EDITS.len()];
        let begun = Instant::now();
        let done = connection.execute(edit, [&key]);
        let mut figures = soak.figures();
        figures.edit = figures.edit.max(begun.elapsed());
        drop(figures);
        soak.check(done.map(drop).map_err(|error| format!("{key}: {edit}: {error}")));
        number += 1;
    }
    Ok(())
}

fn replace_list(soak: &Soak, run: usize) -> io::Result<()> {
    let path = |run: usize| soak.path(&format!("input/{BY_HAND}.{run}.txt"));
    let lines = (0..LINES).map(|index| format!("{BY_HAND}/{index:06} {BY_HAND}\n"));
    let part = soak.path(&format!("input/{BY_HAND}.{run}.txt.part"));
    fs::write(&part, lines.collect::<String>())?;
    fs::rename(&part, path(run))?;
    match run.checked_sub(1) {
        Some(old) => fs::remove_file(path(old)),
        None => Ok(()),
    }
}
