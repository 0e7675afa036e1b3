//! What is shown of a queue, each in one read transaction: how it stands ([`status`]), what is next ([`mod@queue`]),
//! where a key is ([`mod@why`]), what ended ([`attempts`]), which tasks have a status ([`mod@tasks`]). Asked through the
//! port [`Reader`], of which [`SqliteReader`] is the one for SQLite.

use std::path::PathBuf;

use rusqlite::{Connection, Result};
use shiftboss_actors::store::{Answer, NextJobs, Question, ReadError, Reader, Turns, WhyKey};
use shiftboss_protocol::model::UnixSeconds;

use super::{schema, snapshot};

mod attempts;
pub(super) mod order;
pub(super) mod queue;
pub(super) mod status;
mod tasks;
mod why;

/// Reads the database at a path, whether or not a daemon keeps it. It is opened for each question and closed
/// again: operators ask seldom, and a reader that stays keeps the database's log from being cut.
#[derive(Debug)]
pub struct SqliteReader(pub PathBuf);

impl Reader for SqliteReader {
    fn read(&self, now: UnixSeconds, question: Question) -> Result<Answer, ReadError> {
        snapshot::read(&self.0, |snapshot, version| answer(snapshot, version, question, now))
    }
}

/// One flat match over all questions; `None`: only a database that this version has taken over has an answer.
fn answer(
    snapshot: &Connection,
    version: i64,
    question: Question,
    now: UnixSeconds,
) -> Result<Option<Answer>> {
    Ok(Some(match question {
        Question::Status(_) => Answer::Status(status::queue_status(snapshot, version, now)?),
        _ if version != schema::VERSION => return Ok(None),
        Question::WhyKey(WhyKey(key)) => Answer::WhyKey(why::why(snapshot, &key, now)?),
        Question::NextJobs(NextJobs(count)) => {
            Answer::NextJobs(queue::queue(snapshot, count, now)?)
        }
        Question::EndedAttempts(asked) => Answer::EndedAttempts(attempts::log(snapshot, &asked)?),
        Question::TasksWith(asked) => Answer::TasksWith(tasks::tasks(snapshot, &asked, now)?),
        Question::Turns(Turns(keys)) => Answer::Turns(queue::turns(snapshot, &keys, now)?),
    }))
}
