//! A statement that is prepared when it is first needed, and then used for all that is asked together: to find it by its text each
//! time would cost as much as many a statement does.

use rusqlite::{CachedStatement, Connection, Result};

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
            unprepared => Ok(unprepared.insert(self.connection.prepare_cached(self.sql)?)),
        }
    }
}
