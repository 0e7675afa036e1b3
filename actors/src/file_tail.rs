//! FileTailActor: one fetcher run, from its first byte to complete or deleted.
//!
//! The FileWatcherActor starts it, tells it when its file changed, and restarts it when it fails.
//! It stores one batch at a time and reads on only when that one is on disk. A store that is busy
//! or full is waited for; a file that cannot be read is a failure, reported to the parent. What the
//! bytes mean is `run_reader`'s and `fetcher_file`'s business. When the reader has listed a file anew, the
//! tail has the store delete, step by step, what that list lacks.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use actix::prelude::*;
use tokio::sync::oneshot;
use tracing::debug;

use crate::directory::FileState;
use crate::exit_notifier::ExitNotifier;
use crate::run_reader::{RunReader, Target};
use crate::storage::StorageActor;
use crate::storage::messages::{STORE_RETRY, ask};
use crate::store::{AddRows, Prune, RowBatch, STEP_ROWS, StoreError, StoreResult};

/// Delay before a line that fills a batch and does not end is read on; others have their turn.
const NEXT_PIECE: Duration = Duration::from_millis(1);

/// How a tail ended, for its parent. No word at all is a panic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TailEnd {
    /// All lines are in the queue, and the run is complete.
    Complete(LastRead),
    /// All that is there is read, and its place was wanted.
    Idle(LastRead),
    /// The file could not be read, or its rows were refused.
    Failed {
        /// Why, for the log and for status.
        reason: String,
        /// Whether any batch was stored since the tail was started.
        progress: bool,
    },
}

/// The end of a tail that has read all there was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LastRead {
    /// The file as it was read.
    pub file: Option<FileState>,
    /// The number of the last [`Changed`] that it has heard; later ones found nobody.
    pub heard: u64,
}

/// Tells a tail which name its file has now, whether its writer is done, and that it may have
/// changed.
#[derive(Debug, Clone, Copy, Message)]
#[rtype(result = "()")]
pub struct Changed {
    /// What to read from now on.
    pub target: Target,
    /// Counts the notifications of the tail, from 1 on.
    pub number: u64,
}

/// Asks a tail to store what is unread, one batch; answered when that batch is on disk: is there more?
#[derive(Debug, Message)]
#[rtype(result = "bool")]
pub struct CatchUp;

/// Ends a tail: its run is gone.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct StopTail;

/// All that a tail is made of.
pub struct TailSeed {
    /// The run's file and the place in it.
    pub reader: RunReader,
    pub target: Target,
    pub storage: Addr<StorageActor>,
    /// Others wait for its place: it is to end when it has nothing to read.
    pub crowded: Rc<Cell<bool>>,
    /// Set when its file could be read and what was read of it stored.
    pub sound: Rc<Cell<bool>>,
    /// Where its end is reported.
    pub exit_notifier: ExitNotifier<TailEnd>,
}

/// Reads one run. See the module's documentation.
pub struct FileTailActor {
    seed: TailSeed,
    /// The number of the last [`Changed`] that came before all was read.
    heard: u64,
    /// A batch, or a step of a deletion, is on its way to the store.
    storing: bool,
    /// It is the last one of a complete file: a notification from now on comes after its reading.
    completing: bool,
    /// The store is busy or full; the batch is sent again later.
    stalled: bool,
    /// A batch was stored since the start.
    progress: bool,
    /// Answered when the batch under way is stored: it was read after they asked.
    waiting: Vec<oneshot::Sender<bool>>,
    /// Answered after the next batch: the one under way may have been read before they asked.
    late: Vec<oneshot::Sender<bool>>,
}

impl FileTailActor {
    /// A tail made of `seed`.
    pub fn new(seed: TailSeed) -> Self {
        Self {
            seed,
            heard: 0,
            storing: false,
            completing: false,
            stalled: false,
            progress: false,
            waiting: Vec::new(),
            late: Vec::new(),
        }
    }

    /// Reads the next batch and sends it off, unless one is under way.
    fn read_on(&mut self, ctx: &mut Context<Self>) {
        if self.storing {
            return;
        }
        self.waiting.append(&mut self.late);
        match self.seed.reader.next_batch(self.seed.target) {
            Ok(Some(batch)) => self.store(batch, ctx),
            Ok(None) => {
                self.seed.sound.set(true);
                self.answer_waiting();
                if self.seed.reader.is_interrupted() {
                    ctx.run_later(NEXT_PIECE, Self::read_on);
                } else if !self.seed.reader.has_unread() {
                    self.all_read(ctx);
                }
            }
            Err(error) => self.fail(error.to_string(), ctx),
        }
    }

