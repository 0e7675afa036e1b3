//! A queue in a file that is moved: out of it, to a server ([`Leaving`]) or back to the Python supervisor ([`give_back`]); or into a new
//! one, from a server ([`arrive`]) or from a damaged file ([`salvage`]). Called by `shiftboss move`, which has the locks.
//!
//! It does not know what is moved (`shiftboss_sqlite`), nor the order of steps (`stores::transfer`).

use std::fmt::Display;
use std::path::{self, Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, Row};
use shiftboss_actors::clock::{Clock, SystemClock};
use shiftboss_queue::documents::{ARRIVING, DAEMON, IDENTITY, Kind, MOVED, Policy};
use shiftboss_queue::error::StoreError;
use shiftboss_queue::tables::Documents;
use shiftboss_sqlite::tables::make_filled;
use shiftboss_sqlite::{
    GivenBack, Salvage, Whose, document, missing, open_damaged, require_space, whose,
};

use super::file::{self, corrupt, failed, not_usable, stopped};
use crate::exit::{ExitCode, Failure};
use crate::stores::Destination;
use crate::stores::transfer::{Mark, gone, new_mark};

/// How long to wait for another writer.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);
/// Whether there are edits in the views that no daemon has carried out.
const EDITED: &str = "SELECT EXISTS (SELECT 1 FROM log_edits) OR EXISTS (SELECT 1 FROM row_edits)";
/// Pages kept in memory while a file is filled, in KiB.
const CACHE_KIB: i64 = 64 * 1024;

/// Opens a queue of ours for writing.
pub(in crate::stores) fn open_ours(path: &Path) -> Result<Connection, Failure> {
    file::look(path)?;
    let connection = open_to_write(path).map_err(failed("open", path))?;
    connection.busy_timeout(BUSY_TIMEOUT).map_err(failed("open", path))?;
    let why = match whose(&connection).map_err(stopped("read", path))? {
        Whose::Ours => return Ok(connection),
        Whose::Refused(why) => why,
        Whose::Nobodys => "it has no tables".to_owned(),
        Whose::Supervisors => "it is the Python supervisor's: start `shiftboss serve` on it once, which takes it over, and stop it".to_owned(),
    };
    Err(not_usable(path, &why))
}

fn open_to_write(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    Connection::open_with_flags(path, flags)
}

pub(in crate::stores) fn absolute(path: &Path) -> Result<PathBuf, Failure> {
    path::absolute(path).map_err(|error| file::access("look at", path, error))
}

/// A queue that is moved away: one transaction, during which no one else writes, reads all of it, and ends with the
/// mark that it was moved. Without [`Self::leave`] the file stays as it was.
pub(in crate::stores) struct Leaving {
    pub(in crate::stores) connection: Connection,
    pub(in crate::stores) path: PathBuf,
}

impl Leaving {
    /// To a server.
    pub(in crate::stores) fn open(path: &Path) -> Result<Self, Failure> {
        let leaving = Self::begin(path)?;
        leaving.require_fit()?;
        // Before anything is moved: the target has it from the beginning on.
        let named = "INSERT OR IGNORE INTO documents (name, value)
            VALUES (?1, json_quote(lower(hex(randomblob(16)))))";
        let named = leaving.connection.execute(named, [IDENTITY.name()]);
        named
            .and_then(|_| leaving.connection.execute_batch("COMMIT; BEGIN IMMEDIATE"))
            .map_err(failed("write to", &leaving.path))?;
        Ok(leaving)
    }

    fn begin(path: &Path) -> Result<Self, Failure> {
        let path = absolute(path)?;
        let connection = open_ours(&path)?;
        connection.execute_batch("BEGIN IMMEDIATE").map_err(failed("write to", &path))?;
        match missing(&connection).map_err(stopped("read", &path))? {
            Some(what) => Err(corrupt(&path, &what)),
            None => Ok(Self { connection, path }),
        }
    }

