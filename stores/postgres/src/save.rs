//! Writing records: columns of a few statements for everything that a batch changed.

use std::collections::{BTreeSet, HashMap};

use shiftboss_protocol::fetcher_file::checksum;
use shiftboss_protocol::model::Key;
use shiftboss_queue::attempt::EndedAttempt;
use shiftboss_queue::code;
use shiftboss_queue::place::{Place, Standing};
use shiftboss_queue::record::{ListRow, Record, SingleEdit};
use shiftboss_queue::records::{Change, GroupChange, KeyId, Stored};
use shiftboss_queue::standing::Listed;

use crate::front::At;
use crate::load::{CLAIMED, FAILED, GROUPED, HELD, IN_FLIGHT, READY};
use crate::wire::{Ask, ask, columns, put};

/// The columns of a record's fixed part, in the order of [`Keys`].
macro_rules! keys {
    ($before:literal, $after:literal) => {
        concat!(
            $before,
            "unnest($1::int8[], $2::bytea[], $3::int8[], $4::int8[], $5::int8[], $6::int8[], $7::bool[], $8::text[], $9::int8[],
                $10::int8[], $11::int8[], $12::int8[], $13::int8[], $14::int8[], $15::int8[], $16::text[], $17::int8[],
                $18::int8[], $19::text[], $20::text[], $21::int8[], $22::int8[], $23::bool[], $24::int8[], $25::int8[], $26::text[])",
            $after
        )
    };
}
const INSERT_KEYS: &str = keys!(
    "INSERT INTO keys (id, key, since, started, finished, exit_code, claimed, served, waiting, failed, dead, last_attempt, attempt,
        fetcher, run, worker, lease, started_ms, owner, before, turn, held, extra, failed_at, single_group, routes) SELECT * FROM ",
    ""
);
const UPDATE_KEYS: &str = keys!(
    "UPDATE keys k SET since = s.since, started = s.started, finished = s.finished, exit_code = s.exit_code, claimed = s.claimed,
        served = s.served, waiting = s.waiting, failed = s.failed, dead = s.dead, last_attempt = s.last_attempt,
        attempt = s.attempt, fetcher = s.fetcher, run = s.run, worker = s.worker, lease = s.lease,
        started_ms = s.started_ms, owner = s.owner, before = s.before, turn = s.turn, held = s.held, extra = s.extra,
        failed_at = s.failed_at, single_group = s.single_group, routes = s.routes FROM ",
    " AS s (id, key, since, started, finished, exit_code, claimed, served, waiting, failed, dead, last_attempt, attempt, fetcher,
        run, worker, lease, started_ms, owner, before, turn, held, extra, failed_at, single_group, routes) WHERE k.id = s.id"
);
columns! { Keys {
    id: i64, key: Vec<u8>, since: Option<i64>, started: Option<i64>, finished: Option<i64>, exit_code: Option<i64>,
    claimed: bool, served: String, waiting: i64, failed: i64, dead: i64, last_attempt: i64, attempt: Option<i64>,
    fetcher: Option<i64>, run: Option<i64>, worker: Option<String>, lease: Option<i64>, started_ms: Option<i64>,
    owner: Option<String>, before: Option<String>, turn: Option<i64>, held: i64, extra: bool,
    failed_at: Option<i64>, single_group: Option<i64>, routes: Option<String>,
}}

const INSERT_PLACES: &str = "INSERT INTO places (kind, at, key)
    SELECT * FROM unnest($1::int2[], $2::int8[], $3::int8[])";
const DELETE_PLACES: &str =
    "DELETE FROM places p USING unnest($1::int2[], $2::int8[], $3::int8[]) AS s (kind, at, key)
    WHERE p.kind = s.kind AND p.at = s.at AND p.key = s.key";
columns! { Places { kind: i16, at: i64, key: i64 }}

/// Those with a payload.
const PUT_ROWS: &str = "INSERT INTO rows (key, fetcher, run, armed, reading, payload, grp)
    SELECT * FROM unnest($1::int8[], $2::int8[], $3::int8[], $4::int8[], $5::int8[], $6::bytea[], $7::int8[])
    ON CONFLICT (key, fetcher, run) DO UPDATE
    SET armed = excluded.armed, reading = excluded.reading, payload = excluded.payload, grp = excluded.grp";
