//! The read-only port for a queue on a server: one statement each, along an index, up to its count, in one snapshot
//! that locks nothing. `shiftboss_queue::look` answers the questions; connecting is not decided here.

use std::time::Duration;

use shiftboss_protocol::answers::KnownKey;
use shiftboss_protocol::model::{Attempt, Key};
use shiftboss_queue::documents::{DAEMON, Gone, HOLDS};
use shiftboss_queue::groups::GroupId;
use shiftboss_queue::listings::{
    Along, Document, End, EndsOf, GroupSeen, Head, Joined, Listings, Spot, Summed, SumsOf, read,
};
use shiftboss_queue::record::{FetcherId, SingleStatus, Task};
use shiftboss_queue::records::{KeyId, Payload, StoreError, StoreResult, Stored};
use shiftboss_queue::sums::Hour;
use tokio_postgres::types::FromSql;
use tokio_postgres::{Client, Row};

use crate::error::{classify, odd};
use crate::header::{self, whole};
use crate::load::{self, CLAIMED, HELD, IN_FLIGHT, both, documents, ends};
use crate::wire::{Ask, Wire, ask};

/// Does not wait for an administrator's lock on a table, or for a migration.
const BEGIN: &str =
    "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL lock_timeout = '1s'";

/// Keys of a kind of place, at most $4 after the number $2 and the id $3.
const PLACES: &str =
    "SELECT at, key FROM places WHERE kind = $1 AND (at, key) > ($2::int8, $3::int8)
    ORDER BY at, key LIMIT $4::int8";
/// Keys in order, in groups or not, at most $3 after the number $1 and the id $2.
const IN_ORDER: &str = "(SELECT at, key FROM places WHERE kind = 1 AND (at, key) > ($1::int8, $2::int8) ORDER BY at, key LIMIT $3::int8)
    UNION ALL (SELECT at, key FROM places WHERE kind = 6 AND (at, key) > ($1, $2) ORDER BY at, key LIMIT $3)
    ORDER BY 1, 2 LIMIT $3";
/// Keys of the group $1.
const IN_GROUP: &str = "SELECT at, key FROM stands
    WHERE grp = $1::int8 AND line = -2 AND (at, key) > ($2::int8, $3::int8) ORDER BY at, key LIMIT $4::int8";
/// The same backward.
const PLACES_BACK: &str =
    "SELECT at, key FROM places WHERE kind = $1 AND (at, key) < ($2::int8, $3::int8)
    ORDER BY at DESC, key DESC LIMIT $4::int8";
/// Keys with extras, at most $3 after the number $1 and the id $2.
const LANE: &str = "SELECT lane, key FROM extras
    WHERE lane IS NOT NULL AND (lane, key) > ($1::int8, $2::int8) ORDER BY lane, key LIMIT $3::int8";
const DELAYED: &str = "SELECT delayed, key FROM extras
    WHERE delayed IS NOT NULL AND (delayed, key) > ($1::int8, $2::int8) ORDER BY delayed, key LIMIT $3::int8";
const OPERATORS: &str = "SELECT held, key FROM extras
    WHERE held IS NOT NULL AND (held, key) < ($1::int8, $2::int8) ORDER BY held DESC, key DESC LIMIT $3::int8";
const BACKED_OFF: &str = "SELECT backed_off, key FROM extras WHERE backed_off IS NOT NULL AND (backed_off, key) < ($1::int8, $2::int8)
    ORDER BY backed_off DESC, key DESC LIMIT $3::int8";
const DEAD: &str = "SELECT $1::int8 * 0, key FROM extras WHERE dead AND key > $2::int8 ORDER BY key LIMIT $3::int8";

const GROUPS_OF_KIND: &str = "SELECT state, in_flight, waiting, tasks, grp, kind, opens FROM groups
    WHERE kind = $1 ORDER BY waiting DESC, grp DESC LIMIT $2::int8";
const GROUP: &str =
    "SELECT state, in_flight, waiting, tasks, grp, kind, opens FROM groups WHERE grp = $1";
