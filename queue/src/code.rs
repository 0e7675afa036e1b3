//! How stores write values that are one integer or one word in a column, but more than that in memory.

use std::collections::{BTreeMap, BTreeSet};

use shiftboss_protocol::model::{Attempt, Key};

use crate::groups::GroupId;
use crate::place::{Line, Place, Route, Turn};
use crate::record::{FetcherId, Record, Task};
use crate::records::KeyId;
use crate::rules::groups::Opening;

/// Bits of a key's number below the jitter, so that keys of equal jitter have room.
const SEQUENCE_BITS: u32 = 31;
/// Turns of keys that never ran lie this far below all others.
const NEVER: i64 = i64::MIN / 2;
/// Whose group a place's is, if not a fetcher's.
const ANYBODY: &str = "*";
/// After an attempt whose row failed.
const FAILED: char = 'f';

/// A turn as one number, in the same order. Times beyond the range of clocks are clamped.
pub fn turn(turn: Turn) -> i64 {
    match turn {
        Turn::Never(since) => NEVER + since.clamp(0, -NEVER / 2 - 1),
        Turn::Started(started) => started.clamp(NEVER / 4, -NEVER),
    }
}

pub fn turn_of(number: i64) -> Turn {
    if number <= NEVER / 2 { Turn::Never(number - NEVER) } else { Turn::Started(number) }
}

/// A line as one number: that of anybody, or of a fetcher.
pub fn line(line: Line) -> i64 {
    let of = line.of.map_or(-1, |fetcher| fetcher.0);
    of.saturating_mul(2).saturating_add(i64::from(line.is_lane))
}

/// Keys in order; those that somebody has (`--classic`); those in order, in groups.
pub const FREE: i64 = 0;
pub const HELD: i64 = 1;
pub const GROUPED: i64 = 2;

/// In which of these orders a key has its turn, if it has one.
pub fn held(place: &Place) -> i64 {
    match place.group {
        _ if place.classic_held => HELD,
        Some(_) => GROUPED,
        None => FREE,
    }
}

/// A group's number; 0: none.
pub fn group(group: Option<GroupId>) -> i64 {
    group.map_or(0, |group| group.0)
}

/// A group that is open, one that is closed until a time, one that is full, and one that is held.
pub const OPEN: i64 = 0;
pub const DELAYED: i64 = 1;
pub const FULL: i64 = 2;
pub const HELD_GROUP: i64 = 3;

pub fn opening(opening: Opening) -> i64 {
    match opening {
        Opening::Open => OPEN,
        Opening::At(_) => DELAYED,
        Opening::Full => FULL,
        Opening::Held | Opening::HeldUntil(_) => HELD_GROUP,
    }
}

/// The group and the routes of a place: `*:8 1:7 20`; `None`: it has neither.
pub fn routes(place: &Place) -> Option<String> {
    let of_all = place.group.map(|group| format!("{ANYBODY}:{}", group.0));
    let route = |it: &Route| match it.group {
        Some(group) => format!("{}:{}", it.fetcher.0, group.0),
        None => it.fetcher.0.to_string(),
    };
    let all: Vec<String> = of_all.into_iter().chain(place.routes.iter().map(route)).collect();
    (!all.is_empty()).then(|| all.join(" "))
}

/// `None`: not written by any build of this version.
pub fn routes_of(text: &str) -> Option<(Option<GroupId>, Vec<Route>)> {
    let (mut of_all, mut routes) = (None, Vec::new());
    for it in text.split_ascii_whitespace() {
        let (of, group) = it.split_once(':').unwrap_or((it, ""));
        let group = if group.is_empty() { None } else { Some(GroupId(group.parse().ok()?)) };
        match of {
            ANYBODY => of_all = group,
            of => routes.push(Route { fetcher: FetcherId(of.parse().ok()?), group }),
        }
    }
    Some((of_all, routes))
}

/// A lease's seconds; the most possible if the number is out of range.
pub fn lease(seconds: i64) -> u32 {
    u32::try_from(seconds).unwrap_or(u32::MAX)
}

