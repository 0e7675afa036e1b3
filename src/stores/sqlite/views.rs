//! What is shown of a queue, each in one read transaction: how it stands ([`status`]), what is next ([`mod@queue`]),
//! where a key is ([`mod@why`]), which keys there are ([`keys`]), what ended ([`mod@log`]), one by one and summed up ([`stats`]), which tasks have a status ([`mod@tasks`]). Asked through the
//! port [`Reader`], of which [`SqliteReader`] is the one for SQLite.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rusqlite::{Connection, Result};
use shiftboss_actors::store::answers::{
    Ends, Found, HeldKeys, LastStarts, Log, MinuteJobs, Queue, QueueStatus, Stats, Tasks, Turn, Why,
};
use shiftboss_actors::store::{EndedAttempts, ReadResult, Reader, StatsOf, TasksWith};
use shiftboss_protocol::model::{Key, UnixSeconds};

use super::schema;
use super::snapshot::Moment;

pub(super) mod keys;
pub(super) mod log;
pub(super) mod order;
pub(super) mod queue;
mod relays;
pub(super) mod stats;
pub(super) mod status;
pub(super) mod tasks;
mod why;

/// Reads the database at a path, whether or not a daemon keeps it. It is opened for each question and closed
/// again: operators ask seldom, and a reader that stays keeps the database's log from being cut.
#[derive(Debug)]
pub struct SqliteReader {
    path: PathBuf,
    glance: Option<Glance>,
}

/// Several questions as of one moment, that of the first one.
#[derive(Debug)]
struct Glance {
    /// How long all of them may take.
    patience: Duration,
    moment: Mutex<Option<Moment>>,
}

impl SqliteReader {
    pub fn new(path: PathBuf) -> Self {
        Self { path, glance: None }
    }

    /// Opens the database once for all its questions, which may take so long together. Not for a reader that stays.
    pub fn glance(path: PathBuf, patience: Duration) -> Self {
        Self { path, glance: Some(Glance { patience, moment: Mutex::default() }) }
    }

    fn ask<T>(&self, ask: impl FnOnce(&Connection, i64) -> Result<Option<T>>) -> ReadResult<T> {
        let Some(Glance { patience, moment }) = &self.glance else {
            return Moment::of(&self.path, None)?.ask(ask);
        };
        let mut moment = moment.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *moment {
            Some(moment) => moment.ask(ask),
            none => none.insert(Moment::of(&self.path, Some(*patience))?).ask(ask),
        }
    }

    /// Asks a database that this version has taken over.
    fn look<T>(&self, look: impl FnOnce(&Connection) -> Result<T>) -> ReadResult<T> {
        self.ask(|snapshot, version| {
            (version == schema::VERSION).then(|| look(snapshot)).transpose()
        })
    }
}

impl Reader for SqliteReader {
    fn status(&self, now: UnixSeconds) -> ReadResult<QueueStatus> {
        self.ask(|snapshot, version| status::queue_status(snapshot, version, now).map(Some))
    }

    fn why(&self, now: UnixSeconds, key: &str, count_max: usize) -> ReadResult<Option<Why>> {
        self.look(|snapshot| why::why(snapshot, key, now, count_max))
    }

    fn next_jobs(&self, now: UnixSeconds, count: usize) -> ReadResult<Queue> {
        self.look(|snapshot| queue::queue(snapshot, count, now))
    }

    fn ended_attempts(&self, asked: &EndedAttempts) -> ReadResult<Log> {
        self.look(|snapshot| log::log(snapshot, asked))
    }

    fn ends_after(&self, after: Option<i64>, count: usize) -> ReadResult<Ends> {
        self.look(|snapshot| log::ends_after(snapshot, after, count))
    }

    fn tasks(&self, now: UnixSeconds, asked: &TasksWith) -> ReadResult<Tasks> {
        self.look(|snapshot| tasks::tasks(snapshot, asked, now))
    }

    fn jobs_by_minute(&self, now: UnixSeconds) -> ReadResult<Vec<MinuteJobs>> {
        self.look(|snapshot| status::jobs_by_minute(snapshot, now))
    }

    fn stats(&self, asked: &StatsOf) -> ReadResult<Stats> {
        self.look(|snapshot| stats::stats(snapshot, asked))
    }

    fn search(&self, prefix: &str, count: usize) -> ReadResult<Found> {
        self.look(|snapshot| keys::search(snapshot, prefix, count))
    }

    fn held(&self, count: usize) -> ReadResult<HeldKeys> {
        self.look(|snapshot| keys::held(snapshot, count))
    }

    fn last_starts(&self) -> ReadResult<LastStarts> {
        self.look(keys::last_starts)
    }

    fn turns(&self, now: UnixSeconds, keys: &[Key]) -> ReadResult<Vec<Turn>> {
        self.look(|snapshot| queue::turns(snapshot, keys, now))
    }
}
