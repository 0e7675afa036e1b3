//! A worker: it takes a job, keeps its lease alive, and reports how it ended.

use std::fmt::Display;
use std::io;
use std::path::Path;
use std::time::Duration;

use thiserror::Error;

use super::{Connection, Deadline, within};
use crate::model::{Attempt, Idle};
use crate::verbs::{Asks, Beat, Done, Fetchers, Lease, Name, Ready, Release, Verb, Wait, checked};
use crate::wire::answers::{Answer, Job};
use crate::wire::session::{ErrorCode, Hello};

/// The daemon answers within 4 seconds or closes: a client that waits for 5 never hangs up too early.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
const SHOWN_BYTES: usize = 60;

/// Why there is no answer. After any error but `Refused`, connect anew: the request may have been carried out, and may
/// be repeated.
#[derive(Debug, Error)]
pub enum ClientError {
    /// There is no listener on the socket, or it is closed to us.
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
    #[error("not an answer: {0:?}")]
    Garbled(String),
    #[error("the daemon refused: {code} {text}")]
    Refused {
        /// `stale`, `busy` and the like.
        code: String,
        text: String,
    },
}

impl ClientError {
    pub fn garbled(line: &[u8]) -> Self {
        let shown = &line[..line.len().min(SHOWN_BYTES)];
        Self::Garbled(String::from_utf8_lossy(shown).into_owned())
    }
}

/// An answer that does not fit the request.
impl From<Answer> for ClientError {
    fn from(answer: Answer) -> Self {
        match answer {
            Answer::Error { code, text } => Self::Refused { code, text },
            other => Self::Garbled(format!("{other:.60?}")),
        }
    }
}

/// What a worker is to do with an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BeatAnswer {
    GoOn,
    /// End the work, and [release](Worker::release) the attempt: it is cancelled then.
    Stop,
    /// End the work: the attempt is over, and its job may be another worker's.
    Lost,
}

impl BeatAnswer {
    /// Reads the answer to a beat.
    ///
    /// # Errors
    /// The answer, if it is none.
    pub fn of(answer: Answer) -> Result<Self, Answer> {
        match answer {
            Answer::Ok => Ok(Self::GoOn),
            Answer::Stop => Ok(Self::Stop),
            Answer::Lost => Ok(Self::Lost),
            other => Err(other),
        }
    }
}

/// A connection that has opted in to protocol 2. It usually has one job at a time, but may have more.
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
    /// Connects to the socket as the worker `name`. A job is handed out again after `lease_seconds` (1 to 604,800)
    /// without a [`beat`](Self::beat).
    ///
    /// # Errors
    /// If no daemon of protocol 2 answers.
    pub fn connect(socket: &Path, name: &str, lease_seconds: u32) -> Result<Self, ClientError> {
        let usage = |text| ClientError::Refused { code: ErrorCode::Usage.to_string(), text };
        let lease = checked::<Lease>(&lease_seconds.to_string()).map_err(usage)?;
        let hello = Hello { worker: checked::<Name>(name).map_err(usage)?, lease };
        let connection = Connection::connect(socket, answer_within(Duration::ZERO));
        let mut worker = Self { connection: connection.map_err(ClientError::Connect)? };
        worker.send(hello)?;
        match worker.answer(Duration::ZERO)? {
            Answer::Hello => Ok(worker),
            other => Err(other.into()),
        }
    }

    /// The next job; waits for one up to `wait`, in whole seconds and at most a day. The inner error says why there is
    /// none.
    pub fn next(&mut self, wait: Duration) -> Result<Result<Job, Idle>, ClientError> {
        match self.ask(&Ready { seconds: Wait::of(wait), fetchers: Fetchers::All }, wait)? {
            Answer::Job(job) => Ok(Ok(job)),
            Answer::NoJobs(idle) => Ok(Err(idle)),
            other => Err(other.into()),
        }
    }

    /// Reports the end of an attempt: 0 is success. The answer means that it is on disk.
    ///
    /// # Errors
    /// `Refused` with `stale` if the lease expired and another worker has the job.
    pub fn done(&mut self, attempt: Attempt, exit_code: i64) -> Result<(), ClientError> {
        self.report(&Done { attempt, code: exit_code, asks: Asks::NOTHING })
    }

    /// Gives an attempt back: its task waits again at its old place, unless it was to stop.
    pub fn release(&mut self, attempt: Attempt) -> Result<(), ClientError> {
        self.report(&Release { attempt })
    }

    /// Extends an attempt's lease. Waits up to `wait`, in whole seconds and at most a day, whether the work is to stop;
    /// less than the lease, which runs meanwhile.
    pub fn beat(&mut self, attempt: Attempt, wait: Duration) -> Result<BeatAnswer, ClientError> {
        let answer = self.ask(&Beat { attempt, seconds: Wait::of(wait) }, wait)?;
        BeatAnswer::of(answer).map_err(ClientError::from)
    }

    fn send(&mut self, line: impl Display) -> Result<(), ClientError> {
        Ok(self.connection.send(format!("{line}\n").as_bytes(), answer_within(Duration::ZERO))?)
    }

    /// Sends a request, and reads its answer, which may take `wait`.
    fn ask(
        &mut self,
        request: &impl Verb<Answer = Answer>,
        wait: Duration,
    ) -> Result<Answer, ClientError> {
        self.send(request)?;
        self.answer(wait)
    }

    fn report(&mut self, request: &impl Verb<Answer = Answer>) -> Result<(), ClientError> {
        match self.ask(request, Duration::ZERO)? {
            Answer::Ok => Ok(()),
            other => Err(other.into()),
        }
    }

    fn answer(&mut self, wait: Duration) -> Result<Answer, ClientError> {
        let line = self.connection.line_bytes(answer_within(wait))?.ok_or(ClientError::Closed)?;
        Answer::read(&line).ok_or_else(|| ClientError::garbled(&line))
    }
}

/// The deadline of an answer that may take `wait`.
fn answer_within(wait: Duration) -> Deadline {
    within(wait.saturating_add(ANSWER_TIMEOUT))
}
