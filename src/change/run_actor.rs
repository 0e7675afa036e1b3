//! The RunActor: holds the machine and the run that is on, and what changed since that began.
//!
//! The ChangeActor tells it of changes, a clock of due times, the owner when to stop. What a run does
//! is behind [`super::runs::Runs`]; how things are, it tells an [`Observer`]. It watches nothing and decides nothing:
//! the machine does.

mod parts;
#[cfg(test)]
mod tests;

use std::time::Duration;

use actix::prelude::*;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tracing::{error, info, warn};

pub use parts::{Due, Observer, RunParts, Stop};

use super::machine::{Event, Machine, Moment, State, TICK};
use super::messages::{Changes, Drain};
use super::paths::{Changed, Loops};
use super::runs::Outcome;
use super::status::{LastRun, Status};

/// How long the watch may take to hand over what it has when a run has ended.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);
/// Paths that are named in one line of the log.
const PATHS_LOGGED: usize = 10;

/// A run that is on.
struct On {
    handle: SpawnHandle,
    /// Taken once the run was asked to stop.
    stop: Option<oneshot::Sender<()>>,
    /// In seconds since 1970.
    started: i64,
}

/// See the module.
pub struct RunActor {
    parts: RunParts,
    machine: Machine,
    /// The moments of the machine count from here.
    origin: Instant,
    wake: Option<SpawnHandle>,
    /// The number of the timer that counts. A timer that is taken back when it is due already may still
    /// fire: actix takes it back only afterwards.
    timer: u64,
    on: Option<On>,
    changed: Changed,
    /// What the run that is on was given: if it fails, the next one is given it, too.
    given: Changed,
    loops: Loops,
    runs: u64,
    last_run: Option<LastRun>,
    is_stopping: bool,
    /// Those who wait for the end of the run.
    waiters: Vec<oneshot::Sender<()>>,
    noted: Option<Status>,
}

impl RunActor {
    /// An actor that waits for the first change.
    #[must_use]
    pub fn new(parts: RunParts) -> Self {
        Self {
            machine: Machine::new(parts.timing),
            // As long as a watch has told nothing, anything may have changed.
            changed: parts.watch.as_ref().map_or_else(Changed::default, |_| Changed::unknown()),
            given: Changed::default(),
            parts,
            origin: Instant::now(),
            wake: None,
            timer: 0,
            on: None,
            loops: Loops::default(),
            runs: 0,
            last_run: None,
            is_stopping: false,
            waiters: Vec::new(),
            noted: None,
        }
    }

    fn now(&self) -> Moment {
        self.origin.elapsed()
    }

    /// Hands an event to the machine and does what it says.
    fn tell(&mut self, event: Event, ctx: &mut Context<Self>) {
        if self.is_stopping && !matches!(event, Event::Done | Event::Failed) {
            return;
        }
        let (machine, actions) = match self.machine.on(event, self.now()) {
            Ok(next) => next,
            Err(refusal) => {
                error!(name = self.parts.name, %refusal, "A bug: the machine was message what cannot be.");
                self.parts.exit_notifier.ended(refusal);
                return ctx.stop();
            }
        };
        self.machine = machine;
        if actions.start {
            self.start(ctx);
        }
        self.set_timer(actions.wake, ctx);
        self.note();
    }

    fn set_timer(&mut self, wake: Option<(Event, Moment)>, ctx: &mut Context<Self>) {
        if let Some(handle) = self.wake.take() {
            ctx.cancel_future(handle);
        }
        self.timer += 1;
        let timer = self.timer;
        self.wake = wake.filter(|_| !self.is_stopping).map(|(event, at)| {
            ctx.run_later(at.saturating_sub(self.now()), move |act, ctx| {
                if act.timer == timer {
                    act.wake = None;
                    act.tell(event, ctx);
                }
            })
        });
    }

    fn start(&mut self, ctx: &mut Context<Self>) {
        let changed = std::mem::take(&mut self.changed);
        self.given = changed.clone();
        let (name, paths) = (&self.parts.name, changed.paths().len());
        info!(name, paths, "A run starts.");
        let (stop, stopped) = oneshot::channel();
        let run = self.parts.runs.start(changed, stopped);
        let ended = run.into_actor(self).map(|outcome, act, ctx| act.ended(outcome, ctx));
        let handle = ctx.spawn(ended);
        self.on = Some(On { handle, stop: Some(stop), started: self.parts.clock.now() });
    }

