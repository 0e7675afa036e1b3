//! Who opens a queue in a file for those who look, each question in one read transaction; what is found there says
//! [`listings`], and what is made of it `shiftboss_queue::look`.
//!
//! For commands that look and operators' connections, with a daemon or without. Nothing is written.

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
