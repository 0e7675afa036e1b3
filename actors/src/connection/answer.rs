//! Answering one request: asking storage, looking once more before NOJOBS, writing the line.
//!
//! Plain futures, awaited by the ConnectionActor; they know neither actor nor connection.

use std::io;
use std::time::Duration;

use actix::prelude::*;
use bytes::BytesMut;
use tokio::io::AsyncWriteExt;
use tokio::net::unix::OwnedWriteHalf;
use tokio::time::{Instant, timeout, timeout_at};

use super::{WRITE_TIMEOUT, WorkLinks};
use crate::file_watcher::{CatchUpBarrier, CaughtUp};
use crate::refused::Refused;
use crate::storage::messages::{Finish, HandOut, TakeJob, Work};
use crate::store::LeaseHolder;
use shiftboss_protocol::model::Idle;
use shiftboss_protocol::wire::Request;
use shiftboss_protocol::wire::session::SessionAnswer;

/// How long a request may take before its connection is closed; the stock worker waits 5 s.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(4);
/// How long looks are repeated while files have more to read; one look is enough for NOJOBS.
const LOOKING_TIME: Duration = Duration::from_secs(3);
/// Pause before asking again while a deletion is getting on, or a file waits for its turn.
const LATER_PAUSE: Duration = Duration::from_millis(20);

/// Why an actor does not answer any more.
pub(super) const STOPPING: &str = "the daemon is stopping";

/// Why a request got no answer.
#[derive(Debug)]
pub(super) enum NoAnswer {
    /// Storage or the watcher could not answer in time, or at all.
    Unanswered(Refused),
    /// The answer could not be written.
    Unwritten(io::Error),
}

/// Answers one request. The writer comes back whatever happened.
pub(super) async fn serve(
    request: Request,
    links: WorkLinks,
    mut writer: OwnedWriteHalf,
) -> (OwnedWriteHalf, Result<Option<HandOut>, NoAnswer>) {
    let finished = match request {
        Request::Ready => None,
        Request::Done { key, exit_code } => Some(Finish { key, exit_code }),
    };
    let result = match next_work(finished, None, &links).await {
        Ok(work) => write_answer(work, &mut writer).await.map_err(NoAnswer::Unwritten),
        Err(reason) => Err(NoAnswer::Unanswered(reason)),
    };
    (writer, result)
}

/// What was looked into for a request.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Barriers {
    None,
    /// Each file, one batch; some have more.
    Some,
    All,
}

impl Barriers {
    fn and(self, found: CaughtUp) -> Self {
        match found {
            CaughtUp { more: false, .. } => Self::All,
            CaughtUp { missed: false, .. } => Self::Some,
            CaughtUp { missed: true, .. } => self,
        }
    }
}

/// The next job, or none after a look that found nothing more (spec 2). A job that `finished` is
/// recorded first.
pub(super) async fn next_work(
    finished: Option<Finish>,
    holder: Option<LeaseHolder>,
    links: &WorkLinks,
) -> Result<Option<HandOut>, Refused> {
    let began = Instant::now();
    let deadline = began + REQUEST_TIMEOUT;
    let mut looks = Barriers::None;
    let dispatch = || links.dispatch.send(TakeJob { holder: holder.clone() });
    let mut work = match finished {
        None => answered("storage", dispatch(), deadline).await?,
        Some(finished) => answered("storage", links.finish.send(finished), deadline).await?,
    };
    loop {
        match work {
            Work::Job(handed_out) => return Ok(Some(handed_out)),
            Work::Nothing if looks == Barriers::All => return Ok(None),
            Work::Nothing => {
                let until = if looks == Barriers::Some { began + LOOKING_TIME } else { deadline };
                match timeout_at(until, links.barrier.send(CatchUpBarrier)).await {
                    Ok(found) => {
                        let found = found.map_err(|_| Refused::busy(STOPPING))?;
                        looks = looks.and(found);
                        if found.missed {
                            tokio::time::sleep(LATER_PAUSE).await;
                        }
                    }
                    // A long list without a job in it: a batch of each file is all that is owed.
                    Err(_) if looks == Barriers::Some => return Ok(None),
                    Err(_) => return Err(Refused::busy("no look in time")),
                }
            }
            // Nobody deletes any more: the watcher has stopped.
            Work::Later if !links.barrier.connected() => return Err(Refused::busy(STOPPING)),
            Work::Later => tokio::time::sleep(LATER_PAUSE).await,
        }
        work = answered("storage", dispatch(), deadline).await?;
    }
}

/// Awaits an actor's answer until the deadline.
pub(super) async fn answered<M, T, E>(
    who: &str,
    sent: RecipientRequest<M>,
    deadline: Instant,
) -> Result<T, Refused>
where
    M: Message<Result = Result<T, E>> + Send + 'static,
    T: Send + 'static,
    E: Into<Refused> + Send + 'static,
{
    match timeout_at(deadline, sent).await {
        Ok(Ok(result)) => result.map_err(Into::into),
        Ok(Err(_)) => Err(Refused::busy(STOPPING)),
        Err(_) => Err(Refused::busy(format!("{who} did not answer in time"))),
    }
}

async fn write_answer(
    work: Option<HandOut>,
    writer: &mut OwnedWriteHalf,
) -> io::Result<Option<HandOut>> {
    let mut bytes = BytesMut::new();
    let answer = match &work {
        Some(handed_out) => SessionAnswer::Job(None, handed_out.job()),
        None => SessionAnswer::NoJobs(Idle::Nothing),
    };
    answer.encode(&mut bytes);
    timeout(WRITE_TIMEOUT, writer.write_all(&bytes)).await??;
    Ok(work)
}
