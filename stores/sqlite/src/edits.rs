//! Edits by other programs in the views `log` and `queue` (`reference.sql`), for the queue to carry out.
//!
//! Called at the beginning of a batch. What cannot be read is set aside.

use rusqlite::{Connection, Params, Result};
use shiftboss_protocol::model::{Key, Run};
use shiftboss_queue::record::LastRun;
use shiftboss_queue::records::Edit;

macro_rules! log_edits {
    ($which:literal) => {
        concat!(
            "DELETE FROM log_edits WHERE key ",
            $which,
            " RETURNING key, started, finished, exit_code"
        )
    };
}
macro_rules! row_edits {
    ($which:literal) => {
        concat!(
            "DELETE FROM row_edits WHERE ",
            $which,
            " RETURNING (SELECT keys.key FROM keys WHERE id = row_edits.key),
                (SELECT name FROM names WHERE names.fetcher = row_edits.fetcher), run, is_dequeued"
        )
    };
}
const LOG: &str = log_edits!("IN (SELECT key FROM log_edits LIMIT ?1)");
const LOG_OF: &str = log_edits!("= ?1");
const ROWS: &str =
    row_edits!("(key, fetcher, run) IN (SELECT key, fetcher, run FROM row_edits LIMIT ?1)");
const ROWS_OF: &str = row_edits!("key = (SELECT id FROM keys WHERE keys.key = ?1)");
const SET_ASIDE: &str = "INSERT INTO set_aside (why, attr_path, started, finished, exit_code)
    VALUES ('an edit of a key that is no UTF-8', CAST(?1 AS TEXT), ?2, ?3, ?4)";

pub(crate) fn are_any(connection: &Connection) -> Result<bool> {
    let sql = "SELECT EXISTS (SELECT 1 FROM log_edits) OR EXISTS (SELECT 1 FROM row_edits)";
    connection.prepare_cached(sql)?.query_row([], |row| row.get(0))
}

/// At most `count` edits, which are removed when the transaction is committed; empty if there are none.
pub(crate) fn take(connection: &Connection, count: usize) -> Result<Vec<Edit>> {
    let count = i64::try_from(count).unwrap_or(i64::MAX);
    loop {
        let (edits, is_all) = of_log(connection, LOG, [count])?;
        if !edits.is_empty() {
            return Ok(edits);
        }
        if is_all {
            return of_rows(connection, ROWS, [count]);
        }
    }
}

/// Likewise all of these keys.
pub(crate) fn take_of(connection: &Connection, keys: &[Key]) -> Result<Vec<Edit>> {
    let mut edits = Vec::new();
    for key in keys {
        edits.extend(of_log(connection, LOG_OF, [key.as_str()])?.0);
        edits.extend(of_rows(connection, ROWS_OF, [key.as_str()])?);
    }
    Ok(edits)
}

/// Some edits, and whether there were none.
fn of_log(connection: &Connection, sql: &str, which: impl Params) -> Result<(Vec<Edit>, bool)> {
    let (mut edits, mut is_all) = (Vec::new(), true);
    let mut query = connection.prepare_cached(sql)?;
    let mut found = query.query(which)?;
    while let Some(row) = found.next()? {
        is_all = false;
        let last = LastRun { started: row.get(1)?, finished: row.get(2)?, exit_code: row.get(3)? };
        let key = row.get_ref(0)?;
        match key.as_str() {
            Ok(key) => edits.push(Edit::Log { key: Key::stored(key), last }),
            Err(_) => {
                let it = (key.as_bytes()?, last.started, last.finished, last.exit_code);
                connection.prepare_cached(SET_ASIDE)?.execute(it)?;
            }
        }
    }
    Ok((edits, is_all))
}

fn of_rows(connection: &Connection, sql: &str, which: impl Params) -> Result<Vec<Edit>> {
    let mut query = connection.prepare_cached(sql)?;
    let edits = query.query_map(which, |row| {
        let (key, fetcher): (Option<String>, Option<String>) = (row.get(0)?, row.get(1)?);
        let (started, is_dequeued) = (row.get(2)?, row.get(3)?);
        Ok(key.zip(fetcher).map(|(key, fetcher)| {
            let run = Run { fetcher: fetcher.into(), started };
            Edit::Row { key: Key::stored(&key), run, is_dequeued }
        }))
    });
    // If its key is gone, it has no effect.
    edits?.filter_map(Result::transpose).collect()
}
