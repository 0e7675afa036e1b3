//! Unreadable rows that outsiders wrote: they are kept as they were, each with its reason, and reported.
//!
//! Written by a [take-over](crate::take_over()) and by [`edits`](crate::edits); shown by commands that look at a
//! database.

use std::fmt;

use rusqlite::types::ValueRef;
use rusqlite::{Connection, Result, Row};
use shiftboss_queue::records::StoreResult;

use crate::error::classify;

/// A row that was set aside; shown as a sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetAside {
    /// As far as it can be shown.
    pub key: String,
    /// `None`: a row of `log`.
    pub run: Option<(i64, i64)>,
    pub why: String,
}

impl fmt::Display for SetAside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, run, why } = self;
        match run {
            Some((fetcher, run)) => {
                write!(f, "the row of {key} in run {run} of fetcher {fetcher} is set aside: {why}")
            }
            None => write!(f, "what the log says of {key} is set aside: {why}"),
        }
    }
}

pub fn set_aside(connection: &Connection, limit: u32) -> StoreResult<Vec<SetAside>> {
    let sql = "SELECT attr_path, fetcher_id, run, why FROM set_aside ORDER BY number LIMIT ?1";
    let read = || {
        let mut query = connection.prepare(sql)?;
        query.query_map([limit], shown)?.collect()
    };
    Result::map_err(read(), classify)
}

fn shown(row: &Row<'_>) -> Result<SetAside> {
    let key = match row.get_ref(0)? {
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => String::from_utf8_lossy(bytes).into(),
        other => format!("{other:?}"),
    };
    let (fetcher, run): (Option<i64>, Option<i64>) = (row.get(1)?, row.get(2)?);
    Ok(SetAside { key, run: fetcher.zip(run), why: row.get(3)? })
}
