//! ConnectionActor: one worker socket (docs/protocol.md), in the classic protocol (spec 3) or in protocol 2.
//!
//! The ListenerActor starts one for each socket it accepts. It reads one request, has it answered ([`answer`],
//! [`session`]), writes the answer, and only then reads on: one request in flight bounds the whole system. A job whose
//! answer a classic worker did not read is given back (spec 5) by dropping its [`HandOut`]. In protocol 2 attempts
//! belong to no connection: only a job that could not be written is given back. It knows no SQL and no file.

mod answer;
mod links;
mod reply;
mod session;
#[cfg(test)]
mod session_tests;
#[cfg(test)]
pub(crate) mod tests;
mod workers;

use std::cell::RefCell;
use std::fmt::Display;
use std::io;
use std::pin::Pin;
use std::time::Duration;

use actix::prelude::*;
use bytes::BytesMut;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::peer::{self, Peer, Receipt};
use crate::storage::messages::HandOut;
use crate::throttle::Throttle;
pub use answer::REQUEST_TIMEOUT;
use answer::next_work;
pub use links::{Operators, SessionLinks, WorkLinks};
use reply::{Reply, Wait};
use session::Asker;
use shiftboss_protocol::model::{Idle, LeaseHolder};
use shiftboss_protocol::wire::answers::Answer;
use shiftboss_protocol::wire::session::{Refused, Step};
use shiftboss_protocol::wire::{ClassicRequest, Line, LineCodec, WireError};
use shiftboss_queue::operation::{Complete, Dispatch};

/// First size of the read buffer; requests are short and connections many.
const READ_BUFFER_BYTES: usize = 512;
/// How long a peer may take to read an answer, or the next piece of a long one.
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);
/// The same while the daemon is stopping.
const HURRIED_WRITE_TIMEOUT: Duration = Duration::from_secs(1);
const WRITTEN_AT_ONCE: usize = 64 * 1024;
/// How long a peer may take from the first byte of a line to its end.
const LINE_TIMEOUT: Duration = Duration::from_secs(60);
/// Most input of a closing connection that is read and dropped: a socket closed with unread input resets its peer,
/// which may still have an answer to read.
const DROPPED_INPUT_MAX: usize = 1024 * 1024;
const ERRORS_MAX: usize = 10;

/// Most warnings about workers in [`WARNINGS_SECONDS`]: a worker can go wrong as fast as it can connect (spec 1: after
/// an answer it does not know, the stock worker spins without sleeping).
const WARNINGS_MAX: u32 = 100;
const WARNINGS_SECONDS: u32 = 60;

thread_local! {
    /// All connections live on one arbiter, that is, on one thread, and share the limit.
    static WARNINGS: RefCell<Throttle> =
        const { RefCell::new(Throttle::new(WARNINGS_MAX, WARNINGS_SECONDS)) };
}

pub struct ConnectionActor {
    /// All that the actor does; taken when it starts.
    serving: Option<Pin<Box<dyn Future<Output = ()>>>>,
}

impl ConnectionActor {
    /// Serves an accepted socket until `closing`, and then finishes the request under way.
    pub fn new(stream: UnixStream, links: WorkLinks, closing: CancellationToken) -> Self {
        Self { serving: Some(Box::pin(Connection::new(stream, links).serve(closing))) }
    }
}

impl Actor for ConnectionActor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        if let Some(serving) = self.serving.take() {
            ctx.spawn(serving.into_actor(self).map(|(), _, ctx| ctx.stop()));
        }
    }
}

struct Connection {
    links: WorkLinks,
    stream: UnixStream,
    peer: Peer,
    codec: LineCodec,
    /// Bytes that were read and do not form a whole line yet.
    bytes: BytesMut,
    /// Since when an unfinished line has been waiting for its end.
    unfinished: Option<Instant>,
    session: Option<Asker>,
    errors: usize,
    /// Classic jobs that were written, and that the peer is not known to have read.
    unread: Vec<HandOut>,
}

