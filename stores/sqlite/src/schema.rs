//! The tables, and whose tables a file has. Used when a database is opened, and when one is taken over.

use rusqlite::{Connection, Result};
use shiftboss_queue::records::StoreResult;

use crate::ask::Ask;
use crate::error::classify;
use crate::header::{self, Kept};

const TABLES: &str = include_str!("schema.sql");
/// What outsiders wrote.
const EDITS: &str = include_str!("edits.sql");
/// What outsiders see.
const REFERENCE: &str = include_str!("reference.sql");
/// `application_id` of a database of ours ("SHFT"). The Python supervisor sets none; but it sets `user_version` without looking.
const APPLICATION_ID: i64 = 0x5348_4654;
/// `user_version`. Those up to 2 are the Python supervisor's.
pub const VERSION: i64 = 15;
pub(crate) const REFERENCE_TABLES: [&str; 4] = ["queue", "fetcher_runs", "fetchers", "log"];

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Whose {
    Nobodys,
    Ours,
    /// The Python supervisor's, to be [taken over](crate::take_over()).
    Supervisors,
    /// It is refused: why, and what to do.
    Refused(String),
}

/// Determines whose tables the database has; changes nothing.
pub fn whose(connection: &Connection) -> StoreResult<Whose> {
    find_out(connection).map_err(classify)
}

/// Why a database with this header is refused, whatever tables it has; `None`: its tables decide.
pub fn refused(application: i64, version: i64) -> Option<String> {
    match (application, version) {
        (APPLICATION_ID, ..=VERSION) | (0, 1..) => None,
        (APPLICATION_ID, _) => Some(format!(
            "it has version {version}, and this program knows versions up to {VERSION}: use the newer shiftboss that wrote it"
        )),
        _ => Some(foreign(application, version)),
    }
}

fn foreign(application: i64, version: i64) -> String {
    format!(
        "it is not the database of a supervisor but of another program (application_id {application}, version {version}): give another path"
    )
}

pub(crate) fn find_out(connection: &Connection) -> Result<Whose> {
    let application: i64 =
        connection.pragma_query_value(None, "application_id", |row| row.get(0))?;
    let version: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    let number = |sql| connection.query_row(sql, [], |row| row.get::<_, i64>(0));
    if number("SELECT count(*) FROM sqlite_schema")? == 0 {
        return Ok(Whose::Nobodys);
    }
    if let Some(why) = refused(application, version) {
        return Ok(Whose::Refused(why));
    }
    let has = |table| connection.table_exists(None, table);
    if application == APPLICATION_ID && has("keys")? {
        return Ok(Whose::Ours);
    }
    let tables = "SELECT count(*) FROM sqlite_schema WHERE type = 'table'
        AND name IN ('queue', 'fetcher_runs', 'fetchers', 'log')";
    let are_its = number(tables)? == REFERENCE_TABLES.len() as i64;
    match version {
        1..=2 if application == 0 && are_its => return Ok(Whose::Supervisors),
        3.. if application == 0 && are_its => {
            return Ok(Whose::Refused(format!(
                "it is the Python supervisor's, of version {version}, and this program knows versions 1 and 2: use a newer shiftboss"
            )));
        }
        _ => (),
    }
    Ok(Whose::Refused(foreign(application, version)))
}

pub fn make(connection: &Connection) -> Result<()> {
    let transaction = connection.unchecked_transaction()?;
    make_tables(&transaction)?;
    make_indexes(&transaction)?;
    make_reference(&transaction)?;
    header::save_all(&transaction, &Kept::default())?;
    transaction.commit()
}

/// The first thing, in the order of creation, that a complete database has and this one lacks.
pub(crate) fn missing(connection: &Connection) -> Result<Option<(String, String)>> {
    let whole = Connection::open_in_memory()?;
    make(&whole)?;
    let all = "SELECT type, name FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY rowid";
    for named in whole.rows(all, [], |row| row.try_into())? {
        let named: (String, String) = named;
        let is_there = "SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE type = ?1 AND name = ?2)";
        if !connection.value::<bool>(is_there, (&named.0, &named.1))? {
            return Ok(Some(named));
        }
    }
    Ok(None)
}

/// Makes the tables without their indexes, so that many rows are added faster.
pub(crate) fn make_tables(connection: &Connection) -> Result<()> {
    statements().filter(|sql| !is_index(sql)).try_for_each(|sql| connection.execute_batch(sql))?;
    connection.execute_batch(EDITS)
}

pub(crate) fn make_indexes(connection: &Connection) -> Result<()> {
    statements().filter(|sql| is_index(sql)).try_for_each(|sql| connection.execute_batch(sql))
}

/// Makes what outsiders see, and marks the file as ours.
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

#[cfg(test)]
mod tests {
    use super::VERSION;

    /// The documents name the version that is written.
    #[test]
    fn the_documents_say_which_version() {
        let operating = include_str!("../../../docs/operating.md");
        let migrating = include_str!("../../../docs/migrating-from-supervisor-py.md");
        let json = include_str!("../../../docs/json.md");
        assert!(json.contains(&format!("| `schema_version` | integer | {VERSION}. ")));
        assert!(operating.contains(&format!("this program knows versions up to {VERSION}: ")));
        assert!(migrating.contains(&format!("`user_version` becomes {VERSION}")));
    }
}
