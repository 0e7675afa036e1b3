//! The ChangeActor: keeps a watch open, takes turns with it, and tells the RunActor what changed.
//!
//! Watching and listing trees can take long, so the watch works beside the runtime's thread; it is
//! either here or away for a turn. A watch that fails is opened anew, with a growing delay, and then
//! anything may have changed. It knows no machine and no run.

#[cfg(test)]
mod tests;

use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use actix::prelude::*;
use shiftboss_actors::exit_notifier::ExitNotifier;
use thiserror::Error;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::oneshot;
use tokio::task::spawn_blocking;
use tracing::{debug, warn};

use super::messages::{Changes, Drain};
use super::paths::Changed;
use super::watch::{Turn, Wake, Watch, WatchError};

/// From a watch that failed to the next one, at first; it doubles.
const REOPEN_FIRST: Duration = Duration::from_millis(200);
/// The longest such time.
const REOPEN_MAX: Duration = Duration::from_secs(10);

/// Opens a watch; may take long.
pub type Opener = Arc<dyn Fn() -> Result<Box<dyn Watch>, WatchError> + Send + Sync>;

/// Watch no more. The last message of its life.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Close;

/// Why watching ended for good.
#[derive(Debug, Error)]
pub enum ChangeError {
    /// It could not begin.
    #[error(transparent)]
    Watch(WatchError),
    /// A watch panicked.
    #[error("watching ended by a panic")]
    Panicked,
    /// The runtime has no room for a descriptor.
    #[error("cannot wait for events: {0}")]
    Wait(#[source] io::Error),
}

/// See the module.
pub struct ChangeActor {
    opener: Opener,
    changes: Recipient<Changes>,
    exit_notifier: ExitNotifier<ChangeError>,
    /// `None` while it is away for a turn, or there is none.
    watch: Option<Box<dyn Watch>>,
    /// A watch has been open before, or its owner is patient: a failure is no reason to give up.
    has_watched: bool,
    /// False until it is open, also after a failure.
    is_open: bool,
    readiness: Option<Rc<AsyncFd<Arc<OwnedFd>>>>,
    is_listening: bool,
    /// A turn is wanted that begins later than now.
    is_wanted: bool,
    waiters: Vec<oneshot::Sender<Changed>>,
    reopen_delay: Duration,
    /// What was said of the last failure: the same again is no news.
    warned: Option<String>,
}

impl ChangeActor {
    /// An actor that opens its watch when it is started, and tells the first change then.
    #[must_use]
    pub fn new(
        opener: Opener,
        changes: Recipient<Changes>,
        exit_notifier: ExitNotifier<ChangeError>,
    ) -> Self {
        Self {
            opener,
            changes,
            exit_notifier,
            watch: None,
            has_watched: false,
            is_open: false,
            readiness: None,
            is_listening: false,
            is_wanted: false,
            waiters: Vec::new(),
            reopen_delay: REOPEN_FIRST,
            warned: None,
        }
    }

    /// The same, but a watch that cannot be opened is tried again from the first time on.
    #[must_use]
    pub fn patient(self) -> Self {
        Self { has_watched: true, ..self }
    }

    fn open(&mut self, ctx: &mut Context<Self>) {
        let opener = Arc::clone(&self.opener);
        let opened = spawn_blocking(move || opener()).into_actor(self);
        ctx.spawn(opened.map(|opened, act, ctx| match opened {
            Ok(Ok(watch)) => act.opened(watch, ctx),
            Ok(Err(error)) if !act.has_watched => act.give_up(ChangeError::Watch(error), ctx),
            Ok(Err(error)) => act.reopen(&error, ctx),
            Err(_) => act.give_up(ChangeError::Panicked, ctx),
        }));
    }

    /// From here on nothing is missed; what was before is unknown.
    fn opened(&mut self, watch: Box<dyn Watch>, ctx: &mut Context<Self>) {
        if let Wake::Readable(descriptor) = watch.wake() {
            match readiness(descriptor) {
                Ok(readiness) => self.readiness = Some(Rc::new(readiness)),
                Err(error) => return self.give_up(ChangeError::Wait(error), ctx),
            }
        }
        (self.has_watched, self.is_open) = (true, true);
        self.warned = None;
        self.hand_over(watch, Changed::unknown(), ctx);
    }

    /// Tells the RunActor; the watch goes on when it has heard.
    fn hand_over(&mut self, watch: Box<dyn Watch>, changed: Changed, ctx: &mut Context<Self>) {
        if changed.is_empty() {
            return self.rest(watch, ctx);
        }
        let heard = self.changes.send(Changes(changed)).into_actor(self);
        ctx.spawn(heard.map(|_, act, ctx| act.rest(watch, ctx)));
    }

