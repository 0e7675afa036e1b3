//! FileTailActor: one fetcher run, from its first byte to complete or deleted.
//!
//! The FileWatcherActor starts it, tells it through a [`TailLink`] when its file changed, and restarts it when it
//! fails. It reads a portion, stores that batch by batch, and reads on only when it is on disk. A store that is busy
//! or full is waited for; a file that cannot be read is a failure, reported to the parent. What the
//! bytes mean is `run_reader`'s and `fetcher_file`'s business. When the reader has listed a file anew, the
//! tail has the store delete, step by step, what that list lacks.

#[cfg(test)]
mod tests;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use actix::prelude::*;
use tokio::sync::{Notify, oneshot};
use tokio::task::yield_now;
use tokio::time::sleep;
use tracing::debug;

use crate::directory::FileState;
use crate::run_reader::{Portion, RunReader, Target};
use crate::storage::StorageActor;
use crate::storage::messages::{STORE_RETRY, ask};
use crate::store::STEP_ROWS;
use shiftboss_queue::error::StoreError;
use shiftboss_queue::file_identity::Position;
use shiftboss_queue::operation::{AddRows, Prune, Request};

/// Delay before reading on in a line that fills a batch without ending; others get their turn meanwhile.
const NEXT_PIECE: Duration = Duration::from_millis(1);

/// Memory for what one tail, and all tails together, gather before storing it: enough for a list of 25,000 packages,
/// and for a few of those. With less, or when a request waits, rows are stored in smaller portions. Sorting one portion
/// takes a few milliseconds and blocks everything else on this thread.
const PORTION_BYTES_MAX: usize = 2 * 1024 * 1024;
const GATHERED_BYTES_MAX: usize = 16 * 1024 * 1024;

/// How a tail ended, for its parent. If it left no such value, it panicked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TailEnd {
    /// All that is there was read, and the run is complete or another tail needed the place.
    Read { complete: bool, state: Option<FileState> },
    /// The file could not be read, or its rows were refused.
    Failed { reason: String, progress: bool },
}

/// What a tail and the watcher share: both live on one thread.
#[derive(Default)]
pub struct TailLink {
    target: Cell<Target>,
    wake: Notify,
    /// The watcher reported a change, and the tail has not read since.
    unheard: Cell<bool>,
    /// Requests that wait until what is unread is stored: answered after the next batch, because the one under way may
    /// have been read before they came.
    waiting: RefCell<Vec<oneshot::Sender<bool>>>,
    /// Set while the store is busy or full, so that no request waits for it: whether there is more to read.
    stalled: Cell<Option<bool>>,
    /// The file could be read, and what was read was stored.
    sound: Cell<bool>,
    /// The run's position in the store, as last reported.
    pub(crate) stored: Cell<Option<Position>>,
    end: Cell<Option<TailEnd>>,
}

impl TailLink {
    pub fn new(target: Target) -> Rc<Self> {
        Rc::new(Self { target: Cell::new(target), ..Self::default() })
    }

    /// Whether the store may have been restored to an earlier state: it has another position for the run.
    pub fn is_elsewhere(&self, position: Option<Position>) -> bool {
        let place = |at: Position| (at.device, at.inode, at.offset);
        self.stored.get().map(place) != position.map(place)
    }

    /// Notifies the tail that its file, or what to read of it, may have changed.
    pub fn notify(&self, target: Target) {
        self.target.set(target);
        self.unheard.set(true);
        self.wake.notify_one();
    }

    /// Has the tail store one batch of what is unread; answered when that batch is on disk: is there more?
    pub fn catch_up(&self) -> oneshot::Receiver<bool> {
        let (waiter, answer) = oneshot::channel();
        self.waiting.borrow_mut().push(waiter);
        match self.stalled.get() {
            Some(more) => answer_all(&mut self.waiting.take(), more),
            None => self.wake.notify_one(),
        }
        answer
    }

    /// Whether a change was reported that no tail has read.
    pub fn is_unheard(&self) -> bool {
        self.unheard.get()
    }

    pub fn is_sound(&self) -> bool {
        self.sound.get()
    }

    /// How the tail ended. Drops the requests that wait for it.
    pub fn take_end(&self) -> Option<TailEnd> {
        self.waiting.take();
        self.end.take()
    }
}

pub struct Shared {
    step_rows: usize,
    /// Other runs wait for a place: a tail ends when it has nothing to read.
    pub(crate) crowded: Cell<bool>,
    /// Bytes in memory that were read and not yet stored.
    gathered: Cell<usize>,
}

impl Shared {
    pub fn new(step_rows: usize) -> Self {
        Self { step_rows, crowded: Cell::default(), gathered: Cell::default() }
    }
}

struct Room {
    shared: Rc<Shared>,
    bytes: usize,
}

impl Room {
    fn of(shared: &Rc<Shared>) -> Self {
        Self { shared: Rc::clone(shared), bytes: 0 }
    }

    fn grow(&mut self, bytes: usize) {
        self.bytes += bytes;
        self.shared.gathered.set(self.shared.gathered.get() + bytes);
    }

    fn is_full(&self) -> bool {
        self.bytes >= PORTION_BYTES_MAX || self.shared.gathered.get() >= GATHERED_BYTES_MAX
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.shared.gathered.set(self.shared.gathered.get() - self.bytes);
    }
}

/// One run that is read. Made by the watcher; a [`FileTailActor`] follows it.
pub struct Tail {
    pub(crate) reader: RunReader,
    storage: Addr<StorageActor>,
    shared: Rc<Shared>,
    link: Rc<TailLink>,
    gathered: Option<(Portion, Room)>,
    /// The last batch of a complete file was read: any notification from now on came after that.
    completed: bool,
    progress: bool,
    /// Requests that are answered when the batch under way is stored, because it was read after they came.
    waiting: Vec<oneshot::Sender<bool>>,
}

