//! Damaged databases: the note beside one that keeps a daemon from using it, and the result of a full check.
//!
//! `serve` leaves the note when SQLite finds the file corrupt, and opening refuses as long as it is there.
//! `check --database` removes it once the database is sound. The records' own crate knows what must be in the tables.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rusqlite::{Connection, OpenFlags};
use shiftboss_sqlite::{Findings, look_through};
use tracing::error;

use crate::exit::{ExitCode, Failure};
use crate::safe_file;

/// Longest note: we do not write a longer one.
const NOTE_BYTES_MAX: u64 = 64 * 1024;

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

/// Leaves the note that a database is corrupt. No link is followed, and an earlier note about the same file stays.
pub(crate) fn mark(database: &Path, what: &str) {
    let now = humantime::format_rfc3339_seconds(SystemTime::now());
    let note = note_of(database);
    if read(&note).is_ok_and(|text| is_about_another(&text, database)) {
        // Whatever hinders is found when the new one is written.
        let _ = unmark(database);
    }
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
    if is_about_another(&text, database) {
        return Ok(());
    }
    let note = text.lines().skip(1).collect::<Vec<_>>().join("; ");
    let path = database.display();
    let text = format!(
        "the database {path} was found to be corrupt ({note}), and is not used until it is known to be sound: `shiftboss check --database {path}` looks; `shiftboss move --salvage {path} NEW` saves what can be read; or restore a backup"
    );
    Err(Failure::new(ExitCode::BadData, text))
}

/// Another file has stood in the database's place when it was noted.
fn is_about_another(text: &str, database: &Path) -> bool {
    let first = text.lines().next().unwrap_or_default();
    first.starts_with("File: ") && file_line(database).is_ok_and(|file| file != first)
}

fn read(note: &Path) -> io::Result<String> {
    let mut text = String::new();
    safe_file::open_to_read(note)?.take(NOTE_BYTES_MAX).read_to_string(&mut text)?;
    Ok(text)
}

/// Removes the note, if there is one.
pub(crate) fn unmark(database: &Path) -> io::Result<()> {
    match std::fs::remove_file(note_of(database)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Looks a database through. Changes nothing.
pub(crate) fn findings(database: &Path) -> Findings {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY;
    Connection::open_with_flags(database, flags).map_or_else(
        |error| Findings { damage: vec![error.to_string()], ..Findings::default() },
        |connection| look_through(&connection),
    )
}
