//! The header of a queue, as it is read and written: only what changed since.

use rusqlite::{Connection, Result, params_from_iter};
use shiftboss_queue::counts::{Counts, Tally};
use shiftboss_queue::record::FetcherId;
use shiftboss_queue::records::{Header, RunState};

/// The header, and what only this store counts.
#[derive(Debug, Clone, Default)]
pub(crate) struct Kept {
    pub(crate) header: Header,
    /// Keys that were ever given an id.
    pub(crate) ids: i64,
    /// The last number of an end.
    pub(crate) ends: i64,
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
        "SELECT fetcher, run, since, complete, deleting, listing, reading, position, skipped FROM runs",
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

/// Writes what of `now` is not in the database yet, which has `before`.
pub(crate) fn save(connection: &Connection, before: &Header, now: &Kept) -> Result<()> {
    let header = &now.header;
    let sql = "INSERT OR REPLACE INTO header
        (one, last_attempt, last_bump, last_single, last_since, credit, paused, clock, ids, ends)
        VALUES (1, ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";
    connection.prepare_cached(sql)?.execute((
        header.last_attempt,
        header.last_bump,
        header.last_single,
        header.last_since,
        header.credit,
        header.paused,
        header.clock,
        now.ids,
        now.ends,
    ))?;
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
    for (fetcher, run) in before.runs.keys().filter(|run| !now.runs.contains_key(run)) {
        let sql = "DELETE FROM runs WHERE fetcher = ?1 AND run = ?2";
        connection.prepare_cached(sql)?.execute((fetcher.0, run))?;
    }
    for ((fetcher, run), state) in &now.runs {
        if before.runs.get(&(*fetcher, *run)) == Some(state) {
            continue;
        }
        let sql = "INSERT OR REPLACE INTO runs
            (fetcher, run, since, complete, deleting, listing, reading, position, skipped)
            VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";
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
        ))?;
    }
    Ok(())
}

fn save_counts(connection: &Connection, before: &Tally, now: &Tally) -> Result<()> {
    for (fetcher, run) in before.0.keys().filter(|run| !now.0.contains_key(run)) {
        let sql = "DELETE FROM counts WHERE fetcher = ?1 AND run = ?2";
        connection.prepare_cached(sql)?.execute((fetcher.0, run))?;
    }
    for ((fetcher, run), it) in &now.0 {
        if before.0.get(&(*fetcher, *run)) == Some(it) {
            continue;
        }
        let sql = "INSERT OR REPLACE INTO counts (fetcher, run, rows, waiting, in_flight, leased, redelivered, delayed, dead, failed,
            held, backed_off, bumped) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)";
        let values = [fetcher.0, *run].into_iter().chain(it.values());
        connection.prepare_cached(sql)?.execute(params_from_iter(values))?;
    }
    Ok(())
}
