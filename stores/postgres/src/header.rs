//! Reading and writing the header of a queue: only what has changed. What a daemon owns does not block others.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use shiftboss_queue::counts::{COUNTS, Counts, Run, Tally};
use shiftboss_queue::credit::CREDIT_FIRST;
use shiftboss_queue::record::FetcherId;
use shiftboss_queue::records::{Header, RunState, Stale, StoreError, StoreResult};
use tokio_postgres::{Error, Row};

use crate::error::classify;
use crate::wire::{Ask, Param, ask};

/// $1: the daemon. $2: the last number that it drew. $3: how many it draws if that is the last of all; $4: how many
/// otherwise.
const NUMBERS: &str = "SELECT version, ids, last_bump, last_single, last_since, paused, clock,
    (SELECT credit FROM credits WHERE daemon = $1), (SELECT last_value FROM numbers),
    (extract(epoch FROM clock_timestamp()) * 1000)::int8, (SELECT epoch FROM daemons WHERE daemon = $1), ARRAY(SELECT nextval('numbers') FROM generate_series(1,
        CASE WHEN (SELECT last_value FROM numbers) = $2::int8 THEN $3::int8 ELSE $4::int8 END)), floor FROM header";
/// The same for readers, with the largest of the lanes' credits.
pub(crate) const LOOK: &str = "SELECT version, ids, last_bump, last_single, last_since, paused, clock,
    (SELECT max(credit) FROM credits), (SELECT last_value FROM numbers), (extract(epoch FROM clock_timestamp()) * 1000)::int8 FROM header";
pub(crate) const NAMES: &str = "SELECT fetcher, name FROM names";
pub(crate) const RUNS: &str = "SELECT fetcher, run, since, complete, deleting, listing, reading, position, skipped, stale FROM runs";
/// A sum of integers as one integer, clamped, because the summands may have been edited.
macro_rules! whole {
    ($($sum:expr),+) => {
        concat!("greatest(least(", $($sum),+, ", 9223372036854775807), -9223372036854775808)::int8")
    };
}
pub(crate) use whole;

/// Each daemon's part of the counts.
pub(crate) const COUNTS_OF_RUNS: &str = "SELECT fetcher, run, rows, waiting, in_flight, leased, redelivered, delayed, dead, failed, held,
    backed_off, bumped, keys, unlisted FROM counts";

const SAVE_NUMBERS: &str = "UPDATE header SET last_bump = $1, last_single = $2, last_since = $3, paused = $4, clock = $5, ids = $6,
    version = version + 1";
const SAVE_CREDIT: &str = "INSERT INTO credits (daemon, credit) VALUES ($1, $2)
    ON CONFLICT (daemon) DO UPDATE SET credit = excluded.credit";
const SAVE_NAME: &str = "INSERT INTO names (fetcher, name) VALUES ($1, $2)";
const SAVE_RUN: &str =
    "INSERT INTO runs (fetcher, run, since, complete, deleting, listing, reading, position, skipped, stale)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) ON CONFLICT (fetcher, run) DO UPDATE SET since = excluded.since,
    complete = excluded.complete, deleting = excluded.deleting, listing = excluded.listing, reading = excluded.reading,
    position = excluded.position, skipped = excluded.skipped, stale = excluded.stale";
const DELETE_RUN: &str = "DELETE FROM runs WHERE fetcher = $1 AND run = $2";
const ADD_COUNTS: &str = "INSERT INTO counts AS c (fetcher, run, daemon, rows, waiting, in_flight, leased, redelivered, delayed, dead,
        failed, held, backed_off, bumped, keys, unlisted)
    SELECT * FROM unnest($1::int8[], $2::int8[], $3::int8[], $4::int8[], $5::int8[], $6::int8[], $7::int8[], $8::int8[],
        $9::int8[], $10::int8[], $11::int8[], $12::int8[], $13::int8[], $14::int8[], $15::int8[], $16::int8[])
    ON CONFLICT (fetcher, run, daemon) DO UPDATE SET rows = c.rows + excluded.rows, waiting = c.waiting + excluded.waiting,
        in_flight = c.in_flight + excluded.in_flight, leased = c.leased + excluded.leased,
        redelivered = c.redelivered + excluded.redelivered, delayed = c.delayed + excluded.delayed, dead = c.dead + excluded.dead,
        failed = c.failed + excluded.failed, held = c.held + excluded.held, backed_off = c.backed_off + excluded.backed_off,
        bumped = c.bumped + excluded.bumped, keys = c.keys + excluded.keys, unlisted = c.unlisted + excluded.unlisted";
