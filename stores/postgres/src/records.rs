//! The port: a batch's transaction on one connection, in two round trips. What a batch will ask for is locked and read
//! with the begin; what it writes is sent with the commit.
//!
//! Each batch of daemons that share the queue holds the queue's lock: shared, if it only changes keys that were already
//! in the queue, or exclusively (`Outset::is_alone`). So the header that a batch has read stays true till its commit.
//! Keys are locked one by one: the named ones all at once, in the order of their ids, then the next ones, skipping
//! those that another daemon has.

mod ahead;
mod groups;
mod singles;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use shiftboss_protocol::model::Attempt;
use shiftboss_queue::attempt::EndedAttempt;
use shiftboss_queue::code;
use shiftboss_queue::counts::Tally;
use shiftboss_queue::groups::GroupId;
use shiftboss_queue::place::Line;
use shiftboss_queue::record::{FetcherId, Millis, Record, SingleStatus, Task};
use shiftboss_queue::records::{
    Begun, Changes, From, Header, InFlight, KeyId, Name, Opens, Outset, Payload, Records,
    StoreError, StoreResult, Stored,
};
use shiftboss_queue::rules::groups::Group;
use tokio_postgres::{Client, Row};

use self::ahead::Ahead;
use crate::error::{classify, odd};
use crate::front::Front;
use crate::header::{self, Kept, Left};
use crate::load;
use crate::numbers::Numbers;
use crate::save::{self, Saver};
use crate::sums;
use crate::wire::{Ask, Fault, Wire, as_one, ask};

/// The tables of a queue, in the first schema of the search path.
pub const SCHEMA: &str = include_str!("schema.sql");
/// Every connection begins with these, whatever defaults the role or the database has. After waiting for a lock, the
/// next statement must see what was written meanwhile. Plans must not depend on how full the tables were when they were
/// made, so the planner has only one choice: along the indexes. A daemon that hangs in the middle of a batch holds
/// others up for less time than a call may take.
pub const SETTINGS: &str = "SET default_transaction_isolation = 'read committed'; SET standard_conforming_strings = on;
    SET enable_hashjoin = off; SET enable_mergejoin = off; SET enable_seqscan = off; SET enable_bitmapscan = off;
    SET enable_material = off; SET jit = off; SET plan_cache_mode = force_generic_plan; SET synchronous_commit = on;
    SET client_min_messages = warning; SET idle_in_transaction_session_timeout = '2s'";
const COMMIT: &str = "COMMIT";
/// A transaction with the queue's lock; the lock's number is that of a table, so that several queues in a database do
/// not share one.
const TOGETHER: &str = "BEGIN; SELECT pg_advisory_xact_lock_shared('keys'::regclass::oid::int8)";
/// Exclusive: waits for all batches under way, and excludes new ones.
pub const ALONE: &str = "BEGIN; SELECT pg_advisory_xact_lock('keys'::regclass::oid::int8)";
/// The default number of ended attempts that are kept.
const HISTORY: i64 = 100_000;

pub struct PostgresRecords {
    wire: Wire,
    daemon: i64,
    /// The epoch of the daemon's joining; `None`: it is never taken for dead.
    epoch: Option<i64>,
    is_fenced: bool,
    /// Another daemon, which must have this epoch.
    required: Option<(i64, i64)>,
    history: i64,
    /// The server's clock counts, and not the caller's.
    has_clock: bool,
    /// The database's values, with this transaction's changes. `None`: not read yet.
    kept: Option<Kept>,
    is_open: bool,
    is_alone: bool,
    /// Documents were written that other daemons remember.
    has_noted: bool,
    ahead: Ahead,
    /// Statements to send before anything else.
    writes: Vec<Ask>,
    numbers: Numbers,
    /// How many numbers are drawn at once.
    wanted: usize,
    /// Attempts that were written here.
    ends: i64,
    /// The last second in which each relay was heard from here.
    heard: HashMap<String, i64>,
    /// Attempts that this batch handed out.
    handed: Vec<Attempt>,
    /// This batch has locked free keys, for which another batch may wait.
    has_next: bool,
    front: Front,
    /// Raises the floor, because keys were made ready where others may have passed. Sent last.
    raise: Option<Ask>,
}