columns! { Rows {
    key: i64, fetcher: i64, run: i64, armed: i64, reading: i64, payload: Vec<u8>, grp: Option<i64>,
}}
const UPDATE_ROWS: &str = "UPDATE rows r SET armed = s.armed, reading = s.reading, grp = s.grp
    FROM unnest($1::int8[], $2::int8[], $3::int8[], $4::int8[], $5::int8[], $6::int8[])
        AS s (key, fetcher, run, armed, reading, grp)
    WHERE r.key = s.key AND r.fetcher = s.fetcher AND r.run = s.run";
columns! { Marks { key: i64, fetcher: i64, run: i64, armed: i64, reading: i64, grp: Option<i64> }}
const DELETE_ROWS: &str =
    "DELETE FROM rows r USING unnest($1::int8[], $2::int8[], $3::int8[]) AS s (key, fetcher, run)
    WHERE r.key = s.key AND r.fetcher = s.fetcher AND r.run = s.run";
columns! { Gone { key: i64, fetcher: i64, run: i64 }}

const PUT_EXTRAS: &str = "INSERT INTO extras (key, extras, lane, due, held, backed_off, delayed, stopping, dead, lane_in_group)
    SELECT * FROM unnest($1::int8[], $2::text[], $3::int8[], $4::int8[], $5::int8[], $6::int8[], $7::int8[], $8::int8[], $9::bool[],
        $10::int8[])
    ON CONFLICT (key) DO UPDATE SET extras = excluded.extras, lane = excluded.lane, due = excluded.due, held = excluded.held,
        backed_off = excluded.backed_off, delayed = excluded.delayed, stopping = excluded.stopping,
        dead = excluded.dead, lane_in_group = excluded.lane_in_group";
columns! { Extras {
    key: i64, extras: String, lane: Option<i64>, due: Option<i64>, held: Option<i64>, backed_off: Option<i64>,
    delayed: Option<i64>, stopping: Option<i64>, dead: bool, lane_in_group: Option<i64>,
}}
const DELETE_EXTRAS: &str = "DELETE FROM extras WHERE key = ANY ($1::int8[])";

const INSERT_STANDS: &str = "INSERT INTO stands (grp, line, at, key)
    SELECT * FROM unnest($1::int8[], $2::int8[], $3::int8[], $4::int8[]) ON CONFLICT DO NOTHING";
const DELETE_STANDS: &str = "DELETE FROM stands t
    USING unnest($1::int8[], $2::int8[], $3::int8[], $4::int8[]) AS s (grp, line, at, key)
    WHERE t.grp = s.grp AND t.line = s.line AND t.at = s.at AND t.key = s.key";
columns! { Stands { grp: i64, line: i64, at: i64, key: i64 }}
const PUT_GROUPS: &str = "INSERT INTO groups (grp, name, kind, opens, in_flight, waiting, tasks, state)
    SELECT * FROM unnest($1::int8[], $2::text[], $3::int8[], $4::int8[], $5::int8[], $6::int8[], $7::int8[], $8::text[])
    ON CONFLICT (grp) DO UPDATE SET name = excluded.name, kind = excluded.kind, opens = excluded.opens,
        in_flight = excluded.in_flight, waiting = excluded.waiting, tasks = excluded.tasks, state = excluded.state";
columns! { Groups {
    grp: i64, name: String, kind: i64, opens: Option<i64>, in_flight: i64, waiting: i64, tasks: i64, state: String,
}}
const DELETE_GROUPS: &str = "DELETE FROM groups WHERE grp = ANY ($1::int8[])";
/// Whoever writes first keys of a group holds its lock.
const LOCK_GROUPS: &str = "SELECT FROM groups WHERE grp = ANY ($1::int8[]) ORDER BY grp FOR UPDATE";
const DELETE_HEADS: &str =
    "DELETE FROM heads h USING unnest($1::int8[], $2::int8[]) AS s (grp, line)
    WHERE h.grp = s.grp AND h.line = s.line";
