//! Whether a database is whole: what SQLite finds wrong, and what must hold between our tables.
//!
//! Called when a database is opened ([`missing`]), and by commands that check one ([`look_through`]). Nothing is
//! changed.

use std::sync::Arc;

use rusqlite::{Connection, Result};
use shiftboss_protocol::model::Key;
use shiftboss_queue::context::Context;
use shiftboss_queue::counts::Tally;
use shiftboss_queue::documents::{DAEMON, HOLDS, PLACES};
use shiftboss_queue::record::{Millis, Record};
use shiftboss_queue::records::{From, Header, StoreError, StoreResult, Stored};

use crate::ask::Ask;
use crate::documents::document;
use crate::error::classify;
use crate::load::Loader;
use crate::{header, schema, set_aside};

/// Records that are in memory at once.
const STEP_KEYS: usize = 1_000;
/// Most rows that were set aside that are named.
const NAMED_MAX: u32 = 100;
const SQLITES: &str =
    "SELECT integrity_check FROM pragma_integrity_check WHERE integrity_check <> 'ok'";
/// What a start needs: each returns a line if something is missing. Cheap.
const NEEDED: [&str; 4] = [
    "SELECT 'the table header lacks its row' WHERE NOT EXISTS (SELECT 1 FROM header)",
    "SELECT 'the table names lacks ' || count(*) || ' of the fetchers'
     FROM (SELECT DISTINCT fetcher FROM runs WHERE fetcher NOT IN (SELECT fetcher FROM names)) HAVING count(*) > 0",
    "SELECT 'the table runs lacks ' || count(*) || ' of the runs' FROM counts
     WHERE fetcher <> 0 AND rows > 0 AND (fetcher, run) NOT IN (SELECT fetcher, run FROM runs) HAVING count(*) > 0",
    "SELECT 'the table ' || lacking || ' is empty' FROM (
        SELECT 'keys' AS lacking WHERE NOT EXISTS (SELECT 1 FROM keys)
        UNION ALL SELECT 'counts' WHERE NOT EXISTS (SELECT 1 FROM counts))
     WHERE EXISTS (SELECT 1 FROM rows) OR EXISTS (SELECT 1 FROM tasks WHERE status NOT IN ('done', 'cancelled'))",
];
/// What must hold between the tables, besides the counts.
const INVARIANTS: [&str; 7] = [
    "SELECT count(*) || ' rows of lists without their keys' FROM rows
     WHERE key NOT IN (SELECT id FROM keys) HAVING count(*) > 0",
    "SELECT count(*) || ' single tasks without their keys' FROM tasks
     WHERE key NOT IN (SELECT id FROM keys) HAVING count(*) > 0",
    "SELECT count(*) || ' keys whose extras are missing, or nobody''s' FROM (
        SELECT id FROM keys WHERE extra = 1 AND id NOT IN (SELECT key FROM extras)
        UNION ALL SELECT key FROM extras WHERE key NOT IN (SELECT id FROM keys WHERE extra = 1))
     HAVING count(*) > 0",
    "SELECT count(*) || ' keys whose counts are not those of their single tasks' FROM keys
     WHERE (waiting, failed, dead) IS NOT (
        SELECT count(*) FILTER (WHERE status = 'waiting'), count(*) FILTER (WHERE status = 'failed'),
            count(*) FILTER (WHERE status = 'dead_letter')
        FROM tasks WHERE key = id)
     HAVING count(*) > 0",
    "SELECT count(*) || ' groups whose counts are not those of their keys' FROM groups WHERE waiting <> (
        SELECT count(*) FROM stands WHERE stands.grp = groups.grp AND line = -2) HAVING count(*) > 0",
    "SELECT count(*) || ' groups whose first key is another one than is noted' FROM (
        SELECT grp, line, min(at) AS at FROM stands WHERE grp <> 0 GROUP BY grp, line
        EXCEPT SELECT grp, line, at FROM heads
        UNION ALL SELECT grp, line, at FROM heads WHERE NOT EXISTS (SELECT 1 FROM stands
            WHERE (stands.grp, stands.line, stands.at, stands.key) = (heads.grp, heads.line, heads.at, heads.key)))
     HAVING count(*) > 0",
    "SELECT count(*) || ' rows of lists that would be handed out for ever' FROM rows
     WHERE armed > (SELECT last_attempt FROM header) HAVING count(*) > 0",
];
/// The header's numbers that new ones follow, and the highest one in use of each: of attempts, of single tasks, of
/// ends; and the ids of keys, which wrap around.
pub(crate) const NUMBERS: [(&str, &str); 4] = [
    (
        "last_attempt",
        "SELECT max(coalesce((SELECT max(last_attempt) FROM keys), 0), coalesce((SELECT max(attempt) FROM keys), 0),
            coalesce((SELECT max(attempt) FROM attempts), 0))",
    ),
    ("last_single", "SELECT coalesce(max(number), 0) FROM tasks"),
    ("ends", "SELECT coalesce(max(ended), 0) FROM attempts"),
    ("ids", "SELECT count(*) FROM keys"),
];
/// Nothing is wrong with these keys.
const AHEAD: &str = "SELECT count(*) || ' keys were started in the future, by a clock that was ahead: they count as started just now'
    FROM keys WHERE started > unixepoch() HAVING count(*) > 0";

