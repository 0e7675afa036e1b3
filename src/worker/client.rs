//! The worker's side of the protocol: protocol 2 where the daemon speaks it, else the classic one. Each
//! request is tried once; whether to try again, and when, is for [`super::source`] to decide.
//!
//! Protocol 2 goes over one connection that is kept; what else a classic daemon needs is in [`super::classic`].

use std::fmt::Display;
use std::future::pending;
use std::path::{Path, PathBuf};
use std::time::Duration;

use shiftboss_protocol::client::{BeatAnswer, ClientError};
use shiftboss_protocol::model::Attempt;
use shiftboss_protocol::verbs::{Asks, Beat, Done, Fetchers, Ready, Release, Verb, Wait};
use shiftboss_protocol::wire::answers::{Answer, Job};
use shiftboss_protocol::wire::session::{ErrorCode, Hello};

use super::classic::Classic;
use super::connection::{Connection, Given, given};

/// A client of a daemon. All its calls but [`Client::job`] may be dropped: where an answer is missing then, the next
/// request goes over another connection.
pub struct Client {
    socket: PathBuf,
    /// The worker's name, and how long the daemon waits for a request of it.
    pub hello: Hello,
    fetchers: Fetchers,
    /// The connection on which `HELLO` was answered.
    connection: Option<Connection>,
    classic: Classic,
}

impl Client {
    /// A client of the daemon on `socket`, for tasks of these fetchers. Connects when it has to.
    pub fn new(socket: PathBuf, hello: Hello, fetchers: Fetchers) -> Self {
        Self { socket, hello, fetchers, connection: None, classic: Classic::default() }
    }

    pub fn lease(&self) -> Duration {
        self.hello.lease.time()
    }

    /// Whether the daemon speaks nothing but the classic protocol.
    pub fn is_classic(&self) -> bool {
        self.classic.is_spoken()
    }

    /// Has a connection on which `HELLO` was answered, or knows that the daemon is a classic one. True: it was
    /// answered now.
    pub async fn greet(&mut self) -> Result<bool, ClientError> {
        let is_usable = self.connection.as_ref().is_some_and(|connection| connection.is_usable);
        if is_usable || self.classic.is_sure() {
            return Ok(false);
        }
        self.connection = None;
        let Self { socket, hello, classic, .. } = self;
        self.connection = classic.greet(async || greet(socket, hello).await).await?;
        Ok(self.connection.is_some())
    }

    fn connection(&mut self) -> Result<&mut Connection, ClientError> {
        self.connection.as_mut().ok_or(ClientError::Closed)
    }

    /// Reports an end to a daemon that was greeted, and what the job asked for; with `wait` it also asks for the next job, in one write. A refusal
    /// concerns only the end.
    pub async fn report(
        &mut self,
        (job, code): &(Job, u8),
        asks: Asks,
        wait: Option<Duration>,
    ) -> Result<(), ClientError> {
        let Some(attempt) = job.attempt.filter(|_| !self.is_classic()) else {
            return self.classic.report(&self.socket, job, *code).await;
        };
        let done = Done { attempt, code: (*code).into(), asks };
        let lines = match wait.map(|wait| self.ready(wait)) {
            Some(ready) => format!("{done}\n{ready}"),
            None => done.to_string(),
        };
        self.say(lines).await
    }

    /// Asks a daemon that was greeted for a job; the daemon waits up to `wait` for one.
    pub async fn ask(&mut self, wait: Duration) -> Result<(), ClientError> {
        if self.is_classic() {
            return self.is_for_all().then_some(()).ok_or_else(unsupported);
        }
        let ready = self.ready(wait);
        self.connection()?.send(ready).await
    }

    fn ready(&self, wait: Duration) -> Ready {
        Ready { seconds: Wait::of(wait), fetchers: self.fetchers.clone() }
    }

    fn is_for_all(&self) -> bool {
        self.fetchers == Fetchers::All
    }

    /// The requested job, if there is one within `wait`; none if there was no request, except that the classic protocol
    /// gives one in return for an end. When `enough` resolves the request is taken back. Must not be dropped: a job
    /// that comes would be lost to us until its lease ends.
    pub async fn job(
        &mut self,
        wait: Option<Duration>,
        enough: impl Future<Output = ()>,
    ) -> Result<Option<Given>, ClientError> {
        match (self.classic.given.take(), wait) {
            (None, Some(_)) if self.is_classic() => {
                self.classic.ask(&self.socket, Ready::NAME).await.map(Some)
            }
            (None, Some(wait)) => self.connection()?.answer(wait, enough, given).await.map(Some),
            (given, _) => Ok(given),
        }
    }

    /// Keeps an attempt, and waits up to `wait` for news of it.
    pub async fn beat(
        &mut self,
        attempt: Attempt,
        wait: Duration,
    ) -> Result<BeatAnswer, ClientError> {
        self.greet().await?;
        if self.is_classic() {
            return Ok(BeatAnswer::GoOn);
        }
        let connection = self.connection()?;
        connection.send(Beat { attempt, seconds: Wait::of(wait) }).await?;
        connection.answer(wait, pending(), BeatAnswer::of).await
    }

    /// Gives an attempt back. False: a classic daemon takes nothing back.
    pub async fn release(&mut self, attempt: Attempt) -> Result<bool, ClientError> {
        self.greet().await?;
        if self.is_classic() {
            return Ok(false);
        }
        match self.say(Release { attempt }).await {
            Err(ClientError::Refused { code, .. }) if is_not_ours(&code) => Ok(true),
            released => released.map(|()| true),
        }
    }

    /// Sends a request that is answered with `OK`.
    async fn say(&mut self, request: impl Display) -> Result<(), ClientError> {
        let connection = self.connection()?;
        connection.send(request).await?;
        let is_ok = |answer| if answer == Answer::Ok { Ok(()) } else { Err(answer) };
        connection.answer(Duration::ZERO, pending(), is_ok).await
    }
}

fn unsupported() -> ClientError {
    let text = "it speaks only the classic protocol, which knows no fetchers: leave --fetcher out";
    ClientError::Refused { code: ErrorCode::Unsupported.to_string(), text: text.to_owned() }
}

async fn greet(socket: &Path, hello: &Hello) -> Result<Connection, ClientError> {
    let mut connection = Connection::connect(socket).await?;
    connection.send(hello).await?;
    let is_hello = |answer| if answer == Answer::Hello { Ok(()) } else { Err(answer) };
    connection.answer(Duration::ZERO, pending(), is_hello).await.map(|()| connection)
}

/// Whether an attempt was refused because another worker has it by now, or it is forgotten.
pub fn is_not_ours(code: &str) -> bool {
    matches!(code, "stale" | "unknown")
}
