//! Keeps a watch open and says what changed.
//!
//! Watching and listing trees can take long, so the watch works beside the runtime's thread. A watch that fails is
//! opened anew, with a growing delay, and then anything may have changed. Used by [`super::scheduler`].

#[cfg(test)]
mod tests;

use std::io;
use std::mem::{replace, take};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use shiftboss_protocol::backoff::Backoff;
use thiserror::Error;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{Instant, sleep_until};
use tracing::{debug, warn};

use super::paths::Changed;
use super::scheduler::Watching;
use super::watch::{Turn, Wake, Watch, WatchError};

/// From a watch that failed to the next one: at first, and at the longest.
const REOPEN: [Duration; 2] = [Duration::from_millis(200), Duration::from_secs(10)];

/// Opens a watch; may take long.
pub type Opener = Arc<dyn Fn() -> Result<Box<dyn Watch>, WatchError> + Send + Sync>;

#[derive(Debug, Error)]
pub enum FollowError {
    #[error(transparent)]
    Watch(WatchError),
    #[error("watching ended by a panic")]
    Panicked,
    #[error("cannot wait for events: {0}")]
    Wait(#[source] io::Error),
}

enum Stage {
    /// Opened anew at this time.
    Closed(Instant),
    Opening(JoinHandle<Result<Box<dyn Watch>, WatchError>>),
    /// Until this time, or until there are events.
    Waiting(Box<dyn Watch>, Option<Instant>),
    Turning(JoinHandle<(Box<dyn Watch>, Result<Turn, WatchError>)>),
}

pub struct Follower {
    opener: Opener,
    stage: Stage,
    /// A watch has been open before, or the owner is patient: a failure is no reason to give up.
    may_fail: bool,
    readiness: Option<AsyncFd<Arc<OwnedFd>>>,
    backoff: Backoff,
    /// The last failure that was logged: the same again is no news.
    warned: Option<String>,
    /// Found, and not returned yet.
    changed: Changed,
}

impl Follower {
    pub fn new(opener: Opener) -> Self {
        Self {
            opener,
            stage: Stage::Closed(Instant::now()),
            may_fail: false,
            readiness: None,
            backoff: Backoff::new(REOPEN[0], REOPEN[1]),
            warned: None,
            changed: Changed::default(),
        }
    }

    /// The same, but a watch that cannot be opened is tried again from the first time on.
    pub fn patient(self) -> Self {
        Self { may_fail: true, ..self }
    }

    async fn step(&mut self) -> Result<(), FollowError> {
        match &mut self.stage {
            Stage::Closed(until) => {
                sleep_until(*until).await;
                let opener = Arc::clone(&self.opener);
                self.stage = Stage::Opening(spawn_blocking(move || opener()));
            }
            Stage::Opening(opened) => match opened.await {
                Ok(Ok(watch)) => self.opened(watch)?,
                Ok(Err(error)) if !self.may_fail => return Err(FollowError::Watch(error)),
                Ok(Err(error)) => self.close(&error),
                Err(_) => return Err(FollowError::Panicked),
            },
            Stage::Waiting(_, Some(until)) => {
                sleep_until(*until).await;
                self.turn();
            }
            Stage::Waiting(_, None) => {
                if let Some(readiness) = &self.readiness {
                    // Cleared before the events are read, so that none is overlooked.
                    readiness.readable().await.map_err(FollowError::Wait)?.clear_ready();
                }
                self.turn();
            }
            Stage::Turning(turned) => match turned.await {
                Ok((watch, Ok(turn))) => {
                    self.backoff.reset();
                    self.changed.merge(turn.changed);
                    self.wait(watch, turn.is_pressed);
                }
                Ok((_, Err(error))) => self.close(&error),
                Err(_) => return Err(FollowError::Panicked),
            },
        }
        Ok(())
    }

    /// From here on nothing is missed; what was before is unknown.
    fn opened(&mut self, watch: Box<dyn Watch>) -> Result<(), FollowError> {
        if let Wake::Readable(descriptor) = watch.wake() {
            self.readiness = Some(readiness(descriptor).map_err(FollowError::Wait)?);
        }
        self.may_fail = true;
        self.warned = None;
        self.changed.merge(Changed::unknown());
        self.wait(watch, false);
        Ok(())
    }

    fn wait(&mut self, watch: Box<dyn Watch>, is_pressed: bool) {
        let until = match watch.wake() {
            _ if is_pressed => Some(Instant::now()),
            Wake::After(pause) => Some(Instant::now() + pause),
            Wake::Readable(_) => None,
        };
        self.stage = Stage::Waiting(watch, until);
    }

    fn turn(&mut self) {
        let waiting = replace(&mut self.stage, Stage::Closed(Instant::now()));
        if let Stage::Waiting(mut watch, _) = waiting {
            self.stage = Stage::Turning(spawn_blocking(move || {
                let turn = watch.turn();
                (watch, turn)
            }));
        }
    }

    fn close(&mut self, error: &WatchError) {
        let delay = self.backoff.next_delay();
        let error = error.to_string();
        if self.warned.as_ref() == Some(&error) {
            debug!(error, retry_in = ?delay, "The watch has failed again.");
        } else {
            warn!(error, "The watch has failed; it is opened again until that works.");
            self.warned = Some(error);
        }
        self.readiness = None;
        self.stage = Stage::Closed(Instant::now() + delay);
    }
}

impl Watching for Follower {
    /// The first change comes when the watch is open.
    async fn next(&mut self) -> Result<Changed, FollowError> {
        while self.changed.is_empty() {
            self.step().await?;
        }
        Ok(take(&mut self.changed))
    }

    /// Nothing while no watch is open.
    async fn drain(&mut self) -> Result<Changed, FollowError> {
        // A turn that is under way may have read too early.
        if matches!(self.stage, Stage::Turning(_)) {
            self.step().await?;
        }
        if matches!(self.stage, Stage::Waiting(..)) {
            self.turn();
            self.step().await?;
        }
        Ok(take(&mut self.changed))
    }
}

#[allow(unsafe_code)]
fn readiness(descriptor: Arc<OwnedFd>) -> io::Result<AsyncFd<Arc<OwnedFd>>> {
    // SAFETY: an `Arc<OwnedFd>` keeps its descriptor open, and the same, for as long as it lives, and
    // the `AsyncFd` owns one from here on.
    unsafe { AsyncFd::register_with_interest(descriptor, Interest::READABLE) }.map_err(Into::into)
}
