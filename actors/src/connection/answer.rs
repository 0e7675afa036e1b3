//! The next job for a worker: asking storage, and looking once more before NOJOBS.
//!
//! Plain futures, awaited by connections of both protocols; they know neither actor nor connection.

use std::time::Duration;

use actix::prelude::*;
use tokio::time::{Instant, sleep, timeout_at};

use super::links::WorkLinks;
use crate::file_watcher::{CatchUpBarrier, CaughtUp};
use crate::storage::messages::{HandOut, TakeJob, Work};
use shiftboss_protocol::wire::session::Refused;
use shiftboss_queue::operation::{Complete, Dispatch, Request};

/// How long a request may take before its connection is closed; the stock worker waits 5 s.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(4);
/// How long looks are repeated while files have more to read; one look is enough for NOJOBS.
const LOOKING_TIME: Duration = Duration::from_secs(3);
/// Pause before asking again while a deletion is getting on, or a file waits for its turn.
const LATER_PAUSE: Duration = Duration::from_millis(20);

/// Why an actor does not answer any more.
pub(super) const STOPPING: &str = "the daemon is stopping";

/// The next job, or none once a look has found nothing more (spec 2). The end of a classic job is recorded first.
pub(super) async fn next_work(
    ended: Option<Complete>,
    next: Dispatch,
    links: &WorkLinks,
) -> Result<Option<HandOut>, Refused> {
    let began = Instant::now();
    let deadline = began + REQUEST_TIMEOUT;
    // The best of the looks so far; none has missed all files, too.
    let mut looked = CaughtUp::Missed;
    let dispatch = || {
        let next = next.clone();
        taken(links.dispatch.send(TakeJob { ended: (), next }), deadline)
    };
    let mut work = match ended {
        None => dispatch().await?,
        Some(ended) => {
            let next = next.clone();
            taken(links.finish.send(TakeJob { ended, next }), deadline).await?
        }
    };
    loop {
        match work {
            Work::Job(handed_out) => return Ok(Some(handed_out)),
            Work::Nothing if looked == CaughtUp::All => return Ok(None),
            Work::Nothing => {
                let is_enough = looked == CaughtUp::Some;
                let until = if is_enough { began + LOOKING_TIME } else { deadline };
                match timeout_at(until, links.barrier.send(CatchUpBarrier)).await {
                    Ok(found) => {
                        let found = found.map_err(|_| Refused::busy(STOPPING))?;
                        looked = looked.max(found);
                        if found == CaughtUp::Missed {
                            sleep(LATER_PAUSE).await;
                        }
                    }
                    // A long list without a job in it: one batch of each file is enough.
                    Err(_) if is_enough => return Ok(None),
                    Err(_) => return Err(Refused::busy("no look in time")),
                }
            }
            // Deletions have ended: the watcher has stopped.
            Work::Later if !links.barrier.connected() => return Err(Refused::busy(STOPPING)),
            Work::Later => sleep(LATER_PAUSE).await,
        }
        work = dispatch().await?;
    }
}

async fn taken<R: Request>(
    sent: RecipientRequest<TakeJob<R>>,
    deadline: Instant,
) -> Result<Work, Refused> {
    let (_, work) = answered("storage", sent, deadline).await?.map_err(Refused::busy)?;
    Ok(work)
}

/// Awaits an actor's answer until the deadline.
pub(super) async fn answered<T>(
    who: &str,
    sent: impl Future<Output = Result<T, MailboxError>>,
    deadline: Instant,
) -> Result<T, Refused> {
    match timeout_at(deadline, sent).await {
        Ok(answer) => answer.map_err(|_| Refused::busy(STOPPING)),
        Err(_) => Err(Refused::busy(format!("{who} did not answer in time"))),
    }
}