    /// Has the watch here until it is wanted.
    fn rest(&mut self, watch: Box<dyn Watch>, ctx: &mut Context<Self>) {
        let wake = watch.wake();
        self.watch = Some(watch);
        if self.is_wanted || !self.waiters.is_empty() {
            self.turn(ctx);
        } else if !self.is_listening {
            self.listen(wake, ctx);
        }
    }

    fn listen(&mut self, wake: Wake, ctx: &mut Context<Self>) {
        self.is_listening = true;
        let readiness = self.readiness.clone();
        let woken = async move {
            match (wake, readiness) {
                (Wake::After(pause), _) => tokio::time::sleep(pause).await,
                (Wake::Readable(_), Some(ready)) => {
                    // Readiness is cleared before the events are read, so that none is overlooked.
                    if let Ok(mut guard) = ready.readable().await {
                        guard.clear_ready();
                    }
                }
                (Wake::Readable(_), None) => std::future::pending().await,
            }
        };
        ctx.spawn(woken.into_actor(self).map(|(), act, ctx| {
            act.is_listening = false;
            act.turn(ctx);
        }));
    }

    fn turn(&mut self, ctx: &mut Context<Self>) {
        let Some(mut watch) = self.watch.take() else {
            self.is_wanted = true;
            return;
        };
        self.is_wanted = false;
        let waiters = std::mem::take(&mut self.waiters);
        let away = spawn_blocking(move || {
            let turn = watch.turn();
            (watch, turn)
        });
        ctx.spawn(away.into_actor(self).map(|back, act, ctx| match back {
            Ok((watch, Ok(turn))) => act.turned(watch, turn, waiters, ctx),
            Ok((_, Err(error))) => act.reopen(&error, ctx),
            Err(_) => act.give_up(ChangeError::Panicked, ctx),
        }));
    }

    fn turned(
        &mut self,
        watch: Box<dyn Watch>,
        turn: Turn,
        mut waiters: Vec<oneshot::Sender<Changed>>,
        ctx: &mut Context<Self>,
    ) {
        self.reopen_delay = REOPEN_FIRST;
        self.is_wanted |= turn.is_pressed;
        let Some(first) = waiters.pop() else {
            return self.hand_over(watch, turn.changed, ctx);
        };
        // Who waits no longer must not cost the change.
        let untold = first.send(turn.changed).err().unwrap_or_default();
        self.hand_over(watch, untold, ctx);
    }

    fn reopen(&mut self, error: &WatchError, ctx: &mut Context<Self>) {
        let delay = self.reopen_delay;
        let error = error.to_string();
        if self.warned.as_ref() == Some(&error) {
            debug!(error, retry_in = ?delay, "The watch has failed again.");
        } else {
            warn!(
                error,
                "The watch has failed; it is opened anew, again and again until it works."
            );
            self.warned = Some(error);
        }
        self.reopen_delay = delay.saturating_mul(2).min(REOPEN_MAX);
        (self.readiness, self.is_open) = (None, false);
        // They are answered with nothing: the next watch begins with "anything may have changed".
        self.waiters.clear();
        ctx.run_later(delay, |act, ctx| act.open(ctx));
    }

    fn give_up(&mut self, error: ChangeError, ctx: &mut Context<Self>) {
        self.exit_notifier.ended(error);
        ctx.stop();
    }
}

#[allow(unsafe_code)]
fn readiness(descriptor: Arc<OwnedFd>) -> io::Result<AsyncFd<Arc<OwnedFd>>> {
    // SAFETY: an `Arc<OwnedFd>` keeps its descriptor open, and the same, for as long as it lives, and
    // the `AsyncFd` owns one from here on.
    unsafe { AsyncFd::register_with_interest(descriptor, Interest::READABLE) }.map_err(Into::into)
}

impl Actor for ChangeActor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        self.open(ctx);
    }
}

impl Handler<Drain> for ChangeActor {
    type Result = ResponseFuture<Changed>;

    fn handle(&mut self, _: Drain, ctx: &mut Self::Context) -> Self::Result {
        if !self.is_open {
            return Box::pin(async { Changed::default() });
        }
        let (tell, told) = oneshot::channel();
        self.waiters.push(tell);
        // A turn that is under way may have read too early: another one follows it.
        self.turn(ctx);
        Box::pin(async move { told.await.unwrap_or_default() })
    }
}

impl Handler<Close> for ChangeActor {
    type Result = ();

    fn handle(&mut self, _: Close, ctx: &mut Self::Context) {
        ctx.stop();
    }
}
