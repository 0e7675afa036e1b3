//! A new file that a queue is moved into from a server: made under a temporary name, filled in one transaction, and marked until the
//! move is ended.

use std::path::{Path, PathBuf};

use rusqlite::{Connection, Result};
use shiftboss_queue::documents::ARRIVING;
use shiftboss_sqlite::tables::make_filled;
use shiftboss_sqlite::{document, require_space};

use super::{make_new, note, open_to_write};
use crate::exit::Failure;
use crate::stores::mark::{Mark, Moved};
use crate::stores::postgres::transfer::Leaving;
use crate::stores::sqlite::file::{self, failed, stopped};
use crate::stores::transfer::{Target, to_file};

/// Pages kept in memory while it is filled, in KiB.
const CACHE_KIB: i64 = 64 * 1024;

/// See the module's documentation.
pub(in crate::stores) struct Arriving {
    path: PathBuf,
    begun: Option<Mark>,
}

impl Arriving {
    /// The caller has its lock.
    pub(in crate::stores) fn open(path: &Path) -> std::result::Result<Self, Failure> {
        let path =
            std::path::absolute(path).map_err(|error| file::access("look at", path, error))?;
        // For writing: the move may have been killed in the middle of its last step.
        let read = |connection| document(&connection, &ARRIVING).ok().flatten();
        let begun = open_to_write(&path).ok().and_then(read);
        Ok(Self { path, begun })
    }
}

impl Target<Leaving> for Arriving {
    fn name(&self) -> String {
        self.path.display().to_string()
    }

    fn mark(&mut self) -> std::result::Result<Option<Mark>, Failure> {
        Ok(self.begun.clone())
    }

    fn discard(&mut self) -> std::result::Result<(), Failure> {
        let path = &self.path;
        std::fs::remove_file(path).map_err(|error| file::access("remove", path, error))
    }

    fn fill(
        &mut self,
        mark: &Mark,
        source: &mut Leaving,
    ) -> std::result::Result<Vec<Moved>, Failure> {
        let path = &self.path;
        super::require_free(path)?;
        require_space(path, "a move to", source.bytes()?).map_err(stopped("make", path))?;
        make_new(path, |connection| {
            prepare(connection).map_err(failed("make", path))?;
            let filled = make_filled(connection, |tables| {
                let moved = to_file(&source.0, (tables, path))?;
                note(tables, &ARRIVING, mark).map_err(failed("fill", path))?;
                Ok(moved)
            });
            filled.map_err(stopped("fill", path))?
        })
    }

    fn open_up(&mut self) -> std::result::Result<(), Failure> {
        let sql = "DELETE FROM documents WHERE name = ?1";
        let opened = open_to_write(&self.path)
            .and_then(|connection| connection.execute(sql, [ARRIVING.name()]));
        opened.map(drop).map_err(failed("open up", &self.path))
    }
}

/// Whatever is written of a file that is not whole is of no use, so nothing is synced before its end.
fn prepare(connection: &Connection) -> Result<()> {
    file::set_page_size(connection)?;
    connection.pragma_update(None, "journal_mode", "delete")?;
    connection.pragma_update(None, "synchronous", "off")?;
    connection.pragma_update(None, "cache_size", -CACHE_KIB)
}
