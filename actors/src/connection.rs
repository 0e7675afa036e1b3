//! ConnectionActor: one worker socket (docs/protocol.md). The classic protocol (spec 3) is here and in
//! [`answer`], protocol 2 in [`session`] and [`reply`].
//!
//! The ListenerActor starts one for each socket it accepts. It reads one request, gets it answered
//! by the StorageActor, writes the answer, and only then reads on. Jobs whose answer the worker did
//! not read are given back (spec 5): by dropping their [`HandOut`]. It knows no SQL and no file.

mod answer;
mod reply;
mod session;
#[cfg(test)]
mod tests;
mod workers;

use std::cell::{Cell, RefCell};
use std::fmt::Display;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use actix::prelude::*;
use bytes::BytesMut;
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;
use tokio::net::unix::OwnedWriteHalf;
use tokio::time::{Instant, timeout};
use tokio_util::codec::{Decoder, FramedRead};
use tracing::{debug, warn};

use crate::file_watcher::CatchUpBarrier;
use crate::peer::{self, Peer, Receipt};
use crate::storage::messages::{Finish, HandOut, TakeJob};
use crate::throttle::{Throttle, Verdict};
use answer::NoAnswer;
pub use answer::REQUEST_TIMEOUT;
use session::Session;
pub use session::{Operators, SessionLinks};
use shiftboss_protocol::wire::{Line, LineCodec, Request, WireError};

/// First size of the read buffer; requests are short and connections many.
const READ_BUFFER_BYTES: usize = 512;
/// How long a peer may take to read an answer.
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a peer may take from the first byte of a line to its end.
const LINE_TIMEOUT: Duration = Duration::from_secs(60);
/// The same when the daemon is stopping.
const HURRIED_WRITE_TIMEOUT: Duration = Duration::from_secs(1);
/// Input of a closing connection that is read and dropped at the most: a socket closed with
/// unread input resets its peer, which may yet have an answer to read.
const DROPPED_INPUT_MAX: usize = 1024 * 1024;

/// As many warnings about workers are logged in [`WARNINGS_SECONDS`]: one can go wrong as fast as it can connect
/// (spec 1: after an answer it does not know the stock worker spins without sleeping).
const WARNINGS_MAX: u32 = 100;
const WARNINGS_SECONDS: u32 = 60;

thread_local! {
    /// All connections live on one arbiter, that is, on one thread, and share the limit.
    static WARNINGS: RefCell<Throttle> =
        const { RefCell::new(Throttle::new(WARNINGS_MAX, WARNINGS_SECONDS)) };
}

#[derive(Clone)]
pub struct WorkLinks {
    pub dispatch: Recipient<TakeJob>,
    /// The end of a job, and the next one.
    pub finish: Recipient<Finish>,
    pub barrier: Recipient<CatchUpBarrier>,
    /// For those who opt in to protocol 2; `None`: nobody may.
    pub session: Option<SessionLinks>,
}

/// Ends a connection once the request under way is answered.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct CloseConnection;

/// Serves one worker. See the module's documentation.
pub struct ConnectionActor {
    links: WorkLinks,
    peer: Option<Peer>,
    /// Taken while an answer is under way.
    writer: Option<OwnedWriteHalf>,
    /// Set once the connection has opted in to protocol 2.
    session: Option<Session>,
    /// Jobs that were written, and that the peer has not been seen to have read.
    unread: Vec<HandOut>,
    /// Since when an unfinished line has been waiting for its end.
    unfinished: Rc<Cell<Option<Instant>>>,
    closing: bool,
    hurried: bool,
}

impl ConnectionActor {
    /// Makes an actor for an accepted socket inside its context.
    pub fn new(stream: UnixStream, links: WorkLinks, ctx: &mut Context<Self>) -> Self {
        let group = links.session.as_ref().and_then(|session| session.operators.group);
        let peer = Peer::of(&stream, group);
        let (reader, writer) = stream.into_split();
        let unfinished = Rc::default();
        let may_opt_in = links.session.is_some();
        let is_operator = peer.is_some_and(|peer| peer.is_operator());
        let codec = LineCodec::new(may_opt_in, is_operator);
        let codec = TimedCodec { codec, unfinished: Rc::clone(&unfinished) };
        ctx.add_stream(FramedRead::with_capacity(reader, codec, READ_BUFFER_BYTES));
        Self {
            links,
            peer,
            writer: Some(writer),
            session: None,
            unread: Vec::new(),
            unfinished,
            closing: false,
            hurried: false,
        }
    }

    fn classic(&mut self, request: Request, ctx: &mut Context<Self>) {
        self.settle_read();
        let Some(writer) = self.writer.take() else {
            return ctx.stop();
        };
        let served = answer::serve(request, self.links.clone(), writer).into_actor(self);
        // Nothing is read meanwhile: one request in flight bounds the whole system.
        ctx.wait(served.map(|(writer, result), connection, ctx| {
            connection.answered(writer, result, ctx);
        }));
    }

