//! The way back: makes a database of the Python supervisor from ours (spec 6), which stays as it is. It gets what
//! outsiders see of ours in the four tables; it does not know single tasks, holds and retries.
//!
//! Called by `move`, which makes the new file under another name until it is complete.

use std::path::Path;

use rusqlite::{Connection, OpenFlags, Result};
use shiftboss_queue::records::{StoreError, StoreResult};

use crate::error::classify;
use crate::schema::{Whose, whose};

const GIVE_BACK: &str = include_str!("give_back.sql");

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GivenBack {
    pub rows: u64,
    /// Keys of the log.
    pub keys: u64,
    /// What it does not get.
    pub single_tasks: u64,
}

/// Makes the empty database `to` one of the supervisor, from our database at `from`. With an error `to` is empty still.
pub fn give_back(from: &Path, to: &mut Connection) -> StoreResult<GivenBack> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let ours = Connection::open_with_flags(from, flags).map_err(classify)?;
    if whose(&ours)? != Whose::Ours {
        let from = from.display();
        return Err(StoreError::Fatal(format!(
            "{from} is no database of this version of shiftboss"
        )));
    }
    if whose(to)? != Whose::Nobodys {
        return Err(StoreError::Fatal("the database to be made has tables already".into()));
    }
    fill(from, to).map_err(classify)
}

fn fill(from: &Path, to: &mut Connection) -> Result<GivenBack> {
    let path = from.to_str().ok_or_else(|| rusqlite::Error::InvalidPath(from.to_owned()))?;
    // Rows have their runs.
    to.pragma_update(None, "foreign_keys", false)?;
    to.execute("ATTACH ?1 AS ours", [path])?;
    let given = in_transaction(to);
    to.execute("DETACH ours", [])?;
    given
}

fn in_transaction(to: &mut Connection) -> Result<GivenBack> {
    let transaction = to.transaction()?;
    transaction.execute_batch(GIVE_BACK)?;
    let sql = "SELECT (SELECT count(*) FROM main.queue), (SELECT count(*) FROM main.log),
        (SELECT count(*) FROM ours.queue WHERE fetcher_id = 0)";
    let given = transaction.query_row(sql, [], |row| {
        let number = |at| row.get::<_, i64>(at).map(i64::unsigned_abs);
        Ok(GivenBack { rows: number(0)?, keys: number(1)?, single_tasks: number(2)? })
    })?;
    transaction.commit()?;
    Ok(given)
}
