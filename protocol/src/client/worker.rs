//! A worker: it takes a job, keeps its lease alive, and reports how it ended.

use std::io;
use std::path::Path;
use std::time::Duration;

use thiserror::Error;

use super::{Connection, Deadline};
use crate::model::{Attempt, Idle};
use crate::wire::answers::{Answer, Job};
use crate::wire::session::{Hello, SessionRequest, WAIT_SECONDS_MAX, Word};

/// The daemon answers within 4 seconds or closes.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Why there is no answer. After any but `Refused` connect anew: what was asked may have been done, and may be
/// asked again.
#[derive(Debug, Error)]
pub enum ClientError {
    /// The socket failed, or nothing came in time.
    #[error("the connection to the daemon failed: {0}")]
    Io(#[from] io::Error),
    /// The daemon stops, or speaks the classic protocol only.
    #[error("the daemon closed the connection")]
    Closed,
    /// Not an answer to what was asked.
    #[error("not an answer: {0:?}")]
    Garbled(String),
    /// An `ERROR` of the protocol.
    #[error("the daemon refused: {code} {text}")]
    Refused {
        /// `stale`, `busy` and the like.
        code: String,
        /// For people.
        text: String,
    },
}

/// A connection that has greeted the daemon in protocol 2. One job at a time is usual, and not required.
///
/// ```no_run
/// use std::{path::Path, time::Duration};
/// use shiftboss_protocol::client::Worker;
///
/// let mut worker = Worker::connect(Path::new("/run/shiftboss/worker.sock"), "builder-1", 60)?;
/// while let Ok(job) = worker.next(Duration::from_secs(600))? {
///     println!("{}", job.shown_key());
///     if let Some(attempt) = job.attempt {
///         worker.done(attempt, 0)?;
///     }
/// }
/// # Ok::<(), shiftboss_protocol::client::ClientError>(())
/// ```
#[derive(Debug)]
pub struct Worker {
    connection: Connection,
}

impl Worker {
    /// Connects to the socket, as a worker of this name. Its jobs are handed out again after `lease_seconds` (1 to
    /// 604,800) without a request of it.
    ///
    /// # Errors
    /// When nobody answers as a daemon of protocol 2 does.
    pub fn connect(socket: &Path, name: &str, lease_seconds: u32) -> Result<Self, ClientError> {
        let deadline = within(Duration::ZERO);
        let mut worker = Self { connection: Connection::connect(socket, deadline)? };
        let hello = Hello { worker: name.into(), lease_seconds };
        worker.connection.send(format!("{hello}\n").as_bytes(), deadline)?;
        match worker.answer(deadline)? {
            Answer::Hello => Ok(worker),
            other => Err(unexpected(other)),
        }
    }

    /// The next job; waits for one up to `wait`, in whole seconds and a day at most. The inner error says why
    /// there is none.
    ///
    /// # Errors
    /// When there is no answer.
    pub fn next(&mut self, wait: Duration) -> Result<Result<Job, Idle>, ClientError> {
        let wait = wait.min(Duration::from_secs(WAIT_SECONDS_MAX.into()));
        match self.ask(&SessionRequest::Ready { wait }, wait)? {
            Answer::Job(job) => Ok(Ok(job)),
            Answer::NoJobs(idle) => Ok(Err(idle)),
            other => Err(unexpected(other)),
        }
    }

    /// Reports the end of an attempt: 0 is success. The answer means that it is on disk.
    ///
    /// # Errors
    /// `Refused` with `stale` when the lease expired and the job is another worker's.
    pub fn done(&mut self, attempt: Attempt, exit_code: i64) -> Result<(), ClientError> {
        self.say(attempt, Word::Done(exit_code)).map(|_| ())
    }

    /// Gives an attempt back: its task waits again at its old place.
    ///
    /// # Errors
    /// As of [`Worker::done`].
    pub fn release(&mut self, attempt: Attempt) -> Result<(), ClientError> {
        self.say(attempt, Word::Release).map(|_| ())
    }

    /// Keeps an attempt's lease. False: it expired, and the work is to be stopped.
    ///
    /// # Errors
    /// When there is no answer.
    pub fn beat(&mut self, attempt: Attempt) -> Result<bool, ClientError> {
        self.say(attempt, Word::Beat)
    }

    /// Whether the attempt is ours.
    fn say(&mut self, attempt: Attempt, word: Word) -> Result<bool, ClientError> {
        match self.ask(&SessionRequest::Attempt(attempt, word), Duration::ZERO)? {
            Answer::Ok => Ok(true),
            Answer::Lost => Ok(false),
            other => Err(unexpected(other)),
        }
    }

    fn ask(&mut self, request: &SessionRequest, wait: Duration) -> Result<Answer, ClientError> {
        let deadline = within(wait);
        self.connection.send(format!("{request}\n").as_bytes(), deadline)?;
        self.answer(deadline)
    }

    fn answer(&mut self, deadline: Deadline) -> Result<Answer, ClientError> {
        let line = self.connection.line(deadline)?.ok_or(ClientError::Closed)?;
        Answer::read(line.as_bytes()).ok_or(ClientError::Garbled(line))
    }
}

/// The end of the time for an answer that may take `wait`.
fn within(wait: Duration) -> Deadline {
    Deadline::NEVER.or_after(wait + ANSWER_TIMEOUT)
}

fn unexpected(answer: Answer) -> ClientError {
    match answer {
        Answer::Error { code, text } => ClientError::Refused { code, text },
        other => ClientError::Garbled(format!("{other:.60?}")),
    }
}
