//! Keeps a watch open and reports what changed. Used by [`super::scheduler`].
//!
//! Watching and listing trees can take long, so the watch works on another thread than the runtime's. A watch that
//! fails is opened anew, with a growing delay, and then anything may have changed.

#[cfg(test)]
pub(super) mod tests;

use std::io;
use std::mem::{replace, take};
use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::Duration;

use shiftboss_actors::fs_events::readiness;
use shiftboss_protocol::backoff::Backoff;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{Instant, sleep_until};
use tracing::{debug, info, warn};

use super::paths::Changed;
use super::watch::{Trees, Wake, Watch, WatchError, kernel};

/// Pause between a failed watch and the next: the first, and the longest.
const REOPEN: [Duration; 2] = [Duration::from_millis(200), Duration::from_secs(10)];

/// Opens a watch; may take long.
pub(super) type Opener = Arc<dyn Fn() -> Result<Box<dyn Watch>, WatchError> + Send + Sync>;

/// An opening, or a turn that finds something, on another thread than the runtime's. A failed watch is closed there.
type Work = JoinHandle<Result<(Box<dyn Watch>, Option<Changed>), WatchError>>;

enum State {
    /// No watch is open; from this moment on one is opened.
    Closed(Instant),
    /// The watch, and when it had its last turn.
    Open(Box<dyn Watch>, Instant),
    Working(Work),
}

pub struct Follower {
    opener: Opener,
    state: State,
    /// What was found and not reported yet.
    found: Changed,
    /// Once a watch has been open, a failure is no reason to give up.
    may_fail: bool,
    delays: Backoff,
    /// The last failure that was logged: it is not logged again.
    warned: Option<String>,
}

impl Follower {
    pub fn of_trees(trees: Trees, is_patient: bool) -> Self {
        Self::new(Arc::new(move || super::open(&trees, kernel())), is_patient)
    }

    /// Follows the watch that `opener` opens. If it is patient, one that cannot be opened is tried again from the
    /// first time on.
    pub(super) fn new(opener: Opener, is_patient: bool) -> Self {
        let (state, delays) = (opening(&opener), Backoff::new(REOPEN[0], REOPEN[1]));
        let (found, may_fail) = (Changed::default(), is_patient);
        Self { opener, state, found, may_fail, delays, warned: None }
    }

    /// The next change; the first once the watch is open. May be cancelled. After an error nothing can be watched.
    pub async fn next(&mut self) -> Result<Changed, WatchError> {
        while self.found.is_empty() {
            match &self.state {
                State::Closed(until) => {
                    sleep_until(*until).await;
                    self.state = opening(&self.opener);
                }
                State::Open(watch, turned) => match woken(watch.wake(), *turned).await {
                    Ok(()) => self.turn(),
                    Err(error) => self.failed(WatchError::Read(error))?,
                },
                State::Working(_) => self.worked().await?,
            }
        }
        Ok(take(&mut self.found))
    }

    /// What changed until now; nothing while there is no watch. May be cancelled.
    pub async fn drain(&mut self) -> Result<Changed, WatchError> {
        // A turn that is on may have begun too early.
        self.worked().await?;
        self.turn();
        self.worked().await?;
        Ok(take(&mut self.found))
    }

    /// Has the watch take a turn, if it is open.
    fn turn(&mut self) {
        self.state = match replace(&mut self.state, State::Closed(Instant::now())) {
            State::Open(mut watch, _) => {
                let turn = move || watch.turn().map(|changed| (watch, Some(changed)));
                State::Working(spawn_blocking(turn))
            }
            other => other,
        };
    }

    /// Waits for the end of an opening or a turn, if one is on. A panic there goes on here.
    async fn worked(&mut self) -> Result<(), WatchError> {
        let State::Working(work) = &mut self.state else { return Ok(()) };
        match work.await.unwrap_or_else(|error| resume_unwind(error.into_panic())) {
            Ok((watch, changed)) => {
                self.state = State::Open(watch, Instant::now());
                match changed {
                    Some(changed) => {
                        self.delays.reset();
                        self.found.merge(changed);
                    }
                    // From here on nothing is missed; what was before is unknown.
                    None => {
                        (self.may_fail, self.warned) = (true, None);
                        self.found.merge(Changed::unknown());
                    }
                }
                Ok(())
            }
            Err(error) => self.failed(error),
        }
    }

    /// The watch is closed, and opened again after a while.
    fn failed(&mut self, error: WatchError) -> Result<(), WatchError> {
        if !self.may_fail {
            return Err(error);
        }
        let delay = self.delays.next_delay();
        self.state = State::Closed(Instant::now() + delay);
        if matches!(error, WatchError::Switched { .. }) {
            info!("{error}. Watching what is there now.");
            return Ok(());
        }
        let error = error.to_string();
        if self.warned.as_ref() == Some(&error) {
            debug!(error, retry_in = ?delay, "The watch has failed again.");
        } else {
            warn!(error, "The watch has failed; it is opened again until that works.");
            self.warned = Some(error);
        }
        Ok(())
    }
}

fn opening(opener: &Opener) -> State {
    let opener = Arc::clone(opener);
    State::Working(spawn_blocking(move || opener().map(|watch| (watch, None))))
}

async fn woken(wake: Wake, turned: Instant) -> io::Result<()> {
    match wake {
        // Awaited anew each time, so that what was already read does not wake it.
        Wake::Readable(descriptor) => readiness(descriptor)?.readable().await.map(drop),
        Wake::After(pause) => {
            sleep_until(turned + pause).await;
            Ok(())
        }
    }
}