/// For all runs that are gone, and have no job out.
const DELETE_COUNTS: &str = "DELETE FROM counts c USING (SELECT fetcher, run FROM counts GROUP BY fetcher, run
        HAVING (sum(rows), sum(waiting), sum(in_flight), sum(leased), sum(redelivered), sum(delayed), sum(dead), sum(failed),
            sum(held), sum(backed_off), sum(bumped), sum(keys), sum(unlisted))
            = (0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)) AS nothing
    WHERE c.fetcher = nothing.fetcher AND c.run = nothing.run
        AND NOT EXISTS (SELECT FROM runs r WHERE r.fetcher = c.fetcher AND r.run = c.run)";

/// The database's values, as far as they are needed to tell what a batch has changed.
#[derive(Debug, Clone, Default)]
pub(crate) struct Kept {
    shared: Shared,
    credit: i64,
    fetchers: Arc<BTreeMap<FetcherId, Arc<str>>>,
    pub(crate) counts: Tally,
    /// Changes with each change by others.
    pub(crate) version: i64,
    /// Keys that were ever given an id.
    pub(crate) ids: i64,
}

/// Numbers that all daemons share.
type Shared = (i64, i64, i64, bool, i64);

fn shared(it: &Header) -> Shared {
    (it.last_bump, it.last_single, it.last_since, it.paused, it.clock)
}

pub(crate) struct Left<'a> {
    pub(crate) header: &'a Header,
    /// Runs that changed, and those whose counts changed.
    pub(crate) runs: &'a BTreeSet<Run>,
    pub(crate) counts: &'a BTreeSet<Run>,
    pub(crate) ids: i64,
    pub(crate) daemon: i64,
    pub(crate) is_alone: bool,
    /// Documents that other daemons cache were written.
    pub(crate) has_noted: bool,
}

/// The header's single numbers, the time, and new numbers of attempts.
pub(crate) fn numbers(daemon: i64, draw: [i64; 3]) -> Ask {
    let [last, more, all] = draw;
    ask!(NUMBERS, daemon, last, more, all)
}

/// The time, and the new numbers, of [`numbers`].
pub(crate) fn now_and_drawn(row: &Row) -> StoreResult<(i64, Vec<i64>)> {
    let read = || Ok((row.try_get(9)?, row.try_get(11)?));
    read().map_err(classify)
}

/// See [`crate::front`].
pub(crate) fn floor(row: &Row) -> StoreResult<i64> {
    row.try_get(12).map_err(classify)
}

/// The epoch of the daemon: not its own if it was taken for dead.
pub(crate) fn epoch(row: &Row) -> StoreResult<Option<i64>> {
    row.try_get(10).map_err(classify)
}

/// [`Kept::version`], as it is now.
pub(crate) fn version(row: &Row) -> StoreResult<i64> {
    row.try_get(0).map_err(classify)
}

/// The header: single numbers, names, runs and counts.
pub(crate) fn read(
    numbers: &Row,
    names: &[Row],
    runs: &[Row],
    counts: &[Row],
) -> StoreResult<Header> {
    let read = || {
        Ok(Header {
            last_bump: numbers.try_get(2)?,
            last_single: numbers.try_get(3)?,
            last_since: numbers.try_get(4)?,
            paused: numbers.try_get(5)?,
            clock: numbers.try_get(6)?,
            credit: numbers.try_get::<_, Option<i64>>(7)?.unwrap_or(CREDIT_FIRST),
            last_attempt: numbers.try_get(8)?,
            fetchers: Arc::new(names.iter().map(name).collect::<Result<_, _>>()?),
            runs: runs.iter().map(run).collect::<Result<_, Error>>()?,
            counts: Tally::default(),
        })
    };
    Ok(Header { counts: tally(counts)?, ..read().map_err(classify)? })
}

/// Sums of all daemons by run.
pub(crate) fn tally(rows: &[Row]) -> StoreResult<Tally> {
    let mut tally = Tally::default();
    for row in rows {
        let (run, part) = counts(row).map_err(classify)?;
        tally.0.entry(run).or_default().add(part);
    }
    tally.tidy();
    Ok(tally)
}

impl Kept {
    pub(crate) fn of(header: &Header, numbers: &Row) -> StoreResult<Self> {
        Ok(Self {
            shared: shared(header),
            credit: header.credit,
            fetchers: header.fetchers.clone(),
            counts: header.counts.clone(),
            version: version(numbers)?,
            ids: numbers.try_get(1).map_err(classify)?,
        })
    }

