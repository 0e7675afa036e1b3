//! A queue in a file that is moved: out of it (`leaving`), or into a new one (`arriving`); and the marks with which no
//! daemon uses one.

#[cfg(feature = "postgres")]
pub(in crate::stores) mod arriving;
#[cfg(feature = "postgres")]
pub(in crate::stores) mod leaving;

use std::path::Path;

use rusqlite::{Connection, Result};

use super::records::state;
use crate::exit::Failure;
use crate::stores::mark::{Mark, gone, unfinished};

/// What the mark of a queue that was moved away stands under in `shiftboss_state`.
const LEFT: &str = "moved";
/// The same of one that is not all here.
const ARRIVING: &str = "move";

fn mark(connection: &Connection, name: &str) -> Result<Option<Mark>> {
    if !connection.table_exists(None, "shiftboss_state")? {
        return Ok(None);
    }
    Ok(state(connection, name)?.map(|text| Mark::parse(&text)))
}

/// Where a queue was moved to.
pub(super) fn moved_to(connection: &Connection) -> Result<Option<String>> {
    Ok(mark(connection, LEFT)?.map(|left| left.place))
}

/// Why a daemon does not use a database, if that was moved, or a move into it was broken off.
pub(super) fn fault(connection: &Connection, path: &Path) -> Result<Option<Failure>> {
    let path = path.display().to_string();
    if let Some(left) = mark(connection, LEFT)? {
        return Ok(Some(gone(&path, &left)));
    }
    Ok(mark(connection, ARRIVING)?.map(|begun| unfinished(&path, &begun)))
}
