//! What is shown of a queue, each in one read transaction: how it stands ([`status`]), what is next ([`mod@queue`]),
//! where a key is ([`mod@why`]), what ended ([`mod@log`]), one by one and summed up ([`stats`]), which tasks have a status ([`mod@tasks`]). Asked through the
//! port [`Reader`], of which [`SqliteReader`] is the one for SQLite.

use std::path::PathBuf;

use rusqlite::{Connection, Result};
use shiftboss_actors::store::answers::{Log, Queue, QueueStatus, Stats, Tasks, Turn, Why};
use shiftboss_actors::store::{EndedAttempts, ReadResult, Reader, StatsOf, TasksWith};
use shiftboss_protocol::model::{Key, UnixSeconds};

use super::{schema, snapshot};

pub(super) mod log;
pub(super) mod order;
pub(super) mod queue;
mod relays;
mod stats;
pub(super) mod status;
pub(super) mod tasks;
mod why;

/// Reads the database at a path, whether or not a daemon keeps it. It is opened for each question and closed
/// again: operators ask seldom, and a reader that stays keeps the database's log from being cut.
#[derive(Debug)]
pub struct SqliteReader(pub PathBuf);

impl SqliteReader {
    /// Asks a database that this version has taken over.
    fn look<T>(&self, look: impl FnOnce(&Connection) -> Result<T>) -> ReadResult<T> {
        snapshot::read(&self.0, |snapshot, version| {
            (version == schema::VERSION).then(|| look(snapshot)).transpose()
        })
    }
}

impl Reader for SqliteReader {
    fn status(&self, now: UnixSeconds) -> ReadResult<QueueStatus> {
        let look = |snapshot: &_, version| status::queue_status(snapshot, version, now).map(Some);
        snapshot::read(&self.0, look)
    }

    fn why(&self, now: UnixSeconds, key: &str) -> ReadResult<Option<Why>> {
        self.look(|snapshot| why::why(snapshot, key, now))
    }

    fn next_jobs(&self, now: UnixSeconds, count: usize) -> ReadResult<Queue> {
        self.look(|snapshot| queue::queue(snapshot, count, now))
    }

    fn ended_attempts(&self, asked: &EndedAttempts) -> ReadResult<Log> {
        self.look(|snapshot| log::log(snapshot, asked))
    }

    fn tasks(&self, now: UnixSeconds, asked: &TasksWith) -> ReadResult<Tasks> {
        self.look(|snapshot| tasks::tasks(snapshot, asked, now))
    }

    fn stats(&self, asked: &StatsOf) -> ReadResult<Stats> {
        self.look(|snapshot| stats::stats(snapshot, asked))
    }

    fn turns(&self, now: UnixSeconds, keys: &[Key]) -> ReadResult<Vec<Turn>> {
        self.look(|snapshot| queue::turns(snapshot, keys, now))
    }
}
