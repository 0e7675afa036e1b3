//! What is known of a damaged database: the note beside it that keeps a daemon from using it, and what is
//! found by looking it through.
//!
//! `serve` leaves the note when SQLite finds the file corrupt, and opening refuses as long as it is there.
//! `check --database` takes it away once the database is sound. Of the tables it knows what must be in them.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rusqlite::{Connection, OpenFlags, Result};
use tracing::error;

use super::query::Query;
use super::records::state;
use super::schema;
use crate::exit::{ExitCode, Failure};
use crate::safe_file;

/// A note is longer only if somebody else wrote it.
const NOTE_BYTES_MAX: u64 = 64 * 1024;
/// Counters without which nothing can be handed out.
const COUNTERS: [&str; 6] =
    ["attempt", "row", "task", "single_tasks", "single_tasks_ended", "ended"];
/// What SQLite finds wrong, a line each.
const SQLITE_CHECKS: [&str; 2] = [
    "SELECT integrity_check FROM pragma_integrity_check WHERE integrity_check <> 'ok'",
    r#"SELECT 'a row of ' || "table" || ' without its ' || parent FROM pragma_foreign_key_check"#,
];
/// What must hold between our tables: a line each for what does not.
const INVARIANTS: [&str; 2] = [
    "SELECT count(*) || ' runs whose counts are not those of their rows'
        FROM shiftboss_runs AS run WHERE (rows, pending) IS NOT (
            SELECT count(*), count(*) FILTER (WHERE is_dequeued = 0) FROM queue
            WHERE queue.fetcher_id = run.fetcher_id
                AND queue.fetcher_run_started = run.run_started)
        HAVING count(*) > 0",
    "SELECT count(*) || ' rows whose last_started is not the log''s'
        FROM queue LEFT JOIN log USING (attr_path)
        WHERE queue.last_started IS NOT log.started HAVING count(*) > 0",
];

/// The note beside a database, which may be named through links.
fn note_of(database: &Path) -> PathBuf {
    let database = std::fs::canonicalize(database).unwrap_or_else(|_| database.to_owned());
    let mut name = std::ffi::OsString::from(".");
    name.push(database.file_name().unwrap_or_default());
    name.push(".shiftboss-corrupt");
    database.with_file_name(name)
}

/// Which file a note is about: another one in its place may be sound.
fn file_line(database: &Path) -> io::Result<String> {
    let found = std::fs::metadata(database)?;
    Ok(format!("File: {}:{}", found.dev(), found.ino()))
}

/// Leaves the note that a database is corrupt. No link is followed, and an earlier note stays.
pub(crate) fn mark(database: &Path, what: &str) {
    let now = humantime::format_rfc3339_seconds(SystemTime::now());
    let note = note_of(database);
    let noted = file_line(database).and_then(|file| {
        let (directory, name) = safe_file::parent(&note)?;
        let mut out = safe_file::create_new(directory, name, 0o644)?;
        write!(out, "{file}\nSince: {now}\nFault: {what}\n")?;
        out.sync_all()?;
        File::open(note.parent().unwrap_or(Path::new("/")))?.sync_all()
    });
    match noted {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            error!(%error, note = %note.display(), "Cannot note that the database is corrupt: the next start will use it again.");
        }
        _ => {}
    }
}

/// Refuses a database if there is a note about this very file.
pub(super) fn refuse_marked(database: &Path) -> Result<(), Failure> {
    let note = note_of(database);
    if note.symlink_metadata().is_err() {
        return Ok(());
    }
    let text = read(&note).unwrap_or_else(|error| format!("{}: {error}", note.display()));
    let first = text.lines().next().unwrap_or_default();
    let about_another =
        first.starts_with("File: ") && file_line(database).is_ok_and(|file| file != first);
    if about_another {
        return Ok(());
    }
    let note = text.lines().skip(1).collect::<Vec<_>>().join("; ");
    let path = database.display();
    let text = format!(
        "the database {path} was found to be corrupt ({note}), and is not used until it is known to be sound: `shiftboss check --database {path}` looks; `shiftboss recover {path} NEW` saves what can be read; or restore a backup"
    );
    Err(Failure::new(ExitCode::BadData, text))
}

fn read(note: &Path) -> io::Result<String> {
    let mut text = String::new();
    safe_file::open_to_read(note)?.take(NOTE_BYTES_MAX).read_to_string(&mut text)?;
    Ok(text)
}

/// Takes the note away, if there is one.
pub(crate) fn unmark(database: &Path) -> io::Result<()> {
    match std::fs::remove_file(note_of(database)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// What is missing in the tables that only shiftboss writes; cheap, for every start.
pub(super) fn missing(connection: &Connection) -> Result<Option<String>> {
    for table in schema::tables()? {
        if !connection.table_exists(None, &*table)? {
            return Ok(Some(format!("the table {table} is missing")));
        }
    }
    let sql = "SELECT name FROM shiftboss_counters";
    let counters: Vec<String> = connection.values(sql, [])?;
    let lacks = |table, row| Ok(Some(format!("the table {table} lacks the row '{row}'")));
    if let Some(counter) = COUNTERS.into_iter().find(|name| !counters.iter().any(|is| is == name)) {
        return lacks("shiftboss_counters", counter);
    }
    if state(connection, "made")?.is_none() {
        return lacks("shiftboss_state", "made");
    }
    let runs = "SELECT count(*) FROM fetcher_runs AS run WHERE NOT EXISTS (
        SELECT 1 FROM shiftboss_runs AS ours
        WHERE ours.fetcher_id = run.fetcher_id AND ours.run_started = run.run_started)";
    let unknown: i64 = connection.value(runs, [])?;
    Ok((unknown > 0).then(|| format!("the table shiftboss_runs lacks {unknown} of the runs")))
}

/// Looks a database through and tells all that is wrong with it, in SQLite's words and ours. Changes
/// nothing.
pub(crate) fn findings(database: &Path) -> Vec<String> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY;
    let found = Connection::open_with_flags(database, flags).and_then(|connection| {
        let found = lines(&connection, SQLITE_CHECKS);
        if !found.is_empty() || schema::version(&connection)? != schema::VERSION {
            return Ok(found);
        }
        let missing = missing(&connection)?;
        Ok(missing.map_or_else(|| lines(&connection, INVARIANTS), |missing| vec![missing]))
    });
    found.unwrap_or_else(|error| vec![error.to_string()])
}

/// The lines of some checks, and why one broke off.
fn lines<const N: usize>(connection: &Connection, checks: [&str; N]) -> Vec<String> {
    let lines = |check| -> Result<Vec<Result<String>>> {
        Ok(connection.prepare(check)?.query_map([], |row| row.get(0))?.collect())
    };
    let all =
        checks.into_iter().flat_map(|check| lines(check).unwrap_or_else(|error| vec![Err(error)]));
    all.map(|line| line.unwrap_or_else(|error| error.to_string())).collect()
}