#[derive(Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// It is damaged, and may not be used.
    pub damage: Vec<String>,
    /// Rows that were set aside, as far as they are named, and starts in the future.
    pub set_aside: Vec<String>,
}

/// What a database lacks, so that it cannot be used; cheap, for every start.
pub fn missing(connection: &Connection) -> StoreResult<Option<String>> {
    what_is_missing(connection).map_err(classify)
}

fn what_is_missing(connection: &Connection) -> Result<Option<String>> {
    if let Some((kind, name)) = schema::missing(connection)? {
        return Ok(Some(format!("the {kind} {name} is missing")));
    }
    for sql in NEEDED {
        if let Some(line) = connection.first(sql, [], |row| row.get(0))? {
            return Ok(Some(line));
        }
    }
    Ok(None)
}

/// Checks a whole database, ours or the supervisor's.
pub fn look_through(connection: &Connection) -> Findings {
    let mut found = Findings::default();
    if let Err(error) = find(connection, &mut found) {
        found.damage.push(error.to_string());
    }
    found
}

fn find(connection: &Connection, found: &mut Findings) -> Result<(), StoreError> {
    found.damage = connection.values(SQLITES, []).map_err(classify)?;
    if !found.damage.is_empty() || schema::whose(connection)? != schema::Whose::Ours {
        return Ok(());
    }
    if let Some(missing) = missing(connection)? {
        found.damage.push(missing);
        return Ok(());
    }
    for sql in INVARIANTS {
        found.damage.extend(connection.values::<String>(sql, []).map_err(classify)?);
    }
    found.damage.extend(wrong_numbers(connection).map_err(classify)?);
    found.damage.extend(wrong_records(connection)?);
    let rows = set_aside(connection, NAMED_MAX)?;
    found.set_aside.extend(rows.iter().map(ToString::to_string));
    found.set_aside.extend(connection.values::<String>(AHEAD, []).map_err(classify)?);
    Ok(())
}

/// Numbers that would be given again.
fn wrong_numbers(connection: &Connection) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for (number, sql) in &NUMBERS[..3] {
        let sql = format!(
            "SELECT 'the header''s {number} is ' || {number} || ', and there is ' || highest
             FROM header, (SELECT ({sql}) AS highest) WHERE {number} < highest"
        );
        found.extend(connection.values::<String>(&sql, [])?);
    }
    Ok(found)
}

/// Checks that counts are those of all records, and that every key that may be handed out, now or later, can be found
/// by its place.
fn wrong_records(connection: &Connection) -> StoreResult<Vec<String>> {
    let mut loader = Loader::new(connection);
    let header = header::load(connection).map_err(classify)?.header;
    let context = rules(connection, &header)?;
    let mut misplaced = 0;
    let mut standing = 0;
    let (mut counts, nothing) = (Tally::default(), Record::new(Key::stored("")));
    let mut behind = None;
    loop {
        let next = loader.next(From::All, behind.as_ref(), STEP_KEYS).map_err(classify)?;
        for it in &next {
            counts.change(&nothing, &it.record);
            let is_lost = context.as_ref().is_some_and(|context| is_lost(it, context));
            misplaced += usize::from(is_lost);
            standing += it.place.standings().len() as i64;
        }
        match next.into_iter().last() {
            None => break,
            last => behind = last,
        }
    }
    let stand: i64 = connection.value("SELECT count(*) FROM stands", []).map_err(classify)?;
    misplaced += usize::try_from(stand.abs_diff(standing)).unwrap_or(usize::MAX);
    let noted = header.counts;
    let is_other = |run: &&_| counts.0.get(run) != noted.0.get(run);
    let runs = counts.0.keys().chain(noted.0.keys().filter(|run| !counts.0.contains_key(run)));
    let wrong = runs.filter(is_other).count();
    let wrong =
        (wrong > 0).then(|| format!("{wrong} runs whose counts are not those of their rows"));
    let misplaced = (misplaced > 0).then(|| {
        format!("{misplaced} keys that wait are not in the order, and would never be handed out")
    });
    Ok(wrong.into_iter().chain(misplaced).collect())
}

/// The rules for keys' places, once all claims are over. `None`: the next daemon derives places anew, or goes on with that.
fn rules(connection: &Connection, header: &Header) -> StoreResult<Option<Context>> {
    let (places, daemon) = (document(connection, &PLACES)?, document(connection, &DAEMON)?);
    let daemon = daemon.filter(|daemon| places == Some(daemon.policy));
    let holds = document(connection, &HOLDS)?.unwrap_or_default();
    Ok(daemon.filter(|_| holds.carried.is_none()).map(|daemon| Context {
        holds: Arc::new(holds),
        ..header.context(&Arc::new(daemon.settings()), Millis::MAX)
    }))
}

/// Whether no index leads to the key, though it may be handed out, now or later.
fn is_lost(stored: &Stored, context: &Context) -> bool {
    let (place, noted) = (stored.record.place(context), &stored.place);
    noted.due.is_none() && (place.due.is_some() || place.order.is_some() && noted.order.is_none())
}
