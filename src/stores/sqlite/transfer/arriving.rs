//! A new file that a queue is moved into from a server: made under a temporary name, filled in one transaction, and marked until the
//! move is ended. What comes is copied to temporary tables, of which the records are made (`shiftboss_sqlite::arrive`).

use std::path::{Path, PathBuf};

use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, Result, Statement, ToSql, Transaction};
use shiftboss_actors::clock::{Clock, SystemClock};
use shiftboss_queue::documents::ARRIVING;
use shiftboss_sqlite::{arrive, document};

use super::{make_new, note, open_to_write};
use crate::exit::Failure;
use crate::stores::mark::{Mark, Moved};
use crate::stores::sqlite::file::{self, failed, stopped};
use crate::stores::transfer::{Intake, Kind, Source, Table, Target, Value, read_all};

/// Pages kept in memory while it is filled, in KiB.
const CACHE_KIB: i64 = 64 * 1024;

/// Bytes are texts, too.
impl ToSql for Value {
    fn to_sql(&self) -> Result<ToSqlOutput<'_>> {
        let value = match self {
            Self::Integer(value) => value.map(ValueRef::Integer),
            Self::Text(text) => text.as_ref().map(|text| ValueRef::Text(text.as_bytes())),
            Self::Bytes(bytes) => bytes.as_ref().map(|bytes| ValueRef::Text(bytes)),
        };
        Ok(ToSqlOutput::Borrowed(value.unwrap_or(ValueRef::Null)))
    }
}

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

impl Target for Arriving {
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
        source: &mut dyn Source,
    ) -> std::result::Result<Vec<Moved>, Failure> {
        make_new(&self.path, |connection| fill(connection, &self.path, mark, source))
    }

    fn open_up(&mut self) -> std::result::Result<(), Failure> {
        let sql = "DELETE FROM documents WHERE name = ?1";
        let opened = open_to_write(&self.path)
            .and_then(|connection| connection.execute(sql, [ARRIVING.name()]));
        opened.map(drop).map_err(failed("open up", &self.path))
    }
}

/// Whatever is written of a file that is not whole is of no use, so nothing is synced before its end.
fn fill(
    connection: &mut Connection,
    path: &Path,
    mark: &Mark,
    source: &mut dyn Source,
) -> std::result::Result<Vec<Moved>, Failure> {
    let cannot = || failed("fill", path);
    file::make_schema(connection).map_err(failed("make", path))?;
    connection.pragma_update(None, "synchronous", "off").map_err(cannot())?;
    connection.pragma_update(None, "cache_size", -CACHE_KIB).map_err(cannot())?;
    let transaction = connection.transaction().map_err(cannot())?;
    let mut copies = Copies { transaction: &transaction, path, statement: None };
    let moved = read_all(source, &mut copies)?;
    drop(copies);
    arrive(&transaction, SystemClock.millis()).map_err(stopped("fill", path))?;
    note(&transaction, &ARRIVING, mark).map_err(cannot())?;
    transaction.commit().map_err(cannot())?;
    Ok(moved)
}

/// Copies one table after the other to temporary ones.
struct Copies<'a> {
    transaction: &'a Transaction<'a>,
    path: &'a Path,
    statement: Option<Statement<'a>>,
}

impl Intake for Copies<'_> {
    fn begin(&mut self, table: Table) -> std::result::Result<(), Failure> {
        let defined = table.columns().iter().map(|(name, kind)| match kind {
            Kind::Integer => format!("{name} INTEGER"),
            Kind::Text | Kind::Key | Kind::Bytes => format!("{name} TEXT"),
        });
        let (defined, name) = (defined.collect::<Vec<_>>().join(", "), table.name());
        let places = vec!["?"; table.columns().len()].join(", ");
        let made = self
            .transaction
            .execute_batch(&format!("CREATE TEMP TABLE moved_{name} ({defined})"))
            .and_then(|()| {
                self.transaction.prepare(&format!("INSERT INTO moved_{name} VALUES ({places})"))
            });
        self.statement = Some(made.map_err(failed("fill", self.path))?);
        Ok(())
    }

    fn add(&mut self, row: &[Value]) -> std::result::Result<(), Failure> {
        let Some(statement) = &mut self.statement else { return Ok(()) };
        let added = statement.execute(rusqlite::params_from_iter(row));
        added.map(drop).map_err(failed("fill", self.path))
    }

    fn end(&mut self) -> std::result::Result<(), Failure> {
        self.statement = None;
        Ok(())
    }
}
