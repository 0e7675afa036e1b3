//! The port's other half: what can be asked of a queue without changing it.
//!
//! A [`Reader`] is asked by connections for operators, and by commands, which open one without a daemon.
//! [`Ask`] keeps a question and the type of its answer together. A new question is a struct here, a line in the
//! table below, and an arm in each store; what it is answered is in [`answers`](super::answers).

use thiserror::Error;

use super::answers::{Log, Queue, QueueStatus, TaskStatus, Tasks, Turn, Why};
use shiftboss_protocol::model::{Key, UnixSeconds};

/// Looks at a queue, whoever keeps it: at all of it, not at one daemon's part.
pub trait Reader: Send + Sync {
    /// Answers a question as of one moment, from any thread, which it may block for long.
    ///
    /// `now` is the asker's clock; a store that keeps time itself does not need it.
    ///
    /// # Errors
    /// When the queue is not there, is not to be had, or cannot be read.
    fn read(&self, now: UnixSeconds, question: Question) -> Result<Answer, ReadError>;
}

impl dyn Reader + '_ {
    /// [`Reader::read`], with the type of this question's answer.
    ///
    /// # Errors
    /// As there.
    pub fn ask<Q: Ask>(&self, now: UnixSeconds, question: Q) -> Result<Q::Answer, ReadError> {
        let answer = self.read(now, question.into())?;
        Q::answer(answer)
            .ok_or_else(|| ReadError::Failed("another question was answered".to_owned()))
    }
}

/// Why a question has no answer. The text says what to do.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ReadError {
    /// The queue is not there, or is not to be had now.
    #[error("{0}")]
    Unavailable(String),
    /// What is there is no queue that this program knows: somebody else's, or of another version.
    #[error("{0}")]
    Foreign(String),
    /// This user may not read it.
    #[error("{0}")]
    Denied(String),
    /// It is damaged.
    #[error("{0}")]
    Corrupt(String),
    /// Reading failed.
    #[error("{0}")]
    Failed(String),
}

/// How the queue stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status;

/// Where a key is, and why it is not the next one; `None`: nobody ever heard of it. What is no key is asked
/// for as well: somebody typed it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WhyKey(pub String);

/// The next jobs in the order in which they would be handed out now: one to 10,000.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NextJobs(pub usize);

/// Attempts that ended, the one that was handed out last first, of those that are kept.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EndedAttempts {
    /// Those only that ended with `failure` or `timeout`.
    pub failed: bool,
    /// Those only that ended at that time or later.
    pub since: Option<UnixSeconds>,
    /// Those only of this key.
    pub key: Option<String>,
    /// At most so many, and at most 10,000.
    pub count: usize,
}

/// The tasks with a status: failed ones newest first, those in flight oldest first, waiting ones in the order of
/// their turns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TasksWith {
    pub status: TaskStatus,
    /// Those only of this fetcher.
    pub fetcher: Option<String>,
    /// Those only that came into their status at that time or later; failed ones and those in flight.
    pub since: Option<UnixSeconds>,
    /// At most so many.
    pub count: usize,
}

/// When single tasks of these keys are expected to be handed out; in their order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Turns(pub Vec<Key>);

/// A question with the type of its answer.
pub trait Ask: Into<Question> {
    type Answer;

    /// Takes its answer; `None`: that is another question's, which is a defect of the store.
    fn answer(answer: Answer) -> Option<Self::Answer>;
}

/// The table of questions: what is asked, and the type of its answer.
macro_rules! questions {
    ($($question:ident => $answer:ty,)*) => {
        /// What can be asked.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub enum Question { $($question($question),)* }

        /// What a [`Question`] is answered.
        #[derive(Debug, Clone, PartialEq, Eq)]
        #[allow(clippy::large_enum_variant)] // There is one at a time.
        pub enum Answer { $($question($answer),)* }

        $(impl From<$question> for Question {
            fn from(question: $question) -> Self {
                Self::$question(question)
            }
        }

        impl Ask for $question {
            type Answer = $answer;

            fn answer(answer: Answer) -> Option<$answer> {
                match answer {
                    Answer::$question(answer) => Some(answer),
                    _ => None,
                }
            }
        })*
    };
}

questions! {
    Status => QueueStatus,
    WhyKey => Option<Why>,
    NextJobs => Queue,
    EndedAttempts => Log,
    TasksWith => Tasks,
    Turns => Vec<Turn>,
}
