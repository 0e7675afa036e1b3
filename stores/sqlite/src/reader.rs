//! What can be asked of a queue in a file, each in one read transaction: how it stands (`status`), what is next (`queue`, along the
//! `order`), where a key is (`why`), which keys there are (`keys`), what ended (`log`), one by one and summed up (`sums`), which
//! tasks have a status (`tasks`).
//!
//! For commands that look and operators' connections, with a daemon or without. What may be handed out is asked of records, by the
//! queue's own rules; each listing goes along an index, and ends at its count. Nothing is written.

mod failed;
mod keys;
mod log;
mod order;
mod queue;
mod status;
mod sums;
mod supervisors;
mod tasks;
#[cfg(test)]
mod tests;
mod why;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rusqlite::{Connection, Result};
use serde::de::DeserializeOwned;
use shiftboss_protocol::model::{Key, TASKS_FETCHER, UnixSeconds};
use shiftboss_queue::answers::{
    Ends, Found, HeldKeys, LastStarts, Log, MinuteJobs, Queue, QueueStatus, Stats, Tasks, Turn, Why,
};
use shiftboss_queue::context::{Context, Settings};
use shiftboss_queue::documents::{DAEMON, Daemon, Kind};
use shiftboss_queue::reader::{EndedAttempts, ReadResult, Reader, StatsOf, TasksWith};
use shiftboss_queue::record::{FetcherId, Record, Task};
use shiftboss_queue::records::{KeyId, Payload};

use crate::documents;
use crate::header::{self, Kept};
use crate::load::Loader;
use crate::snapshot::Moment;

/// The time of questions that are about none.
const ANY_TIME: UnixSeconds = UnixSeconds::MAX;

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

    fn ask<T>(
        &self,
        now: UnixSeconds,
        question: impl FnOnce(&mut Look<'_>) -> Result<T>,
    ) -> ReadResult<T> {
        self.at_moment(|moment| moment.ask(|connection| question(&mut Look::at(connection, now)?)))
    }

    fn at_moment<T>(&self, ask: impl FnOnce(&Moment) -> ReadResult<T>) -> ReadResult<T> {
        let Some(Glance { patience, moment }) = &self.glance else {
            return ask(&Moment::of(&self.path, None)?);
        };
        let mut moment = moment.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *moment {
            Some(moment) => ask(moment),
            none => ask(none.insert(Moment::of(&self.path, Some(*patience))?)),
        }
    }
}

impl Reader for SqliteReader {
    fn status(&self, now: UnixSeconds) -> ReadResult<QueueStatus> {
        self.at_moment(|moment| match moment.is_taken_over() {
            true => moment.ask(|connection| Look::at(connection, now)?.status()),
            false => moment.ask_anyhow(|connection| supervisors::status(connection, now)),
        })
    }

    fn why(&self, now: UnixSeconds, key: &str, count_max: usize) -> ReadResult<Option<Why>> {
        self.ask(now, |look| look.why(key, count_max))
    }

    fn next_jobs(&self, now: UnixSeconds, count: usize) -> ReadResult<Queue> {
        self.ask(now, |look| look.next_jobs(count))
    }

    fn ended_attempts(&self, asked: &EndedAttempts) -> ReadResult<Log> {
        self.ask(ANY_TIME, |look| look.ended_attempts(asked))
    }

    fn ends_after(&self, after: Option<i64>, count: usize) -> ReadResult<Ends> {
        self.ask(ANY_TIME, |look| look.ends_after(after, count))
    }

    fn tasks(&self, now: UnixSeconds, asked: &TasksWith) -> ReadResult<Tasks> {
        self.ask(now, |look| look.tasks(asked))
    }

    fn jobs_by_minute(&self, now: UnixSeconds) -> ReadResult<Vec<MinuteJobs>> {
        self.ask(now, |look| look.jobs_by_minute())
    }

    fn stats(&self, asked: &StatsOf) -> ReadResult<Stats> {
        self.ask(ANY_TIME, |look| look.stats(asked))
    }

    fn search(&self, prefix: &str, count: usize) -> ReadResult<Found> {
        self.ask(ANY_TIME, |look| look.search(prefix, count))
    }

    fn held(&self, count: usize) -> ReadResult<HeldKeys> {
        self.ask(ANY_TIME, |look| look.held(count))
    }

    fn last_starts(&self) -> ReadResult<LastStarts> {
        self.ask(ANY_TIME, |look| look.last_starts())
    }

    fn turns(&self, now: UnixSeconds, keys: &[Key]) -> ReadResult<Vec<Turn>> {
        self.ask(now, |look| look.turns(keys))
    }
}

/// A look at one moment of the queue, by the rules of the daemon that runs, or ran last.
struct Look<'c> {
    connection: &'c Connection,
    loader: Loader<'c>,
    kept: Kept,
    /// `None`: none was ever started.
    daemon: Option<Daemon>,
    context: Context,
}

impl<'c> Look<'c> {
    fn at(connection: &'c Connection, now: UnixSeconds) -> Result<Self> {
        let kept = header::load(connection)?;
        let daemon: Option<Daemon> = document(connection, &DAEMON)?;
        let settings = daemon.as_ref().map_or_else(Settings::default, Daemon::settings);
        let context = kept.header.context(&Arc::new(settings), now.saturating_mul(1_000));
        Ok(Self { connection, loader: Loader::new(connection), kept, daemon, context })
    }

    fn name(&self, fetcher: FetcherId) -> String {
        self.context.fetcher(fetcher).to_string()
    }

    /// When a key was last started, as it stands in the order: the start of a clock that was ahead counts as just now.
    fn last_start(&self, record: &Record) -> Option<UnixSeconds> {
        record.stands_at().map(|at| at.min(self.context.seconds()))
    }

    /// A fetcher by its name.
    fn fetcher(&self, name: &str) -> Option<FetcherId> {
        if name == TASKS_FETCHER {
            return Some(FetcherId::TASKS);
        }
        let mut known = self.context.fetchers.iter().rev();
        known.find(|(_, known)| &***known == name).map(|(id, _)| *id)
    }

    /// What a task's worker is given; empty, where that cannot be read.
    fn payload(&self, key: KeyId, task: Task) -> Result<String> {
        Ok(match self.loader.payload(key, task)? {
            Payload::Text(text) => text,
            Payload::Missing | Payload::Damaged => String::new(),
        })
    }

    /// Documents of a kind, by whose they are; one that is not what it should be is none.
    fn documents<T: DeserializeOwned>(&self, kind: &Kind<T>) -> Result<Vec<(String, T)>> {
        let found = documents::all(self.connection, kind.name())?.into_iter();
        Ok(found.filter_map(|(name, text)| kind.read(&name, &text)).collect())
    }

    fn document<T: DeserializeOwned>(&self, kind: &Kind<T>) -> Result<Option<T>> {
        document(self.connection, kind)
    }
}

/// The only document of a kind; one that is not what it should be is none.
fn document<T: DeserializeOwned>(connection: &Connection, kind: &Kind<T>) -> Result<Option<T>> {
    let text = documents::find(connection, kind.name())?;
    Ok(text.and_then(|text| kind.read(kind.name(), &text)).map(|(_, it)| it))
}

/// As people are told a time or a while, who know no milliseconds.
fn seconds(millis: i64) -> i64 {
    millis.div_euclid(1_000)
}

/// Fetcher's run, or number, as it is shown.
fn run_of(task: Task) -> i64 {
    match task {
        Task::Row { run, .. } => run,
        Task::Single { number } => number,
    }
}

fn limit(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