impl fmt::Debug for PostgresRecords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresRecords").field("daemon", &self.daemon).finish_non_exhaustive()
    }
}

impl PostgresRecords {
    /// The queue of a connection with [`SETTINGS`]. `daemon`: the requesting daemon's number, unique at any time.
    pub fn new(client: Client, daemon: i64) -> Self {
        Self {
            wire: Wire::new(client),
            daemon,
            epoch: None,
            is_fenced: false,
            required: None,
            history: HISTORY,
            has_clock: true,
            kept: None,
            is_open: false,
            is_alone: false,
            has_noted: false,
            ahead: Ahead::default(),
            writes: Vec::new(),
            numbers: Numbers::default(),
            wanted: 1,
            ends: 0,
            heard: HashMap::new(),
            handed: Vec::new(),
            has_next: false,
            front: Front::default(),
            raise: None,
        }
    }

    /// Refuses everything once the daemon has another epoch.
    #[must_use]
    pub fn fenced(self, epoch: i64) -> Self {
        Self { epoch: Some(epoch), ..self }
    }

    /// From now on refuses everything unless the other daemon has this epoch.
    pub fn require(&mut self, other: Option<(i64, i64)>) {
        self.required = other;
    }

    /// Sets how many ended attempts are kept.
    #[must_use]
    pub fn keeping(self, history: u32) -> Self {
        Self { history: history.into(), ..self }
    }

    /// Whether it can be used again after a failure: it is not fenced, and no answer is missing.
    pub fn is_usable(&self) -> bool {
        !self.is_fenced && self.wire.fault != Some(Fault::Lost) && !self.wire.client.is_closed()
    }

    /// Whether the last batch conflicted with another one, and must be repeated.
    pub fn met_another(&self) -> bool {
        self.wire.fault == Some(Fault::Conflict)
    }

    /// Attempts handed out by a batch of which it is not known whether it was committed.
    pub fn unheard(&self) -> &[Attempt] {
        &self.handed
    }

    pub fn client(&self) -> &Client {
        &self.wire.client
    }

    /// Uses the time of the engine's caller: for tests, whose time is not the server's.
    #[must_use]
    pub fn without_clock(self) -> Self {
        Self { has_clock: false, ..self }
    }

    /// How many round trips to the server were made.
    pub fn round_trips(&self) -> u64 {
        self.wire.trips
    }

    /// The state that the next daemon finds.
    #[must_use]
    pub fn reopened(self) -> Self {
        Self { kept: None, ahead: Ahead::default(), ..self }
    }

    /// Sends queries, after all pending writes.
    async fn ask<const N: usize>(&mut self, asks: [Ask; N]) -> StoreResult<[Vec<Row>; N]> {
        let mut all = std::mem::take(&mut self.writes);
        all.extend(asks);
        let mut answers = self.wire.send(all).await?;
        let answers = answers.split_off(answers.len() - N);
        answers.try_into().map_err(|_| odd("fewer answers than questions"))
    }

    async fn ask_one(&mut self, ask: Ask) -> StoreResult<Vec<Row>> {
        self.ask([ask]).await.map(|[rows]| rows)
    }

    async fn find_required(&mut self) -> StoreResult<()> {
        let Some((daemon, epoch)) = self.required else { return Ok(()) };
        let sql = "SELECT FROM daemons WHERE daemon = $1 AND epoch = $2";
        let found = self.ask_one(ask!(sql, daemon, epoch)).await?;
        let text = "that daemon is not gone any more";
        found.first().map(drop).ok_or_else(|| StoreError::Busy(text.to_owned()))
    }