    /// All is read: what is not in a whole list leaves the queue, a step at a time.
    fn all_read(&mut self, ctx: &mut Context<Self>) {
        if !self.seed.target.complete || !self.seed.reader.is_listed() {
            return self.caught_up(ctx);
        }
        self.storing = true;
        let run = self.seed.reader.run().clone();
        let pruned = ask(&self.seed.storage, Prune { run, limit: STEP_ROWS });
        ctx.spawn(pruned.into_actor(self).map(|answer, tail, ctx| {
            tail.storing = false;
            tail.stalled = answer.is_err();
            match answer {
                Err(StoreError::Rejected(reason)) => return tail.fail(reason, ctx),
                Ok(false) => tail.seed.reader.pruned(),
                Ok(true) | Err(_) => {}
            }
            let pause = if tail.stalled { STORE_RETRY } else { NEXT_PIECE };
            ctx.run_later(pause, Self::read_on);
        }));
    }

    /// All is done: the run is complete, or its place may be given to another.
    fn caught_up(&mut self, ctx: &mut Context<Self>) {
        let read = LastRead { file: self.seed.reader.read_state(), heard: self.heard };
        if self.seed.target.complete {
            self.end(TailEnd::Complete(read), ctx);
        } else if self.seed.crowded.get() {
            self.end(TailEnd::Idle(read), ctx);
        }
    }

    fn store(&mut self, batch: RowBatch, ctx: &mut Context<Self>) {
        self.storing = true;
        self.completing = batch.complete;
        let stored = ask(&self.seed.storage, AddRows(batch.clone())).into_actor(self);
        ctx.spawn(stored.map(move |result, tail, ctx| tail.stored(batch, result, ctx)));
    }

    fn stored(&mut self, batch: RowBatch, result: StoreResult<()>, ctx: &mut Context<Self>) {
        match result {
            Ok(()) => {
                self.storing = false;
                self.completing = false;
                self.stalled = false;
                self.progress = true;
                self.seed.sound.set(true);
                self.seed.reader.batch_stored(&batch);
                self.answer_waiting();
                self.read_on(ctx);
            }
            Err(StoreError::Rejected(reason)) => self.fail(reason, ctx),
            Err(error) => {
                // Storage has warned of it already, and not too often.
                debug!(run = %batch.run, %error, "Rows could not be stored yet; trying again.");
                // Nobody may wait for a store that is full: their request fails, and comes back.
                self.stalled = true;
                self.waiting.append(&mut self.late);
                self.answer_waiting();
                ctx.run_later(STORE_RETRY, |tail, ctx| tail.store(batch, ctx));
            }
        }
    }

    fn answer_waiting(&mut self) {
        let more = self.seed.reader.has_unread();
        for waiter in self.waiting.drain(..) {
            // A watcher that gave up needs no answer.
            let _ = waiter.send(more);
        }
    }

    fn fail(&mut self, reason: String, ctx: &mut Context<Self>) {
        let progress = self.progress;
        self.end(TailEnd::Failed { reason, progress }, ctx);
    }

    fn end(&mut self, how: TailEnd, ctx: &mut Context<Self>) {
        self.seed.exit_notifier.ended(how);
        ctx.stop();
    }
}

impl Actor for FileTailActor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        self.read_on(ctx);
    }
}

impl Handler<Changed> for FileTailActor {
    type Result = ();

    fn handle(&mut self, changed: Changed, ctx: &mut Self::Context) {
        self.seed.target = changed.target;
        if !self.completing {
            self.heard = changed.number;
        }
        self.read_on(ctx);
    }
}

impl Handler<CatchUp> for FileTailActor {
    type Result = ResponseFuture<bool>;

    fn handle(&mut self, _: CatchUp, ctx: &mut Self::Context) -> Self::Result {
        let (waiter, answer) = oneshot::channel();
        self.late.push(waiter);
        if self.stalled {
            self.waiting.append(&mut self.late);
            self.answer_waiting();
        }
        self.read_on(ctx);
        Box::pin(async move { answer.await.unwrap_or(false) })
    }
}

impl Handler<StopTail> for FileTailActor {
    type Result = ();

    fn handle(&mut self, _: StopTail, ctx: &mut Self::Context) {
        ctx.stop();
    }
}
