//! Starts runs when they are due: after changes, by the clock, and on request. One run at a time.
//!
//! `on-change`, `fetch --every` and the daemon's fetchers use it. The [`Machine`] decides when a run is due;
//! [`StartRun`] is what a run does; an [`Observer`] gets each new [`Status`].

#[cfg(test)]
mod tests;

use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use shiftboss_actors::clock::Clock;
use shiftboss_protocol::answers::EndedRun;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tracing::{info, warn};

use super::follower::Follower;
use super::machine::{Event, Machine, Moment, State, Timing};
use super::paths::{Changed, Loops};
use super::watch::WatchError;
use crate::child::StartError;
use crate::signals::Signals;

/// How long the watch may take to report what changed when a run has ended.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);
/// Paths that are named in one line of the log.
const PATHS_LOGGED: usize = 10;
/// How often the wall clock is compared with the monotonic one.
const COMPARE_CLOCKS: Duration = Duration::from_secs(1);
/// Both clocks are read in whole seconds: they differ by one now and then.
const STEP_SECONDS: u64 = 2;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// As a shell would report it.
    pub exit_code: u8,
    /// The reason, if it failed.
    pub message: String,
    /// Its command did not start, for a reason that may be gone soon.
    pub is_unstarted: bool,
}

impl Outcome {
    pub fn new(exit_code: u8, message: impl Into<String>) -> Self {
        Self { exit_code, message: message.into(), is_unstarted: false }
    }

    /// Of a run whose command did not start.
    pub fn unstarted(error: &StartError) -> Self {
        let is_unstarted = !error.is_of_job();
        Self { is_unstarted, ..Self::new(error.shell_code(), error.to_string()) }
    }
}

/// A run that goes on. Dropped, it is killed, and nothing of it is left.
pub type Run = Pin<Box<dyn Future<Output = Outcome>>>;

/// Starts a run for what changed. It is to end soon after the receiver resolves, of whichever kind.
pub type StartRun = Rc<dyn Fn(Changed, oneshot::Receiver<()>) -> Run>;

/// How it is. Times are in seconds since 1970.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// The machine's state, by name.
    pub state: String,
    pub runs: u64,
    pub run_started: Option<i64>,
    pub last_run: Option<EndedRun>,
    /// The earliest start of the next run. `None`: when a run has ended, while one is on; else any time,
    /// as soon as something has changed and it is quiet.
    pub next_possible_run: Option<i64>,
    /// The next run, as far as one is planned.
    #[serde(skip)]
    pub next_run: Option<i64>,
}

/// Hears of each new status.
pub type Observer = Box<dyn FnMut(&Status)>;

/// Asks a schedule for a run, whether anything changed or not. When all senders are gone, the present run is ended, and
/// no other begins.
pub struct RunNow;

/// Runs by the clock.
#[derive(Debug, Clone, Copy)]
pub struct Every {
    /// From the start of a run to that of the next.
    pub period: Duration,
    /// Until the first.
    pub first: Duration,
}

pub struct Schedule {
    /// Names it in the log.
    pub name: String,
    pub timing: Timing,
    pub every: Option<Every>,
    pub start: StartRun,
    pub watch: Option<Follower>,
    pub observer: Observer,
    /// The wall clock, for the observer alone.
    pub clock: Rc<dyn Clock>,
}

impl Schedule {
    /// Runs until all senders of requests are gone; returns how the last present run ended. If dropped, it kills that
    /// run.
    pub async fn run(
        self,
        requests: UnboundedReceiver<RunNow>,
    ) -> Result<Option<Outcome>, WatchError> {
        Scheduler::new(self).run(requests).await
    }

    /// Runs until a signal comes. That signal, if it ended a run, and how that ended; a second signal kills it.
    pub async fn until_signal(
        self,
        signals: &mut Signals,
    ) -> Result<Option<(Option<Outcome>, i32)>, WatchError> {
        let (requests, received) = unbounded_channel();
        let (ended, signal) = signals.attend(self.run(received), || drop(requests)).await;
        let outcome = match ended {
            Some(Ok(None)) => return Ok(None),
            Some(ended) => ended?,
            None => None,
        };
        Ok(signal.map(|signal| (outcome, signal)))
    }
}

struct On {
    run: Run,
    stop: oneshot::Sender<()>,
    /// In seconds since 1970.
    started: i64,
    /// What changed before it: if it fails, the next run gets that, too.
    given: Changed,
}

struct Scheduler {
    parts: Schedule,
    machine: Machine,
    /// The moments of the machine count from here.
    origin: Instant,
    /// The next run by the clock.
    due: Option<Moment>,
    on: Option<On>,
    changed: Changed,
    loops: Loops,
    runs: u64,
    last_run: Option<EndedRun>,
    /// The wall clock's time at the origin, as far as is known now.
    wall_origin: i64,
    noted: Option<Status>,
}

impl Scheduler {
    fn new(parts: Schedule) -> Self {
        Self {
            machine: Machine::new(parts.timing),
            origin: Instant::now(),
            due: parts.every.map(|every| every.first),
            on: None,
            // As long as a watch has not reported, anything may have changed.
            changed: parts.watch.as_ref().map_or_else(Changed::default, |_| Changed::unknown()),
            loops: Loops::default(),
            runs: 0,
            last_run: None,
            wall_origin: parts.clock.now(),
            noted: None,
            parts,
        }
    }

