//! What is shown of a queue, each in one read transaction: how it stands ([`queue_status`]), what is
//! next ([`queue()`], [`turns`]), where a key is ([`why()`]), what ended ([`log`]), which tasks have a status
//! ([`tasks()`]). Asked through the port [`Reader`], of which [`SqliteReader`] is the one for SQLite.

use std::path::{Path, PathBuf};

use shiftboss_actors::store::{
    Answer, NextJobs, Question, ReadError, ReadFuture, Reader, Turns, WhyKey,
};
use shiftboss_protocol::model::UnixSeconds;
use tokio::task::spawn_blocking;

pub use attempts::log;
pub use queue::{queue, turns};
pub use status::queue_status;
pub use tasks::tasks;
pub use why::why;

mod attempts;
mod order;
pub(super) mod queue;
pub(super) mod status;
mod tasks;
mod why;

/// Reads the database at a path, whether or not a daemon keeps it. It is opened for each question and closed
/// again: operators ask seldom, and a reader that stays keeps the database's log from being cut.
#[derive(Debug)]
pub struct SqliteReader {
    pub database: PathBuf,
    /// On the thread that asks, which has nothing else to do; else on one for it.
    pub blocks: bool,
}

impl Reader for SqliteReader {
    fn read(&self, now: UnixSeconds, question: Question) -> ReadFuture<'_> {
        let (path, blocks) = (self.database.clone(), self.blocks);
        Box::pin(async move {
            if blocks {
                return answer(&path, now, question);
            }
            let answered = spawn_blocking(move || answer(&path, now, question)).await;
            answered.unwrap_or_else(|error| Err(ReadError::Failed(error.to_string())))
        })
    }
}

/// One flat match over all questions.
fn answer(path: &Path, now: UnixSeconds, question: Question) -> Result<Answer, ReadError> {
    Ok(match question {
        Question::Status(_) => Answer::Status(queue_status(path, now)?),
        Question::WhyKey(WhyKey(key)) => Answer::WhyKey(why(path, &key, now)?),
        Question::NextJobs(NextJobs(count)) => Answer::NextJobs(queue(path, count, now)?),
        Question::EndedAttempts(asked) => Answer::EndedAttempts(log(path, &asked)?),
        Question::TasksWith(asked) => Answer::TasksWith(tasks(path, &asked, now)?),
        Question::Turns(Turns(keys)) => Answer::Turns(turns(path, &keys, now)?),
    })
}
