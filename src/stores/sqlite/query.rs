//! Asking a database: short forms whose statements are prepared once and kept, and rows read as tuples or as
//! structs with a field for each column.

use rusqlite::types::FromSql;
use rusqlite::{CachedStatement, Connection, Params, Row};

use super::SqliteStore;

/// What a row can be read as.
pub(super) trait FromRow: for<'r> TryFrom<&'r Row<'r>, Error = rusqlite::Error> {}
impl<T: for<'r> TryFrom<&'r Row<'r>, Error = rusqlite::Error>> FromRow for T {}

/// Reads a struct from a row whose columns are its fields in this order; other fields have a value.
macro_rules! columns {
    ($name:ident { $($field:ident),+ $(; $other:ident: $value:expr)* }) => {
        impl<'r> TryFrom<&'r rusqlite::Row<'r>> for $name {
            type Error = rusqlite::Error;

            fn try_from(row: &'r rusqlite::Row<'r>) -> rusqlite::Result<Self> {
                let mut columns = 0..;
                let mut next = || columns.next().unwrap_or_default();
                Ok(Self { $($field: row.get(next())?,)+ $($other: $value,)* })
            }
        }
    };
}
pub(super) use columns;

pub(super) trait Query {
    fn prepared(&self, sql: &str) -> rusqlite::Result<CachedStatement<'_>>;

    /// Says how many rows were changed.
    fn change(&self, sql: &str, parameters: impl Params) -> rusqlite::Result<usize> {
        self.prepared(sql)?.execute(parameters)
    }

    fn run(&self, sql: &str, parameters: impl Params) -> rusqlite::Result<()> {
        self.change(sql, parameters).map(|_| ())
    }

    /// The first column of the first row.
    fn value<T: FromSql>(&self, sql: &str, parameters: impl Params) -> rusqlite::Result<T> {
        self.prepared(sql)?.query_row(parameters, |row| row.get(0))
    }

    fn row<T: FromRow>(&self, sql: &str, parameters: impl Params) -> rusqlite::Result<T> {
        self.prepared(sql)?.query_row(parameters, |row| T::try_from(row))
    }

    fn rows<T: FromRow>(&self, sql: &str, parameters: impl Params) -> rusqlite::Result<Vec<T>> {
        self.prepared(sql)?.query_map(parameters, |row| T::try_from(row))?.collect()
    }

    /// The first column of all rows.
    fn values<T: FromSql>(&self, sql: &str, parameters: impl Params) -> rusqlite::Result<Vec<T>> {
        self.prepared(sql)?.query_map(parameters, |row| row.get(0))?.collect()
    }
}

impl Query for Connection {
    fn prepared(&self, sql: &str) -> rusqlite::Result<CachedStatement<'_>> {
        self.prepare_cached(sql)
    }
}

impl Query for SqliteStore {
    fn prepared(&self, sql: &str) -> rusqlite::Result<CachedStatement<'_>> {
        self.connection.prepare_cached(sql)
    }
}
