//! The tables, and whose tables a file has. Used when a database is opened, and when one is taken over.

use rusqlite::{Connection, Result};
use shiftboss_queue::records::StoreResult;

use crate::error::classify;

const TABLES: &str = include_str!("schema.sql");
/// What outsiders wrote.
const EDITS: &str = include_str!("edits.sql");
/// What outsiders see.
const REFERENCE: &str = include_str!("reference.sql");
/// `application_id` of a database of ours ("SHFT"). The Python supervisor sets none; but it sets `user_version` without looking.
const APPLICATION_ID: i64 = 0x5348_4654;
/// `user_version`. Those from 3 to 14 were of unreleased builds.
const VERSION: i64 = 15;
/// The tables of the Python supervisor.
pub(crate) const REFERENCE_TABLES: [&str; 4] = ["queue", "fetcher_runs", "fetchers", "log"];

/// Whose tables a database has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Whose {
    /// There are none.
    Nobodys,
    Ours,
    /// The Python supervisor's, to be [taken over](crate::take_over()).
    Supervisors,
    /// It is refused: why, and what to do.
    Refused(String),
}

/// Whose tables the database has; nothing is changed.
///
/// # Errors
/// What SQLite says.
pub fn whose(connection: &Connection) -> StoreResult<Whose> {
    find_out(connection).map_err(classify)
}

fn find_out(connection: &Connection) -> Result<Whose> {
    let application: i64 =
        connection.pragma_query_value(None, "application_id", |row| row.get(0))?;
    let version: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    let number = |sql| connection.query_row(sql, [], |row| row.get::<_, i64>(0));
    if number("SELECT count(*) FROM sqlite_schema")? == 0 {
        return Ok(Whose::Nobodys);
    }
    let unreleased = "SELECT count(*) FROM sqlite_schema WHERE name LIKE 'shiftboss!_%' ESCAPE '!'";
    if number(unreleased)? > 0 {
        return Ok(Whose::Refused(format!(
            "it is of an unreleased build of shiftboss (version {version}), which this one does not upgrade: let that build \
             end the single tasks, move the file away, and all lists are read again into a new one"
        )));
    }
    if application == APPLICATION_ID && version > VERSION {
        return Ok(Whose::Refused(format!(
            "it has version {version}, and this program knows versions up to {VERSION}: use the newer shiftboss that wrote it"
        )));
    }
    let has = |table| connection.table_exists(None, table);
    if application == APPLICATION_ID && has("keys")? {
        return Ok(Whose::Ours);
    }
    let tables = "SELECT count(*) FROM sqlite_schema WHERE type = 'table'
        AND name IN ('queue', 'fetcher_runs', 'fetchers', 'log')";
    let are_its = number(tables)? == REFERENCE_TABLES.len() as i64;
    if application == 0 && are_its && (1..=2).contains(&version) {
        return Ok(Whose::Supervisors);
    }
    Ok(Whose::Refused(format!(
        "it is a database of another program (application_id {application}, version {version}): give another path"
    )))
}

/// Makes all tables.
pub(crate) fn make(connection: &Connection) -> Result<()> {
    let transaction = connection.unchecked_transaction()?;
    make_tables(&transaction)?;
    make_indexes(&transaction)?;
    make_reference(&transaction)?;
    transaction.commit()
}

/// Makes the tables without their indexes, so that many rows are added sooner.
pub(crate) fn make_tables(connection: &Connection) -> Result<()> {
    statements().filter(|sql| !is_index(sql)).try_for_each(|sql| connection.execute_batch(sql))?;
    connection.execute_batch(EDITS)
}

pub(crate) fn make_indexes(connection: &Connection) -> Result<()> {
    statements().filter(|sql| is_index(sql)).try_for_each(|sql| connection.execute_batch(sql))
}

/// Makes what outsiders see, and says whose file it is.
pub(crate) fn make_reference(connection: &Connection) -> Result<()> {
    connection.execute_batch(REFERENCE)?;
    connection.pragma_update(None, "user_version", VERSION)?;
    connection.pragma_update(None, "application_id", APPLICATION_ID)
}

fn statements() -> impl Iterator<Item = &'static str> {
    TABLES.split_inclusive(";\n")
}

fn is_index(sql: &str) -> bool {
    let mut lines = sql.lines().filter(|line| !line.is_empty() && !line.starts_with("--"));
    lines.next().is_some_and(|line| !line.starts_with("CREATE TABLE"))
}