    /// The header, if it differs from what this engine saved last; or the sums, if they were asked for.
    async fn header(
        &mut self,
        numbers: &Row,
        counts: Option<Vec<Row>>,
    ) -> StoreResult<(Option<Header>, Option<Tally>)> {
        if let Some(kept) = &mut self.kept
            && kept.version == header::version(numbers)?
        {
            let counts = counts.map(|rows| header::tally(&rows)).transpose()?;
            kept.counts = counts.clone().unwrap_or(std::mem::take(&mut kept.counts));
            return Ok((None, counts));
        }
        let asks = [ask!(header::NAMES), ask!(header::RUNS), ask!(header::COUNTS_OF_RUNS)];
        let [names, runs, counts] = self.ask(asks).await?;
        let mut now = header::read(numbers, &names, &runs, &counts)?;
        now.last_attempt = self.numbers.used().unwrap_or(now.last_attempt);
        self.kept = Some(Kept::of(&now, numbers)?);
        Ok((Some(now), None))
    }
}

impl Records for PostgresRecords {
    async fn begin(&mut self, outset: &Outset) -> StoreResult<Begun> {
        if self.is_open {
            self.roll_back().await;
        }
        self.numbers.stale();
        (self.is_open, self.is_alone, self.has_noted) = (true, outset.is_alone, false);
        (self.has_next, self.raise) = (false, None);
        let front = self.front.begin();
        self.handed.clear();
        let mut asks = vec![ask!(if outset.is_alone { ALONE } else { TOGETHER })];
        asks.extend(outset.counts.then(|| ask!(header::COUNTS_OF_RUNS)));
        let records = Ahead::ask(outset, front);
        let has_asked = records.is_some();
        asks.extend(records);
        self.wanted = outset.next.max(1);
        asks.push(header::numbers(self.daemon, self.numbers.draw(outset.next)));
        let mut answers = self.wire.send(asks).await?.into_iter().skip(1);
        let mut next = || answers.next().unwrap_or_default();
        let counts = outset.counts.then(&mut next);
        let found = if has_asked { next() } else { Vec::new() };
        self.ahead = Ahead::of(outset, found)?;
        let numbers = next();
        let numbers = numbers.first().ok_or_else(|| odd("there is no header"))?;
        if self.epoch.is_some() && self.epoch != header::epoch(numbers)? {
            self.is_fenced = true;
            let text = "this daemon was taken for dead: it joins the queue anew";
            return Err(StoreError::Busy(text.to_owned()));
        }
        let (now, drawn) = header::now_and_drawn(numbers)?;
        if outset.next > 0 {
            self.numbers.take(drawn);
        }
        if !self.front.check(header::floor(numbers)?, now) {
            self.ahead.next.retain(|(from, _)| *from != From::Line(Line::ORDER));
        }
        self.find_required().await?;
        let known = self.kept.as_ref().map(|kept| kept.version);
        let (header, counts) = self.header(numbers, counts).await?;
        let has_changed = known != self.kept.as_ref().map(|kept| kept.version);
        let now = self.has_clock.then_some(now);
        Ok(Begun { header, counts, has_changed, now, is_edited: false })
    }

    async fn number(&mut self, last: Attempt) -> StoreResult<Option<Attempt>> {
        if let Some(next) = self.numbers.next(last) {
            return Ok(Some(next));
        }
        let draw = self.numbers.draw(self.wanted);
        let rows = self.ask_one(header::numbers(self.daemon, draw)).await?;
        let row = rows.first().ok_or_else(|| odd("there is no header"))?;
        self.numbers.take(header::now_and_drawn(row)?.1);
        Ok(self.numbers.next(last))
    }

    async fn load(&mut self, names: &[Name]) -> StoreResult<Vec<Option<Stored>>> {
        self.load_now(names).await
    }

    async fn next(
        &mut self,
        from: From,
        behind: Option<&Stored>,
        count: usize,
    ) -> StoreResult<Vec<Stored>> {
        self.next_now(from, behind, count).await
    }

    async fn groups(&mut self, ids: &[GroupId]) -> StoreResult<Vec<Option<Group>>> {
        self.groups_now(ids).await
    }

