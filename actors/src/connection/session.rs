//! A connection that speaks protocol 2: its lines, one after the other, and its wait for work.
//!
//! The ConnectionActor comes here once a connection has opted in; what a line is answered is found
//! out by [`reply`]. Attempts belong to no connection: nothing is given back when it ends, but
//! for an answer that could not be written.

use std::sync::Arc;
use std::time::Duration;

use actix::prelude::*;
use tokio::io::AsyncWriteExt;
use tokio::net::unix::OwnedWriteHalf;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};
use tracing::debug;

use super::answer::STOPPING;
use super::reply::{self, Asker, Reply};
use super::workers::{Seat, Workers};
use super::{ConnectionActor, WRITE_TIMEOUT};
use crate::file_watcher::AcceptInput;
use crate::live::Daemon;
use crate::refused::Refused;
use crate::service::{LookAtSpool, RunFetcher};
use crate::storage::StorageActor;
use crate::storage::messages::{Change, HowAreYou, Next, Perform, Tell, Wait, Work};
use crate::store::{AddTask, Each, LeaseHolder, Reader, StoreResult, WhyIdle};
use shiftboss_protocol::model::Idle;
use shiftboss_protocol::wire::session::{ErrorCode, Fault, Hello, SessionAnswer, SessionRequest};

/// Errors after which a connection is closed.
const ERRORS_MAX: u32 = 10;
/// Bytes that a peer must take within the time for an answer.
const WRITTEN_AT_ONCE: usize = 64 * 1024;
/// Operators' questions that are being answered at once.
const QUESTIONS_AT_ONCE: usize = 4;

/// Who operators are, and what they are told. Without it nobody may opt in to protocol 2.
#[derive(Clone)]
pub struct Operators {
    /// Who answers their questions.
    pub reader: Arc<dyn Reader>,
    /// This daemon: every answer begins with it.
    pub daemon: Arc<Daemon>,
    /// The group whose members are operators, as the daemon's user and root are.
    pub group: Option<u32>,
}

/// Whom a connection asks that speaks protocol 2, beyond what every one does.
#[derive(Clone)]
pub struct SessionLinks {
    /// A job, when there is one.
    pub wait: Recipient<Wait>,
    pub why_idle: Recipient<Perform<WhyIdle>>,
    pub tell: Recipient<Tell>,
    /// The end of one, and the next job.
    pub next: Recipient<Next>,
    pub change: Recipient<Change>,
    /// The input directory, to be taken as it is.
    pub accept_input: Recipient<AcceptInput>,
    /// Runs of the daemon's own fetchers; `None`: it has none.
    pub run_fetcher: Option<Recipient<RunFetcher>>,
    pub health: Recipient<HowAreYou>,
    pub add: Recipient<Perform<Each<AddTask>>>,
    /// `None`: the daemon takes tasks from no spool.
    pub spool: Option<LookAtSpool>,
    pub operators: Operators,
    pub(super) room: Arc<Semaphore>,
    pub(super) workers: Workers,
}

impl SessionLinks {
    /// Links to storage, and to the others who answer.
    pub fn new(
        storage: &Addr<StorageActor>,
        accept_input: Recipient<AcceptInput>,
        run_fetcher: Option<Recipient<RunFetcher>>,
        spool: Option<LookAtSpool>,
        operators: Operators,
    ) -> Self {
        Self {
            wait: storage.clone().recipient(),
            why_idle: storage.clone().recipient(),
            tell: storage.clone().recipient(),
            next: storage.clone().recipient(),
            change: storage.clone().recipient(),
            health: storage.clone().recipient(),
            accept_input,
            run_fetcher,
            add: storage.clone().recipient(),
            spool,
            operators,
            room: Arc::new(Semaphore::new(QUESTIONS_AT_ONCE)),
            workers: Workers::default(),
        }
    }
}

/// The state of a connection that has opted in.
pub(super) struct Session {
    links: SessionLinks,
    holder: LeaseHolder,
    errors: u32,
    waiting: Option<SpawnHandle>,
    /// Taken with the first request for work: an operator's connection is no worker's.
    seat: Option<Seat>,
}

impl Session {
    fn seen(&mut self) {
        let Self { links, holder, seat, .. } = self;
        seat.get_or_insert_with(|| links.workers.seat(&holder.worker)).seen();
    }
}

impl ConnectionActor {
    /// The first line of a connection that opts in.
    pub(super) fn hello(&mut self, hello: Result<Hello, Fault>, ctx: &mut Context<Self>) {
        let Some(links) = self.links.session.clone() else {
            return self.depart(ctx);
        };
        let reply = match hello {
            Ok(Hello { worker, lease_seconds }) => {
                debug!(peer = %self.peer(), %worker, lease_seconds, "A worker speaks protocol 2.");
                let holder = LeaseHolder { worker, lease_seconds };
                self.session =
                    Some(Session { links, holder, errors: 0, waiting: None, seat: None });
                Reply::line(&SessionAnswer::Hello)
            }
            Err(fault) => {
                let refused = Refused::from(fault);
                self.complain("A faulty HELLO: closing.", &refused.1);
                Reply::refused(refused).and_close()
            }
        };
        self.write(reply, ctx);
    }