pub struct FileTailActor(pub Option<Tail>);

impl Actor for FileTailActor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        if let Some(tail) = self.0.take() {
            ctx.spawn(tail.follow().into_actor(self).map(|(), _, ctx| ctx.stop()));
        }
    }
}

impl Tail {
    pub fn new(
        reader: RunReader,
        storage: Addr<StorageActor>,
        shared: Rc<Shared>,
        link: Rc<TailLink>,
    ) -> Self {
        let (gathered, completed, progress, waiting) = (None, false, false, Vec::new());
        Self { reader, storage, shared, link, gathered, completed, progress, waiting }
    }

    async fn follow(mut self) {
        let end = self.read().await;
        let progress = self.progress;
        let end = end.unwrap_or_else(|reason| TailEnd::Failed { reason, progress });
        self.link.end.set(Some(end));
    }

    /// Reads and stores batch after batch until nothing is left to do. An error concerns the file.
    async fn read(&mut self) -> Result<TailEnd, String> {
        let link = Rc::clone(&self.link);
        loop {
            self.waiting.append(&mut link.waiting.borrow_mut());
            link.unheard.set(link.unheard.get() && self.completed);
            let target = link.target.get();
            match self.reader.read_on(target) {
                Ok(Some(portion)) => {
                    self.gather(portion).await?;
                    continue;
                }
                Ok(None) if self.gathered.is_none() => {}
                read => {
                    self.store(false).await?;
                    read?;
                    continue;
                }
            }
            let reader = &self.reader;
            link.sound.set(true);
            answer_all(&mut self.waiting, reader.has_unread());
            if reader.is_interrupted() {
                sleep(NEXT_PIECE).await;
            } else if reader.has_unread() {
                link.wake.notified().await;
            } else if target.complete && reader.is_listed() {
                self.prune().await?;
            } else if target.complete || self.shared.crowded.get() {
                let (complete, state) = (target.complete, reader.read_state());
                return Ok(TailEnd::Read { complete, state });
            } else {
                link.wake.notified().await;
            }
        }
    }

    /// Adds what was read to what is gathered. Stores it all once the file has no more, memory is full, or a request
    /// waits.
    async fn gather(&mut self, read: Portion) -> Result<(), String> {
        self.completed |= read.behind().complete;
        self.reader.taken(&read);
        if self.gathered.as_ref().is_some_and(|(portion, _)| !portion.goes_on_with(&read)) {
            self.store(true).await?;
        }
        let bytes = read.bytes();
        let (_, room) = match &mut self.gathered {
            Some(gathered) => {
                gathered.0.append(read);
                gathered
            }
            none => none.insert((read, Room::of(&self.shared))),
        };
        room.grow(bytes);
        let is_awaited = !self.waiting.is_empty() || !self.link.waiting.borrow().is_empty();
        if is_awaited || room.is_full() || !self.reader.is_interrupted() {
            return self.store(false).await;
        }
        yield_now().await;
        Ok(())
    }

    /// Stores what was gathered, batch by batch. Waiting requests are answered after the first one. `has_more`: more
    /// was read than was gathered.
    async fn store(&mut self, has_more: bool) -> Result<(), String> {
        let Some((portion, _room)) = self.gathered.take() else {
            return Ok(());
        };
        let mut steps = portion.into_steps(self.shared.step_rows).peekable();
        while let Some(batch) = steps.next() {
            let position = batch.position;
            self.ask_until_done(AddRows(batch), true).await?;
            self.link.stored.set(Some(position));
            self.progress = true;
            self.link.sound.set(true);
            let more = steps.peek().is_some() || has_more;
            if more {
                self.waiting.append(&mut self.link.waiting.borrow_mut());
            }
            answer_all(&mut self.waiting, more || self.reader.has_unread());
        }
        Ok(())
    }

    /// One step: rows that a complete listing lacks leave the queue.
    async fn prune(&mut self) -> Result<(), String> {
        let run = self.reader.run().clone();
        if !self.ask_until_done(Prune { run, limit: STEP_ROWS }, false).await? {
            self.reader.pruned();
        }
        sleep(NEXT_PIECE).await;
        Ok(())
    }

    /// Has storage carry out a request, however long that takes. `brings_rows`: until it is done, looks are answered
    /// that there is more, even if the reader has no more.
    async fn ask_until_done<R: Request + Clone>(
        &mut self,
        request: R,
        brings_rows: bool,
    ) -> Result<R::Answer, String> {
        loop {
            match ask(&self.storage, request.clone()).await {
                Ok(answer) => {
                    self.link.stalled.set(None);
                    return Ok(answer);
                }
                Err(StoreError::Rejected(reason)) => return Err(reason),
                Err(error) => {
                    // Storage has already logged a warning, at a limited rate.
                    let run = self.reader.run();
                    debug!(%run, %error, "Rows could not be stored yet; trying again.");
                    self.stall(brings_rows);
                    sleep(STORE_RETRY).await;
                }
            }
        }
    }

    /// No request waits for a store that is full: it is answered at once, fails, and is repeated.
    fn stall(&mut self, brings_rows: bool) {
        let more = brings_rows || self.reader.has_unread();
        self.link.stalled.set(Some(more));
        self.waiting.append(&mut self.link.waiting.borrow_mut());
        answer_all(&mut self.waiting, more);
    }
}

fn answer_all(waiting: &mut Vec<oneshot::Sender<bool>>, more: bool) {
    for waiter in waiting.drain(..) {
        // A watcher that gave up needs no answer.
        let _ = waiter.send(more);
    }
}
