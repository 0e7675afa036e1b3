//! The worker's side of the protocol: protocol 2 where the daemon speaks it, else the classic one. Each
//! request is tried once; whether to try again, and when, is for [`super::slot`] to decide.
//!
//! A daemon that closes a `HELLO` without a byte is a classic one, or is being restarted. Only two such
//! closes in a row, a second apart, say which. Protocol 2 goes over one connection that is kept; the
//! classic one takes a connection for each request, as its stock worker does.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::connection::{ANSWER_TIMEOUT, Connection, Silence, read, unexpected};
use shiftboss_protocol::model::Attempt;
use shiftboss_protocol::wire::session::{Hello, SessionRequest, Word};

use super::wire::{Answer, Ended, Idle, Job, Reported};

/// Closed `HELLO`s after which a daemon is a classic one.
const CLOSED_HELLOS: u32 = 2;
/// Between two `HELLO`s that are closed.
pub const HELLO_PAUSE: Duration = Duration::from_secs(1);
/// After so long one more `HELLO` tells whether the daemon is a classic one: two that were restarted
/// may have looked so.
const DOUBT_AFTER: Duration = Duration::from_secs(600);

/// How the daemon is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Dialect {
    /// Protocol 2, as far as is known.
    Two,
    Classic,
}

pub struct Client {
    socket: PathBuf,
    hello: Vec<u8>,
    dialect: Dialect,
    closed_hellos: u32,
    /// When a daemon that was taken for a classic one is asked again.
    doubt: Instant,
    connection: Option<Connection>,
    /// The classic answer to an end: the next job, or that there is none.
    given: Option<Answer>,
    /// A `HELLO` was answered since that was asked last.
    greeted: bool,
    /// Why there was no job, when that was said last.
    idle: Idle,
}

impl Client {
    /// A client of the daemon on `socket`, by this name and for this lease. Connects when it has to.
    pub fn new(socket: PathBuf, name: &str, lease_seconds: u32) -> Self {
        let hello = Hello { worker: name.into(), lease_seconds };
        let hello = format!("{hello}\n").into_bytes();
        let (dialect, closed_hellos) = (Dialect::Two, 0);
        let doubt = Instant::now();
        Self {
            socket,
            hello,
            dialect,
            closed_hellos,
            doubt,
            connection: None,
            given: None,
            greeted: false,
            idle: Idle::Nothing,
        }
    }

    /// Why there was no job, as the daemon said last.
    pub fn idle(&self) -> Idle {
        self.idle
    }

    /// Whether the daemon speaks nothing but the classic protocol.
    pub fn is_classic(&self) -> bool {
        self.dialect == Dialect::Classic
    }

    /// Whether a `HELLO` was answered since this was asked last.
    pub fn was_greeted(&mut self) -> bool {
        std::mem::take(&mut self.greeted)
    }

    /// Reports an end and asks for the next job, either or both, in one write. Returns what was said
    /// to the end. The job, if one was asked for, is taken by [`Client::next`].
    pub async fn ask(
        &mut self,
        end: Option<&Ended>,
        wait: Option<Duration>,
    ) -> Result<Option<Reported>, Silence> {
        self.greet().await?;
        match end {
            Some(Ended { job: Job { attempt: Some(attempt), .. }, code })
                if self.dialect == Dialect::Two =>
            {
                let (attempt, exit_code) = (*attempt, i64::from(*code));
                let request = match wait {
                    Some(wait) => SessionRequest::Next { attempt, exit_code, wait },
                    None => SessionRequest::Attempt(attempt, Word::Done(exit_code)),
                };
                let count = 1 + usize::from(wait.is_some());
                let answer = self.first_answer(&request, count).await?;
                self.reported(answer).map(Some)
            }
            Some(end) => {
                let key = String::from_utf8_lossy(&end.job.key);
                self.given = Some(self.classic(&format!("DONE {key} {}\n", end.code)).await?);
                Ok(Some(Reported::Recorded))
            }
            None if self.dialect == Dialect::Two => {
                if let Some(wait) = wait {
                    let line = format!("{}\n", SessionRequest::Ready { wait });
                    self.connection()?.send(line.as_bytes(), 1).await?;
                }
                Ok(None)
            }
            None => Ok(None),
        }
    }

    /// The job that was asked for, if there is one within `wait`. When `outdated` resolves, the
    /// request is taken back; a job may have come all the same. Must not be cancelled: the job would be
    /// lost to us until its lease ends.
    pub async fn next(
        &mut self,
        wait: Duration,
        outdated: impl Future<Output = ()>,
    ) -> Result<Option<Job>, Silence> {
        if let Some(given) = self.given.take() {
            return self.job(given);
        }
        if self.is_classic() {
            let answer = self.classic("READY\n").await?;
            return self.job(answer);
        }
        let connection = self.connection()?;
        let line = tokio::select! {
            line = connection.line(wait + ANSWER_TIMEOUT) => Some(line),
            () = outdated => None,
        };
        let line = match line {
            Some(line) => line?,
            None => self.take_back().await?,
        };
        let answer = self.read(&line)?;
        self.job(answer)
    }

    /// The job that the classic protocol gave in return for an end, without being asked.
    pub fn given(&mut self) -> Option<Job> {
        let given = self.given.take()?;
        self.job(given).ok().flatten()
    }

