//! When a run is due: a pure value, (state, event, now) → (state, whether a run starts).
//!
//! [`super::scheduler`] holds one and acts on it. All transitions are in one table ([`TABLE`]), from which the code,
//! the tests and the diagram in docs/spec/on-change.md come. No clock here: `now` is a time since any fixed moment, and
//! never runs backwards. Spec 1 and 2.

#[cfg(test)]
mod tests;

use std::time::Duration;

use shiftboss_protocol::backoff::Backoff;
use thiserror::Error;

/// A monotonic time, since a fixed moment that the caller chooses.
pub type Moment = Duration;

/// The clock's step. "Longer than" a time means by one step at least.
pub const TICK: Duration = Duration::from_millis(1);
/// Delay from a failed run to its first retry, if there is one.
pub const RETRY_FIRST: Duration = Duration::from_secs(1);
/// The longest such time; it doubles with each failure in a row.
pub const RETRY_MAX: Duration = Duration::from_secs(3600);

/// How long to wait for what. The default does not wait.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Timing {
    /// A run starts when nothing has changed for longer than this.
    pub debounce: Duration,
    /// A run is also due this long after the first change that no run has served yet.
    pub max_wait: Duration,
    /// More than this time passes between the end of a run and the start of the next.
    pub cooldown: Duration,
    /// Whether a failed run is tried again, without a change.
    pub retry: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum State {
    /// Nothing has changed since the last run.
    Idle,
    /// Something has changed; quiet is waited for.
    Waiting,
    Running,
    /// A run is on, and something has changed since it began.
    RunningPending,
    /// A run has ended a short while ago.
    Cooldown,
    /// A run has ended a short while ago, and something has changed since it began.
    CooldownPending,
    /// A run has failed, and is tried again when its time has come.
    Backoff,
}

impl State {
    /// Its name, as the picture and the status show it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Waiting => "waiting",
            Self::Running => "running",
            Self::RunningPending => "running, pending",
            Self::Cooldown => "cooldown",
            Self::CooldownPending => "cooldown, pending",
            Self::Backoff => "backoff",
        }
    }
}

/// What may happen to the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Event {
    Touch,
    /// A run is asked for by the clock (`every`), without a change.
    Due,
    /// It has been quiet for long enough, or waited for too long.
    Start,
    /// The run has ended, well or without being tried again.
    Done,
    /// The run has failed, and must be retried.
    Failed,
    /// The time after a run is over.
    Ready,
}

/// From a state by an event to a state. A run starts where that state is the first of a run.
pub type Row = (State, Event, State);

/// All possible transitions. Any other is a bug in the program.
pub const TABLE: [Row; 22] = {
    use Event::{Done, Due, Failed, Ready, Start, Touch};
    use State::{Backoff, Cooldown, CooldownPending, Idle, Running, RunningPending, Waiting};
    [
        (Idle, Touch, Waiting),
        (Idle, Due, Running),
        (Waiting, Touch, Waiting),
        (Waiting, Due, Running),
        (Waiting, Start, Running),
        (Running, Touch, RunningPending),
        // A run that takes longer than the time between two costs turns; they do not pile up.
        (Running, Due, Running),
        (Running, Done, Cooldown),
        (Running, Failed, Backoff),
        (RunningPending, Touch, RunningPending),
        (RunningPending, Due, RunningPending),
        (RunningPending, Done, CooldownPending),
        // The change may have fixed the failure: the next run waits only for the cooldown.
        (RunningPending, Failed, CooldownPending),
        (Cooldown, Touch, CooldownPending),
        (Cooldown, Due, CooldownPending),
        (Cooldown, Ready, Idle),
        (CooldownPending, Touch, CooldownPending),
        (CooldownPending, Due, CooldownPending),
        (CooldownPending, Ready, Waiting),
        (Backoff, Touch, CooldownPending),
        (Backoff, Due, CooldownPending),
        (Backoff, Ready, Running),
    ]
};