impl Connection {
    fn new(stream: UnixStream, links: WorkLinks) -> Self {
        let group = links.session.as_ref().and_then(|session| session.operators.group);
        let peer = Peer::of(&stream, group);
        Self {
            codec: LineCodec::new(links.session.is_some(), peer.is_operator),
            links,
            stream,
            peer,
            bytes: BytesMut::with_capacity(READ_BUFFER_BYTES),
            unfinished: None,
            session: None,
            errors: 0,
            unread: Vec::new(),
        }
    }

    /// Answers one line after the other. A new line ends a wait, and so does the end of the input.
    async fn serve(mut self, closing: CancellationToken) {
        let mut wait = None;
        loop {
            let mut reply = tokio::select! {
                biased;
                () = closing.cancelled() => return self.depart(HURRIED_WRITE_TIMEOUT).await,
                reply = waited(&mut wait) => reply,
                line = self.line() => {
                    let before = match wait.take() {
                        Some(Wait { given_up, .. }) => Reply::line(&given_up),
                        None => Reply::default(),
                    };
                    match self.answer(line).await {
                        Ok(reply) => reply.after(before),
                        Err(error) => {
                            debug!(peer = %self.peer, %error, "The connection broke.");
                            return;
                        }
                    }
                }
            };
            wait = reply.wait.take();
            if !self.write(reply).await {
                return self.depart(WRITE_TIMEOUT).await;
            }
        }
    }

    async fn line(&mut self) -> Result<Option<Line>, WireError> {
        loop {
            let line = self.codec.decode(&mut self.bytes)?;
            let is_waiting = line.is_none() && self.codec.is_waiting(&self.bytes);
            let since = self.unfinished.unwrap_or_else(Instant::now);
            self.unfinished = is_waiting.then_some(since);
            if line.is_some() {
                return Ok(line);
            }
            let read = self.stream.read_buf(&mut self.bytes);
            let read = if is_waiting {
                timeout_at(since + LINE_TIMEOUT, read).await
            } else {
                Ok(read.await)
            };
            match read {
                Ok(Ok(0)) => return self.codec.decode_eof(&mut self.bytes),
                Ok(read) => drop(read?),
                Err(_) => {
                    self.complain("A line was not finished: closing.", "it took too long");
                    return Ok(None);
                }
            }
        }
    }

    /// The reply to a line, or to the end of the input. An error: the socket failed.
    async fn answer(&mut self, line: Result<Option<Line>, WireError>) -> io::Result<Reply> {
        match line {
            Ok(Some(Line::Classic(request))) => Ok(self.classic(request).await),
            Ok(Some(Line::Hello(hello))) => Ok(self.hello(hello)),
            Ok(Some(Line::Session(line))) => Ok(self.session_line(line).await),
            Ok(None) => Ok(Reply::default().and_close()),
            Err(WireError::Io(error)) => Err(error),
            Err(fault) => {
                self.complain("A faulty request: closing.", fault);
                Ok(Reply::default().and_close())
            }
        }
    }

    async fn classic(&mut self, request: ClassicRequest) -> Reply {
        self.settle_read();
        let (word, ended) = match request {
            ClassicRequest::Ready => ("READY", None),
            ClassicRequest::Done { key, exit_code } => ("DONE", Some(Complete { key, exit_code })),
        };
        self.links.metrics.requested(word, 1);
        match next_work(ended, Dispatch::default(), &self.links).await {
            Ok(Some(job)) => Reply::job(job),
            Ok(None) => Reply::line(&Answer::NoJobs(Idle::default())),
            Err(reason) => {
                self.links.metrics.refused(&[reason.code]);
                self.complain("A request could not be answered: closing.", reason);
                Reply::default().and_close()
            }
        }
    }

