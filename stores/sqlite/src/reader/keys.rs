//! Keys that are looked for by how they begin, those that are held, and how long keys wait: what is asked beside `why` and `queue`.

use std::ops::Bound;

use rusqlite::Result;
use shiftboss_queue::answers::{Found, HeldKey, HeldKeys, Hold, KnownKey, LastStarts};
use shiftboss_queue::context::Context;
use shiftboss_queue::reader::SAMPLE_MAX;
use shiftboss_queue::record::{FetcherId, Record};
use shiftboss_queue::views::{HELD_MAX, SEARCH_MAX, behind, found, held_keys};

use super::{Look, limit};
use crate::ask::Ask;

/// The keys from ?1 on and before ?2, at most ?3: those that are listed, and those that ran.
const SEARCH: &str = "SELECT key, started, exit_code FROM keys
    WHERE key >= ?1 AND (?2 IS NULL OR key < ?2)
        AND (started IS NOT NULL OR attempt IS NOT NULL OR waiting + failed + dead > 0
            OR EXISTS (SELECT 1 FROM rows WHERE rows.key = keys.id))
    ORDER BY key LIMIT ?3";
const HELD: &str =
    "SELECT key FROM extras WHERE held IS NOT NULL ORDER BY held DESC, key DESC LIMIT ?1";
const BACKED_OFF: &str = "SELECT key FROM extras WHERE backed_off IS NOT NULL
    ORDER BY backed_off DESC, key DESC LIMIT ?1";

/// The last id of all.
const LAST_ID: &str = "SELECT coalesce(max(id), 0) FROM keys";
/// The first key at a chance place of the ?2 from ?1 on, or behind it.
const AT_CHANCE: &str =
    "SELECT id FROM keys WHERE id >= (SELECT ?1 + abs(random() % ?2)) ORDER BY id LIMIT 1";
/// Of all lists together; asked only where they are few.
pub(super) const LISTED: &str = "SELECT key FROM rows UNION SELECT key FROM tasks
    WHERE status IN ('waiting', 'in_flight', 'failed', 'dead_letter')";

/// What of a record holds its key.
type Holds = fn(&Record, &Context) -> Option<Hold>;

impl Look<'_> {
    pub(super) fn search(&self, prefix: &str, count: usize) -> Result<Found> {
        let count = count.min(SEARCH_MAX);
        let values = (prefix, behind(prefix), limit(count + 1));
        let keys = self.connection.rows(SEARCH, values, |row| {
            Ok(KnownKey { key: row.get(0)?, last_started: row.get(1)?, exit_code: row.get(2)? })
        })?;
        Ok(found(keys, count))
    }

    pub(super) fn held(&mut self, count: usize) -> Result<HeldKeys> {
        let count = count.min(HELD_MAX);
        let mut keys = Vec::new();
        for (sql, hold) in [(HELD, Record::hold as Holds), (BACKED_OFF, Record::backoff)] {
            for stored in self.loader.of_ids(sql, [limit(count + 1 - keys.len())])? {
                let key = stored.record.key.to_string();
                keys.extend(hold(&stored.record, &self.context).map(|hold| HeldKey { key, hold }));
            }
        }
        Ok(held_keys(keys, count))
    }

    /// Ids begin with the hash of the key: equal parts of them have about as many keys each, and which ones has nothing to do
    /// with when they ran, whatever the order of the lists.
    pub(super) fn last_starts(&mut self) -> Result<LastStarts> {
        let runs =
            self.kept.header.counts.0.iter().filter(|(run, _)| !self.context.going.contains(run));
        let rows: i64 = runs.map(|(_, counts)| counts.rows).sum();
        let is_all = rows <= limit(SAMPLE_MAX);
        let keys = if is_all {
            self.loader.of_ids(LISTED, [])?
        } else {
            self.loader.of_ids_in(self.sample()?)?
        };
        let mut started = Vec::new();
        for stored in keys {
            let lists = self.lists_of(&stored.record);
            started.extend(std::iter::repeat_n(self.last_start(&stored.record), lists));
        }
        Ok(LastStarts { started, is_all })
    }

    /// A key of each of so many equal parts of the ids.
    pub(super) fn sample(&self) -> Result<Vec<i64>> {
        let width = self.connection.value::<i64>(LAST_ID, [])? / limit(SAMPLE_MAX) + 1;
        let mut ids: Vec<i64> = Vec::with_capacity(SAMPLE_MAX);
        for part in 0..limit(SAMPLE_MAX) {
            let values = (part * width, width);
            ids.extend(self.connection.first(AT_CHANCE, values, |row| row.get::<_, i64>(0))?);
        }
        Ok(ids)
    }

    /// How many of the newest lists have it; single tasks are one.
    fn lists_of(&self, record: &Record) -> usize {
        let runs = &self.kept.header.runs;
        let is_newest = |fetcher: FetcherId, run: i64| {
            let behind = (Bound::Excluded((fetcher, run)), Bound::Included((fetcher, i64::MAX)));
            let mut newer = runs.range(behind);
            !self.context.going.contains(&(fetcher, run)) && newer.all(|(_, it)| it.deleting)
        };
        let lists = record.newest_rows().filter(|row| is_newest(row.fetcher, row.run)).count();
        let out = record.flight.as_ref().map(|flight| flight.task.fetcher());
        let singles = record.singles.waiting + record.singles.failed + record.singles.dead;
        lists + usize::from(singles > 0 || out == Some(FetcherId::TASKS))
    }
}
