//! The port: a batch's transaction on one connection. Records in flight stay in memory, because their ends come next.
//!
//! Everything here is done before it returns; the futures are ready at once.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, Result};
use shiftboss_protocol::fetcher_file::checksum;
use shiftboss_protocol::model::{Attempt, Key};
use shiftboss_queue::attempt::EndedAttempt;
use shiftboss_queue::groups::GroupId;
use shiftboss_queue::record::{FetcherId, Millis, SingleStatus, Task};
use shiftboss_queue::records::{
    self, Begun, Changes, Edit, From, Header, InFlight, KeyId, Name, Opens, Outset, Payload,
    Records, StoreError, StoreResult, Stored,
};
use shiftboss_queue::rules::groups::Group;

use crate::ask::Ask;
use crate::error::classify;
use crate::flights::Flights;
use crate::header::{self, Kept, Numbers};
use crate::load::{self, Loader};
use crate::save::Saver;
use crate::{code, documents, edits, schema, standings, sums};

const STATEMENTS_MAX: usize = 64;
/// The default number of ended attempts that are kept.
const ATTEMPTS_KEPT: i64 = 100_000;

#[derive(Debug)]
pub struct SqliteRecords {
    connection: Connection,
    /// The database's values, with this transaction's changes. `None`: not read yet.
    kept: Option<Numbers>,
    /// How often others wrote, as SQLite counts it.
    version: Option<i64>,
    flights: Flights,
    /// Other programs may have edited something.
    is_edited: bool,
    /// The batch under way changes nothing.
    only_reads: bool,
    /// How many of the last ended attempts are kept.
    attempts_kept: i64,
}

impl SqliteRecords {
    /// A queue on a connection; makes its tables if there are none.
    pub fn new(connection: Connection) -> StoreResult<Self> {
        let begin = |connection: &Connection| {
            connection.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
            // Otherwise a statement with a range is planned anew for each new bound.
            connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
            if !connection.table_exists(None, "keys")? {
                schema::make(connection)?;
            }
            Ok(())
        };
        begin(&connection).map_err(classify)?;
        Ok(Self {
            connection,
            kept: None,
            version: None,
            flights: Flights::default(),
            is_edited: true,
            only_reads: false,
            attempts_kept: ATTEMPTS_KEPT,
        })
    }

    /// Sets how many of the last ended attempts are kept.
    #[must_use]
    pub fn keeping(self, attempts: u32) -> Self {
        Self { attempts_kept: attempts.into(), ..self }
    }

    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// The state that the next daemon finds.
    #[must_use]
    pub fn reopened(self) -> Self {
        Self { kept: None, version: None, flights: Flights::default(), ..self }
    }

    fn begin_now(&mut self, only_reads: bool) -> Result<Begun> {
        self.only_reads = only_reads;
        self.run(if only_reads { "BEGIN" } else { "BEGIN IMMEDIATE" })?;
        let header = self.header_now()?;
        self.is_edited = self.is_edited && (!only_reads || edits::are_any(&self.connection)?);
        let is_edited = only_reads && self.is_edited;
        Ok(Begun { has_changed: header.is_some(), header, is_edited, ..Begun::default() })
    }

    /// `None`: it is unchanged.
    fn header_now(&mut self) -> Result<Option<Header>> {
        let version = self.connection.value("PRAGMA data_version", ())?;
        if self.kept.is_some() && self.version == Some(version) {
            return Ok(None);
        }
        self.flights.clear();
        self.is_edited = true;
        let Kept { header, ids, ends } = header::load(&self.connection)?;
        let numbers = Numbers::of(&header, ids, ends);
        (self.kept, self.version) = (Some(numbers), Some(version));
        Ok(Some(header))
    }

    fn run(&self, sql: &str) -> Result<()> {
        self.connection.prepare_cached(sql)?.execute([]).map(drop)
    }

    fn load_now(&mut self, names: &[Name]) -> Result<Vec<Option<Stored>>> {
        let mut loader = Loader::new(&self.connection);
        let (flights, only_reads) = (&mut self.flights, self.only_reads);
        let one = |name: &Name| {
            // What is not saved stays in memory.
            let known = if only_reads { flights.get(name).cloned() } else { flights.take(name) };
            known.map_or_else(|| loader.named(name), |known| Ok(Some(known)))
        };
        names.iter().map(one).collect()
    }