    /// Takes over a batch's results, and returns the statements for what is not in the database yet. Sums come last, in
    /// order.
    pub(crate) fn save(&mut self, it: &Left<'_>) -> StoreResult<Vec<Ask>> {
        let Left { header, runs, ids, daemon, .. } = *it;
        let mut asks = Vec::new();
        if header.credit != self.credit {
            asks.push(ask!(SAVE_CREDIT, daemon, header.credit));
        }
        let is_same = !it.has_noted
            && shared(header) == self.shared
            && ids == self.ids
            && header.fetchers == self.fetchers
            && runs.is_empty();
        if !is_same {
            if !it.is_alone {
                let text = "a batch that is not alone changed what all daemons share";
                return Err(StoreError::Fatal(text.to_owned()));
            }
            let (bump, single, since, paused, clock) = shared(header);
            asks.push(ask!(SAVE_NUMBERS, bump, single, since, paused, clock, ids));
            (self.version, self.ids) = (self.version + 1, ids);
            let new = header.fetchers.iter().filter(|(id, _)| !self.fetchers.contains_key(id));
            asks.extend(new.map(|(id, name)| ask!(SAVE_NAME, id.0, name.to_string())));
            asks.extend(runs.iter().map(|run| save_run(*run, header.runs.get(run))));
            (self.shared, self.fetchers) = (shared(header), header.fetchers.clone());
        }
        self.credit = header.credit;
        // This batch is alone, so no other adds to counts of 0. Those of runs that were deleted while jobs were out
        // have become 0 since.
        let has_gone = runs.iter().any(|run| !header.runs.contains_key(run));
        asks.extend(has_gone.then(|| ask!(DELETE_COUNTS)));
        Ok(asks)
    }

    /// Sums of what a batch changed.
    pub(crate) fn add_counts(&mut self, it: &Left<'_>) -> Option<Ask> {
        let mut columns: [Vec<i64>; 3 + COUNTS] = Default::default();
        for run in it.counts {
            let now = it.header.counts.0.get(run).copied().unwrap_or_default();
            let before = self.counts.0.insert(*run, now).unwrap_or_default();
            if now == Counts::default() {
                self.counts.0.remove(run);
            }
            if before == now {
                continue;
            }
            let more = now.values().into_iter().zip(before.values());
            let more = more.map(|(now, before)| now.saturating_sub(before));
            let values = [run.0.0, run.1, it.daemon].into_iter().chain(more);
            columns.iter_mut().zip(values).for_each(|(column, value)| column.push(value));
        }
        let is_any = !columns[0].is_empty();
        is_any.then(|| Ask {
            sql: ADD_COUNTS.into(),
            params: columns.map(|it| Box::new(it) as Param).into(),
        })
    }
}

fn name(row: &Row) -> Result<(FetcherId, Arc<str>), Error> {
    Ok((FetcherId(row.try_get(0)?), row.try_get::<_, String>(1)?.into()))
}

fn run(row: &Row) -> Result<((FetcherId, i64), RunState), Error> {
    let state = RunState {
        since: row.try_get(2)?,
        complete: row.try_get(3)?,
        deleting: row.try_get(4)?,
        listing: row.try_get(5)?,
        reading: row.try_get(6)?,
        position: row.try_get(7)?,
        skipped: row.try_get::<_, i64>(8)?.cast_unsigned(),
        stale: Stale::of_code(row.try_get(9)?),
    };
    Ok(((FetcherId(row.try_get(0)?), row.try_get(1)?), state))
}

fn counts(row: &Row) -> Result<((FetcherId, i64), Counts), Error> {
    let mut counts = Counts::default();
    for (at, value) in counts.values_mut().into_iter().enumerate() {
        *value = row.try_get(2 + at)?;
    }
    Ok(((FetcherId(row.try_get(0)?), row.try_get(1)?), counts))
}

/// `None`: it is gone.
fn save_run((fetcher, run): Run, state: Option<&RunState>) -> Ask {
    let Some(state) = state.cloned() else {
        return ask!(DELETE_RUN, fetcher.0, run);
    };
    let RunState { since, complete, deleting, listing, reading, position, skipped, stale } = state;
    let (skipped, stale) = (skipped.cast_signed(), stale.code());
    ask!(
        SAVE_RUN, fetcher.0, run, since, complete, deleting, listing, reading, position, skipped,
        stale
    )
}