const INSERT_HEADS: &str = "INSERT INTO heads (grp, line, at, key, open)
    SELECT s.grp, s.line, f.at, f.key, coalesce(g.kind = 0, true) FROM unnest($1::int8[], $2::int8[]) AS s (grp, line)
    JOIN LATERAL (SELECT at, key FROM stands t WHERE t.grp = s.grp AND t.line = s.line ORDER BY at, key LIMIT 1) f ON true
    LEFT JOIN groups g ON g.grp = s.grp";
const OPEN_HEADS: &str = "UPDATE heads h SET open = g.kind = 0 FROM groups g
    WHERE g.grp = ANY ($1::int8[]) AND h.grp = g.grp AND h.open <> (g.kind = 0)";

/// A late result replaces what was known of its attempt.
const PUT_ATTEMPTS: &str = "INSERT INTO attempts (attempt, key, fetcher, run, worker, started_ms, ended_ms, outcome, exit_code,
        previous, revisit)
    SELECT * FROM unnest($1::int8[], $2::int8[], $3::int8[], $4::int8[], $5::text[], $6::int8[], $7::int8[], $8::text[],
        $9::int8[], $10::int8[], $11::int8[])
    ON CONFLICT (attempt) DO UPDATE SET ended = excluded.ended, ended_ms = excluded.ended_ms, outcome = excluded.outcome,
        exit_code = excluded.exit_code, previous = excluded.previous, revisit = excluded.revisit";
columns! { Attempts {
    attempt: i64, key: i64, fetcher: i64, run: i64, worker: Option<String>, started_ms: i64, ended_ms: i64, outcome: String,
    exit_code: Option<i64>, previous: i64, revisit: Option<i64>,
}}
/// $1: how many are kept. $2: how many numbers below them to look through; while a snapshot is open, deleted attempts stay in the index.
const DELETE_ATTEMPTS: &str =
    "DELETE FROM attempts WHERE ended <= (SELECT last_value FROM ends) - $1::int8
        AND ended > (SELECT last_value FROM ends) - $1::int8 - $2::int8";
/// How many older ones are deleted in one step.
const ATTEMPTS_STEP: i64 = 1_000;
/// What all daemons together may write between two steps of one of them.
const ATTEMPTS_BELOW: i64 = 100 * ATTEMPTS_STEP;

/// Deletes everything known of keys.
const FORGET: [&str; 5] = [
    "WITH RECURSIVE chain (attempt) AS (
        SELECT last_attempt FROM keys WHERE id = ANY ($1::int8[])
        UNION SELECT previous FROM chain JOIN attempts USING (attempt) WHERE key = ANY ($1))
     DELETE FROM attempts WHERE attempt IN (SELECT attempt FROM chain)",
    "DELETE FROM rows WHERE key = ANY ($1::int8[])",
    DELETE_EXTRAS,
    "DELETE FROM tasks WHERE key = ANY ($1::int8[])",
    "DELETE FROM keys WHERE id = ANY ($1::int8[])",
];

#[derive(Default)]
pub(crate) struct Saver {
    forgotten: Vec<i64>,
    inserted: Keys,
    updated: Keys,
    left: Places,
    entered: Places,
    stood: Stands,
    stand: Stands,
    /// Groups and lines whose first key may be another one by now.
    stale: BTreeSet<(i64, i64)>,
    groups: Groups,
    groups_over: Vec<i64>,
    ready: Vec<At>,
    rows: Rows,
    marks: Marks,
    gone: Gone,
    extras: Extras,
    without_extras: Vec<i64>,
    edits: Vec<Ask>,
    attempts: Attempts,
    /// The minute of the batch.
    minute: i64,
    ids: HashMap<Key, KeyId>,
}

impl Saver {
    pub(crate) fn at(minute: i64) -> Self {
        Self { minute, ..Self::default() }
    }