    fn save_now(&mut self, mut changes: Changes<'_>) -> Result<()> {
        let before = self.kept.take().unwrap_or_default();
        let (mut last_id, mut last_end) = (before.ids, before.ends);
        let mut saver = Saver::new(&self.connection, &mut last_id, &mut last_end);
        saver.minute = changes.minute;
        let mut ids =
            HashMap::with_capacity_and_hasher(changes.ended.len(), RandomState::default());
        for change in std::mem::take(&mut changes.records) {
            self.flights.take_key(&change.key);
            let Some(stored) = saver.change(change)? else { continue };
            if !changes.ended.is_empty() {
                ids.insert(stored.record.key.clone(), stored.id);
            }
            self.flights.note(stored);
        }
        std::mem::take(&mut saver.standings).settle(&self.connection, &changes.groups)?;
        saver.ended(&changes.ended, self.attempts_kept, |key| ids.get(key).copied())?;
        drop(saver);
        sums::add(&self.connection, &changes.sums)?;
        if let Some(oldest) = changes.oldest {
            sums::drop_older(&self.connection, oldest)?;
        }
        let now = Numbers::of(changes.header, last_id, last_end);
        header::save(&self.connection, before, now, &changes)?;
        self.kept = Some(now);
        Ok(())
    }
}

/// The output of this store's futures, which are ready at once.
pub fn at_once<T>(future: impl Future<Output = StoreResult<T>>) -> StoreResult<T> {
    let waits = || Err(StoreError::Fatal("the database waits for somebody".to_owned()));
    records::at_once(future).unwrap_or_else(waits)
}

impl Records for SqliteRecords {
    async fn begin(&mut self, outset: &Outset) -> StoreResult<Begun> {
        self.begin_now(outset.only_reads).map_err(classify)
    }

    async fn edits(&mut self, count: usize) -> StoreResult<Vec<Edit>> {
        if !self.is_edited {
            return Ok(Vec::new());
        }
        let edits = edits::take(&self.connection, count).map_err(classify)?;
        self.is_edited = !edits.is_empty();
        Ok(edits)
    }

    async fn edits_of(&mut self, keys: &[Key]) -> StoreResult<Vec<Edit>> {
        edits::take_of(&self.connection, keys).map_err(classify)
    }

    async fn load(&mut self, names: &[Name]) -> StoreResult<Vec<Option<Stored>>> {
        self.load_now(names).map_err(classify)
    }

    async fn next(
        &mut self,
        from: From,
        behind: Option<&Stored>,
        count: usize,
    ) -> StoreResult<Vec<Stored>> {
        Loader::new(&self.connection).next(from, behind, count).map_err(classify)
    }

    async fn groups(&mut self, ids: &[GroupId]) -> StoreResult<Vec<Option<Group>>> {
        let groups = ids.iter().map(|id| standings::group(&self.connection, *id));
        groups.collect::<Result<_>>().map_err(classify)
    }

    async fn opening(
        &mut self,
        behind: Opens,
        until: Millis,
        count: usize,
    ) -> StoreResult<Vec<(Opens, Group)>> {
        standings::opening(&self.connection, behind, until, count).map_err(classify)
    }

    async fn first_opening(&mut self) -> StoreResult<Option<Millis>> {
        let sql = "SELECT opens FROM groups INDEXED BY opening WHERE opens IS NOT NULL ORDER BY opens LIMIT 1";
        self.connection.first(sql, (), |row| row.get(0)).map_err(classify)
    }