    fn require_fit(&self) -> Result<(), Failure> {
        let edited = self.connection.query_row(EDITED, [], |row| row.get::<_, bool>(0));
        let is_classic = self.document(&DAEMON)?.is_some_and(|it| it.policy == Policy::Classic);
        if is_classic || edited.map_err(failed("read", &self.path))? {
            let why = "it was used without leases last (--classic, the Python supervisor), or edited by hand: start \
                       `shiftboss serve` on it once, which sees to that, and stop it";
            return Err(not_usable(&self.path, why));
        }
        Ok(())
    }

    pub(in crate::stores) fn name(&self) -> String {
        self.path.display().to_string()
    }

    /// A unique word for this queue, on any machine.
    pub(in crate::stores) fn identity(&self) -> Result<String, Failure> {
        self.document(&IDENTITY).map(Option::unwrap_or_default)
    }

    pub(in crate::stores) fn document<T: serde::de::DeserializeOwned>(
        &self,
        kind: &Kind<T>,
    ) -> Result<Option<T>, Failure> {
        document(&self.connection, kind).map_err(stopped("read", &self.path))
    }

    /// A value that was edited by hand may not be text.
    pub(in crate::stores) fn documents(&self) -> Result<Documents, Failure> {
        let text = |row: &Row<'_>, at| -> rusqlite::Result<String> {
            let text = String::from_utf8_lossy(row.get_ref(at)?.as_bytes()?);
            Ok(text.replace('\0', "\u{fffd}"))
        };
        self.rows("SELECT name, value FROM documents", |row| Ok((text(row, 0)?, text(row, 1)?)))
    }

    /// Fetchers that have lists.
    pub(in crate::stores) fn lists(&self) -> Result<Vec<Arc<str>>, Failure> {
        let sql = "SELECT name FROM names WHERE fetcher IN (SELECT fetcher FROM runs)";
        self.rows(sql, |row| row.get(0))
    }

    fn rows<T, A: FromIterator<T>>(
        &self,
        sql: &str,
        read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<A, Failure> {
        let rows = || -> rusqlite::Result<A> {
            self.connection.prepare(sql)?.query_map([], read)?.collect()
        };
        rows().map_err(failed("read", &self.path))
    }

    /// From now on no daemon uses it; ends the transaction.
    pub(in crate::stores) fn leave(&self, mark: &Mark) -> Result<(), Failure> {
        note(&self.connection, &self.path, MOVED.name(), &MOVED.text(mark))?;
        self.connection.execute_batch("COMMIT").map_err(failed("mark as moved", &self.path))
    }
}

pub(in crate::stores) fn note(
    connection: &Connection,
    path: &Path,
    name: &str,
    text: &str,
) -> Result<(), Failure> {
    let sql = "INSERT OR REPLACE INTO documents (name, value) VALUES (?1, ?2)";
    connection.execute(sql, (name, text)).map(drop).map_err(failed("write to", path))
}

/// The move that was begun into a file, and not ended.
pub(in crate::stores) fn begun(path: &Path) -> Option<Mark> {
    // For writing: the move may have been killed in the middle of its last step.
    document(&open_to_write(path).ok()?, &ARRIVING).ok()?
}

/// Removes what such a move left.
pub(in crate::stores) fn discard(path: &Path) -> Result<(), Failure> {
    std::fs::remove_file(path).map_err(|error| file::access("remove", path, error))
}

/// Makes a new file under a temporary name, filled in one transaction, and marked until the move is finished. `bytes`:
/// roughly its size.
pub(in crate::stores) fn arrive<T>(
    path: &Path,
    mark: &Mark,
    bytes: u64,
    fill: impl FnOnce(&Connection) -> Result<T, Failure>,
) -> Result<T, Failure> {
    require_free(path)?;
    require_space(path, "a move to", bytes).map_err(stopped("make", path))?;
    make_new(path, |connection| {
        prepare(connection).map_err(failed("make", path))?;
        let filled = make_filled(connection, |tables| {
            let filled = fill(tables)?;
            note(tables, path, ARRIVING.name(), &ARRIVING.text(mark))?;
            Ok(filled)
        });
        filled.map_err(stopped("fill", path))?
    })
}