    /// Notes a key's change. `new`: gives it a number, if it is new.
    pub(crate) fn change(&mut self, change: Change, new: impl FnOnce(&Key) -> KeyId) {
        let Change { before, key, now } = change;
        if let Some(before) = &before {
            let places = places(&before.record, &before.place);
            let now =
                now.as_ref().map_or(Vec::new(), |(record, place)| self::places(record, place));
            self.left.all(before.id, places.iter().filter(|it| !now.contains(it)));
            self.entered.all(before.id, now.iter().filter(|it| !places.contains(it)));
        }
        let stood = before.as_ref().map_or(Vec::new(), |it| it.place.standings());
        let Some((record, place)) = now else {
            if let Some(before) = before {
                self.stands(before.id, &stood, &[]);
                self.forgotten.push(before.id.0);
            }
            return;
        };
        let id = match &before {
            Some(known) => {
                self.updated.push(known.id, &record, &place);
                known.id
            }
            None => {
                let id = new(&key);
                self.inserted.push(id, &record, &place);
                self.entered.all(id, places(&record, &place).iter());
                id
            }
        };
        self.stands(id, &stood, &place.standings());
        if let Some(turn) = place.order.filter(|_| kind(&place) == READY) {
            self.ready.push((code::turn(turn), id.0));
        }
        self.rows_of(id, before.as_ref().map_or(&[][..], |it| &it.record.rows), &record.rows);
        self.extras_of(id, before.as_deref(), &record, &place);
        let minute = self.minute;
        self.edits.extend(record.singles.edits.iter().flat_map(|it| edit(id, it, minute)));
        self.ids.insert(key, id);
    }

    fn stands(&mut self, id: KeyId, before: &[Standing], now: &[Standing]) {
        let left = before.iter().filter(|it| !now.contains(it)).map(|it| (false, it));
        let came = now.iter().filter(|it| !before.contains(it)).map(|it| (true, it));
        for (comes, it) in left.chain(came) {
            let (group, line) = (code::group(it.group), code::line(it.line));
            let table = if comes { &mut self.stand } else { &mut self.stood };
            put! { *table; grp: group, line: line, at: it.at, key: id.0 }
            if group != 0 {
                self.stale.insert((group, line));
            }
        }
    }

    pub(crate) fn groups(&mut self, groups: Vec<GroupChange>) {
        for it in groups {
            let Some(group) = it.group else {
                self.groups_over.push(it.id.0);
                continue;
            };
            let (name, state) = (group.name.to_string(), json(&group));
            put! {
                self.groups; grp: it.id.0, name: name, kind: code::opening(it.opening), opens: it.opens,
                in_flight: group.in_flight, waiting: group.waiting, tasks: group.tasks, state: state,
            }
        }
    }

    fn rows_of(&mut self, id: KeyId, before: &[ListRow], now: &[ListRow]) {
        for row in before.iter().filter(|row| !now.iter().any(|it| it.task() == row.task())) {
            put! { self.gone; key: id.0, fetcher: row.fetcher.0, run: row.run }
        }
        for row in now {
            match &row.payload {
                Some(payload) => put! {
                    self.rows; key: id.0, fetcher: row.fetcher.0, run: row.run, armed: row.armed.0, reading: row.reading,
                    payload: payload.as_bytes().to_vec(), grp: row.group.map(|it| it.0),
                },
                None if !before.contains(row) => put! {
                    self.marks; key: id.0, fetcher: row.fetcher.0, run: row.run, armed: row.armed.0, reading: row.reading,
                    grp: row.group.map(|it| it.0),
                },
                None => {}
            }
        }
    }

    fn extras_of(&mut self, id: KeyId, before: Option<&Stored>, record: &Record, place: &Place) {
        let of = |place: &Place| (place.lane, place.due, place.group.is_some());
        let known = before.map(|it| (&it.record.extras, of(&it.place)));
        let has = has_extras(record, place);
        if known == Some((&record.extras, of(place))) || known.is_none() && !has {
            return;
        }
        if !has {
            self.without_extras.push(id.0);
            return;
        }
        let Listed { held, backed_off, delayed, dead } = record.listed();
        let [lane, in_group] = match place.group {
            None => [place.lane, None],
            Some(_) => [None, place.lane],
        };
        put! {
            self.extras; key: id.0, extras: json(&record.extras), lane: lane, due: place.due, held: held,
            backed_off: backed_off, delayed: delayed, stopping: record.extras.stopping.map(|it| it.0), dead: dead,
            lane_in_group: in_group,
        }
    }

