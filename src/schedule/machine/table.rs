//! The machine's one table: which event leads from which state to which. Data; [`super::Machine`]
//! reads it, and so do the tests and the pictures.

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
    pub const ALL: [Self; 7] = [
        Self::Idle,
        Self::Waiting,
        Self::Running,
        Self::RunningPending,
        Self::Cooldown,
        Self::CooldownPending,
        Self::Backoff,
    ];

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
    /// The run has failed, and is to be tried again.
    Failed,
    /// The time after a run is over.
    Ready,
}

impl Event {
    #[cfg(test)]
    pub const ALL: [Self; 6] =
        [Self::Touch, Self::Due, Self::Start, Self::Done, Self::Failed, Self::Ready];

    pub fn name(self) -> &'static str {
        match self {
            Self::Touch => "touch",
            Self::Due => "due",
            Self::Start => "start",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Ready => "ready",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    pub from: State,
    pub event: Event,
    /// it goes to this state;
    pub to: State,
    /// and whether a run starts then.
    pub starts: bool,
}

const fn row(from: State, event: Event, to: State) -> Row {
    Row { from, event, to, starts: false }
}

const fn start(from: State, event: Event) -> Row {
    Row { from, event, to: State::Running, starts: true }
}

/// All that can happen. What is not here is an error of the program.
pub const TABLE: [Row; 22] = {
    use Event::{Done, Due, Failed, Ready, Start, Touch};
    use State::{Backoff, Cooldown, CooldownPending, Idle, Running, RunningPending, Waiting};
    [
        row(Idle, Touch, Waiting),
        start(Idle, Due),
        row(Waiting, Touch, Waiting),
        start(Waiting, Due),
        start(Waiting, Start),
        row(Running, Touch, RunningPending),
        // A run that takes longer than the time between two costs turns; they do not pile up.
        row(Running, Due, Running),
        row(Running, Done, Cooldown),
        row(Running, Failed, Backoff),
        row(RunningPending, Touch, RunningPending),
        row(RunningPending, Due, RunningPending),
        row(RunningPending, Done, CooldownPending),
        // What changed may be what was wrong: the next run waits for the cooldown alone.
        row(RunningPending, Failed, CooldownPending),
        row(Cooldown, Touch, CooldownPending),
        row(Cooldown, Due, CooldownPending),
        row(Cooldown, Ready, Idle),
        row(CooldownPending, Touch, CooldownPending),
        row(CooldownPending, Due, CooldownPending),
        row(CooldownPending, Ready, Waiting),
        row(Backoff, Touch, CooldownPending),
        row(Backoff, Due, CooldownPending),
        start(Backoff, Ready),
    ]
};

/// What the table says of an event in a state.
pub fn row_of(state: State, event: Event) -> Option<&'static Row> {
    TABLE.iter().find(|row| row.from == state && row.event == event)
}