/// Whatever is written of a file that is not whole is of no use, so nothing is synced before its end.
fn prepare(connection: &Connection) -> rusqlite::Result<()> {
    file::set_page_size(connection)?;
    connection.pragma_update(None, "journal_mode", "delete")?;
    connection.pragma_update(None, "synchronous", "off")?;
    connection.pragma_update(None, "cache_size", -CACHE_KIB)
}

/// The last step of a move.
pub(in crate::stores) fn open_up(path: &Path) -> Result<(), Failure> {
    let sql = "DELETE FROM documents WHERE name = ?1";
    let opened = open_to_write(path).and_then(|it| it.execute(sql, [ARRIVING.name()]));
    opened.map(drop).map_err(failed("open up", path))
}

/// The way back: makes the Python supervisor's database at `to`, and marks the file.
pub(crate) fn give_back(from: &Path, to: &Path) -> Result<GivenBack, Failure> {
    let source = Leaving::begin(from)?;
    let (from, to) = (&source.path, absolute(to)?);
    if let Some(left) = source.document(&MOVED)? {
        return Err(gone(&source.name(), &left));
    }
    // An empty file is not a database yet.
    if to.symlink_metadata().is_ok_and(|found| found.is_file() && found.len() == 0) {
        std::fs::remove_file(&to).map_err(|error| file::access("replace", &to, error))?;
    }
    let given = make_new(&to, |target| {
        let given = shiftboss_sqlite::give_back(from, target);
        given.map_err(|error| {
            let (from, to) = (from.display(), to.display());
            let text = format!("cannot make {to} of the queue in {from}: {error}");
            Failure::new(ExitCode::StoreIo, text)
        })
    })?;
    source.leave(&new_mark("", Destination::Supervisor(to).to_string()))?;
    Ok(given)
}

/// Saves what can be read of a damaged file into a new one.
pub(crate) fn salvage(old: &Path, new: &Path) -> Result<Salvage, Failure> {
    let source = open_damaged(old).map_err(|error| {
        let old = old.display();
        match error {
            StoreError::Corrupt(why) => {
                let text = format!(
                    "nothing of {old} can be read: {why}. Restore a backup; `.recover` of sqlite.org's sqlite3 may read more (Debian's has no such command)"
                );
                Failure::new(ExitCode::BadData, text)
            }
            error => {
                let text = format!("nothing of {old} can be saved: {error}");
                Failure::new(ExitCode::Configuration, text)
            }
        }
    })?;
    let cannot = |why: &dyn Display| {
        Failure::new(ExitCode::CannotCreate, format!("cannot fill {}: {why}", new.display()))
    };
    make_new(new, |target| {
        file::set_page_size(target).map_err(|why| cannot(&why))?;
        let saved = shiftboss_sqlite::salvage(&source, target, SystemClock.millis());
        saved.map_err(|why| cannot(&why))
    })
}

/// There must be nothing where a database will be made.
fn require_free(path: &Path) -> Result<(), Failure> {
    if path.symlink_metadata().is_ok() {
        let path = path.display();
        let text = format!("{path} exists already: remove it, or choose another name");
        return Err(Failure::new(ExitCode::CannotCreate, text));
    }
    Ok(())
}

/// Makes a complete database, or none; the error is that of `fill`, or what is wrong with its place.
fn make_new<T>(
    path: &Path,
    fill: impl FnOnce(&mut Connection) -> Result<T, Failure>,
) -> Result<T, Failure> {
    require_free(path)?;
    let mut filled = None;
    let made = file::make_new(path, |connection| {
        let outcome = fill(connection);
        let text = outcome.as_ref().err().map(ToString::to_string);
        filled = Some(outcome);
        text.map_or(Ok(()), Err)
    });
    match (made, filled) {
        (_, Some(Err(failure))) => Err(failure),
        (Ok(()), Some(filled)) => filled,
        (made, _) => {
            let why = made.err().map(|error| error.to_string()).unwrap_or_default();
            let text = format!("cannot make {}: {why}", path.display());
            Err(Failure::new(ExitCode::CannotCreate, text))
        }
    }
}