/// Whether a run starts.
fn starts((from, _, to): &Row) -> bool {
    *to == State::Running && *from != State::Running
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    timing: Timing,
    state: State,
    /// The first and the last change that no run has served yet.
    touched: Option<(Moment, Moment)>,
    last_run: Moment,
    /// Delays from a failed run to the next retry, if there is one.
    retries: Backoff,
    retry_delay: Duration,
}

/// An event that cannot be: an error of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Refusal {
    #[error("the event {event:?} cannot be in the state {state:?}")]
    Unforeseen { state: State, event: Event },
    #[error("the event {event:?} came at {now:?}, before its time, {due:?}")]
    Early { event: Event, now: Moment, due: Moment },
}

impl Machine {
    pub fn new(timing: Timing) -> Self {
        let (state, last_run) = (State::Idle, Moment::ZERO);
        let (retries, retry_delay) = (Backoff::new(RETRY_FIRST, RETRY_MAX), Duration::ZERO);
        Self { timing, state, touched: None, last_run, retries, retry_delay }
    }

    pub fn on(&self, event: Event, now: Moment) -> Result<(Self, bool), Refusal> {
        let unforeseen = Refusal::Unforeseen { state: self.state, event };
        let row = TABLE.iter().find(|(from, by, _)| (*from, *by) == (self.state, event));
        let row = row.ok_or(unforeseen)?;
        if let Some((awaited, due)) =
            self.wake().filter(|(awaited, due)| *awaited == event && now < *due)
        {
            return Err(Refusal::Early { event: awaited, now, due });
        }
        let mut next = self.clone();
        next.state = row.2;
        next.stamp(event, now);
        if starts(row) {
            next.touched = None;
        }
        Ok((next, starts(row)))
    }

    pub fn state(&self) -> State {
        self.state
    }

    /// The event that time alone brings, and when.
    pub fn wake(&self) -> Option<(Event, Moment)> {
        let cooled = self.last_run.saturating_add(self.timing.cooldown).saturating_add(TICK);
        match self.state {
            State::Idle | State::Running | State::RunningPending => None,
            State::Waiting => {
                let (first, last) = self.touched?;
                let quiet = last.saturating_add(self.timing.debounce).saturating_add(TICK);
                Some((Event::Start, quiet.min(first.saturating_add(self.timing.max_wait))))
            }
            State::Cooldown | State::CooldownPending => Some((Event::Ready, cooled)),
            State::Backoff => {
                let delayed = self.last_run.saturating_add(self.retry_delay);
                Some((Event::Ready, cooled.max(delayed)))
            }
        }
    }

    /// The earliest moment at which a run can start, if a change came now; `None` while one is on.
    pub fn next_possible_run(&self, now: Moment) -> Option<Moment> {
        let debounced =
            |from: Moment| from.saturating_add(self.timing.debounce.min(self.timing.max_wait));
        match (self.state, self.wake()) {
            (State::Running | State::RunningPending, _) => None,
            (State::Waiting | State::Backoff, Some((_, at))) => Some(at.max(now)),
            (State::Cooldown | State::CooldownPending, Some((_, at))) => {
                Some(debounced(at.max(now)))
            }
            _ => Some(debounced(now)),
        }
    }

    /// Notes when an event brought it to its state.
    fn stamp(&mut self, event: Event, now: Moment) {
        match (event, self.state) {
            (Event::Touch, _) | (Event::Ready, State::Waiting) => self.touch(now),
            // Remembered as a change is; in the other states it starts a run, or costs its turn.
            (Event::Due, State::CooldownPending) => self.touch(now),
            (Event::Done, _) => {
                self.last_run = now;
                self.retries.reset();
            }
            (Event::Failed, _) => {
                (self.last_run, self.retry_delay) = (now, self.retries.next_delay());
            }
            (Event::Due | Event::Start | Event::Ready, _) => {}
        }
    }

    fn touch(&mut self, now: Moment) {
        let first = self.touched.map_or(now, |(first, _)| first);
        self.touched = Some((first, now));
    }
}
