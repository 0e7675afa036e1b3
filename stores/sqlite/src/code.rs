//! How values are written: what is one integer or one word in a column and more than that in memory.

use std::collections::BTreeMap;
use std::fmt::Write;

use rusqlite::types::{FromSqlError, FromSqlResult, ValueRef};
use serde::Serialize;
use serde::de::DeserializeOwned;
use shiftboss_protocol::model::Attempt;
use shiftboss_queue::place::Turn;
use shiftboss_queue::record::{FetcherId, Task};

/// Turns of keys that never ran lie this far below those of the others.
const NEVER: i64 = i64::MIN / 2;

/// A turn as one number, in the same order. Times that no clock shows are as far away as one does.
pub(crate) fn turn(turn: Turn) -> i64 {
    match turn {
        Turn::Never(since) => NEVER + since.clamp(0, -NEVER / 2),
        Turn::Started(started) => started.clamp(NEVER / 4, -NEVER),
    }
}

pub(crate) fn turn_of(number: i64) -> Turn {
    if number < NEVER / 2 { Turn::Never(number - NEVER) } else { Turn::Started(number) }
}

/// A task as fetcher, and run or number.
pub(crate) fn task(task: Task) -> (i64, i64) {
    match task {
        Task::Row { fetcher, run } => (fetcher.0, run),
        Task::Single { number } => (FetcherId::TASKS.0, number),
    }
}

pub(crate) fn task_of((fetcher, run): (i64, i64)) -> Task {
    match FetcherId(fetcher) {
        FetcherId::TASKS => Task::Single { number: run },
        fetcher => Task::Row { fetcher, run },
    }
}

pub(crate) fn served(served: &BTreeMap<FetcherId, Attempt>) -> String {
    let mut text = String::new();
    for (fetcher, attempt) in served {
        let space = if text.is_empty() { "" } else { " " };
        // A string takes all that is written.
        let _ = write!(text, "{space}{}:{}", fetcher.0, attempt.0);
    }
    text
}

pub(crate) fn served_of(text: &str) -> FromSqlResult<BTreeMap<FetcherId, Attempt>> {
    let one = |pair: &str| {
        let (fetcher, attempt) = pair.split_once(':')?;
        Some((FetcherId(fetcher.parse().ok()?), Attempt(attempt.parse().ok()?)))
    };
    text.split_ascii_whitespace().map(|pair| one(pair).ok_or(FromSqlError::InvalidType)).collect()
}

/// A word of an enumeration, as serde has it; or an object.
pub(crate) fn json(value: &impl Serialize) -> rusqlite::Result<String> {
    serde_json::to_string(value)
        .map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))
}

pub(crate) fn json_of<T: DeserializeOwned>(value: ValueRef<'_>) -> FromSqlResult<T> {
    serde_json::from_str(value.as_str()?).map_err(FromSqlError::other)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers are in the order of the turns that they are read as again.
    #[test]
    fn turns_are_in_order() {
        let turns = [
            Turn::Never(0),
            Turn::Never(1),
            Turn::Never(253_402_300_800_000_000),
            Turn::Started(-1),
            Turn::Started(0),
            Turn::Started(253_402_300_800),
        ];
        assert!(turns.is_sorted());
        let numbers = turns.map(turn);
        assert!(numbers.is_sorted_by(|one, other| one < other), "{numbers:?}");
        assert_eq!(numbers.map(turn_of), turns);
        let last = turn(Turn::Never(i64::MAX));
        assert!(last < turn(Turn::Started(i64::MIN)), "{last}");
    }

    #[test]
    fn served_is_read_as_it_is_written() {
        let map: BTreeMap<_, _> =
            [(FetcherId(1), Attempt(7)), (FetcherId(20), Attempt(i64::MAX))].into();
        assert_eq!(served(&map), format!("1:7 20:{}", i64::MAX));
        assert_eq!(served_of(&served(&map)).unwrap(), map);
        assert!(served_of("").unwrap().is_empty());
        assert!(served_of("1:x").is_err());
    }
}