    async fn opening(
        &mut self,
        behind: Opens,
        until: Millis,
        count: usize,
    ) -> StoreResult<Vec<(Opens, Group)>> {
        self.opening_now(behind, until, count).await
    }

    async fn leaving(
        &mut self,
        _: Option<&Stored>,
        also: Option<(FetcherId, i64)>,
        count: usize,
    ) -> StoreResult<(Option<Stored>, bool)> {
        Ok((None, also.is_none() && self.leaving_now(count).await?))
    }

    async fn of_run(
        &mut self,
        run: (FetcherId, i64),
        behind: Option<KeyId>,
        count: usize,
    ) -> StoreResult<Vec<Stored>> {
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        let (FetcherId(fetcher), run) = run;
        let behind = behind.map_or(i64::MIN, |id| id.0);
        let ask = match fetcher == FetcherId::TASKS.0 {
            true => ask!(load::OF_TASKS, behind, count),
            false => ask!(load::OF_RUN, fetcher, run, behind, count),
        };
        let rows = self.ask_one(ask).await?;
        Ok(load::found(&rows)?.into_iter().map(|it| it.stored).collect())
    }

    async fn first_opening(&mut self) -> StoreResult<Option<Millis>> {
        self.first_opening_now().await
    }

    async fn closed(&mut self, until: Millis, most: u32) -> StoreResult<u32> {
        self.closed_now(until, most).await
    }

    async fn flights(&mut self) -> StoreResult<Vec<InFlight>> {
        let rows = self.ask_one(ask!(load::FLIGHTS)).await?;
        rows.iter().map(load::in_flight).collect()
    }

    async fn stops(&mut self, count: usize) -> StoreResult<Vec<Attempt>> {
        let sql =
            "SELECT stopping FROM extras WHERE stopping IS NOT NULL ORDER BY stopping LIMIT $1";
        let rows = self.ask_one(ask!(sql, i64::try_from(count).unwrap_or(i64::MAX))).await?;
        rows.iter().map(|row| row.try_get(0).map(Attempt).map_err(classify)).collect()
    }

    async fn payload(&mut self, id: KeyId, task: Task) -> StoreResult<Payload> {
        self.payload_now(id, task).await
    }

    async fn single(&mut self, number: i64) -> StoreResult<Option<SingleStatus>> {
        self.single_now(number).await
    }

    async fn singles(
        &mut self,
        id: KeyId,
        status: SingleStatus,
        count: usize,
    ) -> StoreResult<Vec<i64>> {
        self.singles_now(id, status, count).await
    }

    async fn waiting_single(&mut self, id: KeyId, payload: &str) -> StoreResult<Option<i64>> {
        self.waiting_single_now(id, payload).await
    }

    async fn ended(&mut self, attempt: Attempt) -> StoreResult<Option<EndedAttempt>> {
        let rows = self.ask_one(ask!(load::END, attempt.0)).await?;
        rows.first().map(load::end).transpose().map(|end| end.map(|end| end.attempt))
    }

    fn heard(&mut self, relay: &str, second: i64) {
        if self.heard.get(relay) == Some(&second) {
            return;
        }
        self.heard.insert(relay.to_owned(), second);
        let sql = "INSERT INTO beats AS b VALUES ($1, 1) ON CONFLICT (relay) DO UPDATE SET beat = b.beat + 1";
        self.writes.push(ask!(sql, relay.to_owned()));
    }

    async fn beats(&mut self) -> StoreResult<Vec<(String, i64)>> {
        let rows = self.ask_one(ask!("SELECT relay, beat FROM beats")).await?;
        let both = |row: &Row| Ok((row.try_get(0)?, row.try_get(1)?));
        rows.iter().map(both).collect::<Result<_, _>>().map_err(classify)
    }