const GROUP_COUNTS: &str = "SELECT kind, count(*), sum(waiting)::int8 FROM groups GROUP BY kind";

/// An index entry has no room for more than the beginning of a key.
const KNOWN: &str = "SELECT key, started, exit_code FROM keys k
    WHERE substr(key, 1, 64) >= substr($1::bytea, 1, 64) AND substr(key, 1, 64) <= substr($2::bytea, 1, 64) AND key >= $1 AND key < $2
        AND (started IS NOT NULL OR attempt IS NOT NULL OR waiting + failed + dead > 0
            OR EXISTS (SELECT FROM rows WHERE rows.key = k.id))
    ORDER BY substr(key, 1, 64), key LIMIT $3::int8";
const BETWEEN: &str = "SELECT id FROM keys
    WHERE substr(key, 1, 64) >= substr($1::bytea, 1, 64) AND substr(key, 1, 64) <= substr($2::bytea, 1, 64) AND key >= $1 AND key < $2
    ORDER BY substr(key, 1, 64), key LIMIT $3::int8";
/// Behind all texts: none has such a byte.
const NO_TEXT: &[u8] = &[0xff];
const OF_RUN: &str =
    "SELECT 0::int8, key FROM rows WHERE fetcher = $1 AND run = $2 AND key > $3::int8
    ORDER BY key LIMIT $4::int8";
const WITH_SINGLES: &str =
    "SELECT DISTINCT 0::int8, key FROM tasks WHERE key > $1::int8 ORDER BY key LIMIT $2::int8";
const LISTED: &str = "SELECT key FROM rows UNION SELECT key FROM tasks
    WHERE status IN ('waiting', 'in_flight', 'failed', 'dead_letter')";
/// The first key at or after a random id in each of $1 equal ranges of all ids.
const SAMPLE: &str = "SELECT chosen.id FROM (SELECT coalesce(max(id), 0) / $1::int8 AS width FROM keys) AS all_ids
    CROSS JOIN generate_series(0, $1 - 1) AS part
    CROSS JOIN LATERAL (SELECT part * width + (random() * width)::int8 AS point OFFSET 0) AS chance
    CROSS JOIN LATERAL (SELECT id FROM keys WHERE id >= chance.point ORDER BY id LIMIT 1) AS chosen";
/// Each with its position in the question.
const PAYLOADS: &str = "SELECT x.n, r.payload FROM unnest($1::int8[], $2::int8[], $3::int8[]) WITH ORDINALITY AS x (key, fetcher, run, n)
        JOIN rows r ON r.key = x.key AND r.fetcher = x.fetcher AND r.run = x.run
    UNION ALL SELECT x.n, t.payload FROM unnest($1, $2, $3) WITH ORDINALITY AS x (key, fetcher, run, n)
        JOIN tasks t ON t.number = x.run WHERE x.fetcher = 0";
const SINGLES_OF: &str =
    "SELECT number FROM tasks WHERE key = $1 AND status = $2 ORDER BY number LIMIT $3::int8";
const SINGLES: &str = "SELECT number, key FROM tasks
    WHERE status = $1 AND status IN ('failed', 'dead_letter') AND number > $2 ORDER BY number LIMIT $3::int8";

const BACK: &str = ends!(
    "SELECT * FROM attempts WHERE ended > $1 AND ended < $2 AND ($3::text[] IS NULL OR outcome = ANY ($3)) AND ($4::int8 IS NULL OR fetcher = $4)
        AND ended_ms >= $5 ORDER BY ended DESC LIMIT $6::int8",
    "ORDER BY ended DESC"
);
const ONWARD: &str = ends!(
    "SELECT * FROM attempts WHERE ended > $1 AND ended <= $2 ORDER BY ended LIMIT $3::int8",
    "ORDER BY ended"
);
const CHAIN: &str = ends!(
    "WITH RECURSIVE chain AS (
        SELECT *, 1::int8 AS n FROM attempts WHERE attempt = $1
        UNION ALL SELECT before.*, chain.n + 1 FROM chain
            CROSS JOIN LATERAL (SELECT * FROM attempts WHERE attempt = chain.previous OFFSET 0) AS before
            WHERE chain.n < $2::int8 AND before.attempt < chain.attempt)
    SELECT * FROM chain",
    "ORDER BY n"
);
const FLOOR: &str =
    "SELECT ended FROM attempts WHERE ended < $1 ORDER BY ended DESC LIMIT 1 OFFSET $2::int8 - 1";
