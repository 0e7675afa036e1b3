//! The database as a plain file: made as a whole, and checked, before SQLite has it open (closing a descriptor of it
//! later would drop SQLite's locks); and why one is refused, with what to do about it (spec 6). Called by `open`; it
//! does not know tables.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, ErrorCode, OpenFlags};
use rustix::fs::AtFlags;
use shiftboss_queue::error::StoreError;
use shiftboss_sqlite::{beside, refused};

use super::damage;
use crate::exit::{ExitCode, Failure};
use crate::safe_file;

/// Page size of a new database. Rows are small and a change writes whole pages: half of SQLite's
/// default gives a third more jobs a second, a quarter of it no more.
const PAGE_BYTES: i64 = 2048;

/// Device and inode: which file it is, whatever its name.
pub(super) type Identity = (u64, u64);

/// The identity of what stands at `path`. It is never opened: closing it would drop SQLite's locks.
pub(super) fn identity(path: &Path) -> io::Result<Identity> {
    std::fs::metadata(path).map(|found| (found.dev(), found.ino()))
}

/// Checks a database before anything is made beside it: it must be missing, or a file that may be ours.
pub(crate) fn look(path: &Path) -> Result<(), Failure> {
    let found = found(path)?;
    if let Some(path) = &found {
        look_at(path)?;
        damage::refuse_marked(path)?;
    }
    look_beside(found.as_deref().unwrap_or(path))
}

/// The database's path without links, because SQLite keeps its files beside the target of a link; `None` if there is
/// nothing.
fn found(path: &Path) -> Result<Option<PathBuf>, Failure> {
    match (std::fs::canonicalize(path), std::fs::read_link(path)) {
        (Ok(found), _) => Ok(Some(found)),
        (Err(source), _) if source.kind() != io::ErrorKind::NotFound => {
            Err(access("look at", path, source))
        }
        (_, Ok(target)) => {
            let text = format!(
                "the database {} is a link to {}, where nothing is: mount or restore what it leads to, or remove the link; nothing was changed",
                path.display(),
                target.display()
            );
            Err(Failure::new(ExitCode::CannotCreate, text))
        }
        _ => Ok(None),
    }
}

/// The database's path without links. Made anew if there is nothing.
pub(super) fn found_or_made(path: &Path) -> Result<PathBuf, Failure> {
    if let Some(path) = found(path)? {
        return Ok(path);
    }
    make_new(path, make_schema).map_err(|error| match error.downcast() {
        Ok(source) => failed("make", path)(source),
        Err(source) => access("make", path, source),
    })?;
    std::fs::canonicalize(path).map_err(|source| access("look at", path, source))
}

/// Makes an empty file a database of ours.
pub(super) fn make_schema(connection: &mut Connection) -> rusqlite::Result<()> {
    set_page_size(connection)?;
    connection.pragma_update(None, "journal_mode", "delete")?;
    shiftboss_sqlite::make(connection)
}

/// Of a file that is empty.
pub(super) fn set_page_size(connection: &Connection) -> rusqlite::Result<()> {
    connection.pragma_update(None, "page_size", PAGE_BYTES)
}

/// Makes a database at `path`, filled by `fill`, under a temporary name, and gives it its name when it is
/// whole and on disk. It is an error if anything is at `path`.
pub(crate) fn make_new<E: Into<Box<dyn std::error::Error + Send + Sync>>>(
    path: &Path,
    fill: impl FnOnce(&mut Connection) -> Result<(), E>,
) -> io::Result<()> {
    let (directory, name) = safe_file::parent(path)?;
    let mut draft = OsString::from(name);
    draft.push(format!(".new-{}", std::process::id()));
    let file = safe_file::create_anew(&directory, &draft, 0o644)?;
    // Its links gone, for SQLite is to follow none.
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.unwrap_or(Path::new("."));
    let make = || -> io::Result<()> {
        let path = std::fs::canonicalize(parent)?.join(&draft);
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NOFOLLOW;
        let mut connection = Connection::open_with_flags(path, flags).map_err(io::Error::other)?;
        fill(&mut connection).map_err(io::Error::other)?;
        connection.close().map_err(|(_, error)| io::Error::other(error))?;
        file.sync_all()?;
        // Unlike a rename, making a link never replaces what was put there meanwhile.
        Ok(rustix::fs::linkat(&directory, &draft, &directory, name, AtFlags::empty())?)
    };
    let made = make();
    // It has its name, or is of no use.
    let _ = rustix::fs::unlinkat(&directory, &draft, AtFlags::empty());
    made?;
    File::open(parent)?.sync_all()
}

