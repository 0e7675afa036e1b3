//! ConnectionActor: one worker socket, speaking the classic protocol (spec 3).
//!
//! The ListenerActor starts one for each socket it accepts. It reads one request, gets it answered
//! by the StorageActor, writes the answer, and only then reads on. Jobs whose answer the worker did
//! not read are given back (spec 5): by dropping their [`HandOut`]. It knows no SQL and no file.

mod complaints;
#[cfg(test)]
mod tests;

use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use actix::prelude::*;
use bytes::BytesMut;
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::codec::{Decoder, FramedRead};
use tracing::debug;

use crate::file_watcher::Look;
use crate::peer::{self, Delivery, Peer};
use crate::storage::messages::{Dispatch, Finish, HandOut, Work};
use crate::wire::{Answer, Request, RequestCodec, WireError};

/// How long a request may take before its connection is closed; the stock worker waits 5 s.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(4);
/// How long a peer may take to read an answer.
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a peer may take from the first byte of a line to its end.
const LINE_TIMEOUT: Duration = Duration::from_secs(60);
/// The same when the daemon is stopping.
const HURRIED_WRITE_TIMEOUT: Duration = Duration::from_secs(1);
/// Input of a closing connection that is read and dropped at the most: a socket closed with
/// unread input resets its peer, which may yet have an answer to read.
const DROPPED_INPUT_MAX: usize = 1024 * 1024;
/// Pause before asking again while a deletion is getting on.
const LATER_PAUSE: Duration = Duration::from_millis(20);
/// First size of the read buffer; requests are short and connections many.
const READ_BUFFER_BYTES: usize = 512;

/// Whom a connection asks.
#[derive(Clone)]
pub struct WorkLinks {
    /// The next job.
    pub dispatch: Recipient<Dispatch>,
    /// The end of a job, and the next one.
    pub finish: Recipient<Finish>,
    /// The look before NOJOBS.
    pub look: Recipient<Look>,
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
    /// Jobs that were written, and that the peer has not been seen to have read.
    unread: Vec<HandOut>,
    /// Since when an unfinished line has been waiting for its end.
    unfinished: Rc<Cell<Option<Instant>>>,
    closing: bool,
    /// The daemon is stopping.
    hurried: bool,
}

/// Why a request got no answer.
#[derive(Debug)]
enum NoAnswer {
    /// Storage or the watcher could not answer in time, or at all.
    Unanswered(String),
    /// The answer could not be written.
    Unwritten(io::Error),
}

impl ConnectionActor {
    /// Makes an actor for an accepted socket inside its context.
    pub fn new(stream: UnixStream, links: WorkLinks, ctx: &mut Context<Self>) -> Self {
        let peer = Peer::of(&stream);
        let (reader, writer) = stream.into_split();
        let unfinished = Rc::default();
        ctx.add_stream(requests(reader, Rc::clone(&unfinished)));
        Self {
            links,
            peer,
            writer: Some(writer),
            unread: Vec::new(),
            unfinished,
            closing: false,
            hurried: false,
        }
    }

