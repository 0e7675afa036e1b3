//! The database as a plain file: made whole, and looked at, before SQLite has it open (closing a
//! descriptor of it later would drop SQLite's locks). Called by `open`; it knows no tables.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rusqlite::Connection;

use super::refusal::{OpenError, access, failed};
use super::schema;

/// Page size of a new database. Rows are small and a change writes whole pages: half of SQLite's
/// default gives a third more jobs a second, a quarter of it no more.
const PAGE_BYTES: i64 = 2048;

/// Device and inode: which file it is, whatever its name.
pub(super) type Identity = (u64, u64);

/// The identity of what stands at `path`. It is never opened: closing it would drop SQLite's locks.
pub(super) fn identity(path: &Path) -> io::Result<Identity> {
    std::fs::metadata(path).map(|found| (found.dev(), found.ino()))
}

/// The file that SQLite keeps beside a database.
pub(super) fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

/// The database's path without links, for SQLite keeps its files beside what a link leads to. Made
/// anew if there is nothing.
pub(super) fn found_or_made(path: &Path) -> Result<PathBuf, OpenError> {
    if !path.try_exists().map_err(|source| access("look at", path, source))? {
        if let Ok(target) = std::fs::read_link(path) {
            return Err(OpenError::LinkToNowhere { path: path.to_owned(), target });
        }
        create(path)?;
    }
    std::fs::canonicalize(path).map_err(|source| access("look at", path, source))
}

/// Makes a new database under a temporary name, whole, and gives it its name.
fn create(path: &Path) -> Result<(), OpenError> {
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".new-{}", std::process::id()));
    let temporary = directory.join(name);
    let _left_over = std::fs::remove_file(&temporary);
    let made = make(&temporary).map_err(failed("make", path)).and_then(|()| {
        publish(&temporary, path, directory).map_err(|error| access("make", path, error))
    });
    if made.is_err() {
        let _not_made = std::fs::remove_file(&temporary);
    }
    made
}

fn make(path: &Path) -> rusqlite::Result<()> {
    let mut connection = Connection::open(path)?;
    connection.pragma_update(None, "page_size", PAGE_BYTES)?;
    connection.pragma_update(None, "journal_mode", "delete")?;
    schema::migrate(&mut connection)?;
    connection.close().map_err(|(_, error)| error)
}

fn publish(temporary: &Path, path: &Path, directory: &Path) -> io::Result<()> {
    File::open(temporary)?.sync_all()?;
    // A link, unlike a rename, never replaces what has come to stand there meanwhile.
    std::fs::hard_link(temporary, path)?;
    std::fs::remove_file(temporary)?;
    File::open(directory)?.sync_all()
}

/// Looks at the plain file: is there anything, is it a database, is it whole?
pub(super) fn look_at(path: &Path) -> Result<(), OpenError> {
    let found = std::fs::metadata(path).map_err(|source| access("look at", path, source))?;
    if !found.is_file() {
        return Err(OpenError::NotADatabase(path.to_owned()));
    }
    // Never to wait for somebody at the other end, if a pipe has come to stand there meanwhile.
    let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let mut file = OpenOptions::new()
        .read(true)
        .custom_flags(flags)
        .open(path)
        .map_err(|source| access("read", path, source))?;
    if found.len() == 0 {
        return Err(OpenError::Emptied(path.to_owned()));
    }
    let mut header = [0; 100];
    let whole = file.read_exact(&mut header).is_ok() && header.starts_with(b"SQLite format 3\0");
    if !whole {
        return Err(OpenError::NotADatabase(path.to_owned()));
    }
    // A write that was interrupted is finished from its log, which has the pages that are missing.
    if is_hot(path, "-wal") || is_hot(path, "-journal") {
        return Ok(());
    }
    check_size(path, &header, found.len())
}

/// Whether SQLite has something to recover from beside the file.
fn is_hot(path: &Path, ending: &str) -> bool {
    std::fs::metadata(beside(path, ending)).is_ok_and(|found| found.len() > 0)
}

/// The header says how many pages there are; fewer bytes than that is a file that was cut off.
fn check_size(path: &Path, header: &[u8; 100], length: u64) -> Result<(), OpenError> {
    let number = |at: usize| {
        u64::from(u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]))
    };
    let page_bytes = match u16::from_be_bytes([header[16], header[17]]) {
        1 => 65_536,
        bytes => u64::from(bytes),
    };
    let (changes, pages, valid_for) = (number(24), number(28), number(92));
    // Only a header written by the last change tells the number of pages.
    if changes == valid_for && length < pages * page_bytes {
        let what = format!("{length} bytes of {} are there", pages * page_bytes);
        return Err(OpenError::Corrupt { path: path.to_owned(), what });
    }
    Ok(())
}