    pub(super) fn session_line(
        &mut self,
        line: Result<SessionRequest, Fault>,
        ctx: &mut Context<Self>,
    ) {
        let before = if self.end_wait(ctx) {
            Reply::line(&SessionAnswer::NoJobs(Idle::Nothing))
        } else {
            Reply::default()
        };
        let request = match line {
            Ok(request) => request,
            Err(fault) => {
                let refused = Refused::from(fault);
                self.complain("A faulty request.", &refused.1);
                return self.write(Reply::refused(refused).after(before), ctx);
            }
        };
        let Some(session) = &mut self.session else {
            return self.depart(ctx);
        };
        if request.is_of_a_worker() {
            session.seen();
        }
        let asker = Asker {
            work: self.links.clone(),
            session: session.links.clone(),
            holder: session.holder.clone(),
            is_operator: self.peer.is_some_and(|peer| peer.is_operator()),
        };
        // Nothing is read meanwhile: one request in flight bounds the whole system.
        let replied = async move { asker.reply(request).await.after(before) };
        ctx.wait(replied.into_actor(self).map(|reply, connection, ctx| {
            connection.write(reply, ctx);
        }));
    }

    /// Writes a reply, and does what it says of the connection.
    fn write(&mut self, mut reply: Reply, ctx: &mut Context<Self>) {
        let Some(mut writer) = self.writer.take() else {
            return ctx.stop();
        };
        let bytes = std::mem::take(&mut reply.bytes);
        let written = async move {
            let is_written = write_all(&mut writer, &bytes).await;
            (writer, is_written)
        };
        ctx.wait(written.into_actor(self).map(|(writer, is_written), connection, ctx| {
            connection.wrote(writer, is_written, reply, ctx);
        }));
    }

    fn wrote(
        &mut self,
        writer: OwnedWriteHalf,
        is_written: bool,
        reply: Reply,
        ctx: &mut Context<Self>,
    ) {
        self.writer = Some(writer);
        if !is_written {
            // Dropping the reply undoes a job in it.
            debug!(peer = %self.peer(), "The worker went away before its answer.");
            return self.depart(ctx);
        }
        if let Some(job) = reply.job {
            job.settle();
        }
        drop(reply.place);
        let Some(session) = &mut self.session else {
            return self.depart(ctx);
        };
        session.errors += reply.errors;
        if session.errors >= ERRORS_MAX {
            self.complain(
                "Closing after too many errors, each reported to the worker.",
                "ten or more",
            );
            return self.depart(ctx);
        }
        match reply.wait {
            _ if reply.close || self.closing => self.depart(ctx),
            Some(until) => self.begin_wait(until, ctx),
            None => {}
        }
    }

    /// Waits for work, while lines are still read.
    fn begin_wait(&mut self, until: Instant, ctx: &mut Context<Self>) {
        let Some(Session { links, holder, .. }) = &self.session else {
            return;
        };
        let asked = links.wait.send(Wait { holder: holder.clone() });
        let left = until.saturating_duration_since(Instant::now());
        let waited = waited(left, asked, links.why_idle.clone()).into_actor(self).map(
            |reply, connection, ctx| {
                connection.set_waiting(None);
                connection.write(reply, ctx);
            },
        );
        self.set_waiting(Some(ctx.spawn(waited)));
    }

    fn set_waiting(&mut self, waiting: Option<SpawnHandle>) {
        if let Some(session) = &mut self.session {
            session.waiting = waiting;
        }
    }

    /// Ends the wait under way, if there is one: whoever asks answers it.
    pub(super) fn end_wait(&mut self, ctx: &mut Context<Self>) -> bool {
        let waiting = self.session.as_mut().and_then(|session| session.waiting.take());
        waiting.is_some_and(|waiting| ctx.cancel_future(waiting))
    }

    /// The end of the worker's input: a wait is answered, then the connection ends.
    pub(super) fn end_session(&mut self, ctx: &mut Context<Self>) {
        if self.end_wait(ctx) {
            self.write(Reply::line(&SessionAnswer::NoJobs(Idle::Nothing)).and_close(), ctx);
        } else {
            self.depart(ctx);
        }
    }
}

/// Writes, as long as the peer gets on with reading. A report can be long.
async fn write_all(writer: &mut OwnedWriteHalf, bytes: &[u8]) -> bool {
    for part in bytes.chunks(WRITTEN_AT_ONCE) {
        if !matches!(timeout(WRITE_TIMEOUT, writer.write_all(part)).await, Ok(Ok(()))) {
            return false;
        }
    }
    true
}

/// What came of a wait.
async fn waited(
    left: Duration,
    asked: RecipientRequest<Wait>,
    why_idle: Recipient<Perform<WhyIdle>>,
) -> Reply {
    match timeout(left, asked).await {
        Err(_) => reply::no_jobs(&why_idle).await,
        Ok(Ok(result)) => found(result),
        Ok(Err(_)) => Reply::error(ErrorCode::Busy, STOPPING),
    }
}

fn found(result: StoreResult<Work>) -> Reply {
    match result {
        Ok(Work::Job(job)) => Reply::job(job),
        Ok(Work::Nothing | Work::Later) => Reply::line(&SessionAnswer::NoJobs(Idle::Nothing)),
        Err(error) => Reply::error(ErrorCode::Busy, &error.to_string()),
    }
}

#[cfg(test)]
#[path = "session_tests.rs"]
mod tests;