/// Looks at the plain file: is there anything, is it a database, is it whole?
fn look_at(path: &Path) -> Result<(), Failure> {
    let found = std::fs::metadata(path).map_err(|source| access("look at", path, source))?;
    if !found.is_file() {
        return Err(not_a_database(path));
    }
    let mut file = safe_file::open_to_read(path).map_err(|source| access("read", path, source))?;
    if found.len() == 0 {
        let text = format!(
            "the database {} is empty (0 bytes): it was cut off or emptied. Restore a backup; to begin anew, remove the file",
            path.display()
        );
        return Err(Failure::new(ExitCode::BadData, text));
    }
    let mut header = [0; 100];
    let whole = file.read_exact(&mut header).is_ok() && header.starts_with(b"SQLite format 3\0");
    if !whole {
        return Err(not_a_database(path));
    }
    // A write that was interrupted is finished from its log, which has the pages that are missing.
    if is_hot(path, "-wal") || is_hot(path, "-journal") {
        return Ok(());
    }
    check_size(path, &header, found.len())?;
    let why = refused(number(&header[68..72]), number(&header[60..64]));
    why.map_or(Ok(()), |why| Err(not_usable(path, &why)))
}

fn number(bytes: &[u8]) -> i64 {
    bytes.iter().fold(0, |number, byte| number << 8 | i64::from(*byte))
}

/// Checks the files that SQLite opens beside a database: SQLite follows no links there, but has no other safeguards.
fn look_beside(path: &Path) -> Result<(), Failure> {
    for ending in ["-wal", "-shm", "-journal"] {
        let file = beside(path, ending);
        safe_file::parent(&file)
            .and_then(|(directory, name)| safe_file::require_plain_or_none(&directory, name))
            .map_err(|source| access("use the files beside", &file, source))?;
    }
    Ok(())
}

/// Whether SQLite has something to recover from beside the file.
pub(super) fn is_hot(path: &Path, ending: &str) -> bool {
    std::fs::metadata(beside(path, ending)).is_ok_and(|found| found.len() > 0)
}

/// The header has the number of pages; a file with fewer bytes was truncated.
fn check_size(path: &Path, header: &[u8; 100], length: u64) -> Result<(), Failure> {
    let page_bytes = match number(&header[16..18]) {
        1 => 65_536,
        bytes => bytes,
    };
    let (changes, valid_for) = (&header[24..28], &header[92..96]);
    let whole = (number(&header[28..32]) * page_bytes).cast_unsigned();
    // Only a header written by the last change has the right number of pages.
    if changes == valid_for && length < whole {
        return Err(corrupt(path, &format!("{length} bytes of {whole} are there")));
    }
    Ok(())
}

pub(super) fn access(doing: &str, path: &Path, source: io::Error) -> Failure {
    let path = path.display();
    let text = format!(
        "cannot {doing} the database {path}: {source}; the daemon's user needs to read and write the file and its directory"
    );
    Failure::new(ExitCode::CannotCreate, text)
}

/// Pages or rows are missing or wrong.
pub(super) fn corrupt(path: &Path, what: &str) -> Failure {
    let path = path.display();
    let text = format!(
        "the database {path} is corrupt ({what}). Restore a backup, or save what can be read with `shiftboss move --salvage {path} NEW`; nothing was changed"
    );
    Failure::new(ExitCode::BadData, text)
}

/// It is not ours, or of an unknown version; `why` says what to do.
pub(super) fn not_ours(why: String) -> Failure {
    Failure::new(ExitCode::Configuration, why + "; nothing was changed")
}

pub(super) fn not_a_database(path: &Path) -> Failure {
    not_ours(format!("{} is not an SQLite database: give another path", path.display()))
}

pub(super) fn not_usable(path: &Path, why: &str) -> Failure {
    not_ours(format!("the database {} cannot be used: {why}", path.display()))
}

pub(in crate::stores) fn failed(
    doing: &str,
    path: &Path,
) -> impl FnOnce(rusqlite::Error) -> Failure {
    move |source| match source.sqlite_error_code() {
        Some(ErrorCode::DatabaseCorrupt) => corrupt(path, &source.to_string()),
        Some(ErrorCode::NotADatabase) => not_a_database(path),
        _ => {
            let text = format!("cannot {doing} the database {}: {source}", path.display());
            Failure::new(ExitCode::StoreIo, text)
        }
    }
}

/// The same for errors of the records' crate.
pub(in crate::stores) fn stopped(doing: &str, path: &Path) -> impl FnOnce(StoreError) -> Failure {
    move |error| match error {
        StoreError::Corrupt(what) => corrupt(path, &what),
        StoreError::Busy(why) => {
            let text = format!("cannot {doing} the database {}: {why}", path.display());
            Failure::new(ExitCode::Unavailable, text)
        }
        error => {
            let text = format!("cannot {doing} the database {}: {error}", path.display());
            Failure::new(ExitCode::StoreIo, text)
        }
    }
}