    async fn closed(&mut self, until: Millis, most: u32) -> StoreResult<u32> {
        let sql = "SELECT count(*) FROM (SELECT 1 FROM groups INDEXED BY kinds
            WHERE kind IN (1, 2, 3) AND waiting > 0 AND (opens > ?1 OR kind = 2) LIMIT ?2)";
        self.connection.value(sql, (until, most)).map_err(classify)
    }

    async fn flights(&mut self) -> StoreResult<Vec<InFlight>> {
        let sql = "SELECT attempt, started_ms, lease, owner FROM keys INDEXED BY in_flight
            WHERE attempt IS NOT NULL ORDER BY attempt";
        let flights = self.connection.rows(sql, (), |row| {
            let (attempt, started) = (Attempt(row.get(0)?), row.get(1)?);
            let owner = row.get::<_, Option<String>>(3)?.map(Into::into);
            let lease_seconds = row.get::<_, Option<i64>>(2)?.map(code::lease);
            Ok(InFlight { attempt, started, lease_seconds, owner })
        });
        flights.map_err(classify)
    }

    async fn stops(&mut self, count: usize) -> StoreResult<Vec<Attempt>> {
        let sql = "SELECT stopping FROM extras INDEXED BY stopping
            WHERE stopping IS NOT NULL ORDER BY stopping LIMIT ?1";
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        let stops = self.connection.rows(sql, [count], |row| Ok(Attempt(row.get(0)?)));
        stops.map_err(classify)
    }

    async fn leaving(
        &mut self,
        behind: Option<&Stored>,
        also: Option<(FetcherId, i64)>,
        count: usize,
    ) -> StoreResult<(Option<Stored>, bool)> {
        Loader::new(&self.connection).leaving(behind, also, count).map_err(classify)
    }

    async fn of_run(
        &mut self,
        run: (FetcherId, i64),
        behind: Option<KeyId>,
        count: usize,
    ) -> StoreResult<Vec<Stored>> {
        Loader::new(&self.connection).of_run(run, behind, count).map_err(classify)
    }

    async fn payload(&mut self, id: KeyId, task: Task) -> StoreResult<Payload> {
        Loader::new(&self.connection).payload(id, task).map_err(classify)
    }

    async fn single(&mut self, number: i64) -> StoreResult<Option<SingleStatus>> {
        let sql = "SELECT status FROM tasks WHERE number = ?1";
        let word = self.connection.first(sql, [number], |row| row.get::<_, String>(0));
        Ok(word.map_err(classify)?.and_then(|word| SingleStatus::of_word(&word)))
    }

    async fn singles(
        &mut self,
        id: KeyId,
        status: SingleStatus,
        count: usize,
    ) -> StoreResult<Vec<i64>> {
        let sql = "SELECT number FROM tasks INDEXED BY tasks_of_key
            WHERE key = ?1 AND status = ?2 ORDER BY number DESC LIMIT ?3";
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        self.connection.values(sql, (id.0, status.word(), count)).map_err(classify)
    }

    async fn waiting_single(&mut self, id: KeyId, payload: &str) -> StoreResult<Option<i64>> {
        let sql = "SELECT number FROM tasks
            WHERE key = ?1 AND checksum = ?2 AND status = 'waiting' AND payload = ?3 LIMIT 1";
        let checksum = checksum(payload.as_bytes()).cast_signed();
        self.connection.first(sql, (id.0, checksum, payload), |row| row.get(0)).map_err(classify)
    }

    async fn ended(&mut self, attempt: Attempt) -> StoreResult<Option<EndedAttempt>> {
        let end = self.connection.first(load::END, [attempt.0], load::end);
        Ok(end.map_err(classify)?.map(|end| end.attempt))
    }

    async fn document(&mut self, name: &str) -> StoreResult<Option<String>> {
        documents::find(&self.connection, name).map_err(classify)
    }

    async fn documents(&mut self, prefix: &str) -> StoreResult<Vec<(String, String)>> {
        documents::all(&self.connection, prefix).map_err(classify)
    }

    async fn note(&mut self, name: String, text: Option<String>) -> StoreResult<()> {
        documents::write(&self.connection, &name, text.as_deref()).map_err(classify)
    }

    async fn save(&mut self, changes: Changes<'_>) -> StoreResult<()> {
        self.save_now(changes).map_err(classify)
    }

    async fn commit(&mut self) -> StoreResult<()> {
        self.run("COMMIT").map_err(classify)
    }

    async fn roll_back(&mut self) {
        // So what is in flight is read again, too, at the next begin.
        self.kept = None;
        if !self.connection.is_autocommit() {
            // If this fails, the end of the connection rolls it back.
            let _ = self.run("ROLLBACK");
        }
    }
}
