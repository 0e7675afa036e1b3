//! The header of a queue, as it is read and written: only what changed since.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use rusqlite::{Connection, Result, params_from_iter};
use shiftboss_queue::counts::{Counts, Tally};
use shiftboss_queue::record::FetcherId;
use shiftboss_queue::records::{Header, RunState, Stale};

/// The header, and what only this store counts.
#[derive(Debug, Clone, Default)]
pub(crate) struct Kept {
    pub(crate) header: Header,
    /// Keys that were ever given an id.
    pub(crate) ids: i64,
    /// The last number of an end.
    pub(crate) ends: i64,
}

impl Kept {
    /// What is one row.
    fn numbers(&self) -> [i64; 9] {
        let it = &self.header;
        let lasts = [it.last_attempt, it.last_bump, it.last_single, it.last_since];
        let [attempt, bump, single, since] = lasts;
        let paused = i64::from(it.paused);
        [attempt, bump, single, since, it.credit, it.clock, self.ids, self.ends, paused]
    }
}

/// What the database has; a new one has a new queue's.
pub(crate) fn load(connection: &Connection) -> Result<Kept> {
    let mut kept = Kept::default();
    let header = &mut kept.header;
    let mut query = connection.prepare_cached(
        "SELECT last_attempt, last_bump, last_single, last_since, credit, paused, clock, ids, ends FROM header",
    )?;
    let mut rows = query.query([])?;
    if let Some(row) = rows.next()? {
        header.last_attempt = row.get(0)?;
        header.last_bump = row.get(1)?;
        header.last_single = row.get(2)?;
        header.last_since = row.get(3)?;
        header.credit = row.get(4)?;
        header.paused = row.get(5)?;
        header.clock = row.get(6)?;
        kept.ids = row.get(7)?;
        kept.ends = row.get(8)?;
    }
    let mut query = connection.prepare_cached("SELECT fetcher, name FROM names")?;
    let mut rows = query.query([])?;
    while let Some(row) = rows.next()? {
        header.fetchers.insert(FetcherId(row.get(0)?), row.get::<_, String>(1)?.into());
    }
    let mut query = connection.prepare_cached(
        "SELECT fetcher, run, since, complete, deleting, listing, reading, position, skipped, stale FROM runs",
    )?;
    let mut rows = query.query([])?;
    while let Some(row) = rows.next()? {
        let skipped: i64 = row.get(8)?;
        let state = RunState {
            since: row.get(2)?,
            complete: row.get(3)?,
            deleting: row.get(4)?,
            listing: row.get(5)?,
            reading: row.get(6)?,
            position: row.get(7)?,
            skipped: skipped.unsigned_abs(),
            stale: Stale::of_code(row.get(9)?),
        };
        header.runs.insert((FetcherId(row.get(0)?), row.get(1)?), state);
    }
    let mut query = connection.prepare_cached(
        "SELECT fetcher, run, rows, waiting, in_flight, leased, redelivered, delayed, dead, failed, held, backed_off, bumped
         FROM counts",
    )?;
    let mut rows = query.query([])?;
    while let Some(row) = rows.next()? {
        let mut counts = Counts::default();
        for (at, value) in counts.values_mut().into_iter().enumerate() {
            *value = row.get(2 + at)?;
        }
        header.counts.0.insert((FetcherId(row.get(0)?), row.get(1)?), counts);
    }
    Ok(kept)
}

/// Writes what of `now` is not in the database yet, which has `before`; `None`: it has nothing.
pub(crate) fn save(connection: &Connection, before: Option<&Kept>, now: &Kept) -> Result<()> {
    if before.is_none_or(|before| now.numbers() != before.numbers()) {
        let sql = "INSERT OR REPLACE INTO header
            (one, last_attempt, last_bump, last_single, last_since, credit, clock, ids, ends, paused)
            VALUES (1, ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";
        connection.prepare_cached(sql)?.execute(now.numbers())?;
    }
    let nothing = Header::default();
    let (before, header) = (before.map_or(&nothing, |it| &it.header), &now.header);
    for (fetcher, name) in
        header.fetchers.iter().filter(|(id, _)| !before.fetchers.contains_key(id))
    {
        let sql = "INSERT INTO names (fetcher, name) VALUES (?1, ?2)";
        connection.prepare_cached(sql)?.execute((fetcher.0, &**name))?;
    }
    save_runs(connection, before, header)?;
    save_counts(connection, &before.counts, &header.counts)
}

fn save_runs(connection: &Connection, before: &Header, now: &Header) -> Result<()> {
    for ((fetcher, run), state) in changed(&before.runs, &now.runs) {
        let Some(state) = state else {
            let sql = "DELETE FROM runs WHERE fetcher = ?1 AND run = ?2";
            connection.prepare_cached(sql)?.execute((fetcher.0, run))?;
            continue;
        };
        let sql = "INSERT OR REPLACE INTO runs
            (fetcher, run, since, complete, deleting, listing, reading, position, skipped, stale)
            VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)";
        connection.prepare_cached(sql)?.execute((
            fetcher.0,
            run,
            state.since,
            state.complete,
            state.deleting,
            state.listing,
            state.reading,
            state.position.as_deref(),
            state.skipped.cast_signed(),
            state.stale.code(),
        ))?;
    }
    Ok(())
}

fn save_counts(connection: &Connection, before: &Tally, now: &Tally) -> Result<()> {
    for ((fetcher, run), counts) in changed(&before.0, &now.0) {
        let Some(counts) = counts else {
            let sql = "DELETE FROM counts WHERE fetcher = ?1 AND run = ?2";
            connection.prepare_cached(sql)?.execute((fetcher.0, run))?;
            continue;
        };
        let sql = "INSERT OR REPLACE INTO counts (fetcher, run, rows, waiting, in_flight, leased, redelivered, delayed, dead, failed,
            held, backed_off, bumped) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)";
        let values = [fetcher.0, run].into_iter().chain(counts.values());
        connection.prepare_cached(sql)?.execute(params_from_iter(values))?;
    }
    Ok(())
}

/// What is not as it was, in order; `None`: it is gone. There may be many runs, so both are gone through once.
fn changed<'a, K: Copy + Ord, V: PartialEq>(
    before: &'a BTreeMap<K, V>,
    now: &'a BTreeMap<K, V>,
) -> impl Iterator<Item = (K, Option<&'a V>)> {
    let (mut before, mut now) = (before.iter().peekable(), now.iter().peekable());
    std::iter::from_fn(move || {
        loop {
            let order = match (before.peek(), now.peek()) {
                (Some(old), Some(new)) => old.0.cmp(new.0),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (None, None) => return None,
            };
            match order {
                Ordering::Less => return before.next().map(|(key, _)| (*key, None)),
                Ordering::Greater => return now.next().map(|(key, it)| (*key, Some(it))),
                Ordering::Equal => {
                    let (old, (key, it)) = (before.next()?.1, now.next()?);
                    if old != it {
                        return Some((*key, Some(it)));
                    }
                }
            }
        }
    })
}
