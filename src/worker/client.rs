//! The worker's side of the protocol: protocol 2 where the daemon speaks it, else the classic one. Each
//! request is tried once; whether to try again, and when, is for [`super::source`] to decide.
//!
//! A daemon that closes a `HELLO` without a byte is a classic one, or is being restarted. Only two such
//! closes in a row, a second apart, say which. Protocol 2 goes over one connection that is kept; the
//! classic one takes a connection for each request, as its stock worker does.

use std::future::pending;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use shiftboss_protocol::client::{ClientError, ready};
use shiftboss_protocol::model::{Attempt, Idle};
use shiftboss_protocol::wire::answers::{Answer, Job};
use shiftboss_protocol::wire::session::VERSION;
use tokio::time::sleep;

use super::connection::Connection;

/// Between two `HELLO`s that are closed.
const HELLO_PAUSE: Duration = Duration::from_secs(1);
/// After so long one more `HELLO` tells whether the daemon is a classic one: two that were restarted
/// may have looked so.
const DOUBT_AFTER: Duration = Duration::from_secs(600);

/// A job, or why there is none.
pub type Given = Result<Job, Idle>;

/// A client of a daemon. All its calls but [`Client::job`] may be dropped: where an answer is missing then, the next
/// request goes over another connection.
pub struct Client {
    socket: PathBuf,
    /// The worker's name.
    pub name: String,
    /// How long the daemon waits for a word of us. In whole seconds.
    pub lease: Duration,
    /// The connection on which `HELLO` was answered.
    connection: Option<Connection>,
    /// The daemon spoke the classic protocol alone; when it is asked again.
    classic_until: Option<Instant>,
    /// The classic answer to an end: the next job, or that there is none.
    given: Option<Given>,
}

impl Client {
    /// A client of the daemon on `socket`. Connects when it has to.
    pub fn new(socket: PathBuf, name: String, lease: Duration) -> Self {
        Self { socket, name, lease, connection: None, classic_until: None, given: None }
    }

    /// Whether the daemon speaks nothing but the classic protocol.
    pub fn is_classic(&self) -> bool {
        self.classic_until.is_some()
    }

    /// Has a connection on which `HELLO` was answered, or knows that the daemon is a classic one. True: it was
    /// answered now.
    pub async fn greet(&mut self) -> Result<bool, ClientError> {
        let is_classic = self.classic_until.is_some_and(|until| Instant::now() < until);
        if is_classic || self.connection.as_ref().is_some_and(|connection| connection.is_usable) {
            return Ok(false);
        }
        self.connection = None;
        let mut greeted = self.hello().await;
        // One that was a classic one is so if it closes once more.
        if self.classic_until.take().is_none() && matches!(greeted, Err(ClientError::Closed)) {
            sleep(HELLO_PAUSE).await;
            greeted = self.hello().await;
        }
        if matches!(greeted, Err(ClientError::Closed)) {
            self.classic_until = Instant::now().checked_add(DOUBT_AFTER);
            return Ok(false);
        }
        self.connection = Some(greeted?);
        Ok(true)
    }

    async fn hello(&self) -> Result<Connection, ClientError> {
        let mut connection = Connection::connect(&self.socket).await?;
        connection.send(&format!("HELLO {VERSION} {} {}", self.name, self.lease.as_secs())).await?;
        let is_hello = |answer| if answer == Answer::Hello { Ok(()) } else { Err(answer) };
        connection.answer(Duration::ZERO, pending(), is_hello).await.map(|()| connection)
    }

    fn connection(&mut self) -> Result<&mut Connection, ClientError> {
        self.connection.as_mut().ok_or(ClientError::Closed)
    }

    /// Reports an end to a daemon that was greeted; with `wait` it also asks for the next job, in one write. What is
    /// refused is the end alone.
    pub async fn report(
        &mut self,
        (job, code): &(Job, u8),
        wait: Option<Duration>,
    ) -> Result<(), ClientError> {
        let Some(attempt) = job.attempt.filter(|_| !self.is_classic()) else {
            self.given = Some(self.classic(&format!("DONE {} {code}", job.shown_key())).await?);
            return Ok(());
        };
        let ask = wait.map(|wait| format!("\n{}", ready(wait))).unwrap_or_default();
        self.is_ours(&format!("DONE {} {code}{ask}", attempt.0)).await.map(drop)
    }

    /// Asks a daemon that was greeted for a job, for which it waits so long.
    pub async fn ask(&mut self, wait: Duration) -> Result<(), ClientError> {
        if self.is_classic() { Ok(()) } else { self.connection()?.send(&ready(wait)).await }
    }

    /// The job that was asked for, if there is one within `wait`; none where nothing was asked for, except that the
    /// classic protocol gives one in return for an end. When `enough` resolves the request is taken back. Must not
    /// be dropped: a job that comes would be lost to us until its lease ends.
    pub async fn job(
        &mut self,
        wait: Option<Duration>,
        enough: impl Future<Output = ()>,
    ) -> Result<Option<Given>, ClientError> {
        match (self.given.take(), wait) {
            (None, Some(_)) if self.is_classic() => self.classic("READY").await.map(Some),
            (None, Some(wait)) => self.connection()?.answer(wait, enough, given).await.map(Some),
            (given, _) => Ok(given),
        }
    }

    /// Keeps an attempt. False: it is ours no longer.
    pub async fn beat(&mut self, attempt: Attempt) -> Result<bool, ClientError> {
        self.greet().await?;
        if self.is_classic() {
            return Ok(true);
        }
        self.is_ours(&format!("BEAT {}", attempt.0)).await
    }

    /// Gives an attempt back. False: a classic daemon takes nothing back.
    pub async fn release(&mut self, attempt: Attempt) -> Result<bool, ClientError> {
        self.greet().await?;
        if self.is_classic() {
            return Ok(false);
        }
        match self.is_ours(&format!("RELEASE {}", attempt.0)).await {
            Err(ClientError::Refused { code, .. }) if is_not_ours(&code) => Ok(true),
            released => released.map(|_| true),
        }
    }

    /// Sends a request about an attempt, and returns whether that is ours, as the daemon says.
    async fn is_ours(&mut self, request: &str) -> Result<bool, ClientError> {
        let connection = self.connection()?;
        connection.send(request).await?;
        let is_ours = |answer| match answer {
            Answer::Ok => Ok(true),
            Answer::Lost => Ok(false),
            other => Err(other),
        };
        connection.answer(Duration::ZERO, pending(), is_ours).await
    }

    /// One classic request. Without an answer the daemon may have been replaced by one that speaks protocol 2.
    async fn classic(&mut self, request: &str) -> Result<Given, ClientError> {
        let ask = async { Connection::connect(&self.socket).await?.ask_classic(request).await };
        let asked = ask.await.and_then(|answer| given(answer).map_err(ClientError::from));
        if asked.is_err() {
            self.classic_until = Some(Instant::now());
        }
        asked
    }
}

fn given(answer: Answer) -> Result<Given, Answer> {
    match answer {
        Answer::Job(job) => Ok(Ok(job)),
        Answer::NoJobs(idle) => Ok(Err(idle)),
        other => Err(other),
    }
}

/// Whether an attempt was refused because it is somebody else's by now, or forgotten.
pub fn is_not_ours(code: &str) -> bool {
    matches!(code, "stale" | "unknown")
}