    async fn run(
        mut self,
        mut requests: UnboundedReceiver<RunNow>,
    ) -> Result<Option<Outcome>, WatchError> {
        loop {
            self.note();
            let wake = self.machine.wake();
            let is_planned = self.due.is_some() || wake.is_some();
            let at = |moment: Option<Moment>| Some(sleep_until(self.origin.checked_add(moment?)?));
            let (waking, due) = (at(wake.map(|(_, moment)| moment)), at(self.due));
            tokio::select! {
                biased;
                request = requests.recv() => match request {
                    Some(RunNow) => self.apply(Event::Due),
                    None => return Ok(self.stop().await),
                },
                outcome = or_never(self.on.as_mut().map(|on| &mut on.run)) => self.ended(outcome).await?,
                changed = or_never(self.parts.watch.as_mut().map(Follower::next)) => self.take(changed?),
                () = or_never(waking) => {
                    wake.into_iter().for_each(|(event, _)| self.apply(event));
                }
                () = or_never(due) => {
                    // While a run is on that costs it its turn.
                    self.set_due();
                    self.apply(Event::Due);
                }
                // The wall clock may have been set: plans are noted in its time.
                () = sleep(COMPARE_CLOCKS), if is_planned => {}
            }
        }
    }

    fn now(&self) -> Moment {
        self.origin.elapsed()
    }

    fn set_due(&mut self) {
        self.due = self.parts.every.map(|every| self.now().saturating_add(every.period));
    }

    /// Passes an event to the machine and acts on the result.
    fn apply(&mut self, event: Event) {
        let moved = self.machine.on(event, self.now());
        let (machine, starts) = moved.unwrap_or_else(|refusal| panic!("a bug: {refusal}"));
        self.machine = machine;
        if starts {
            self.start();
        }
    }

    fn start(&mut self) {
        let changed = std::mem::take(&mut self.changed);
        let (name, paths) = (&self.parts.name, changed.paths().len());
        info!(name, paths, "A run starts.");
        let (stop, stopped) = oneshot::channel();
        let (run, given) = ((self.parts.start)(changed.clone(), stopped), changed);
        self.on = Some(On { run, stop, started: self.parts.clock.now(), given });
        // Whatever caused it, the next one by the clock is a whole period away.
        self.set_due();
    }

    /// A run has ended. What it changed last may still be on its way from the kernel: it counts as
    /// changed during the run, or a run that changes its own tree would never be found out.
    async fn ended(&mut self, outcome: Outcome) -> Result<(), WatchError> {
        if let Some(watch) = &mut self.parts.watch
            && let Ok(changed) = timeout(DRAIN_TIMEOUT, watch.drain()).await
        {
            self.take(changed?);
        }
        let (exit_code, is_unstarted) = (outcome.exit_code, outcome.is_unstarted);
        self.log_end(&outcome);
        if let Some(On { started, given, .. }) = self.on.take() {
            let (ended, message) = (self.parts.clock.now(), outcome.message);
            self.last_run = Some(EndedRun { started, ended, exit_code, message });
            self.runs += 1;
            if exit_code != 0 {
                self.changed.merge(given);
            }
        }
        self.report_loops();
        // A run that did not start has not failed, whether or not failed runs are retried.
        let is_again = is_unstarted || (exit_code != 0 && self.parts.timing.retry);
        self.apply(if is_again { Event::Failed } else { Event::Done });
        Ok(())
    }

    async fn stop(self) -> Option<Outcome> {
        let On { run, stop, .. } = self.on?;
        let _ = stop.send(());
        let outcome = run.await;
        info!(name = self.parts.name, exit_code = outcome.exit_code, "The run was ended.");
        Some(outcome)
    }

    fn log_end(&self, Outcome { exit_code, message, is_unstarted }: &Outcome) {
        let name = &self.parts.name;
        match exit_code {
            0 if message.is_empty() => info!(name, "The run ended well."),
            0 => info!(name, outcome = message, "The run ended well."),
            _ if *is_unstarted => {
                warn!(name, reason = message, "The command was not started; it is tried again.");
            }
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
    fn take(&mut self, mut changed: Changed) {
        if self.on.is_some() {
            self.loops.during_run(&mut changed);
        }
        if !changed.is_empty() {
            self.changed.merge(changed);
            self.apply(Event::Touch);
        }
    }

    /// Notifies the observer, if there is anything new.
    fn note(&mut self) {
        let since = i64::try_from(self.now().as_secs()).unwrap_or(i64::MAX);
        let wall_origin = self.parts.clock.now().saturating_sub(since);
        if wall_origin.abs_diff(self.wall_origin) >= STEP_SECONDS {
            self.wall_origin = wall_origin;
        }
        // "Longer than" does not add a second.
        let wall = |at: Moment| {
            let seconds = at.saturating_sub(super::machine::TICK).as_secs_f64().ceil() as i64;
            self.wall_origin.saturating_add(seconds)
        };
        let state = self.machine.state();
        // In idle any time, once something changes: a time would be out of date in a second.
        let possible = self.machine.next_possible_run(self.now()).filter(|_| state != State::Idle);
        let will_run = matches!(state, State::Waiting | State::CooldownPending | State::Backoff);
        let next_run = possible.filter(|_| will_run).into_iter().chain(self.due).min();
        let status = Status {
            state: state.name().to_owned(),
            runs: self.runs,
            run_started: self.on.as_ref().map(|on| on.started),
            last_run: self.last_run.clone(),
            next_possible_run: possible.map(wall),
            next_run: next_run.map(wall),
        };
        if self.noted.as_ref() != Some(&status) {
            (self.parts.observer)(&status);
            self.noted = Some(status);
        }
    }
}

/// Awaits a future, or for ever if there is none.
async fn or_never<F: Future>(awaited: Option<F>) -> F::Output {
    match awaited {
        Some(awaited) => awaited.await,
        None => std::future::pending().await,
    }
}