    /// Attempts that ended.
    pub(crate) fn ended(&mut self, ended: Vec<EndedAttempt>) {
        for it in ended {
            let Some(id) = self.ids.get(&it.key) else { continue };
            let (fetcher, run) = code::task(it.task);
            put! {
                self.attempts; attempt: it.attempt.0, key: id.0, fetcher: fetcher, run: run,
                worker: it.worker.map(|worker| worker.to_string()), started_ms: it.started, ended_ms: it.ended,
                outcome: it.outcome.word().to_owned(), exit_code: it.exit_code, previous: it.previous.0, revisit: it.revisit,
            }
        }
    }

    /// Places in the order that were left, and those of keys that changed and are in it now.
    pub(crate) fn left(&self) -> impl Iterator<Item = At> {
        self.left.ready()
    }

    pub(crate) fn ready(&self) -> impl Iterator<Item = At> {
        self.ready.iter().copied()
    }

    /// How many attempts ended.
    pub(crate) fn ends(&self) -> i64 {
        i64::try_from(self.attempts.attempt.len()).unwrap_or(i64::MAX)
    }

    /// The writes that come first; and those that touch neither each other's rows nor any others of the batch.
    pub(crate) fn asks(self) -> (Vec<Ask>, Vec<Ask>) {
        let mut asks = Vec::new();
        if !self.forgotten.is_empty() {
            asks.extend(FORGET.map(|sql| ask!(sql, self.forgotten.clone())));
        }
        asks.extend(self.inserted.ask(INSERT_KEYS));
        let mut together: Vec<Ask> = self.updated.ask(UPDATE_KEYS).into_iter().collect();
        together.extend(self.left.ask(DELETE_PLACES));
        together.extend(self.entered.ask(INSERT_PLACES));
        let changed = self.groups.grp.clone();
        asks.extend(self.stood.ask(DELETE_STANDS));
        asks.extend(self.stand.ask(INSERT_STANDS));
        asks.extend(self.groups.ask(PUT_GROUPS));
        if !changed.is_empty() {
            asks.push(ask!(OPEN_HEADS, changed));
        }
        if !self.groups_over.is_empty() {
            asks.push(ask!(DELETE_GROUPS, self.groups_over));
        }
        if !self.stale.is_empty() {
            let (groups, lines): (Vec<i64>, Vec<i64>) = self.stale.into_iter().unzip();
            asks.push(ask!(LOCK_GROUPS, groups.clone()));
            asks.push(ask!(DELETE_HEADS, groups.clone(), lines.clone()));
            asks.push(ask!(INSERT_HEADS, groups, lines));
        }
        asks.extend(self.gone.ask(DELETE_ROWS));
        asks.extend(self.rows.ask(PUT_ROWS));
        asks.extend(self.marks.ask(UPDATE_ROWS));
        asks.extend(self.extras.ask(PUT_EXTRAS));
        if !self.without_extras.is_empty() {
            asks.push(ask!(DELETE_EXTRAS, self.without_extras));
        }
        asks.extend(self.edits);
        together.extend(self.attempts.ask(PUT_ATTEMPTS));
        (asks, together)
    }
}

/// Deletes attempts beyond those that are kept, in steps. `before`: how many were written here before; `new`: how many
/// now.
pub(crate) fn beyond(history: i64, before: i64, new: i64) -> Option<Ask> {
    let is_due = (before + new) / ATTEMPTS_STEP > before / ATTEMPTS_STEP;
    // The first step deletes all that are left from before.
    let below = if before < ATTEMPTS_STEP { i64::MAX / 2 } else { ATTEMPTS_BELOW };
    is_due.then(|| ask!(DELETE_ATTEMPTS, history, below))
}