/// A task as fetcher, and run or number.
pub fn task(task: Task) -> (i64, i64) {
    match task {
        Task::Row { fetcher, run } => (fetcher.0, run),
        Task::Single { number } => (FetcherId::TASKS.0, number),
    }
}

pub fn task_of((fetcher, run): (i64, i64)) -> Task {
    match FetcherId(fetcher) {
        FetcherId::TASKS => Task::Single { number: run },
        fetcher => Task::Row { fetcher, run },
    }
}

/// Each fetcher's attempt, and those that failed.
pub type Served = (BTreeMap<FetcherId, Attempt>, BTreeSet<FetcherId>);

/// With which attempts fetchers were served, and which of these failed: `1:7 20:9f`.
pub fn served(record: &Record) -> String {
    let mut text = String::new();
    for (fetcher, attempt) in &record.served {
        if !text.is_empty() {
            text.push(' ');
        }
        text.push_str(&fetcher.0.to_string());
        text.push(':');
        text.push_str(&attempt.0.to_string());
        if record.failed.contains(fetcher) {
            text.push(FAILED);
        }
    }
    text
}

/// `None`: not written by any build of this version.
pub fn served_of(text: &str) -> Option<Served> {
    let mut failed = BTreeSet::new();
    let one = |pair: &str| {
        let (fetcher, attempt) = pair.split_once(':')?;
        let fetcher = FetcherId(fetcher.parse().ok()?);
        let of_failed = attempt.strip_suffix(FAILED);
        failed.extend(of_failed.map(|_| fetcher));
        Some((fetcher, Attempt(of_failed.unwrap_or(attempt).parse().ok()?)))
    };
    let served = text.split_ascii_whitespace().map(one).collect::<Option<_>>()?;
    Some((served, failed))
}

/// The number of a new key, from its jitter and the number of keys so far: in the order of jitter, so that keys that
/// are handed out one after the other are stored side by side.
pub fn id(key: &Key, sequence: i64) -> KeyId {
    let in_order = i64::from(key.jitter()) - i64::from(i32::MIN);
    KeyId((in_order << SEQUENCE_BITS) | (sequence & ((1 << SEQUENCE_BITS) - 1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers have the order of their turns, and are read back as these.
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
        let bounds = [Turn::Never(i64::MIN), Turn::Never(i64::MAX), Turn::Started(i64::MIN)];
        assert!(bounds.iter().all(|it| turn(turn_of(turn(*it))) == turn(*it)));
    }

    #[test]
    fn served_is_read_as_it_is_written() {
        let mut record = Record::new(Key::new("a").unwrap());
        record.served = [(FetcherId(1), Attempt(7)), (FetcherId(20), Attempt(i64::MAX))].into();
        record.failed = [FetcherId(20)].into();
        assert_eq!(served(&record), format!("1:7 20:{}f", i64::MAX));
        assert_eq!(served_of(&served(&record)).unwrap(), (record.served, record.failed));
        assert_eq!(served_of("").unwrap(), Default::default());
        assert!(served_of("1:x").is_none());
    }

    #[test]
    fn routes_are_read_as_they_are_written() {
        let route = |fetcher, group: Option<i64>| Route {
            fetcher: FetcherId(fetcher),
            group: group.map(GroupId),
        };
        let routes = vec![route(0, Some(7)), route(20, None)];
        let place = Place { group: Some(GroupId(8)), routes, ..Place::default() };
        assert_eq!(super::routes(&place).as_deref(), Some("*:8 0:7 20"));
        assert_eq!(routes_of("*:8 0:7 20"), Some((place.group, place.routes)));
        assert_eq!(super::routes(&Place::default()), None);
        assert_eq!(routes_of("1:x"), None);
    }

    /// Numbers of keys follow the jitter, are positive, and fit.
    #[test]
    fn keys_are_in_the_order_of_jitter() {
        let mut keys: Vec<Key> = (0..100).map(|it| Key::new(&it.to_string()).unwrap()).collect();
        keys.sort_by_key(Key::jitter);
        let ids: Vec<KeyId> = keys.iter().map(|key| id(key, (1 << 31) - 1)).collect();
        assert!(ids.is_sorted() && ids[0] >= KeyId(0), "{ids:?}");
    }
}
