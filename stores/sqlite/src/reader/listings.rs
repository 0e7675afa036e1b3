//! The read-only port for a queue in a file, one statement each: along an index, up to its count.

use std::fs::metadata;
use std::time::UNIX_EPOCH;

use rusqlite::{Error, Result, Row};
use shiftboss_protocol::answers::KnownKey;
use shiftboss_protocol::model::{Attempt, Key, UnixSeconds};
use shiftboss_queue::documents::{DAEMON, HOLDS};
use shiftboss_queue::groups::GroupId;
use shiftboss_queue::listings::{
    Along, Document, End, EndsOf, GroupSeen, Head, Listings, Spot, Summed, SumsOf, read,
};
use shiftboss_queue::record::{FetcherId, SingleStatus, Task};
use shiftboss_queue::records::{KeyId, Name, Payload, Stored};
use shiftboss_queue::sums::Hour;

use crate::ask::Ask;
use crate::header::{self, Kept};
use crate::load::{self, Loader, ends};
use crate::snapshot::{Moment, beside};
use crate::{code, documents, standings};

/// At most ?3 keys after the number ?1 and the id ?2.
fn statement(along: Along) -> &'static str {
    match along {
        Along::Order => load::TURNS,
        // Of the group ?4.
        Along::Group(_) => {
            "SELECT at, key FROM stands WHERE grp = ?4 AND line = -2 AND (at, key) > (?1, ?2)
            ORDER BY at, key LIMIT ?3"
        }
        Along::ClassicHeld => load::TURNS_HELD,
        Along::Lane => {
            "SELECT lane, key FROM extras WHERE lane IS NOT NULL AND (lane, key) > (?1, ?2)
            ORDER BY lane, key LIMIT ?3"
        }
        Along::Out => {
            "SELECT attempt, id FROM keys INDEXED BY in_flight WHERE attempt > ?1 ORDER BY attempt LIMIT ?3"
        }
        Along::Claimed => {
            "SELECT started, id FROM keys INDEXED BY claimed
            WHERE claimed = 1 AND finished IS NULL AND (started, id) > (?1, ?2) ORDER BY started, id LIMIT ?3"
        }
        Along::Delayed => {
            "SELECT delayed, key FROM extras WHERE delayed IS NOT NULL AND (delayed, key) > (?1, ?2)
            ORDER BY delayed, key LIMIT ?3"
        }
        Along::Dead => {
            "SELECT 0, key FROM extras WHERE dead = 1 AND key > ?2 ORDER BY key LIMIT ?3"
        }
        Along::Held => {
            "SELECT held, key FROM extras WHERE held IS NOT NULL AND (held, key) < (?1, ?2)
            ORDER BY held DESC, key DESC LIMIT ?3"
        }
        Along::BackedOff => {
            "SELECT backed_off, key FROM extras WHERE backed_off IS NOT NULL AND (backed_off, key) < (?1, ?2)
            ORDER BY backed_off DESC, key DESC LIMIT ?3"
        }
        // Of the fetcher ?4 and its run ?5.
        Along::Run(..) => {
            "SELECT 0, key FROM rows WHERE fetcher = ?4 AND run = ?5 AND key > ?2 ORDER BY key LIMIT ?3"
        }
        Along::Singles => {
            "SELECT DISTINCT 0, key FROM tasks WHERE key > ?2 ORDER BY key LIMIT ?3"
        }
        Along::Failed => {
            "SELECT failed_at, id FROM keys INDEXED BY failed
            WHERE failed_at IS NOT NULL AND (failed_at, id) < (?1, ?2) ORDER BY failed_at DESC, id DESC LIMIT ?3"
        }
    }
}

const KNOWN: &str = "SELECT key, started, exit_code FROM keys
    WHERE key >= ?1 AND (?2 IS NULL OR key < ?2)
        AND (started IS NOT NULL OR attempt IS NOT NULL OR waiting + failed + dead > 0
            OR EXISTS (SELECT 1 FROM rows WHERE rows.key = keys.id))
    ORDER BY key LIMIT ?3";
