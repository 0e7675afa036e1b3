//! Keys that are looked for by how they begin, and how long keys wait: what a page asks beside `why` and `queue`.
//!
//! Neither costs more where a queue is longer: keys are found along the indexes that begin with them, and of a long queue so
//! many rows are looked at.

use rusqlite::{Connection, Result, Row};
use shiftboss_actors::store::SAMPLE_MAX;
use shiftboss_actors::store::answers::{
    Bump, Found, HeldKey, HeldKeys, Hold, HoldKind, KnownKey, LastStarts,
};

use crate::stores::sqlite::query::{FromRow, Query, columns};
use crate::stores::views::{HELD_MAX, SEARCH_MAX, behind, found, held_keys};

columns!(KnownKey { key, last_started, exit_code });

/// The keys from ?1 on and before ?2, at most ?3: those that are listed, and those that ran.
pub(in crate::stores::sqlite) const SEARCH: &str = "WITH known(attr_path) AS (
        SELECT * FROM (SELECT DISTINCT attr_path FROM queue INDEXED BY queue_attr_path_index
            WHERE attr_path >= ?1 AND (?2 IS NULL OR attr_path < ?2) ORDER BY attr_path LIMIT ?3)
        UNION SELECT * FROM (SELECT attr_path FROM log
            WHERE attr_path >= ?1 AND (?2 IS NULL OR attr_path < ?2) ORDER BY attr_path LIMIT ?3))
    SELECT attr_path, started, exit_code FROM known LEFT JOIN log USING (attr_path) ORDER BY attr_path LIMIT ?3";

columns!(Bump { since, by });

impl FromRow for Hold {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        let (since, until, reason, by) = (row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?);
        let kind = HoldKind::named(&row.get::<_, String>(4)?);
        Ok(Self { kind, since, until, reason, by })
    }
}

/// A hold, and behind it its key.
impl FromRow for HeldKey {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        Ok(Self { hold: Hold::from_row(row)?, key: row.get(5)? })
    }
}

/// At most ?1: operators' come first.
pub(in crate::stores::sqlite) const HELD: &str =
    "SELECT since, until, reason, by, kind, attr_path FROM shiftboss_holds
    INDEXED BY shiftboss_holds_by_age ORDER BY kind DESC, since DESC, attr_path DESC LIMIT ?1";

/// The rows of all lists, as kept counts tell.
const LENGTH: &str = "SELECT coalesce(sum(rows), 0) FROM shiftboss_runs WHERE deleting = 0";
/// The newest run of each fetcher; of single tasks all.
const NEWEST: &str =
    "SELECT fetcher_id, max(run_started) FROM shiftboss_runs WHERE deleting = 0 AND rows > 0
    GROUP BY fetcher_id";
const ENDS: &str =
    "SELECT coalesce(min(rowid), 0), coalesce((SELECT max(rowid) FROM queue), 0) FROM queue";
/// The first row at a chance place of the ?2 from ?1 on, or behind it.
pub(in crate::stores::sqlite) const AT_CHANCE: &str =
    "SELECT fetcher_id, fetcher_run_started, last_started FROM queue
    WHERE rowid >= (SELECT ?1 + abs(random() % ?2)) ORDER BY rowid LIMIT 1";
const ALL: &str = "SELECT fetcher_id, fetcher_run_started, last_started FROM queue";

pub(super) fn search(snapshot: &Connection, prefix: &str, count: usize) -> Result<Found> {
    let count = count.min(SEARCH_MAX);
    let limit = i64::try_from(count + 1).unwrap_or(i64::MAX);
    Ok(found(snapshot.rows(SEARCH, (prefix, behind(prefix), limit))?, count))
}

pub(super) fn held(snapshot: &Connection, count: usize) -> Result<HeldKeys> {
    let count = count.min(HELD_MAX);
    let limit = i64::try_from(count + 1).unwrap_or(i64::MAX);
    Ok(held_keys(snapshot.rows(HELD, [limit])?, count))
}

/// A row: its fetcher, run and last start.
type Seen = (i64, i64, Option<i64>);

/// Rowids begin with the hash of the key: equal parts of them have about as many rows each, and which ones has nothing to do
/// with when they ran, whatever the order of the lists.
pub(super) fn last_starts(snapshot: &Connection) -> Result<LastStarts> {
    let is_all = snapshot.value::<i64>(LENGTH, [])? <= SAMPLE_MAX as i64;
    let rows: Vec<Seen> = if is_all { snapshot.rows(ALL, [])? } else { sample(snapshot)? };
    let newest: Vec<(i64, i64)> = snapshot.rows(NEWEST, [])?;
    let is_newest = |(fetcher, run, _): &Seen| {
        let of_fetcher = newest.iter().find(|(known, _)| known == fetcher);
        of_fetcher.is_some_and(|(_, newest)| *fetcher == 0 || newest == run)
    };
    let started = rows.into_iter().filter(is_newest).map(|(.., started)| started).collect();
    Ok(LastStarts { started, is_all })
}

/// One row of each of so many equal parts of the rowids.
fn sample(snapshot: &Connection) -> Result<Vec<Seen>> {
    let (first, last): (i64, i64) = snapshot.row(ENDS, [])?;
    let width = (last - first) / SAMPLE_MAX as i64 + 1;
    let mut rows = Vec::with_capacity(SAMPLE_MAX);
    for part in 0..SAMPLE_MAX as i64 {
        rows.extend(snapshot.rows::<Seen>(AT_CHANCE, (first + part * width, width))?);
    }
    Ok(rows)
}
