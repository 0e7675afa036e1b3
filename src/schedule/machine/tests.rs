//! The machine, exhaustively over its states and events, and over random timed histories.

use proptest::prelude::*;

use super::*;

const EVENTS: [Event; 6] = {
    use Event::{Done, Due, Failed, Ready, Start, Touch};
    [Touch, Due, Start, Done, Failed, Ready]
};
const STATES: [State; 7] = {
    use State::{Backoff, Cooldown, CooldownPending, Idle, Running, RunningPending, Waiting};
    [Idle, Waiting, Running, RunningPending, Cooldown, CooldownPending, Backoff]
};
const SECOND: Duration = Duration::from_secs(1);

fn timing() -> Timing {
    Timing { debounce: 5 * SECOND, max_wait: 60 * SECOND, cooldown: 180 * SECOND, retry: false }
}

/// A machine in each state, brought there by events alone.
fn brought_to(state: State) -> Machine {
    use Event::{Done, Due, Failed, Touch};
    let events: &[Event] = match state {
        State::Idle => &[],
        State::Waiting => &[Touch],
        State::Running => &[Due],
        State::RunningPending => &[Due, Touch],
        State::Cooldown => &[Due, Done],
        State::CooldownPending => &[Due, Touch, Done],
        State::Backoff => &[Due, Failed],
    };
    let step = |machine: Machine, event: &Event| machine.on(*event, SECOND).unwrap().0;
    let machine = events.iter().fold(Machine::new(timing()), step);
    assert_eq!(machine.state(), state);
    machine
}

/// The moment at which an event may be.
fn moment_for(machine: &Machine, event: Event) -> Moment {
    machine.wake().filter(|(awaited, _)| *awaited == event).map_or(SECOND, |(_, at)| at)
}

/// Each pair of a state and an event is in the table once or is refused, and nothing else differs.
#[test]
fn every_event_in_every_state() {
    let mut foreseen = 0;
    for state in STATES {
        for event in EVENTS {
            let machine = brought_to(state);
            let rows: Vec<_> =
                TABLE.iter().filter(|row| (row.0, row.1) == (state, event)).collect();
            let answer = machine.on(event, moment_for(&machine, event));
            match rows[..] {
                [] => assert_eq!(answer, Err(Refusal::Unforeseen { state, event })),
                [row] => {
                    foreseen += 1;
                    let (next, starts) = answer.unwrap();
                    assert_eq!((next.state(), starts), (row.2, super::starts(row)));
                    // States that wait for time have a wake-up, and the others do not.
                    let waits =
                        !matches!(row.2, State::Idle | State::Running | State::RunningPending);
                    assert_eq!(next.wake().is_some(), waits, "{state:?} {event:?}");
                }
                _ => panic!("{state:?} {event:?} stands twice in the table"),
            }
        }
    }
    assert_eq!(foreseen, TABLE.len());
}

/// A run starts in no other way than into the state of a run that is on; and from none that has one.
#[test]
fn no_row_starts_a_second_run() {
    let is_on = |state| matches!(state, State::Running | State::RunningPending);
    for row in &TABLE {
        let (from, event, to) = *row;
        assert_eq!(starts(row), !is_on(from) && is_on(to), "{row:?}");
        let ends = matches!(event, Event::Done | Event::Failed);
        assert_eq!(ends, is_on(from) && !is_on(to), "{row:?}");
    }
}

/// Timed transitions do not come early, to the tick.
#[test]
fn nothing_comes_early() {
    for state in STATES {
        let machine = brought_to(state);
        if let Some((event, due)) = machine.wake() {
            let early = machine.on(event, due - TICK);
            assert!(matches!(early, Err(Refusal::Early { .. })), "{state:?}");
            assert!(machine.on(event, due).is_ok());
        }
    }
}

/// Longer than the debounce, at most the longest wait; longer than the cooldown.
#[test]
fn times_are_the_specifications() {
    let waiting = brought_to(State::Waiting);
    assert_eq!(waiting.wake(), Some((Event::Start, 6 * SECOND + TICK)));
    let mut touched = waiting;
    for second in 2..=61 {
        touched = touched.on(Event::Touch, second * SECOND).unwrap().0;
    }
    assert_eq!(touched.wake(), Some((Event::Start, 61 * SECOND)), "60 s from the first touch");
    assert_eq!(brought_to(State::Cooldown).wake(), Some((Event::Ready, 181 * SECOND + TICK)));
}

/// The delay of a repetition doubles up to its limit, and is forgotten after a run that was well.
#[test]
fn repetitions_are_delayed_more_and_more() {
    let timing = Timing { cooldown: Duration::ZERO, retry: true, ..timing() };
    let mut machine = Machine::new(timing).on(Event::Due, SECOND).unwrap().0;
    let mut now = SECOND;
    for failures in 0..40_u32 {
        machine = machine.on(Event::Failed, now).unwrap().0;
        let (event, at) = machine.wake().unwrap();
        let doubled = RETRY_FIRST * 2_u32.pow(failures.min(12));
        assert_eq!(at - now, doubled.min(RETRY_MAX), "{failures}");
        (machine, now) = (machine.on(event, at).unwrap().0, at);
    }
    machine = machine.on(Event::Done, now).unwrap().0;
    assert_eq!(machine.retries, Backoff::new(RETRY_FIRST, RETRY_MAX));
}

/// A step of a history: the event, how long after the one before, how long a run then takes, and whether it fails.
type Step = (Event, Duration, Duration, bool);

/// A run of the simulated command.
#[derive(Debug, Clone, Copy)]
struct Ran {
    began: Moment,
    ended: Moment,
}

