//! The worker's side of the protocol: protocol 2 where the daemon speaks it, else the classic one. Each
//! request is tried once; whether to try again, and when, is for [`super::source`] to decide.
//!
//! Protocol 2 goes over one connection that is kept; what else a classic daemon needs is in [`super::classic`].

use std::fmt::Display;
use std::future::pending;
use std::path::{Path, PathBuf};
use std::time::Duration;

use shiftboss_protocol::client::ClientError;
use shiftboss_protocol::model::Attempt;
use shiftboss_protocol::verbs::{Beat, Done, Ready, Release, Verb, Wait};
use shiftboss_protocol::wire::answers::{Answer, Job};
use shiftboss_protocol::wire::session::Hello;

use super::classic::Classic;
use super::connection::{Connection, Given, given};

/// A client of a daemon. All its calls but [`Client::job`] may be dropped: where an answer is missing then, the next
/// request goes over another connection.
pub struct Client {
    socket: PathBuf,
    /// The worker's name, and how long the daemon waits for a request of it.
    pub hello: Hello,
    /// The connection on which `HELLO` was answered.
    connection: Option<Connection>,
    classic: Classic,
}

impl Client {
    /// A client of the daemon on `socket`. Connects when it has to.
    pub fn new(socket: PathBuf, hello: Hello) -> Self {
        Self { socket, hello, connection: None, classic: Classic::default() }
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

    /// Reports an end to a daemon that was greeted; with `wait` it also asks for the next job, in one write. A refusal
    /// concerns only the end.
    pub async fn report(
        &mut self,
        (job, code): &(Job, u8),
        wait: Option<Duration>,
    ) -> Result<(), ClientError> {
        let Some(attempt) = job.attempt.filter(|_| !self.is_classic()) else {
            return self.classic.report(&self.socket, job, *code).await;
        };
        let done = Done { attempt, code: (*code).into() };
        let lines = match wait.map(ready) {
            Some(ready) => format!("{done}\n{ready}"),
            None => done.to_string(),
        };
        self.is_ours(lines).await.map(drop)
    }

    /// Asks a daemon that was greeted for a job; the daemon waits up to `wait` for one.
    pub async fn ask(&mut self, wait: Duration) -> Result<(), ClientError> {
        if self.is_classic() { Ok(()) } else { self.connection()?.send(ready(wait)).await }
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

    /// Keeps an attempt. False: it is ours no longer.
    pub async fn beat(&mut self, attempt: Attempt) -> Result<bool, ClientError> {
        self.greet().await?;
        if self.is_classic() {
            return Ok(true);
        }
        self.is_ours(Beat { attempt }).await
    }

    /// Gives an attempt back. False: a classic daemon takes nothing back.
    pub async fn release(&mut self, attempt: Attempt) -> Result<bool, ClientError> {
        self.greet().await?;
        if self.is_classic() {
            return Ok(false);
        }
        match self.is_ours(Release { attempt }).await {
            Err(ClientError::Refused { code, .. }) if is_not_ours(&code) => Ok(true),
            released => released.map(|_| true),
        }
    }

    /// Sends a request about an attempt, and returns whether, by the daemon's answer, it is still ours.
    async fn is_ours(&mut self, request: impl Display) -> Result<bool, ClientError> {
        let connection = self.connection()?;
        connection.send(request).await?;
        let is_ours = |answer| match answer {
            Answer::Ok => Ok(true),
            Answer::Lost => Ok(false),
            other => Err(other),
        };
        connection.answer(Duration::ZERO, pending(), is_ours).await
    }
}

fn ready(wait: Duration) -> Ready {
    Ready { seconds: Wait::of(wait) }
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