const LAST_DRAWN: &str = "SELECT last_value FROM ends";
/// The number drawn last may not belong to an end: its batch may have been rolled back, or this is a standby, where a
/// sequence runs ahead.
const LAST_END: &str = "SELECT coalesce(max(ended), 0) FROM attempts WHERE ended <= $1";
/// Batches under way: each holds the queue's lock to its end.
const BATCHES: &str = "SELECT virtualtransaction FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 1
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND classid = 0 AND objid = 'keys'::regclass::oid";

/// Since the hour $1, by fetcher if $2, and in groups of $3 hours, if that is not 0; for the fetchers $5.
const HOURS: &str = concat!(
    "SELECT CASE WHEN $2::bool THEN fetcher END, CASE WHEN $3::int8 > 0 THEN ",
    whole!("(hour / $3 * $3)::numeric * 3600"),
    " END, outcome, ",
    whole!("sum(jobs)"),
    ", ",
    whole!("sum(took_ms)"),
    ", ",
    whole!("sum(revisits)"),
    ", ",
    whole!("sum(revisit_seconds)"),
    " FROM hours WHERE hour >= $1 AND ($5::int8[] IS NULL OR fetcher = ANY ($5))
    GROUP BY 1, 2, 3 HAVING sum(jobs) > 0 ORDER BY 1, 2, 3 LIMIT $4::int8"
);
const MINUTES: &str = concat!(
    "SELECT minute, exit_code, ",
    whole!("sum(jobs)"),
    " FROM minutes WHERE minute > $1 GROUP BY minute, exit_code HAVING sum(jobs) > 0"
);

const OWNERS: &str = "SELECT k.owner, count(*) FROM places p JOIN keys k ON k.id = p.key
    WHERE p.kind = 3 AND k.owner IS NOT NULL GROUP BY k.owner";
const DAEMONS: &str =
    "SELECT name, process, pid, version, started, beat_at, gone, gone_at, socket FROM daemons";

/// How often to look whether a batch has ended, and how often at most.
const LOOK_EVERY: Duration = Duration::from_millis(3);
const LOOKS_MAX: usize = 1_500;

/// One moment of a queue.
pub struct Moment {
    wire: Wire,
    /// The program's schema version.
    schema_version: i64,
    /// The server's clock counts, and not the caller's.
    has_clock: bool,
}

impl Moment {
    /// A moment of the queue of a connection: that of the snapshot of its first question.
    pub async fn of(client: Client, schema_version: i64) -> StoreResult<Self> {
        let moment = Self { wire: Wire::new(client), schema_version, has_clock: true };
        moment.begin("").await?;
        Ok(moment)
    }

    pub fn client(&self) -> &Client {
        &self.wire.client
    }

    /// Uses the caller's time: for tests, whose time is not the server's.
    #[must_use]
    pub fn without_clock(self) -> Self {
        Self { has_clock: false, ..self }
    }

    async fn begin(&self, before: &str) -> StoreResult<()> {
        self.client().batch_execute(&format!("{before}{BEGIN}")).await.map_err(classify)
    }

    async fn rows<T>(
        &mut self,
        ask: Ask,
        read: impl FnMut(&Row) -> StoreResult<T>,
    ) -> StoreResult<Vec<T>> {
        let rows = self.wire.send(vec![ask]).await?.pop().unwrap_or_default();
        rows.iter().map(read).collect()
    }

    /// The first column.
    async fn values<T: for<'r> FromSql<'r>>(&mut self, ask: Ask) -> StoreResult<Vec<T>> {
        self.rows(ask, |row| get(row, 0)).await
    }