/// Plays a history and returns the runs, checking each start against the rules.
struct World {
    machine: Machine,
    now: Moment,
    /// When the run that is on ends, and whether it fails.
    run_ends: Option<(Moment, bool)>,
    began: Moment,
    ran: Vec<Ran>,
    first_unserved: Option<Moment>,
    /// The last moment at which no run could start, for one was on or cooling.
    busy_until: Moment,
}

impl World {
    fn new(timing: Timing) -> Self {
        let (machine, zero) = (Machine::new(timing), Moment::ZERO);
        let (run_ends, first_unserved, ran) = (None, None, Vec::new());
        Self { machine, now: zero, run_ends, began: zero, ran, first_unserved, busy_until: zero }
    }

    fn tell(&mut self, event: Event, run: (Duration, bool)) {
        let was = self.machine.state();
        let (machine, starts) = self.machine.on(event, self.now).unwrap();
        let timing = self.machine.timing;
        self.machine = machine;
        if !matches!(was, State::Idle | State::Waiting) {
            self.busy_until = self.now;
        }
        if starts {
            assert!(self.run_ends.is_none(), "two runs at once");
            if let Some(last) = self.ran.last() {
                assert!(self.now - last.ended > timing.cooldown, "two runs in a cooldown");
            }
            if let Some(first) = self.first_unserved.take() {
                let latest = (first + timing.max_wait).max(self.busy_until + TICK);
                assert!(self.now <= latest, "a run at {:?}, due at {latest:?}", self.now);
            }
            (self.began, self.run_ends) = (self.now, Some((self.now + run.0, run.1)));
        }
        if event == Event::Touch {
            self.first_unserved.get_or_insert(self.now);
        }
    }

    /// Lets time pass until `until`, with all timed transitions.
    fn pass(&mut self, until: Moment, run: (Duration, bool)) {
        loop {
            let end = self.run_ends.map(|(at, _)| at);
            let wake = self.machine.wake().map(|(_, at)| at.max(self.now));
            let next = end.into_iter().chain(wake).min();
            match next.filter(|at| *at <= until) {
                None => break,
                Some(at) => self.now = at,
            }
            match self.run_ends.filter(|(at, _)| *at == self.now) {
                Some((_, fails)) => {
                    self.run_ends = None;
                    self.ran.push(Ran { began: self.began, ended: self.now });
                    let again = fails && self.machine.timing.retry;
                    self.tell(if again { Event::Failed } else { Event::Done }, run);
                }
                None => self.tell(self.machine.wake().unwrap().0, run),
            }
        }
        self.now = until;
    }
}

fn timings() -> impl Strategy<Value = Timing> {
    let millis = |range: std::ops::Range<u64>| range.prop_map(Duration::from_millis);
    (millis(0..3_000), millis(1..9_000), millis(0..20_000), any::<bool>()).prop_map(
        |(debounce, max_wait, cooldown, retry)| Timing { debounce, max_wait, cooldown, retry },
    )
}

fn steps(dues: u32) -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![4 => Just(Event::Touch), dues => Just(Event::Due)];
    let pause = prop_oneof![0..500_u64, 0..30_000_u64].prop_map(Duration::from_millis);
    let run = (0..10_000_u64).prop_map(Duration::from_millis);
    prop::collection::vec((step, pause, run, any::<bool>()), 1..60)
}

/// The world after a history and all that follows from it, and when the last of that history was.
fn play(timing: Timing, steps: &[Step]) -> (World, Moment) {
    let mut world = World::new(timing);
    for &(event, pause, run, fails) in steps {
        world.pass(world.now + pause, (run, fails));
        world.tell(event, (run, fails));
    }
    let last = world.now;
    world.pass(last + 3 * RETRY_MAX, (SECOND, false));
    (world, last)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// Never two at once, at most one a cooldown, none too late ([`World`] checks); and after the last
    /// change exactly one that began after it, once runs are well.
    #[test]
    fn the_last_change_is_served_once(timing in timings(), steps in steps(0)) {
        let (world, last) = play(timing, &steps);
        let after = world.ran.iter().filter(|run| run.began > last);
        prop_assert_eq!(after.count(), 1);
        prop_assert_eq!(world.machine.state(), State::Idle);
        prop_assert!(world.run_ends.is_none());
    }

    /// The same rules with runs that the clock asks for among them.
    #[test]
    fn a_clock_breaks_no_rule(timing in timings(), steps in steps(1)) {
        let (world, last) = play(timing, &steps);
        prop_assert!(world.ran.iter().any(|run| run.ended > last || run.began >= last) || matches!(steps.last(), Some((Event::Due, ..))));
        prop_assert_eq!(world.machine.state(), State::Idle);
    }
}

/// The picture in the document is that of the table.
#[test]
fn the_picture_is_current() {
    let state = |state: State| format!("    {state:?}: {}\n", state.name());
    let row = |row: &Row| {
        let sign = if starts(row) { " / run" } else { "" };
        let event = format!("{:?}", row.1).to_lowercase();
        format!("    {:?} --> {:?}: {event}{sign}\n", row.0, row.2)
    };
    let (states, rows) = (STATES.map(state).concat(), TABLE.each_ref().map(row).concat());
    let picture = format!("```mermaid\nstateDiagram-v2\n    [*] --> Idle\n{states}{rows}```\n");
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let document = std::fs::read_to_string(root.join("docs/spec/on-change.md")).unwrap();
    assert!(document.contains(&picture), "put this into docs/spec/on-change.md:\n{picture}");
}
