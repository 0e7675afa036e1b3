//! Asking a database: short forms whose statements are prepared once and kept, and rows read as tuples or as
//! structs with a field for each column.

use rusqlite::types::FromSql;
use rusqlite::{Connection, Params, Result, Row, Statement};
use serde::Serialize;

/// What a row can be read as.
pub(super) trait FromRow: Sized {
    fn from_row(row: &Row<'_>) -> Result<Self>;
}

/// Tuples, of so many columns.
macro_rules! tuple {
    ($($column:ident)+) => {
        impl<$($column: FromSql),+> FromRow for ($($column,)+) {
            fn from_row(row: &Row<'_>) -> Result<Self> {
                let mut columns = 0..;
                let mut next = || columns.next().unwrap_or_default();
                Ok(($(row.get::<_, $column>(next())?,)+))
            }
        }
    };
}
tuple!(A B);
tuple!(A B C);
tuple!(A B C D);
tuple!(A B C D E);

/// Reads a struct from a row whose columns are its fields in this order; other fields have a value.
macro_rules! columns {
    ($name:ident { $($field:ident),+ $(; $other:ident: $value:expr)* }) => {
        impl crate::stores::sqlite::query::FromRow for $name {
            fn from_row(row: &rusqlite::Row<'_>) -> rusqlite::Result<Self> {
                let mut columns = 0..;
                let mut next = || columns.next().unwrap_or_default();
                Ok(Self { $($field: row.get(next())?,)+ $($other: $value,)* })
            }
        }
    };
}
pub(super) use columns;

/// A list as `json_each` takes it; `None`: it is empty.
pub(super) fn json_list<T: Serialize>(list: &[T]) -> Option<String> {
    (!list.is_empty()).then(|| serde_json::json!(list).to_string())
}

/// Statements are `'static`: one is known by where its text is.
pub(super) trait Query {
    /// Calls `ask` with a statement that is prepared.
    fn with<T>(
        &self,
        sql: &'static str,
        ask: impl FnOnce(&mut Statement<'_>) -> Result<T>,
    ) -> Result<T>;

    /// Says how many rows were changed.
    fn change(&self, sql: &'static str, parameters: impl Params) -> Result<usize> {
        self.with(sql, |statement| statement.execute(parameters))
    }

    fn run(&self, sql: &'static str, parameters: impl Params) -> Result<()> {
        self.change(sql, parameters).map(|_| ())
    }

    /// The first column of the first row.
    fn value<T: FromSql>(&self, sql: &'static str, parameters: impl Params) -> Result<T> {
        self.with(sql, |statement| statement.query_row(parameters, |row| row.get(0)))
    }

    fn row<T: FromRow>(&self, sql: &'static str, parameters: impl Params) -> Result<T> {
        self.with(sql, |statement| statement.query_row(parameters, T::from_row))
    }

    fn rows<T: FromRow>(&self, sql: &'static str, parameters: impl Params) -> Result<Vec<T>> {
        self.map(sql, parameters, T::from_row)
    }

    /// The first column of all rows.
    fn values<T: FromSql>(&self, sql: &'static str, parameters: impl Params) -> Result<Vec<T>> {
        self.map(sql, parameters, |row| row.get(0))
    }

    fn map<T>(
        &self,
        sql: &'static str,
        parameters: impl Params,
        read: impl FnMut(&Row<'_>) -> Result<T>,
    ) -> Result<Vec<T>> {
        self.with(sql, |statement| statement.query_map(parameters, read)?.collect())
    }
}

impl Query for Connection {
    fn with<T>(
        &self,
        sql: &'static str,
        ask: impl FnOnce(&mut Statement<'_>) -> Result<T>,
    ) -> Result<T> {
        ask(&mut *self.prepare_cached(sql)?)
    }
}