    /// Keeps an attempt. False: it is ours no longer. May be cancelled.
    pub async fn beat(&mut self, attempt: Attempt) -> Result<bool, Silence> {
        self.greet().await?;
        if self.is_classic() {
            return Ok(true);
        }
        match self.first_answer(&SessionRequest::Attempt(attempt, Word::Beat), 1).await? {
            Answer::Ok => Ok(true),
            Answer::Lost => Ok(false),
            other => Err(self.unexpected(other)),
        }
    }

    /// Gives an attempt back. False: a classic daemon takes nothing back.
    pub async fn release(&mut self, attempt: Attempt) -> Result<bool, Silence> {
        self.greet().await?;
        if self.is_classic() {
            return Ok(false);
        }
        let request = SessionRequest::Attempt(attempt, Word::Release);
        let answer = self.first_answer(&request, 1).await?;
        match self.reported(answer)? {
            // Refused: it is not ours any more.
            Reported::Recorded | Reported::Refused(_) => Ok(true),
            Reported::Busy(text) => Err(Silence::Refused(text)),
        }
    }

    /// Sends a request and reads its first answer, of as many.
    async fn first_answer(
        &mut self,
        request: &SessionRequest,
        count: usize,
    ) -> Result<Answer, Silence> {
        let connection = self.connection()?;
        connection.send(format!("{request}\n").as_bytes(), count).await?;
        let line = connection.line(ANSWER_TIMEOUT).await?;
        self.read(&line)
    }

    /// What is no answer ends the connection.
    fn read(&mut self, line: &[u8]) -> Result<Answer, Silence> {
        read(line).inspect_err(|_| self.connection = None)
    }

    /// Takes a waiting request back: any further line ends the wait.
    async fn take_back(&mut self) -> Result<Vec<u8>, Silence> {
        let mut connection = self.connection.take().ok_or(Silence::Closed)?;
        connection.write(b"QUIT\n", 1).await?;
        connection.line(ANSWER_TIMEOUT).await
    }

    fn job(&mut self, answer: Answer) -> Result<Option<Job>, Silence> {
        match answer {
            Answer::Job(job) => Ok(Some(job)),
            Answer::NoJobs(idle) => {
                self.idle = idle;
                Ok(None)
            }
            other => Err(self.unexpected(other)),
        }
    }

    fn reported(&mut self, answer: Answer) -> Result<Reported, Silence> {
        match answer {
            Answer::Ok => Ok(Reported::Recorded),
            Answer::Error { code, text } => match code.as_str() {
                "stale" | "unknown" => Ok(Reported::Refused(format!("{code} {text}"))),
                "busy" => Ok(Reported::Busy(text)),
                _ => Err(Silence::Refused(format!("{code} {text}"))),
            },
            other => Err(self.unexpected(other)),
        }
    }

    /// An answer to something else: there is no telling what comes next.
    fn unexpected(&mut self, answer: Answer) -> Silence {
        if !matches!(answer, Answer::Error { .. }) {
            self.connection = None;
        }
        unexpected(answer)
    }

    fn connection(&mut self) -> Result<&mut Connection, Silence> {
        self.connection.as_mut().ok_or(Silence::Closed)
    }

    /// Has a connection on which `HELLO` was answered, or knows that the daemon is a classic one.
    async fn greet(&mut self) -> Result<(), Silence> {
        let is_connected = self.connection.as_ref().is_some_and(Connection::is_sound);
        if self.is_classic() && Instant::now() >= self.doubt {
            self.ask_anew();
        }
        if self.is_classic() || is_connected {
            return Ok(());
        }
        self.connection = None;
        let closed_before = std::mem::take(&mut self.closed_hellos);
        let mut connection = Connection::open(&self.socket).await?;
        match hello(&mut connection, &self.hello).await {
            Err(Silence::Closed) if !connection.has_part() => {
                self.closed_hellos = closed_before + 1;
                if self.closed_hellos < CLOSED_HELLOS {
                    return Err(Silence::ClosedHello);
                }
                self.dialect = Dialect::Classic;
                self.doubt = Instant::now() + DOUBT_AFTER;
            }
            greeted => {
                greeted?;
                self.connection = Some(connection);
                self.greeted = true;
            }
        }
        Ok(())
    }

    /// One classic request, over a connection of its own.
    async fn classic(&mut self, line: &str) -> Result<Answer, Silence> {
        let answered = self.try_classic(line).await;
        if answered.is_err() && self.is_classic() {
            // It may have been replaced by one that speaks protocol 2.
            self.ask_anew();
        }
        answered
    }

    /// One `HELLO` will tell what the daemon speaks.
    fn ask_anew(&mut self) {
        self.dialect = Dialect::Two;
        self.closed_hellos = CLOSED_HELLOS - 1;
    }

    async fn try_classic(&mut self, line: &str) -> Result<Answer, Silence> {
        let mut connection = Connection::open(&self.socket).await?;
        connection.send(line.as_bytes(), 1).await?;
        connection.finish().await?;
        let line = connection.line(ANSWER_TIMEOUT).await?;
        Answer::read_classic(&line).ok_or_else(|| Silence::garbled(&line))
    }
}

async fn hello(connection: &mut Connection, hello: &[u8]) -> Result<(), Silence> {
    connection.send(hello, 1).await?;
    match read(&connection.line(ANSWER_TIMEOUT).await?)? {
        Answer::Hello => Ok(()),
        other => Err(unexpected(other)),
    }
}
