//! The tables of a store, as a move copies them from one into another: a file and a server have the same ones (their `schema.sql`), so
//! that nothing of what is in them is understood on the way.
//!
//! Only what a server keeps otherwise is known to it: the header, whose numbers it counts in sequences, and parts of sums.

use crate::documents::{ARRIVING, IDENTITY, MOVED};

/// What is moved, in this order.
pub const TABLES: [&str; 12] = [
    "header",
    "documents",
    "names",
    "runs",
    "counts",
    "hours",
    "minutes",
    "keys",
    "rows",
    "extras",
    "tasks",
    "attempts",
];

/// A column of a table of a file; a server has it, too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    pub name: String,
    /// It is a part of the primary key.
    pub is_key: bool,
}

/// Their names, as statements have them.
pub fn listed<'a>(columns: impl IntoIterator<Item = &'a Column>) -> String {
    columns.into_iter().map(|it| &*it.name).collect::<Vec<_>>().join(", ")
}

/// What is in a column. A flag is 0 or 1; a text may be none, if somebody edited it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value<'a> {
    Null,
    Integer(i64),
    Text(&'a [u8]),
}

impl<'a> Value<'a> {
    pub fn integer(self) -> Option<i64> {
        if let Self::Integer(number) = self { Some(number) } else { None }
    }

    pub fn text(self) -> Option<&'a [u8]> {
        if let Self::Text(bytes) = self { Some(bytes) } else { None }
    }
}

/// Whether a row stays where it is: what a queue notes of its own moves.
pub fn stays(table: &str, row: &[Value<'_>]) -> bool {
    let name = row.first().and_then(|it| it.text());
    let own = [IDENTITY.name(), MOVED.name(), ARRIVING.name()];
    table == "documents" && own.into_iter().any(|it| name == Some(it.as_bytes()))
}