    /// A run has ended. What it changed last may still be on its way from the kernel: it counts as
    /// changed during the run, or a run that changes its own tree would never be found out.
    fn ended(&mut self, outcome: Outcome, ctx: &mut Context<Self>) {
        let Some(watch) = self.parts.watch.clone().filter(|_| !self.is_stopping) else {
            return self.settle(&outcome, ctx);
        };
        let drained = watch.send(Drain).timeout(DRAIN_TIMEOUT).into_actor(self);
        ctx.spawn(drained.map(move |drained, act, ctx| {
            if let Ok(changed) = drained {
                act.take(changed, ctx);
            }
            act.settle(&outcome, ctx);
        }));
    }

    fn settle(&mut self, outcome: &Outcome, ctx: &mut Context<Self>) {
        let Some(on) = self.on.take() else {
            return;
        };
        let (ended, exit_code) = (self.parts.clock.now(), outcome.exit_code);
        self.runs += 1;
        self.last_run = Some(LastRun {
            started: on.started,
            ended,
            exit_code,
            message: outcome.message.clone(),
        });
        let given = std::mem::take(&mut self.given);
        if exit_code != 0 {
            self.changed.merge(given);
        }
        self.log_end(outcome);
        self.report_loops();
        let is_again = exit_code != 0 && self.parts.timing.retry;
        self.tell(if is_again { Event::Failed } else { Event::Done }, ctx);
        if self.is_stopping {
            self.waiters.clear();
            ctx.stop();
        }
    }

    fn log_end(&self, Outcome { exit_code, message }: &Outcome) {
        let name = &self.parts.name;
        match exit_code {
            0 if message.is_empty() => info!(name, "The run ended well."),
            0 => info!(name, message, "The run ended well."),
            _ if self.is_stopping => info!(name, exit_code, "The run was ended."),
            _ => warn!(name, exit_code, reason = message, "The run failed."),
        }
    }

    fn report_loops(&mut self) {
        let own = self.loops.run_ended();
        if own.is_empty() {
            return;
        }
        let paths: Vec<_> =
            own.iter().take(PATHS_LOGGED).map(|path| path.display().to_string()).collect();
        warn!(
            name = self.parts.name,
            count = own.len(),
            paths = paths.join(", "),
            "Changed during three runs in a row: from now on a change of these is ignored while a run is on. Leave them out (--ignore, or the key ignore) to ignore them always."
        );
    }

    /// Takes changes in; those of the run's own paths do not count.
    fn take(&mut self, mut changed: Changed, ctx: &mut Context<Self>) {
        if self.on.is_some() {
            self.loops.during_run(&mut changed);
        }
        if !changed.is_empty() {
            self.changed.merge(changed);
            self.tell(Event::Touch, ctx);
        }
    }

    /// Tells the observer, if there is anything new.
    fn note(&mut self) {
        let (now, wall) = (self.now(), self.parts.clock.now());
        let in_seconds = |at: Moment| {
            // "Longer than" a time is no second more.
            let left = at.saturating_sub(now).saturating_sub(TICK).as_secs_f64().ceil();
            wall.saturating_add(left as i64)
        };
        let status = Status {
            state: self.machine.state().name().to_owned(),
            runs: self.runs,
            run_started: self.on.as_ref().map(|on| on.started),
            last_run: self.last_run.clone(),
            next_possible_run: match self.machine.state() {
                // Any time, once something changes: a time would be out of date in a second.
                State::Idle => None,
                _ => self.machine.next_possible_run(now).map(in_seconds),
            },
        };
        if self.noted.as_ref() != Some(&status) {
            self.parts.observer.note(&status);
            self.noted = Some(status);
        }
    }
}

impl Actor for RunActor {
    type Context = Context<Self>;

    fn started(&mut self, _: &mut Self::Context) {
        self.note();
    }
}

impl Handler<Changes> for RunActor {
    type Result = ();

    fn handle(&mut self, Changes(changed): Changes, ctx: &mut Self::Context) {
        self.take(changed, ctx);
    }
}

impl Handler<Due> for RunActor {
    type Result = ();

    fn handle(&mut self, _: Due, ctx: &mut Self::Context) {
        self.tell(Event::Due, ctx);
    }
}

impl Handler<Stop> for RunActor {
    type Result = ResponseFuture<bool>;

    fn handle(&mut self, _: Stop, ctx: &mut Self::Context) -> Self::Result {
        self.is_stopping = true;
        self.set_timer(None, ctx);
        let Some(on) = &mut self.on else {
            ctx.stop();
            return Box::pin(async { false });
        };
        match on.stop.take() {
            Some(stop) => drop(stop.send(())),
            // The second time: what is dropped is killed.
            None => {
                ctx.cancel_future(on.handle);
                self.on = None;
                self.waiters.clear();
                ctx.stop();
                return Box::pin(async { true });
            }
        }
        let (waiter, waited) = oneshot::channel();
        self.waiters.push(waiter);
        Box::pin(async move {
            // It is dropped when the run has ended.
            let _ = waited.await;
            true
        })
    }
}
