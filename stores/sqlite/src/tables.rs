//! Reading and filling a file's tables when a queue moves (`shiftboss_queue::tables`): whole tables, in the order of
//! their keys.
//!
//! Called by the program's `move`; a [damaged file](crate::salvage()) is written in the same way.

use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, Result, Statement};
use shiftboss_queue::documents::MEMBER;
use shiftboss_queue::records::StoreResult;
use shiftboss_queue::tables::{Column, Value, listed};

use crate::ask::Ask;
use crate::error::classify;
use crate::schema;

pub fn columns(connection: &Connection, table: &str) -> StoreResult<Vec<Column>> {
    columns_of(connection, table).map_err(classify)
}

pub(crate) fn columns_of(connection: &Connection, table: &str) -> Result<Vec<Column>> {
    let sql = "SELECT name, pk > 0 FROM pragma_table_info(?1) ORDER BY cid";
    let column = |row: &rusqlite::Row<'_>| Ok(Column { name: row.get(0)?, is_key: row.get(1)? });
    connection.rows(sql, [table], column)
}

/// A statement that writes one row; its parameters are the columns.
pub(crate) fn insert<'c>(
    connection: &'c Connection,
    verb: &str,
    table: &str,
    columns: &[Column],
) -> Result<Statement<'c>> {
    let places = vec!["?"; columns.len()].join(", ");
    let columns = listed(columns);
    connection.prepare(&format!("{verb} INTO {table} ({columns}) VALUES ({places})"))
}

/// Reads a table. An error of `each` ends the reading.
pub fn read<E>(
    connection: &Connection,
    table: &str,
    columns: &[Column],
    mut each: impl FnMut(&[Value<'_>]) -> std::result::Result<(), E>,
) -> StoreResult<std::result::Result<(), E>> {
    let mut read = || {
        let keys = listed(columns.iter().filter(|it| it.is_key));
        let columns = listed(columns);
        let sql = format!("SELECT {columns} FROM {table} ORDER BY {keys}");
        let mut statement = connection.prepare(&sql)?;
        let count = statement.column_count();
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let values: Result<Vec<_>> = (0..count).map(|at| row.get_ref(at).map(value)).collect();
            if let Err(end) = each(&values?) {
                return Ok(Err(end));
            }
        }
        Ok(Ok(()))
    };
    Result::map_err(read(), classify)
}

/// All types that our tables use.
fn value(value: ValueRef<'_>) -> Value<'_> {
    match value {
        ValueRef::Null | ValueRef::Real(_) => Value::Null,
        ValueRef::Integer(number) => Value::Integer(number),
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => Value::Text(bytes),
    }
}

/// Makes an empty database ours, with what `fill` puts into its tables: in one transaction, indexes last. Jobs of
/// another queue's members become the daemon's. With an error, `fill`'s too, it is empty still.
pub fn make_filled<T, E>(
    connection: &mut Connection,
    fill: impl FnOnce(&Connection) -> std::result::Result<T, E>,
) -> StoreResult<std::result::Result<T, E>> {
    let make = || {
        let transaction = connection.transaction()?;
        schema::make_tables(&transaction)?;
        let filled = match fill(&transaction) {
            Ok(filled) => filled,
            Err(end) => return Ok(Err(end)),
        };
        let own = "UPDATE keys SET owner = NULL WHERE substr(owner, 1, length(?1)) = ?1";
        transaction.execute(own, [MEMBER.name()])?;
        schema::make_indexes(&transaction)?;
        schema::make_reference(&transaction)?;
        transaction.commit()?;
        Ok(Ok(filled))
    };
    Result::map_err(make(), classify)
}

#[derive(Debug)]
pub struct Filling<'c>(Statement<'c>);

impl<'c> Filling<'c> {
    pub fn begin(connection: &'c Connection, table: &str, columns: &[Column]) -> StoreResult<Self> {
        insert(connection, "INSERT", table, columns).map(Self).map_err(classify)
    }

    pub fn add(&mut self, row: &[Value<'_>]) -> StoreResult<()> {
        let mut add = || {
            for (at, value) in (1..).zip(row) {
                let value = match *value {
                    Value::Null => ValueRef::Null,
                    Value::Integer(number) => ValueRef::Integer(number),
                    Value::Text(bytes) => ValueRef::Text(bytes),
                };
                self.0.raw_bind_parameter(at, ToSqlOutput::Borrowed(value))?;
            }
            self.0.raw_execute()
        };
        Result::map_err(add(), classify).map(drop)
    }
}
