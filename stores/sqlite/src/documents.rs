//! Finding and writing documents. `shiftboss_queue::documents` defines their names and contents. Called by the port and
//! by the reader.

use rusqlite::{Connection, Result, Row};
use serde::de::DeserializeOwned;
use shiftboss_queue::documents::Kind;
use shiftboss_queue::listings::behind;
use shiftboss_queue::records::StoreResult;

use crate::ask::Ask;
use crate::error::classify;

/// The only document of its kind; `None`, too, if it cannot be parsed, because it was edited by hand.
pub fn document<T: DeserializeOwned>(
    connection: &Connection,
    kind: &Kind<T>,
) -> StoreResult<Option<T>> {
    let text = find(connection, kind.name()).map_err(classify)?;
    Ok(text.and_then(|text| Some(kind.read(kind.name(), &text)?.1)))
}

pub(crate) fn find(connection: &Connection, name: &str) -> Result<Option<String>> {
    let sql = "SELECT value FROM documents WHERE name = ?1";
    connection.first(sql, [name], |row| text(row, 0))
}

/// Documents whose names have this prefix, by name.
pub(crate) fn all(connection: &Connection, prefix: &str) -> Result<Vec<(String, String)>> {
    let sql = "SELECT name, value FROM documents WHERE name >= ?1 AND name < ?2 ORDER BY name";
    connection.rows(sql, (prefix, behind(prefix)), |row| Ok((text(row, 0)?, text(row, 1)?)))
}

/// `None`: it goes.
pub(crate) fn write(connection: &Connection, name: &str, text: Option<&str>) -> Result<()> {
    let write = "INSERT OR REPLACE INTO documents (name, value) VALUES (?1, ?2)";
    let delete = "DELETE FROM documents WHERE name = ?1";
    match text {
        Some(text) => connection.prepared(write)?.execute((name, text)),
        None => connection.prepared(delete)?.execute([name]),
    }
    .map(drop)
}

/// A text that was edited by hand may not be UTF-8.
fn text(row: &Row<'_>, column: usize) -> Result<String> {
    Ok(String::from_utf8_lossy(row.get_ref(column)?.as_bytes()?).into_owned())
}