    async fn found(&mut self, ask: Ask) -> StoreResult<Vec<Stored>> {
        let rows = self.wire.send(vec![ask]).await?.pop().unwrap_or_default();
        Ok(load::found(&rows)?.into_iter().map(|it| it.stored).collect())
    }
}

fn get<'r, T: FromSql<'r>>(row: &'r Row, at: usize) -> StoreResult<T> {
    row.try_get(at).map_err(classify)
}

fn limit(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn spot(row: &Row) -> StoreResult<Spot> {
    Ok((get(row, 0)?, KeyId(get(row, 1)?)))
}

fn known(row: &Row) -> StoreResult<KnownKey> {
    let key = load::text(get(row, 0)?)?.to_owned();
    Ok(KnownKey { key, last_started: get(row, 1)?, exit_code: get(row, 2)? })
}

fn joined(row: &Row) -> StoreResult<Joined> {
    let gone: Option<&str> = get(row, 6)?;
    Ok(Joined {
        name: get(row, 0)?,
        process: get(row, 1)?,
        pid: get(row, 2)?,
        version: get(row, 3)?,
        started: get(row, 4)?,
        beat_at: get(row, 5)?,
        gone: gone.map(|word| if word == "stopped" { Gone::Stopped } else { Gone::Silent }),
        gone_at: get(row, 7)?,
        socket: get(row, 8)?,
    })
}

fn summed(row: &Row) -> StoreResult<Summed> {
    let sums = Hour {
        jobs: get(row, 3)?,
        took_ms: get(row, 4)?,
        revisits: get(row, 5)?,
        revisit_seconds: get(row, 6)?,
    };
    let fetcher = get::<Option<i64>>(row, 0)?.map(FetcherId);
    Ok(Summed { fetcher, since: get(row, 1)?, outcome: load::outcome(row, 2)?, sums })
}

fn seen(row: &Row) -> StoreResult<GroupSeen> {
    Ok(GroupSeen { group: load::group(row)?.1, kind: get(row, 5)?, opens: get(row, 6)? })
}

impl Listings for Moment {
    type Error = StoreError;

    async fn head(&mut self) -> StoreResult<Head> {
        let asks = [header::LOOK, header::NAMES, header::RUNS, header::COUNTS_OF_RUNS];
        let asks = asks
            .map(|sql| ask!(sql))
            .into_iter()
            .chain([DAEMON.name(), HOLDS.name()].map(documents));
        let mut answers = self.wire.send(asks.collect()).await?.into_iter();
        let mut next = || answers.next().unwrap_or_default();
        let (numbers, names, runs, counts) = (next(), next(), next(), next());
        let daemon: Vec<Document> = next().iter().map(both).collect::<StoreResult<_>>()?;
        let daemon = read(&DAEMON, &daemon).pop().map(|(_, it)| it);
        let holds: Vec<Document> = next().iter().map(both).collect::<StoreResult<_>>()?;
        let holds = read(&HOLDS, &holds).pop().map(|(_, it)| it).unwrap_or_default();
        let numbers = numbers.first().ok_or_else(|| odd("there is no header"))?;
        let header = header::read(numbers, &names, &runs, &counts)?;
        let now = get::<i64>(numbers, 9).map(|now| self.has_clock.then_some(now))?;
        let schema_version = self.schema_version;
        Ok(Head { header, daemon, schema_version, holds, last_write: None, now })
    }

    async fn documents(&mut self, prefixes: &[&str]) -> StoreResult<Vec<Document>> {
        let found =
            self.wire.send(prefixes.iter().map(|prefix| documents(prefix)).collect()).await?;
        found.iter().flatten().map(both).collect()
    }

    async fn daemons(&mut self) -> StoreResult<Vec<Joined>> {
        self.rows(ask!(DAEMONS), joined).await
    }

    async fn owners(&mut self) -> StoreResult<Vec<(String, i64)>> {
        self.rows(ask!(OWNERS), |row| Ok((get(row, 0)?, get(row, 1)?))).await
    }

    async fn keys(
        &mut self,
        along: Along,
        behind: Option<Spot>,
        count: usize,
    ) -> StoreResult<Vec<Spot>> {
        let end = if along.is_backward() { i64::MAX } else { i64::MIN };
        let ((at, KeyId(key)), count) = (behind.unwrap_or((end, KeyId(end))), limit(count));
        let ask = match along {
            Along::Order => ask!(IN_ORDER, at, key, count),
            Along::Group(group) => ask!(IN_GROUP, group.0, at, key, count),
            Along::ClassicHeld => ask!(PLACES, HELD, at, key, count),
            Along::Out => ask!(PLACES, IN_FLIGHT, at, key, count),
            Along::Claimed => ask!(PLACES, CLAIMED, at, key, count),
            Along::Failed => ask!(PLACES_BACK, load::FAILED, at, key, count),
            Along::Lane => ask!(LANE, at, key, count),
            Along::Delayed => ask!(DELAYED, at, key, count),
            Along::Held => ask!(OPERATORS, at, key, count),
            Along::BackedOff => ask!(BACKED_OFF, at, key, count),
            Along::Dead => ask!(DEAD, 0_i64, key, count),
            Along::Run(fetcher, run) => ask!(OF_RUN, fetcher.0, run, key, count),
            Along::Singles => ask!(WITH_SINGLES, key, count),
        };
        self.rows(ask, spot).await
    }

    async fn records(&mut self, ids: &[KeyId]) -> StoreResult<Vec<Stored>> {
        let ids: Vec<i64> = ids.iter().map(|id| id.0).collect();
        self.found(ask!(load::LOOK_AT_IDS, ids)).await
    }

    async fn named(&mut self, keys: &[Key]) -> StoreResult<Vec<Option<Stored>>> {
        let texts: Vec<Vec<u8>> = keys.iter().map(|key| key.as_str().as_bytes().to_vec()).collect();
        let found = self.found(ask!(load::LOOK_AT_KEYS, texts)).await?;
        let of = |key: &Key| found.iter().find(|it| it.record.key == *key).cloned();
        Ok(keys.iter().map(of).collect())
    }

    async fn known(
        &mut self,
        from: &str,
        before: Option<&str>,
        count: usize,
    ) -> StoreResult<Vec<KnownKey>> {
        let before = before.map_or(NO_TEXT.to_vec(), |text| text.as_bytes().to_vec());
        let ask = ask!(KNOWN, from.as_bytes().to_vec(), before, limit(count));
        self.rows(ask, known).await
    }

    async fn between(
        &mut self,
        from: &str,
        before: Option<&str>,
        count: usize,
    ) -> StoreResult<Vec<KeyId>> {
        let before = before.map_or(NO_TEXT.to_vec(), |text| text.as_bytes().to_vec());
        let ids =
            self.values(ask!(BETWEEN, from.as_bytes().to_vec(), before, limit(count))).await?;
        Ok(ids.into_iter().map(KeyId).collect())
    }

    async fn listed(&mut self) -> StoreResult<Vec<KeyId>> {
        Ok(self.values(ask!(LISTED)).await?.into_iter().map(KeyId).collect())
    }

    async fn sample(&mut self, parts: usize) -> StoreResult<Vec<KeyId>> {
        let ids = self.values(ask!(SAMPLE, limit(parts.max(1)))).await?;
        Ok(ids.into_iter().map(KeyId).collect())
    }

    async fn groups(&mut self, kind: i64, count: usize) -> StoreResult<Vec<GroupSeen>> {
        self.rows(ask!(GROUPS_OF_KIND, kind, limit(count)), seen).await
    }

    async fn group(&mut self, id: GroupId) -> StoreResult<Option<GroupSeen>> {
        Ok(self.rows(ask!(GROUP, id.0), seen).await?.pop())
    }

    async fn group_counts(&mut self) -> StoreResult<Vec<(i64, i64, i64)>> {
        self.rows(ask!(GROUP_COUNTS), |row| Ok((get(row, 0)?, get(row, 1)?, get(row, 2)?))).await
    }

    async fn payloads(&mut self, tasks: &[(KeyId, Task)]) -> StoreResult<Vec<Payload>> {
        let (mut keys, mut fetchers, mut runs) = (Vec::new(), Vec::new(), Vec::new());
        for (key, task) in tasks {
            let (fetcher, run) = shiftboss_queue::code::task(*task);
            keys.push(key.0);
            fetchers.push(fetcher);
            runs.push(run);
        }
        let mut payloads = vec![Payload::Missing; tasks.len()];
        let read = |row: &Row| Ok((get::<i64>(row, 0)?, load::payload(get(row, 1)?)));
        for (place, payload) in self.rows(ask!(PAYLOADS, keys, fetchers, runs), read).await? {
            let place = usize::try_from(place - 1).unwrap_or(usize::MAX);
            payloads.get_mut(place).into_iter().for_each(|it| it.clone_from(&payload));
        }
        Ok(payloads)
    }

    async fn singles_of(
        &mut self,
        key: KeyId,
        status: SingleStatus,
        count: usize,
    ) -> StoreResult<Vec<i64>> {
        self.values(ask!(SINGLES_OF, key.0, status.word(), limit(count))).await
    }

    async fn singles(
        &mut self,
        status: SingleStatus,
        behind: i64,
        count: usize,
    ) -> StoreResult<Vec<Spot>> {
        self.rows(ask!(SINGLES, status.word(), behind, limit(count)), spot).await
    }

    async fn ends(&mut self, of: &EndsOf<'_>) -> StoreResult<Vec<End>> {
        let outcomes = (!of.outcomes.is_empty()).then(|| of.outcomes.to_vec());
        let fetcher = of.fetcher.map(|id| id.0);
        let ask = ask!(BACK, of.above, of.before, outcomes, fetcher, of.since, limit(of.count));
        self.rows(ask, load::end).await
    }

    async fn ends_behind(&mut self, number: i64, upto: i64, count: usize) -> StoreResult<Vec<End>> {
        self.rows(ask!(ONWARD, number, upto, limit(count)), load::end).await
    }

    /// A number is drawn before its batch is committed, and batches overtake each other: waits for those that were
    /// under way, so that this is a later moment then.
    async fn last_end(&mut self) -> StoreResult<i64> {
        let drawn: Vec<i64> = self.values(ask!(LAST_DRAWN)).await?;
        let mut batches: Vec<String> = self.values(ask!(BATCHES)).await?;
        for _ in 0..LOOKS_MAX {
            if batches.is_empty() {
                self.begin("ROLLBACK; ").await?;
                let drawn = drawn.into_iter().max().unwrap_or(0);
                return Ok(self.values(ask!(LAST_END, drawn)).await?.pop().unwrap_or(0));
            }
            tokio::time::sleep(LOOK_EVERY).await;
            let now: Vec<String> = self.values(ask!(BATCHES)).await?;
            batches.retain(|batch| now.contains(batch));
        }
        Err(StoreError::Busy("a daemon does not end what it writes".to_owned()))
    }

    async fn floor(&mut self, before: i64, count: usize) -> StoreResult<Option<i64>> {
        Ok(self.values(ask!(FLOOR, before, limit(count.max(1)))).await?.pop())
    }

    async fn chain(&mut self, last: Attempt, count: usize) -> StoreResult<Vec<End>> {
        self.rows(ask!(CHAIN, last.0, limit(count)), load::end).await
    }

    async fn hours(&mut self, of: &SumsOf<'_>) -> StoreResult<Vec<Summed>> {
        let fetchers: Option<Vec<i64>> = of.fetchers.map(|ids| ids.iter().map(|it| it.0).collect());
        let ask = ask!(HOURS, of.since, of.by_fetcher, of.hours, limit(of.count), fetchers);
        self.rows(ask, summed).await
    }

    async fn minutes(&mut self, behind: i64) -> StoreResult<Vec<(i64, i64, i64)>> {
        let read = |row: &Row| Ok((get(row, 0)?, get(row, 1)?, get(row, 2)?));
        self.rows(ask!(MINUTES, behind), read).await
    }
}