const BETWEEN: &str =
    "SELECT id FROM keys WHERE key >= ?1 AND (?2 IS NULL OR key < ?2) ORDER BY key LIMIT ?3";
/// Of all lists together.
pub(super) const LISTED: &str = "SELECT key FROM rows UNION SELECT key FROM tasks
    WHERE status IN ('waiting', 'in_flight', 'failed', 'dead_letter')";
const LAST_ID: &str = "SELECT coalesce(max(id), 0) FROM keys";
/// The first key at or after a random id among the ?2 ids from ?1 on.
const AT_CHANCE: &str =
    "SELECT id FROM keys WHERE id >= (SELECT ?1 + abs(random() % ?2)) ORDER BY id LIMIT 1";

const SINGLES_OF: &str =
    "SELECT number FROM tasks WHERE key = ?1 AND status = ?2 ORDER BY number LIMIT ?3";
const SINGLES: &str = "SELECT number, key FROM tasks
    WHERE status = ?1 AND status IN ('failed', 'dead_letter') AND number > ?2 ORDER BY number LIMIT ?3";

/// After ?1 and before ?2, with one of the outcomes ?3, of the fetcher ?4, ended since ?5.
const BACK: &str = ends!(
    "WHERE ended > ?1 AND ended < ?2 AND (?3 IS NULL OR outcome IN (SELECT value FROM json_each(?3)))
        AND (?4 IS NULL OR attempts.fetcher = ?4) AND ended_ms >= ?5 ORDER BY ended DESC LIMIT ?6"
);
const ONWARD: &str = ends!("WHERE ended > ?1 AND ended <= ?2 ORDER BY ended LIMIT ?3");
const FLOOR: &str =
    "SELECT ended FROM attempts WHERE ended < ?1 ORDER BY ended DESC LIMIT 1 OFFSET ?2 - 1";

/// Since the hour ?1, by fetcher if ?2, and by so many hours ?3, if that is not 0. What somebody wrote there may be too large: a fraction
/// that is no integer becomes the largest one.
macro_rules! hours {
    ($from:literal) => {
        concat!(
            "SELECT iif(?2, fetcher, NULL), iif(?3 > 0, CAST(hour / ?3 * ?3 * 3600 AS INTEGER), NULL), outcome,
                CAST(total(jobs) AS INTEGER), CAST(total(took_ms) AS INTEGER), CAST(total(revisits) AS INTEGER),
                CAST(total(revisit_seconds) AS INTEGER) FROM ",
            $from,
            " WHERE hour >= ?1 GROUP BY 1, 2, 3 HAVING total(jobs) > 0 ORDER BY 1, 2, 3 LIMIT ?4"
        )
    };
}
const OF_ALL: &str = hours!("hours");
/// Of the fetchers ?5: hour by hour, however many others there are.
const OF_FETCHERS: &str = hours!(
    "(WITH RECURSIVE asked (hour) AS (
        SELECT min(hour) FROM hours WHERE hour >= ?1
        UNION ALL SELECT (SELECT min(hour) FROM hours WHERE hour > asked.hour) FROM asked WHERE hour IS NOT NULL)
    SELECT kept.* FROM asked CROSS JOIN json_each(?5) AS wanted
    CROSS JOIN hours AS kept ON kept.hour = asked.hour AND kept.fetcher = wanted.value)"
);
/// The count may be negative after an edit by hand, because an edited end may not have been in any sum.
const MINUTES: &str = "SELECT minute, exit_code, jobs FROM minutes WHERE minute > ?1 AND jobs > 0";

