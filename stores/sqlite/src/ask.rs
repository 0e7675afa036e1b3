//! Queries in short form, whose statements are prepared once and kept.

use rusqlite::types::FromSql;
use rusqlite::{CachedStatement, Connection, OptionalExtension, Params, Result, Row};

pub(crate) trait Ask {
    fn prepared(&self, sql: &str) -> Result<CachedStatement<'_>>;

    fn rows<T>(
        &self,
        sql: &str,
        params: impl Params,
        read: impl FnMut(&Row<'_>) -> Result<T>,
    ) -> Result<Vec<T>> {
        self.prepared(sql)?.query_map(params, read)?.collect()
    }

    fn values<T: FromSql>(&self, sql: &str, params: impl Params) -> Result<Vec<T>> {
        self.rows(sql, params, |row| row.get(0))
    }

    fn first<T>(
        &self,
        sql: &str,
        params: impl Params,
        read: impl FnOnce(&Row<'_>) -> Result<T>,
    ) -> Result<Option<T>> {
        self.prepared(sql)?.query_row(params, read).optional()
    }

    /// The first column of the first row, which must exist.
    fn value<T: FromSql>(&self, sql: &str, params: impl Params) -> Result<T> {
        self.prepared(sql)?.query_row(params, |row| row.get(0))
    }
}

impl Ask for Connection {
    fn prepared(&self, sql: &str) -> Result<CachedStatement<'_>> {
        #[cfg(test)]
        asked::note(sql);
        self.prepare_cached(sql)
    }
}

/// A statement that is prepared when it is first needed, and then reused for all queries of a call: finding it by its
/// text each time would cost as much as many statements do.
pub(crate) struct Prepared<'c> {
    connection: &'c Connection,
    sql: &'static str,
    statement: Option<CachedStatement<'c>>,
}

impl<'c> Prepared<'c> {
    pub(crate) fn new(connection: &'c Connection, sql: &'static str) -> Self {
        Self { connection, sql, statement: None }
    }

    pub(crate) fn get(&mut self) -> Result<&mut CachedStatement<'c>> {
        match &mut self.statement {
            Some(statement) => Ok(statement),
            unprepared => Ok(unprepared.insert(self.connection.prepared(self.sql)?)),
        }
    }
}

/// The statements so far, for a test of their plans.
#[cfg(test)]
pub(crate) mod asked {
    use std::cell::RefCell;
    use std::collections::BTreeSet;

    thread_local! {
        static ASKED: RefCell<BTreeSet<String>> = const { RefCell::new(BTreeSet::new()) };
    }

    pub(crate) fn note(sql: &str) {
        ASKED.with_borrow_mut(|asked| asked.insert(sql.to_owned()));
    }

    pub(crate) fn all() -> BTreeSet<String> {
        ASKED.with_borrow(Clone::clone)
    }
}
