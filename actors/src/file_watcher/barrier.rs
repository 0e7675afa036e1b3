//! The look before NOJOBS (spec 2, "The very next request sees it"): all events are handled, and every tail with unread
//! bytes stores a batch. One look serves all requests that came before it began.

use std::time::Duration;

use actix::prelude::*;
use futures_util::future::join_all;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::FileWatcherActor;
use super::entry::Entry;
use super::phase::Phase;

/// How long a tail may take to store one batch before the look goes on without it.
const CATCH_UP_TIMEOUT: Duration = Duration::from_secs(3);

/// Requests a look that begins now or later; answered when it is over.
#[derive(Debug, Message)]
#[rtype(result = "CaughtUp")]
pub struct CatchUpBarrier;

/// How much of what is in the files is stored after a look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, MessageResponse)]
pub enum CaughtUp {
    /// Some file has not had its turn: what is in it is unknown.
    Missed,
    /// A batch of each file; some have more: look again if there is still no work.
    Some,
    All,
}

#[derive(Default)]
pub(super) struct Barriers {
    waiting: Vec<oneshot::Sender<CaughtUp>>,
    running: bool,
}

impl Handler<CatchUpBarrier> for FileWatcherActor {
    type Result = ResponseFuture<CaughtUp>;

    fn handle(&mut self, _: CatchUpBarrier, ctx: &mut Self::Context) -> Self::Result {
        let (waiter, answer) = oneshot::channel();
        self.barriers.waiting.push(waiter);
        if !self.barriers.running {
            self.begin_catch_up(ctx);
        }
        Box::pin(async move { answer.await.unwrap_or(CaughtUp::All) })
    }
}

impl FileWatcherActor {
    fn begin_catch_up(&mut self, ctx: &mut Context<Self>) {
        self.barriers.running = true;
        self.find_directory(ctx);
        self.drain(ctx);
        // After whatever the actor waits for now: by then the new runs are registered.
        ctx.spawn(fut::ready(()).map(|(), watcher: &mut Self, ctx| watcher.catch_up_all(ctx)));
    }

    fn catch_up_all(&mut self, ctx: &mut Context<Self>) {
        // Requests from here on get the next look: something may have been written since this one began.
        let waiting = std::mem::take(&mut self.barriers.waiting);
        let tails = self.runs.values().filter(|entry| matches!(entry.phase, Phase::Tailing(_)));
        let stored = tails.map(|entry| timeout(CATCH_UP_TIMEOUT, entry.tail.catch_up()));
        let caught_up = join_all(stored.collect::<Vec<_>>()).into_actor(self);
        ctx.spawn(caught_up.map(move |answers, watcher, ctx| {
            // Runs that wait for a tail have unread bytes as well. A lost directory is not waited for.
            let blocked = watcher.runs.values().any(Entry::is_blocked);
            let missed = watcher.open.is_some() && (blocked || !watcher.queue.is_empty());
            let more = answers.into_iter().flatten().flatten().any(|more| more);
            let caught_up = match (missed, more) {
                (true, _) => CaughtUp::Missed,
                (false, true) => CaughtUp::Some,
                (false, false) => CaughtUp::All,
            };
            for waiter in waiting {
                // A connection that gave up needs no answer.
                let _ = waiter.send(caught_up);
            }
            watcher.barriers.running = false;
            if !watcher.barriers.waiting.is_empty() {
                watcher.begin_catch_up(ctx);
            }
        }));
    }
}