fn limit(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn spot(row: &Row<'_>) -> Result<Spot> {
    Ok((row.get(0)?, KeyId(row.get(1)?)))
}

fn summed(row: &Row<'_>) -> Result<Summed> {
    Ok(Summed {
        fetcher: row.get::<_, Option<i64>>(0)?.map(FetcherId),
        since: row.get(1)?,
        outcome: load::outcome(row, 2)?,
        sums: Hour {
            jobs: row.get(3)?,
            took_ms: row.get(4)?,
            revisits: row.get(5)?,
            revisit_seconds: row.get(6)?,
        },
    })
}

impl Moment {
    /// The time of the log's file, or of the database's.
    fn last_write(&self) -> Option<UnixSeconds> {
        let written = |path| metadata(path).and_then(|found| found.modified()).ok();
        let last = written(beside(self.path(), "-wal")).max(written(self.path().to_owned()))?;
        i64::try_from(last.duration_since(UNIX_EPOCH).ok()?.as_secs()).ok()
    }
}

impl Listings for Moment {
    type Error = Error;

    async fn head(&mut self) -> Result<Head> {
        let Kept { header, .. } = header::load(self.connection())?;
        let schema_version = self.connection().value("PRAGMA user_version", ())?;
        let (daemon, last_write) =
            (documents::all(self.connection(), DAEMON.name())?, self.last_write());
        let daemon = read(&DAEMON, &daemon).pop().map(|(_, it)| it);
        let holds = documents::all(self.connection(), HOLDS.name())?;
        let holds = read(&HOLDS, &holds).pop().map(|(_, it)| it).unwrap_or_default();
        Ok(Head { header, daemon, schema_version, holds, last_write, now: None })
    }

    async fn documents(&mut self, prefixes: &[&str]) -> Result<Vec<Document>> {
        let found = prefixes.iter().map(|prefix| documents::all(self.connection(), prefix));
        Ok(found.collect::<Result<Vec<_>>>()?.concat())
    }

    async fn owners(&mut self) -> Result<Vec<(String, i64)>> {
        let sql = "SELECT owner, count(*) FROM keys INDEXED BY in_flight
            WHERE attempt > 0 AND owner IS NOT NULL GROUP BY owner";
        self.connection().rows(sql, (), |row| row.try_into())
    }

    async fn keys(
        &mut self,
        along: Along,
        behind: Option<Spot>,
        count: usize,
    ) -> Result<Vec<Spot>> {
        let end = if along.is_backward() { i64::MAX } else { i64::MIN };
        let (at, KeyId(key)) = behind.unwrap_or((end, KeyId(end)));
        let (sql, most) = (statement(along), limit(count));
        let mut spots = match along {
            Along::Run(fetcher, run) => {
                self.connection().rows(sql, (at, key, most, fetcher.0, run), spot)?
            }
            Along::Group(group) => self.connection().rows(sql, (at, key, most, group.0), spot)?,
            _ => self.connection().rows(sql, (at, key, most), spot)?,
        };
        if along == Along::Order {
            spots.extend(self.connection().rows(load::TURNS_IN_GROUPS, (at, key, most), spot)?);
            spots.sort_unstable();
            spots.truncate(count);
        }
        Ok(spots)
    }

    async fn records(&mut self, ids: &[KeyId]) -> Result<Vec<Stored>> {
        let mut loader = Loader::new(self.connection());
        ids.iter().filter_map(|id| loader.by_id(*id).transpose()).collect()
    }

    async fn named(&mut self, keys: &[Key]) -> Result<Vec<Option<Stored>>> {
        let mut loader = Loader::new(self.connection());
        keys.iter().map(|key| loader.named(&Name::Key(key.clone()))).collect()
    }

    async fn known(
        &mut self,
        from: &str,
        before: Option<&str>,
        count: usize,
    ) -> Result<Vec<KnownKey>> {
        self.connection().rows(KNOWN, (from, before, limit(count)), |row| {
            Ok(KnownKey { key: row.get(0)?, last_started: row.get(1)?, exit_code: row.get(2)? })
        })
    }

    async fn between(
        &mut self,
        from: &str,
        before: Option<&str>,
        count: usize,
    ) -> Result<Vec<KeyId>> {
        Ok(self
            .connection()
            .values(BETWEEN, (from, before, limit(count)))?
            .into_iter()
            .map(KeyId)
            .collect())
    }

    async fn listed(&mut self) -> Result<Vec<KeyId>> {
        Ok(self.connection().values(LISTED, ())?.into_iter().map(KeyId).collect())
    }

    async fn sample(&mut self, parts: usize) -> Result<Vec<KeyId>> {
        let width = self.connection().value::<i64>(LAST_ID, ())? / limit(parts.max(1)) + 1;
        let at_chance = |part| {
            let values = (part * width, width);
            self.connection().first(AT_CHANCE, values, |row| row.get(0).map(KeyId))
        };
        (0..limit(parts)).filter_map(|part| at_chance(part).transpose()).collect()
    }

    async fn groups(&mut self, kind: i64, count: usize) -> Result<Vec<GroupSeen>> {
        standings::of_kind(self.connection(), kind, limit(count))
    }

    async fn group(&mut self, id: GroupId) -> Result<Option<GroupSeen>> {
        standings::look_at(self.connection(), id)
    }

    async fn group_counts(&mut self) -> Result<Vec<(i64, i64, i64)>> {
        standings::counts(self.connection())
    }

    async fn payloads(&mut self, tasks: &[(KeyId, Task)]) -> Result<Vec<Payload>> {
        let loader = Loader::new(self.connection());
        tasks.iter().map(|(id, task)| loader.payload(*id, *task)).collect()
    }

    async fn singles_of(
        &mut self,
        key: KeyId,
        status: SingleStatus,
        count: usize,
    ) -> Result<Vec<i64>> {
        self.connection().values(SINGLES_OF, (key.0, status.word(), limit(count)))
    }

    async fn singles(
        &mut self,
        status: SingleStatus,
        behind: i64,
        count: usize,
    ) -> Result<Vec<Spot>> {
        self.connection().rows(SINGLES, (status.word(), behind, limit(count)), spot)
    }

    async fn ends(&mut self, of: &EndsOf<'_>) -> Result<Vec<End>> {
        let outcomes = (!of.outcomes.is_empty()).then(|| code::json(&of.outcomes)).transpose()?;
        let fetcher = of.fetcher.map(|id| id.0);
        let values = (of.above, of.before, outcomes, fetcher, of.since, limit(of.count));
        self.connection().rows(BACK, values, load::end)
    }

    async fn last_end(&mut self) -> Result<i64> {
        let ends = self.connection().first("SELECT ends FROM header", (), |row| row.get(0));
        Ok(ends?.unwrap_or_default())
    }

    async fn ends_behind(&mut self, number: i64, upto: i64, count: usize) -> Result<Vec<End>> {
        self.connection().rows(ONWARD, (number, upto, limit(count)), load::end)
    }

    async fn floor(&mut self, before: i64, count: usize) -> Result<Option<i64>> {
        self.connection().first(FLOOR, (before, limit(count)), |row| row.get(0))
    }

    async fn chain(&mut self, last: Attempt, count: usize) -> Result<Vec<End>> {
        let mut chain: Vec<End> = Vec::new();
        let mut next = Some(last);
        while let Some(Attempt(attempt)) = next.filter(|_| chain.len() < count)
            && let Some(end) = self.connection().first(load::END, [attempt], load::end)?
        {
            next = Some(end.attempt.previous).filter(|before| before.0 < attempt);
            chain.push(end);
        }
        Ok(chain)
    }

    async fn hours(&mut self, of: &SumsOf<'_>) -> Result<Vec<Summed>> {
        let (by, most) = (of.by_fetcher, limit(of.count));
        let Some(fetchers) = of.fetchers else {
            return self.connection().rows(OF_ALL, (of.since, by, of.hours, most), summed);
        };
        let ids = code::json(&fetchers.iter().map(|it| it.0).collect::<Vec<_>>())?;
        self.connection().rows(OF_FETCHERS, (of.since, by, of.hours, most, ids), summed)
    }

    async fn minutes(&mut self, behind: i64) -> Result<Vec<(i64, i64, i64)>> {
        let read = |row: &Row<'_>| row.try_into();
        self.connection().rows(MINUTES, [behind], read)
    }
}
