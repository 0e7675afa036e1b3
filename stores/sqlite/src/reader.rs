//! Opens a queue in a file for readers, each question in one read transaction; [`listings`] finds the data, and
//! `shiftboss_queue::look` makes the answers.
//!
//! For read-only commands and operators' connections, with a daemon or without. Nothing is written.

mod listings;
mod supervisors;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rusqlite::Error;
use shiftboss_protocol::answers::QueueStatus;
use shiftboss_protocol::model::UnixSeconds;
use shiftboss_queue::look::{Look, Opens};
use shiftboss_queue::reader::{ReadError, ReadResult};
use shiftboss_queue::records::at_once;

use crate::snapshot::{Moment, failed};

/// Reads the database at a path, whether or not a daemon keeps it. It is opened for each question and closed again:
/// operators ask rarely, and a permanent reader would keep the database's log from being truncated.
#[derive(Debug)]
pub struct SqliteReader {
    path: PathBuf,
    glance: Option<Glance>,
}

/// Several questions as of one moment, that of the first one.
#[derive(Debug)]
struct Glance {
    /// How long all questions together may take.
    patience: Duration,
    moment: Mutex<Option<Moment>>,
}

impl SqliteReader {
    pub fn new(path: PathBuf) -> Self {
        Self { path, glance: None }
    }

    /// Opens the database once for all its questions, which may take `patience` together. Not for a permanent reader.
    pub fn glance(path: PathBuf, patience: Duration) -> Self {
        Self { path, glance: Some(Glance { patience, moment: Mutex::default() }) }
    }

    fn at_moment<T>(&self, ask: impl FnOnce(&mut Moment) -> ReadResult<T>) -> ReadResult<T> {
        let Some(Glance { patience, moment }) = &self.glance else {
            return ask(&mut Moment::of(&self.path, None)?);
        };
        let mut moment = moment.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *moment {
            Some(moment) => ask(moment),
            none => ask(none.insert(Moment::of(&self.path, Some(*patience))?)),
        }
    }
}

impl Opens for SqliteReader {
    type Found = Moment;

    fn ask<T>(
        &self,
        now: UnixSeconds,
        question: impl AsyncFnOnce(&mut Look<'_, Moment>) -> Result<T, Error>,
    ) -> ReadResult<T> {
        self.at_moment(|moment| {
            moment.require_taken_over()?;
            let answer = at_once(async { question(&mut Look::at(moment, now).await?).await });
            let waits = || ReadError::Failed("the database waits for somebody".to_owned());
            answer.ok_or_else(waits)?.map_err(failed(&self.path))
        })
    }

    fn status_of_others(&self, now: UnixSeconds) -> ReadResult<Option<QueueStatus>> {
        self.at_moment(|moment| {
            let others = Some(moment).filter(|moment| !moment.is_taken_over());
            let status = others.map(|moment| supervisors::status(moment.connection(), now));
            status.transpose().map_err(failed(&self.path))
        })
    }
}
