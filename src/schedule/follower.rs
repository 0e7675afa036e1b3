//! Keeps a watch open and says what changed. Used by [`super::scheduler`].
//!
//! Watching and listing trees can take long, so the watch works beside the runtime's thread. A watch that fails is
//! opened anew, with a growing delay, and then anything may have changed.

#[cfg(test)]
mod tests;

use std::io;
use std::panic::resume_unwind;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use shiftboss_actors::fs_events::readiness;
use shiftboss_protocol::backoff::Backoff;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::sleep;
use tracing::{debug, warn};

use super::paths::Changed;
use super::tree_watch::kernel;
use super::watch::{Trees, Wake, Watch, WatchError};

/// From a watch that failed to the next one: at first, and at the longest.
const REOPEN: [Duration; 2] = [Duration::from_millis(200), Duration::from_secs(10)];

/// Opens a watch; may take long.
type Opener = Arc<dyn Fn() -> Result<Box<dyn Watch>, WatchError> + Send + Sync>;

/// Asks for what changed until now; dropped when that was sent.
pub type Drain = oneshot::Sender<()>;

pub struct Follower {
    found: UnboundedReceiver<Changed>,
    drains: UnboundedSender<Drain>,
    following: JoinHandle<Result<(), WatchError>>,
}

impl Follower {
    /// Follows trees.
    pub fn of_trees(trees: Trees, is_patient: bool) -> Self {
        Self::new(Arc::new(move || super::open(&trees, kernel())), is_patient)
    }

    /// Follows the watch that `opener` opens. If it is patient, one that cannot be opened is tried again from the
    /// first time on.
    fn new(opener: Opener, is_patient: bool) -> Self {
        Self::of(|found, drains| follow(opener, is_patient, found, drains))
    }

    /// Follows what sends changes and takes drains, until it ends.
    pub fn of<F>(
        follow: impl FnOnce(UnboundedSender<Changed>, UnboundedReceiver<Drain>) -> F,
    ) -> Self
    where
        F: Future<Output = Result<(), WatchError>> + Send + 'static,
    {
        let (finder, found) = unbounded_channel();
        let (drains, asked) = unbounded_channel();
        Self { found, drains, following: tokio::spawn(follow(finder, asked)) }
    }

    /// What changed next; at first when the watch is open. May be cancelled.
    pub async fn next(&mut self) -> Result<Changed, WatchError> {
        if let Some(changed) = self.found.recv().await {
            return Ok(changed);
        }
        match (&mut self.following).await {
            Ok(Err(error)) => Err(error),
            panicked => panic!("the watch is not followed any more: {panicked:?}"),
        }
    }

    /// What changed until now; nothing while no watch is open. May be cancelled.
    pub async fn drain(&mut self) -> Changed {
        let (ask, drained) = oneshot::channel();
        let _ = self.drains.send(ask);
        // It is dropped without a word.
        let _ = drained.await;
        let mut changed = Changed::default();
        while let Ok(more) = self.found.try_recv() {
            changed.merge(more);
        }
        changed
    }
}

/// Has a watch open until its owner is gone, or nothing can be watched any more.
async fn follow(
    opener: Opener,
    is_patient: bool,
    found: UnboundedSender<Changed>,
    mut drains: UnboundedReceiver<Drain>,
) -> Result<(), WatchError> {
    let mut backoff = Backoff::new(REOPEN[0], REOPEN[1]);
    // Once a watch has been open, a failure is no reason to give up.
    let mut may_fail = is_patient;
    // The last failure that was logged: the same again is no news.
    let mut warned = None;
    loop {
        let open = Arc::clone(&opener);
        let Some(opened) = without_watch(&mut drains, beside(move || open())).await else {
            return Ok(());
        };
        let error = match opened {
            Ok(watch) => {
                (may_fail, warned) = (true, None);
                // From here on nothing is missed; what was before is unknown.
                let _ = found.send(Changed::unknown());
                match attend(watch, &found, &mut drains, &mut backoff).await {
                    Err(error) => error,
                    Ok(()) => return Ok(()),
                }
            }
            Err(error) if may_fail => error,
            Err(error) => return Err(error),
        };
        let (delay, error) = (backoff.next_delay(), error.to_string());
        if warned.as_ref() == Some(&error) {
            debug!(error, retry_in = ?delay, "The watch has failed again.");
        } else {
            warn!(error, "The watch has failed; it is opened again until that works.");
            warned = Some(error);
        }
        if without_watch(&mut drains, sleep(delay)).await.is_none() {
            return Ok(());
        }
    }
}

/// Waits while no watch is open, and answers each drain at once. `None`: the owner is gone.
async fn without_watch<T>(
    drains: &mut UnboundedReceiver<Drain>,
    awaited: impl Future<Output = T>,
) -> Option<T> {
    let mut awaited = pin!(awaited);
    loop {
        tokio::select! {
            done = &mut awaited => return Some(done),
            asked = drains.recv() => drop(asked?),
        }
    }
}

/// Takes turns with a watch until it fails, or its owner is gone.
async fn attend(
    mut watch: Box<dyn Watch>,
    found: &UnboundedSender<Changed>,
    drains: &mut UnboundedReceiver<Drain>,
    backoff: &mut Backoff,
) -> Result<(), WatchError> {
    loop {
        let asked = tokio::select! {
            asked = drains.recv() => match asked {
                None => return Ok(()),
                asked => asked,
            },
            woken = woken(watch.wake()) => woken.map(|()| None).map_err(WatchError::Read)?,
        };
        let turn;
        (watch, turn) = beside(move || {
            let turn = watch.turn();
            (watch, turn)
        })
        .await;
        let changed = turn?;
        backoff.reset();
        if !changed.is_empty() {
            let _ = found.send(changed);
        }
        drop(asked);
    }
}

async fn woken(wake: Wake) -> io::Result<()> {
    match wake {
        // Waited for anew each time, so what was read before wakes nobody.
        Wake::Readable(descriptor) => readiness(descriptor)?.readable().await.map(drop),
        Wake::After(pause) => {
            sleep(pause).await;
            Ok(())
        }
    }
}

/// Works beside the runtime's thread. A panic there goes on here.
async fn beside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    spawn_blocking(work).await.unwrap_or_else(|error| resume_unwind(error.into_panic()))
}
