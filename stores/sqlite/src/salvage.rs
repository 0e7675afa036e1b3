//! Saves what can be read of a damaged database into a new one: table by table, by ranges of ids, skipping what cannot
//! be read; and reports what was lost. Called by `move --salvage`, which makes the new file under another name until it
//! is complete.
//!
//! A range that cannot be read from either end is [halved](copy), down to single ids; this module does not know about
//! pages. A key whose record is lost is still known by its index, and begins anew. Derived data is [derived
//! again](whole), and all lists must be read again from their files.

mod copy;
mod whole;

use std::path::Path;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, Result, Row};
use shiftboss_queue::record::Millis;
use shiftboss_queue::records::{StoreError, StoreResult};

use crate::ask::Ask;
use crate::error::classify;
use crate::schema::{self, Whose};
use copy::Copy;

/// Each table, and the integer column by which it is ordered; those without one are read only from both ends. Counts,
/// and where keys stand, are derived.
const TABLES: [(&str, Option<&str>); 15] = [
    ("keys", Some("id")),
    ("rows", Some("key")),
    ("extras", Some("key")),
    ("tasks", Some("number")),
    ("groups", Some("grp")),
    ("attempts", Some("ended")),
    ("hours", Some("hour")),
    ("minutes", Some("minute")),
    ("names", Some("fetcher")),
    ("runs", Some("fetcher")),
    ("header", Some("one")),
    ("documents", None),
    ("log_edits", None),
    ("row_edits", Some("key")),
    ("set_aside", Some("number")),
];
/// Marks of moves are left out on purpose.
const DOCUMENTS: &str = "SELECT count(*) FROM documents WHERE name NOT IN ('moved', 'arriving')";
/// Filled again from the lists' files.
const FROM_FILES: [&str; 3] = ["rows", "names", "runs"];

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Salvaged {
    pub table: &'static str,
    pub rows: u64,
    /// Lost rows; `None`: their number is unknown.
    pub lost: Option<u64>,
}

impl Salvaged {
    /// Whether something was lost that no list's file restores.
    pub fn is_lost_for_good(&self) -> bool {
        self.lost != Some(0) && !FROM_FILES.contains(&self.table)
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Salvage {
    pub tables: Vec<Salvaged>,
    /// Keys that begin anew: little more is known of them than names, attempts, rows and single tasks.
    pub anew: u64,
}

/// Opens a damaged database, to be [saved](salvage()).
pub fn open_damaged(from: &Path) -> StoreResult<Connection> {
    let open = || {
        let source = Connection::open_with_flags(from, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
        source.pragma_update(None, "cell_size_check", true)?;
        // Otherwise a truncated file is not read at all. Nothing is written: it is open for reading.
        source.set_db_config(DbConfig::SQLITE_DBCONFIG_WRITABLE_SCHEMA, true)?;
        Ok((schema::find_out(&source)?, source))
    };
    let opened: Result<_> = open();
    match opened.map_err(classify)? {
        (Whose::Ours, source) => Ok(source),
        (Whose::Refused(why), _) => Err(StoreError::Fatal(why)),
        (Whose::Supervisors | Whose::Nobodys, _) => {
            Err(StoreError::Fatal("it has no queue of shiftboss".to_owned()))
        }
    }
}

/// Fills an empty database with what can be read of a damaged one.
/// With an error the new one is empty still.
pub fn salvage(source: &Connection, to: &mut Connection, now: Millis) -> StoreResult<Salvage> {
    let mut fill = || {
        schema::make(to)?;
        let transaction = to.transaction()?;
        let salvaged = copy_all(source, &transaction, now)?;
        transaction.commit()?;
        Ok(salvaged)
    };
    Result::map_err(fill(), classify)
}

fn copy_all(source: &Connection, target: &Connection, now: Millis) -> Result<Salvage> {
    // It is that of a new queue.
    target.execute("DELETE FROM header", [])?;
    let mut ranges = Vec::new();
    for (table, by) in TABLES {
        ranges.push(Copy::new(source, target, table, by)?.map_or(Ok(1), Copy::run)?);
    }
    let mut salvage = Salvage { anew: begin_anew(source, target, now)?, ..Salvage::default() };
    whole::make_whole(target, now)?;
    for ((table, _), ranges) in TABLES.into_iter().zip(ranges) {
        let sql = match table {
            "documents" => DOCUMENTS.to_owned(),
            _ => format!("SELECT count(*) FROM {table}"),
        };
        let count = |of: &Connection| of.value(&sql, []).map(i64::unsigned_abs);
        let rows = count(target)?;
        // For keys that begin anew, the names are saved, but the records are lost.
        let anew = if table == "keys" { salvage.anew } else { 0 };
        let lost = match count(source) {
            Ok(all) => Some(all.saturating_sub(rows).saturating_add(anew)),
            Err(_) if ranges == 0 => Some(0),
            Err(_) => None,
        };
        salvage.tables.push(Salvaged { table, rows, lost });
    }
    Ok(salvage)
}

/// Names of keys and fetchers that their indexes have yet, or have in place of what is no UTF-8. When these keys ran is not known, so they wait since now.
fn begin_anew(source: &Connection, target: &Connection, now: Millis) -> Result<u64> {
    let mut anew = 0;
    let is_read = |row: &Row<'_>| Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1).is_ok()));
    for (fetcher, is_read) in target.rows("SELECT fetcher, name FROM names", [], is_read)? {
        if !is_read {
            target.execute("DELETE FROM names WHERE fetcher = ?1", [fetcher])?;
        }
    }
    let names = "SELECT fetcher, name FROM names INDEXED BY names_by_name ORDER BY name";
    by_index(source, names, |id, name| {
        let sql = "INSERT OR IGNORE INTO names (fetcher, name) VALUES (?1, ?2)";
        target.prepare_cached(sql)?.execute((id, name)).map(drop)
    })?;
    let keys = "SELECT id, key FROM keys INDEXED BY keys_by_key ORDER BY key";
    by_index(source, keys, |id, key| {
        let sql = "INSERT OR IGNORE INTO keys (id, key, since, claimed, served, waiting, failed, dead, last_attempt, held, extra)
            VALUES (?1, ?2, ?3, 0, '', 0, 0, 0, 0, 0, 0)";
        let since = now.saturating_mul(1_000);
        anew += target.prepare_cached(sql)?.execute((id, &key, since))? as u64;
        Ok(())
    })?;
    Ok(anew)
}

/// The entries of an index, read from both ends.
fn by_index(
    source: &Connection,
    sql: &str,
    mut each: impl FnMut(i64, String) -> Result<()>,
) -> Result<()> {
    for sql in [sql.to_owned(), format!("{sql} DESC")] {
        let Ok(mut query) = source.prepare(&sql) else { return Ok(()) };
        let mut rows = query.query([])?;
        loop {
            match rows.next() {
                Ok(None) => return Ok(()),
                Ok(Some(row)) => {
                    if let (Ok(id), Ok(name)) = (row.get(0), row.get(1)) {
                        each(id, name)?;
                    }
                }
                Err(_) => break,
            }
        }
    }
    Ok(())
}