    /// Everything written so far was read: those jobs are delivered.
    fn settle_read(&mut self) {
        if self.unread.is_empty() {
            return;
        }
        if let Some(writer) = &self.writer
            && matches!(peer::receipt(writer.as_ref()), Ok(Receipt::Read))
        {
            self.unread.drain(..).for_each(HandOut::settle);
        }
    }

    /// After the answer: keeps its job until it was read, or ends the connection.
    fn answered(
        &mut self,
        writer: OwnedWriteHalf,
        result: Result<Option<HandOut>, NoAnswer>,
        ctx: &mut Context<Self>,
    ) {
        self.writer = Some(writer);
        match result {
            Ok(handed_out) => {
                self.unread.extend(handed_out);
                if self.closing {
                    self.depart(ctx);
                }
            }
            Err(NoAnswer::Unanswered(reason)) => {
                self.complain("A request could not be answered: closing.", reason.1);
                self.depart(ctx);
            }
            Err(NoAnswer::Unwritten(error)) => {
                debug!(peer = %self.peer(), %error, "The worker went away before its answer.");
                self.depart(ctx);
            }
        }
    }

    /// Shuts the writing side, waits until the peer has read what it was sent, and stops.
    fn depart(&mut self, ctx: &mut Context<Self>) {
        self.closing = true;
        let Some(mut writer) = self.writer.take() else {
            return ctx.stop();
        };
        let unread = std::mem::take(&mut self.unread);
        let patience = if self.hurried { HURRIED_WRITE_TIMEOUT } else { WRITE_TIMEOUT };
        if !drop_input(writer.as_ref()) || unread.is_empty() {
            return ctx.stop();
        }
        let departed = async move {
            // A peer that is gone cannot be answered; whether it had read everything, is asked next.
            let _ = writer.shutdown().await;
            if let Ok(Ok(true)) = timeout(patience, peer::delivered(writer.as_ref())).await {
                unread.into_iter().for_each(HandOut::settle);
            }
        };
        ctx.wait(departed.into_actor(self).map(|(), _, ctx| ctx.stop()));
    }

    fn close_slow_line(&mut self, ctx: &mut Context<Self>) {
        if self.unfinished.get().is_some_and(|since| since.elapsed() >= LINE_TIMEOUT) {
            self.complain("A line was not finished: closing.", "it took too long");
            self.depart(ctx);
        }
    }

    /// Warns of what the peer did, or did not get, unless that was said too often lately.
    pub(super) fn complain(&self, what: &str, why: impl Display) {
        let (verdict, total) = WARNINGS.with_borrow_mut(|warnings| {
            (warnings.admit(std::time::Instant::now()), warnings.total())
        });
        match verdict {
            Verdict::Log { suppressed_before: 0 } => warn!(peer = %self.peer(), %why, "{what}"),
            Verdict::Log { suppressed_before: left_out } => {
                warn!(peer = %self.peer(), %why, left_out, total, "{what} Others were left out.");
            }
            Verdict::Suppress => {}
        }
    }

    fn peer(&self) -> String {
        self.peer.map_or_else(|| "unknown".to_owned(), |peer| peer.to_string())
    }
}

impl Actor for ConnectionActor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.run_interval(LINE_TIMEOUT / 4, |connection, ctx| connection.close_slow_line(ctx));
    }
}

impl StreamHandler<Result<Line, WireError>> for ConnectionActor {
    fn handle(&mut self, line: Result<Line, WireError>, ctx: &mut Context<Self>) {
        if self.closing {
            return;
        }
        match line {
            Ok(Line::Classic(request)) => self.classic(request, ctx),
            Ok(Line::Hello(hello)) => self.hello(hello, ctx),
            Ok(Line::Session(line)) => self.session_line(line, ctx),
            Err(WireError::Io(error)) => {
                debug!(peer = %self.peer(), %error, "The connection broke.");
                self.unread.clear();
                ctx.stop();
            }
            Err(fault) => {
                self.complain("A faulty request: closing.", fault);
                self.depart(ctx);
            }
        }
    }

    fn finished(&mut self, ctx: &mut Context<Self>) {
        if !self.closing {
            self.end_session(ctx);
        }
    }
}

impl Handler<CloseConnection> for ConnectionActor {
    type Result = ();

    fn handle(&mut self, _: CloseConnection, ctx: &mut Self::Context) {
        if !self.closing {
            self.hurried = true;
            self.depart(ctx);
        }
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

/// The codec, and a note of when a line was begun.
struct TimedCodec {
    codec: LineCodec,
    unfinished: Rc<Cell<Option<Instant>>>,
}

impl Decoder for TimedCodec {
    type Item = Line;
    type Error = WireError;

    fn decode(&mut self, bytes: &mut BytesMut) -> Result<Option<Line>, WireError> {
        let line = self.codec.decode(bytes)?;
        let waiting = line.is_none() && self.codec.is_waiting(bytes);
        let since = self.unfinished.get().unwrap_or_else(Instant::now);
        self.unfinished.set(waiting.then_some(since));
        Ok(line)
    }

    fn decode_eof(&mut self, bytes: &mut BytesMut) -> Result<Option<Line>, WireError> {
        self.codec.decode_eof(bytes)
    }
}