    fn hello(&mut self, hello: Result<LeaseHolder, Refused>) -> Reply {
        let (holder, links) = match (hello, &self.links.session) {
            (Ok(holder), Some(links)) => (holder, links.clone()),
            (Ok(_), None) => return Reply::default().and_close(),
            (Err(refused), _) => {
                self.complain("A faulty HELLO: closing.", &refused);
                return Reply::refused(refused).and_close();
            }
        };
        let LeaseHolder { worker, lease_seconds } = &holder;
        debug!(peer = %self.peer, %worker, lease_seconds, "A worker speaks protocol 2.");
        let (work, is_operator) = (self.links.clone(), self.peer.is_operator);
        self.session = Some(Asker { work, session: links, holder, is_operator, seat: None });
        Reply::line(&Answer::Hello)
    }

    async fn session_line(&mut self, line: Result<Step, Refused>) -> Reply {
        match (line, &mut self.session) {
            (Ok(step), Some(session)) => {
                let count = |(verb, count)| self.links.metrics.requested(verb, count);
                step.verbs().into_iter().flatten().for_each(count);
                session.reply(step).await
            }
            (Err(refused), _) => {
                self.complain("A faulty request.", &refused);
                Reply::refused(refused)
            }
            (Ok(_), None) => Reply::default().and_close(),
        }
    }

    /// Writes a reply, and does what it says of its job and of the connection. False: the connection ends.
    async fn write(&mut self, reply: Reply) -> bool {
        let faults = reply.faults();
        self.links.metrics.refused(&reply.errors);
        // A report can be long: the timeout is per piece, so a peer that keeps reading gets all of it.
        for piece in reply.bytes.chunks(WRITTEN_AT_ONCE) {
            let written = timeout(WRITE_TIMEOUT, self.stream.write_all(piece)).await;
            if !matches!(written, Ok(Ok(()))) {
                // Dropping the reply undoes a job in it.
                debug!(peer = %self.peer, "The worker went away before its answer.");
                return false;
            }
        }
        match reply.job {
            Some(job) if self.session.is_some() => job.settle(),
            job => self.unread.extend(job),
        }
        self.errors += faults;
        if self.errors >= ERRORS_MAX {
            let why = "ten or more";
            self.complain("Closing after too many errors, each reported to the worker.", why);
        }
        !reply.close && self.errors < ERRORS_MAX
    }

    /// Everything written so far was read: those jobs are delivered.
    fn settle_read(&mut self) {
        if !self.unread.is_empty() && matches!(peer::receipt(&self.stream), Ok(Receipt::Read)) {
            self.unread.drain(..).for_each(HandOut::settle);
        }
    }

    /// Shuts the writing side, and waits until the peer has read what it was sent.
    async fn depart(mut self, patience: Duration) {
        if !drop_input(&self.stream) || self.unread.is_empty() {
            return;
        }
        // A peer that is gone cannot be answered; whether it had read everything is checked next.
        let _ = self.stream.shutdown().await;
        if let Ok(Ok(true)) = timeout(patience, peer::delivered(&self.stream)).await {
            self.unread.into_iter().for_each(HandOut::settle);
        }
    }

    /// Warns of what the peer did, or did not get, unless there were too many warnings lately.
    fn complain(&self, what: &str, why: impl Display) {
        match WARNINGS.with_borrow_mut(|warnings| warnings.admit(std::time::Instant::now())) {
            Some(0) => warn!(peer = %self.peer, %why, "{what}"),
            Some(left_out) => {
                warn!(peer = %self.peer, %why, left_out, "{what} Others were left out.");
            }
            None => {}
        }
    }
}

async fn waited(wait: &mut Option<Wait>) -> Reply {
    match wait {
        Some(wait) => (&mut wait.end).await,
        None => std::future::pending().await,
    }
}

/// Reads and drops what the peer has sent already. False when the peer is gone with an answer
/// unread: the error that says so is sent only once.
fn drop_input(stream: &UnixStream) -> bool {
    let mut scrap = [0; 4096];
    let mut dropped = 0;
    while dropped < DROPPED_INPUT_MAX {
        match stream.try_read(&mut scrap) {
            Ok(0) => return true,
            Ok(length) => dropped += length,
            Err(error) => return error.kind() == io::ErrorKind::WouldBlock,
        }
    }
    true
}
