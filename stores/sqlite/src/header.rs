//! Reading and writing the header of a queue: only what has changed.

use std::ops::Bound::{Excluded, Unbounded};

use rusqlite::{Connection, Result, Row, params_from_iter};
use shiftboss_queue::counts::{Counts, Run};
use shiftboss_queue::record::FetcherId;
use shiftboss_queue::records::{Changes, Header, RunState, Stale};

use crate::ask::Ask;

/// The header, and what only this store counts.
#[derive(Debug, Clone, Default)]
pub(crate) struct Kept {
    pub(crate) header: Header,
    /// Keys that were ever given an id.
    pub(crate) ids: i64,
    pub(crate) ends: i64,
}

/// The header's single numbers, as in the database.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Numbers {
    pub(crate) ids: i64,
    pub(crate) ends: i64,
    header: [i64; 7],
    last_fetcher: i64,
}

impl Numbers {
    pub(crate) fn of(it: &Header, ids: i64, ends: i64) -> Self {
        let [attempt, bump, single, since] =
            [it.last_attempt, it.last_bump, it.last_single, it.last_since];
        let header = [attempt, bump, single, since, it.credit, it.clock, i64::from(it.paused)];
        let last_fetcher = it.fetchers.keys().last().map_or(0, |id| id.0);
        Self { ids, ends, header, last_fetcher }
    }
}

/// The database's header; for a new database, that of a new queue.
pub(crate) fn load(connection: &Connection) -> Result<Kept> {
    let sql = "SELECT last_attempt, last_bump, last_single, last_since, credit, paused, clock, ids, ends FROM header";
    let kept = connection.first(sql, (), |row| {
        let header = Header {
            last_attempt: row.get(0)?,
            last_bump: row.get(1)?,
            last_single: row.get(2)?,
            last_since: row.get(3)?,
            credit: row.get(4)?,
            paused: row.get(5)?,
            clock: row.get(6)?,
            ..Header::default()
        };
        Ok(Kept { header, ids: row.get(7)?, ends: row.get(8)? })
    });
    let mut kept = kept?.unwrap_or_default();
    let header = &mut kept.header;
    let sql = "SELECT fetcher, name FROM names";
    let name = |row: &Row<'_>| Ok((FetcherId(row.get(0)?), row.get::<_, String>(1)?));
    for (fetcher, name) in connection.rows(sql, (), name)? {
        header.name_fetcher(fetcher, name.into());
    }
    let sql = "SELECT fetcher, run, since, complete, deleting, listing, reading, position, skipped, stale FROM runs";
    header.runs = connection.rows(sql, (), run)?.into_iter().collect();
    let sql = "SELECT fetcher, run, rows, waiting, in_flight, leased, redelivered, delayed, dead, failed, held, backed_off, bumped, keys, unlisted
         FROM counts";
    let counts = |row: &Row<'_>| {
        let mut counts = Counts::default();
        for (at, value) in counts.values_mut().into_iter().enumerate() {
            *value = row.get(2 + at)?;
        }
        Ok(((FetcherId(row.get(0)?), row.get(1)?), counts))
    };
    header.counts.0 = connection.rows(sql, (), counts)?.into_iter().collect();
    Ok(kept)
}

fn run(row: &Row<'_>) -> Result<(Run, RunState)> {
    let state = RunState {
        since: row.get(2)?,
        complete: row.get(3)?,
        deleting: row.get(4)?,
        listing: row.get(5)?,
        reading: row.get(6)?,
        position: row.get(7)?,
        skipped: row.get::<_, i64>(8)?.unsigned_abs(),
        stale: Stale::of_code(row.get(9)?),
    };
    Ok(((FetcherId(row.get(0)?), row.get(1)?), state))
}

/// Writes a whole header into tables that have none.
pub(crate) fn save_all(connection: &Connection, kept: &Kept) -> Result<()> {
    let Kept { header, ids, ends } = kept;
    let (runs, counts) = (header.runs.keys().copied(), header.counts.0.keys().copied());
    save_numbers(connection, Numbers::of(header, *ids, *ends))?;
    save_names(connection, header, FetcherId::TASKS)?;
    save_runs(connection, header, runs)?;
    save_counts(connection, header, counts)
}

pub(crate) fn save(
    connection: &Connection,
    before: Numbers,
    now: Numbers,
    changes: &Changes<'_>,
) -> Result<()> {
    let header = changes.header;
    if now != before {
        save_numbers(connection, now)?;
        save_names(connection, header, FetcherId(before.last_fetcher))?;
    }
    save_runs(connection, header, changes.runs.iter().copied())?;
    save_counts(connection, header, changes.counts.iter().copied())
}

fn save_numbers(connection: &Connection, now: Numbers) -> Result<()> {
    let sql = "INSERT OR REPLACE INTO header
        (one, last_attempt, last_bump, last_single, last_since, credit, clock, paused, ids, ends)
        VALUES (1, ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";
    let values = now.header.into_iter().chain([now.ids, now.ends]);
    connection.prepare_cached(sql)?.execute(params_from_iter(values)).map(drop)
}

/// Fetchers after one: their numbers ascend.
fn save_names(connection: &Connection, header: &Header, behind: FetcherId) -> Result<()> {
    for (fetcher, name) in header.fetchers.range((Excluded(behind), Unbounded)) {
        let sql = "INSERT INTO names (fetcher, name) VALUES (?1, ?2)";
        connection.prepare_cached(sql)?.execute((fetcher.0, &**name))?;
    }
    Ok(())
}

fn save_runs(
    connection: &Connection,
    header: &Header,
    runs: impl Iterator<Item = Run>,
) -> Result<()> {
    for (fetcher, run) in runs {
        let Some(state) = header.runs.get(&(fetcher, run)) else {
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

fn save_counts(
    connection: &Connection,
    header: &Header,
    runs: impl Iterator<Item = Run>,
) -> Result<()> {
    for (fetcher, run) in runs {
        let Some(counts) = header.counts.0.get(&(fetcher, run)) else {
            let sql = "DELETE FROM counts WHERE fetcher = ?1 AND run = ?2";
            connection.prepare_cached(sql)?.execute((fetcher.0, run))?;
            continue;
        };
        let sql = "INSERT OR REPLACE INTO counts (fetcher, run, rows, waiting, in_flight, leased, redelivered, delayed, dead, failed,
            held, backed_off, bumped, keys, unlisted) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)";
        let values = [fetcher.0, run].into_iter().chain(counts.values());
        connection.prepare_cached(sql)?.execute(params_from_iter(values))?;
    }
    Ok(())
}