    async fn place(&mut self) -> StoreResult<Option<Arc<str>>> {
        let tells = "SELECT has_function_privilege('pg_control_system()', 'EXECUTE')";
        let rows = self.ask_one(ask!(tells)).await?;
        let tells = rows.first().is_some_and(|row| row.try_get(0).unwrap_or_default());
        let rows =
            self.ask_one(ask!(if tells { load::PLACE } else { load::PLACE_OF_DATABASE })).await?;
        let text: Option<String> =
            rows.first().map(|row| row.try_get(0)).transpose().map_err(classify)?;
        Ok(text.map(Into::into))
    }

    async fn document(&mut self, name: &str) -> StoreResult<Option<String>> {
        let sql = "SELECT value FROM documents WHERE name = $1";
        let rows = self.ask_one(ask!(sql, name.to_owned())).await?;
        rows.first().map(|row| row.try_get(0)).transpose().map_err(classify)
    }

    async fn documents(&mut self, prefix: &str) -> StoreResult<Vec<(String, String)>> {
        let rows = self.ask_one(load::documents(prefix)).await?;
        rows.iter().map(load::both).collect()
    }

    async fn note(&mut self, name: String, text: Option<String>) -> StoreResult<()> {
        let write = "INSERT INTO documents (name, value) VALUES ($1, $2)
            ON CONFLICT (name) DO UPDATE SET value = excluded.value";
        let delete = "DELETE FROM documents WHERE name = $1";
        // In a batch that is not alone, only a job's owner changes.
        self.has_noted |= self.is_alone;
        self.writes.push(match text {
            Some(text) => ask!(write, name, text),
            None => ask!(delete, name),
        });
        Ok(())
    }

    async fn save(&mut self, changes: Changes<'_>) -> StoreResult<()> {
        let Changes { records, ended, groups, header, runs, counts, sums, minute, oldest } =
            changes;
        // What was read before may have changed.
        self.ahead = Ahead::default();
        self.numbers.used_up_to(header.last_attempt);
        let kept = self.kept.get_or_insert_default();
        let mut ids = kept.ids;
        let mut saver = Saver::at(minute);
        for change in records {
            let attempt = |record: &Record| record.flight.as_ref().map(|it| it.attempt);
            let before = change.before.as_ref().and_then(|it| attempt(&it.record));
            let now = change.now.as_ref().and_then(|it| attempt(&it.0));
            self.handed.extend(now.filter(|_| now != before));
            saver.change(change, |key| {
                ids = ids.wrapping_add(1);
                code::id(key, ids)
            });
        }
        saver.ended(ended);
        saver.groups(groups);
        self.raise = self.front.saved(saver.left(), saver.ready());
        let new = saver.ends();
        let (before, mut together) = saver.asks();
        self.writes.extend(before);
        together.extend(sums::add(&sums, self.daemon));
        self.writes.extend(oldest.into_iter().flat_map(sums::drop_older));
        let has_noted = std::mem::take(&mut self.has_noted);
        let (daemon, is_alone) = (self.daemon, self.is_alone);
        let (runs, counts) = (&runs, &counts);
        let left = Left { header, runs, counts, ids, daemon, is_alone, has_noted };
        together.extend(kept.add_counts(&left));
        self.writes.extend(as_one(together));
        self.writes.extend(save::beyond(self.history, self.ends, new));
        self.ends += new;
        self.writes.extend(kept.save(&left)?);
        Ok(())
    }

    async fn commit(&mut self) -> StoreResult<()> {
        self.writes.extend(self.raise.take());
        self.ask_one(ask!(COMMIT)).await?;
        self.is_open = false;
        self.handed.clear();
        self.front.commit();
        Ok(())
    }

    async fn roll_back(&mut self) {
        let is_open = std::mem::take(&mut self.is_open);
        self.kept = None;
        self.ahead = Ahead::default();
        self.writes.clear();
        self.numbers = Numbers::default();
        self.front = Front::default();
        if is_open && self.is_usable() {
            // If this fails, the end of the connection rolls it back.
            let _ = self.wire.send(vec![ask!("ROLLBACK")]).await;
        }
    }
}
