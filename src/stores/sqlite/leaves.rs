//! The rowids that the leaves of a database file name, whichever table they belong to.
//!
//! Called by [`recover`](mod@super::recover) to know where reading may be possible again behind a hole. It reads
//! pages itself, over those that cannot be read, and judges nothing: what was overwritten may say anything.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::file;

/// The kind of a page that is a leaf of a table with rowids.
const TABLE_LEAF: u8 = 0x0d;
/// Before the places of its cells.
const LEAF_HEADER: usize = 8;
/// Before the first page of the log, and before each page of it.
const LOG_HEADER: u64 = 32;
const FRAME_HEADER: u64 = 24;

/// All rowids on the table leaves of a database and of its log, in order, each once.
pub(super) fn rowids(database: &Path, page_size: usize) -> io::Result<Vec<i64>> {
    let mut found = Vec::new();
    read_pages(database, page_size, 0, 0, &mut found)?;
    match read_pages(
        &file::beside(database, "-wal"),
        page_size,
        LOG_HEADER,
        FRAME_HEADER,
        &mut found,
    ) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    found.sort_unstable();
    found.dedup();
    Ok(found)
}

/// Reads each page of a file that begins with `header` bytes, and has `before` bytes before each page.
fn read_pages(
    path: &Path,
    page_size: usize,
    header: u64,
    before: u64,
    found: &mut Vec<i64>,
) -> io::Result<()> {
    let file = File::open(path)?;
    let length = file.metadata()?.len();
    let mut page = vec![0; page_size];
    let mut at = header + before;
    while at < length {
        // The disk may refuse a page, and the last one may be cut off.
        if file.read_exact_at(&mut page, at).is_ok() {
            found.extend(of_page(&page));
        }
        at += page_size as u64 + before;
    }
    Ok(())
}

fn of_page(page: &[u8]) -> impl Iterator<Item = i64> {
    let is_leaf = page.first() == Some(&TABLE_LEAF);
    let cells = if is_leaf { usize::from(u16::from_be_bytes([page[3], page[4]])) } else { 0 };
    let places = page.get(LEAF_HEADER..).unwrap_or_default().chunks_exact(2).take(cells);
    places.filter_map(|place| {
        let cell = page.get(usize::from(u16::from_be_bytes([place[0], place[1]]))..)?;
        let (_size, length) = varint(cell)?;
        varint(&cell[length..]).map(|(rowid, _)| rowid)
    })
}

/// SQLite's number of one to nine bytes, and how many those are.
fn varint(bytes: &[u8]) -> Option<(i64, usize)> {
    let mut value = 0_i64;
    for (index, byte) in bytes.iter().take(9).enumerate() {
        if index == 8 {
            return Some((value << 8 | i64::from(*byte), 9));
        }
        value = value << 7 | i64::from(byte & 0x7f);
        if byte & 0x80 == 0 {
            return Some((value, index + 1));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers of every length, in the log as in the file; rows that go on elsewhere, too.
    #[test]
    fn rowids_of_a_file_and_its_log() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("a.db");
        let open = rusqlite::Connection::open(&path).unwrap();
        let all: Vec<i64> = (0..63).map(|bit| 1 << bit).chain([-1, i64::MAX]).collect();
        open.execute_batch(
            "PRAGMA page_size = 512; PRAGMA journal_mode = wal; PRAGMA wal_autocheckpoint = 0;
             CREATE TABLE t (a INTEGER PRIMARY KEY, b TEXT)",
        )
        .unwrap();
        let (filed, logged) = all.split_at(40);
        let put = |rowids: &[i64]| {
            for rowid in rowids {
                open.execute("INSERT INTO t VALUES (?1, ?2)", (rowid, "p".repeat(900))).unwrap();
            }
        };
        put(filed);
        open.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
        put(logged);
        let known = rowids(&path, 512).unwrap();
        assert!(all.iter().all(|rowid| known.contains(rowid)), "{known:?}");
        assert!(known.is_sorted());
    }
}
