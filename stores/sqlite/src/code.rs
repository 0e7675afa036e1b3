//! Writing values, with SQLite's errors: the encoding itself is the queue's.

use rusqlite::types::{FromSqlError, FromSqlResult, ValueRef};
use serde::Serialize;
use serde::de::DeserializeOwned;
use shiftboss_queue::code;
pub(crate) use shiftboss_queue::code::{
    FREE, GROUPED, HELD, Served, group, held, id, lease, line, opening, routes, served, task,
    task_of, turn, turn_of,
};
use shiftboss_queue::groups::GroupId;
use shiftboss_queue::place::Route;

pub(crate) fn routes_of(text: &str) -> FromSqlResult<(Option<GroupId>, Vec<Route>)> {
    code::routes_of(text).ok_or(FromSqlError::InvalidType)
}

pub(crate) fn served_of(text: &str) -> FromSqlResult<Served> {
    code::served_of(text).ok_or(FromSqlError::InvalidType)
}

/// A word of an enumeration, as in serde; or an object.
pub(crate) fn json(value: &impl Serialize) -> rusqlite::Result<String> {
    serde_json::to_string(value)
        .map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))
}

pub(crate) fn json_of<T: DeserializeOwned>(value: ValueRef<'_>) -> FromSqlResult<T> {
    serde_json::from_str(value.as_str()?).map_err(FromSqlError::other)
}
