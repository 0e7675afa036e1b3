//! A worker: it takes a job, keeps its lease alive, and reports how it ended.

use std::io;
use std::path::Path;
use std::time::Duration;

use thiserror::Error;

use super::{Connection, Deadline, Interrupt};
use crate::model::{Attempt, Idle};
use crate::wire::answers::{Answer, Job};
use crate::wire::session::{Hello, SessionRequest, WAIT_SECONDS_MAX, Word};

/// The daemon answers within 4 seconds or closes: who waits for 5 never hangs up too early.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// What is shown of a line that is no answer.
const SHOWN_BYTES: usize = 60;

/// Why there is no answer. After any but `Refused` connect anew: what was asked may have been done, and may be
/// asked again.
#[derive(Debug, Error)]
pub enum ClientError {
    /// Nobody listens on the socket, or not for us.
    #[error(
        "cannot connect to the socket: {0}; does a daemon run, and may this user write to its socket?"
    )]
    Connect(#[source] io::Error),
    /// The connection failed, or nothing came in time.
    #[error("the connection to the daemon failed: {0}")]
    Io(#[from] io::Error),
    /// The daemon stops, or speaks the classic protocol only.
    #[error("the daemon closed the connection without an answer")]
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
        let mut worker = Self { connection: open(socket)? };
        let hello = Hello { worker: name.into(), lease_seconds };
        worker.connection.send(format!("{hello}\n").as_bytes(), within(Duration::ZERO))?;
        match worker.answer(Duration::ZERO)? {
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
        self.send(&SessionRequest::Ready { wait })?;
        self.job(wait)
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

    /// Sends a request, whose answers are to be read in their order: [`SessionRequest::Next`] reports an end and
    /// asks for a job, and its answers are [`Worker::is_ours`] and [`Worker::job`].
    ///
    /// # Errors
    /// When it cannot be sent.
    pub fn send(&mut self, request: &SessionRequest) -> Result<(), ClientError> {
        Ok(self.connection.send(format!("{request}\n").as_bytes(), within(Duration::ZERO))?)
    }

    /// Reads the answer to a `READY` that waits so long.
    ///
    /// # Errors
    /// When there is no answer.
    pub fn job(&mut self, wait: Duration) -> Result<Result<Job, Idle>, ClientError> {
        given(self.answer(wait)?)
    }

    /// Reads the answer to a request about an attempt.
    ///
    /// # Errors
    /// When there is no answer, or it is an error.
    pub fn is_ours(&mut self) -> Result<bool, ClientError> {
        match self.answer(Duration::ZERO)? {
            Answer::Ok => Ok(true),
            Answer::Lost => Ok(false),
            other => Err(unexpected(other)),
        }
    }

    /// What ends a wait for a job from another thread.
    #[must_use]
    pub fn interrupt(&self) -> Interrupt {
        self.connection.interrupt()
    }

    fn say(&mut self, attempt: Attempt, word: Word) -> Result<bool, ClientError> {
        self.send(&SessionRequest::Attempt(attempt, word))?;
        self.is_ours()
    }

    fn answer(&mut self, wait: Duration) -> Result<Answer, ClientError> {
        read(&mut self.connection, wait, Answer::read)
    }
}

/// Asks one line of the classic protocol, over a connection of its own as its workers do. The inner error says
/// that there is no job.
///
/// # Errors
/// When there is no answer.
pub fn ask_classic(socket: &Path, line: &str) -> Result<Result<Job, Idle>, ClientError> {
    let mut connection = open(socket)?;
    connection.send(format!("{line}\n").as_bytes(), within(Duration::ZERO))?;
    connection.end_sending();
    given(read(&mut connection, Duration::ZERO, Answer::read_classic)?)
}

fn open(socket: &Path) -> Result<Connection, ClientError> {
    Connection::connect(socket, within(Duration::ZERO)).map_err(ClientError::Connect)
}

fn read(
    connection: &mut Connection,
    wait: Duration,
    answer: impl FnOnce(&[u8]) -> Option<Answer>,
) -> Result<Answer, ClientError> {
    let line = connection.line_bytes(within(wait))?.ok_or(ClientError::Closed)?;
    answer(&line).ok_or_else(|| {
        let shown = &line[..line.len().min(SHOWN_BYTES)];
        ClientError::Garbled(String::from_utf8_lossy(shown).into_owned())
    })
}

/// The end of the time for an answer that may take `wait`.
fn within(wait: Duration) -> Deadline {
    Deadline::NEVER.or_after(wait + ANSWER_TIMEOUT)
}

fn given(answer: Answer) -> Result<Result<Job, Idle>, ClientError> {
    match answer {
        Answer::Job(job) => Ok(Ok(job)),
        Answer::NoJobs(idle) => Ok(Err(idle)),
        other => Err(unexpected(other)),
    }
}

/// An answer that does not belong to what was asked.
fn unexpected(answer: Answer) -> ClientError {
    match answer {
        Answer::Error { code, text } => ClientError::Refused { code, text },
        other => ClientError::Garbled(format!("{other:.60?}")),
    }
}