impl Keys {
    fn push(&mut self, id: KeyId, record: &Record, place: &Place) {
        let last = record.last.as_ref();
        let flight = record.flight.as_ref();
        let task = flight.map(|it| code::task(it.task));
        let holder = flight.and_then(|it| it.holder.as_ref());
        put! {
            *self; id: id.0, key: record.key.as_str().as_bytes().to_vec(), since: record.since,
            started: last.map(|it| it.started), finished: last.and_then(|it| it.finished),
            exit_code: last.and_then(|it| it.exit_code), claimed: record.is_claimed, served: code::served(record),
            waiting: record.singles.waiting.cast_signed(), failed: record.singles.failed.cast_signed(),
            dead: record.singles.dead.cast_signed(), last_attempt: record.last_attempt.0,
            attempt: flight.map(|it| it.attempt.0), fetcher: task.map(|it| it.0), run: task.map(|it| it.1),
            worker: holder.map(|it| it.worker.to_string()), lease: holder.map(|it| it.lease_seconds.into()),
            started_ms: flight.map(|it| it.started),
            owner: flight.and_then(|it| it.owner.as_ref()).map(ToString::to_string),
            before: flight.map(|it| json(&it.before)), turn: place.order.map(code::turn), held: code::held(place),
            extra: has_extras(record, place), failed_at: record.failed_at(),
            single_group: record.singles.group.map(|it| it.0), routes: code::routes(place),
        }
    }
}

impl Places {
    fn ready(&self) -> impl Iterator<Item = At> {
        let all = self.kind.iter().zip(self.at.iter().copied().zip(self.key.iter().copied()));
        all.filter(|(kind, _)| **kind == READY).map(|(_, at)| at)
    }

    fn all<'a>(&mut self, id: KeyId, places: impl Iterator<Item = &'a (i16, i64)>) {
        for (kind, at) in places {
            put! { *self; kind: *kind, at: *at, key: id.0 }
        }
    }
}

/// Plain data is always written.
fn json(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

fn has_extras(record: &Record, place: &Place) -> bool {
    !record.extras.is_empty() || place.lane.is_some() || place.due.is_some()
}

/// In which order it is.
fn kind(place: &Place) -> i16 {
    match code::held(place) {
        code::HELD => HELD,
        code::GROUPED => GROUPED,
        _ => READY,
    }
}

/// Where a key is looked for.
fn places(record: &Record, place: &Place) -> Vec<(i16, i64)> {
    let turn = place.order.map(|turn| (kind(place), code::turn(turn)));
    let flight = record.flight.as_ref().map(|it| (IN_FLIGHT, it.attempt.0));
    let failed = record.failed_at().map(|at| (FAILED, at));
    let claimed = record.last.filter(|_| record.is_claimed && record.is_unfinished());
    let claimed = claimed.map(|it| (CLAIMED, it.started));
    turn.into_iter().chain(flight).chain(failed).chain(claimed).collect()
}

fn edit(key: KeyId, edit: &SingleEdit, minute: i64) -> Vec<Ask> {
    match edit {
        SingleEdit::Add { number, payload, id } => {
            let sql = "INSERT INTO tasks (number, key, status, checksum, name, payload)
                VALUES ($1, $2, 'waiting', $3, $4, $5)";
            let checksum = checksum(payload.as_bytes()).cast_signed();
            let id = id.as_ref().map(|id| id.to_string());
            vec![ask!(sql, *number, key.0, checksum, id, payload.as_bytes().to_vec())]
        }
        SingleEdit::Name { number, id } => {
            let sql = "UPDATE tasks SET name = $2 WHERE number = $1 AND name IS NULL";
            vec![ask!(sql, *number, id.to_string())]
        }
        SingleEdit::Set { number, status } => {
            let gone = "DELETE FROM tasks WHERE number = $1 AND name IS NULL";
            let kept = "UPDATE tasks SET status = $2, over = $3 WHERE number = $1";
            let (over, word) = (status.is_over().then_some(minute), status.word());
            let gone = over.map(|_| ask!(gone, *number));
            gone.into_iter().chain([ask!(kept, *number, word, over)]).collect()
        }
    }
}