    /// Everything written so far was read: those jobs are delivered.
    fn settle_read(&mut self) {
        if self.unread.is_empty() {
            return;
        }
        if let Some(writer) = &self.writer
            && matches!(peer::delivery(writer.as_ref()), Ok(Delivery::Read))
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
                self.complain("A request could not be answered: closing.", reason);
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
            // A peer that is gone cannot be told; whether it had read everything, is asked next.
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

impl StreamHandler<Result<Request, WireError>> for ConnectionActor {
    fn handle(&mut self, request: Result<Request, WireError>, ctx: &mut Context<Self>) {
        if self.closing {
            return;
        }
        match request {
            Ok(request) => {
                self.settle_read();
                let Some(writer) = self.writer.take() else {
                    return ctx.stop();
                };
                let served = serve(request, self.links.clone(), writer).into_actor(self);
                // Nothing is read meanwhile: one request in flight bounds the whole system.
                ctx.wait(served.map(|(writer, result), connection, ctx| {
                    connection.answered(writer, result, ctx);
                }));
            }
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
            self.depart(ctx);
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
/// unread: the error that says so is told only once.
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

/// Answers one request. The writer comes back whatever happened.
async fn serve(
    request: Request,
    links: WorkLinks,
    mut writer: OwnedWriteHalf,
) -> (OwnedWriteHalf, Result<Option<HandOut>, NoAnswer>) {
    let result = match next_work(request, &links).await {
        Ok(work) => write_answer(work, &mut writer).await.map_err(NoAnswer::Unwritten),
        Err(reason) => Err(NoAnswer::Unanswered(reason)),
    };
    (writer, result)
}

/// The next job, or none after a look that found nothing more (spec 2).
async fn next_work(request: Request, links: &WorkLinks) -> Result<Option<HandOut>, String> {
    let deadline = Instant::now() + REQUEST_TIMEOUT;
    let mut looked = false;
    let mut work = match request {
        Request::Ready => ask(links.dispatch.send(Dispatch), deadline).await?,
        Request::Done { key, exit_code } => {
            ask(links.finish.send(Finish { key, exit_code }), deadline).await?
        }
    };
    loop {
        match work {
            Work::Job(handed_out) => return Ok(Some(handed_out)),
            Work::Nothing if looked => return Ok(None),
            Work::Nothing => {
                let look = timeout_at(deadline, links.look.send(Look)).await;
                let found =
                    look.map_err(|_| "no look in time")?.map_err(|error| error.to_string())?;
                looked = !found.more;
            }
            Work::Later => tokio::time::sleep(LATER_PAUSE).await,
        }
        work = ask(links.dispatch.send(Dispatch), deadline).await?;
    }
}

/// Awaits storage's answer until the deadline.
async fn ask<M>(sent: RecipientRequest<M>, deadline: Instant) -> Result<Work, String>
where
    M: Message<Result = crate::store::StoreResult<Work>> + Send + 'static,
{
    match timeout_at(deadline, sent).await {
        Ok(Ok(Ok(work))) => Ok(work),
        Ok(Ok(Err(error))) => Err(error.to_string()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err("storage did not answer in time".to_owned()),
    }
}

async fn write_answer(
    work: Option<HandOut>,
    writer: &mut OwnedWriteHalf,
) -> io::Result<Option<HandOut>> {
    let mut bytes = BytesMut::new();
    match &work {
        Some(handed_out) => Answer::Job(handed_out.job()).encode(&mut bytes),
        None => Answer::NoJobs.encode(&mut bytes),
    }
    timeout(WRITE_TIMEOUT, writer.write_all(&bytes)).await??;
    Ok(work)
}

/// The requests of a socket. `unfinished` tells since when a begun line has been waiting.
fn requests(
    reader: OwnedReadHalf,
    unfinished: Rc<Cell<Option<Instant>>>,
) -> FramedRead<OwnedReadHalf, TimedCodec> {
    let codec = TimedCodec { codec: RequestCodec::default(), unfinished };
    FramedRead::with_capacity(reader, codec, READ_BUFFER_BYTES)
}

/// The codec, and a note of when a line was begun.
struct TimedCodec {
    codec: RequestCodec,
    unfinished: Rc<Cell<Option<Instant>>>,
}

impl Decoder for TimedCodec {
    type Item = Request;
    type Error = WireError;

    fn decode(&mut self, bytes: &mut BytesMut) -> Result<Option<Request>, WireError> {
        let request = self.codec.decode(bytes)?;
        let waiting = request.is_none() && !bytes.is_empty();
        let since = self.unfinished.get().unwrap_or_else(Instant::now);
        self.unfinished.set(waiting.then_some(since));
        Ok(request)
    }

    fn decode_eof(&mut self, bytes: &mut BytesMut) -> Result<Option<Request>, WireError> {
        self.codec.decode_eof(bytes)
    }
}
