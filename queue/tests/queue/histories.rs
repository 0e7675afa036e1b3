//! Random histories of the engine over a store, against a naive model that knows only the specification.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use shiftboss_protocol::model::{Attempt, Key, LeaseHolder, Row, Run};
use shiftboss_queue::context::Settings;
use shiftboss_queue::engine::Engine;
use shiftboss_queue::operation::{Operation as Op, Reading, Rows};
use shiftboss_queue::policy::{Backoff, CountedEnds, Delays, Retries, RetryRules};
use shiftboss_queue::record::LastRun;

use crate::model::{MAX_EXPIRED, MAX_SINGLES, Model, SHARE};
use crate::subject;
use crate::words::{NOW, Script, answer, ready};

fn retries() -> Retries {
    let [first, most] = [10, 60].map(Duration::from_secs);
    Retries { on: CountedEnds::listed(vec![1]), most: 2, delays: Delays::new(first, 3.0, most) }
}

fn backoff() -> Backoff {
    let [first, most] = [20, 60].map(Duration::from_secs);
    let after = std::num::NonZeroU32::new(2).unwrap();
    Backoff { on: CountedEnds::listed(vec![2, 124]), after, delays: Delays::new(first, 2.0, most) }
}

pub fn settings() -> Settings {
    Settings {
        max_expired_leases: MAX_EXPIRED,
        max_single_tasks: MAX_SINGLES as u64,
        bump_share: SHARE as u32,
        backoff: Some(backoff()),
        retries: RetryRules {
            lists: Some(retries()),
            single: Some(retries()),
            ..RetryRules::default()
        },
        ..Settings::default()
    }
}

/// One step of a history.
#[derive(Debug, Clone)]
pub enum Step {
    Batch(Vec<Op>),
    Passes(i64),
    Restart,
    /// The clock is set by so many seconds: while the daemon runs, or while it does not.
    Set {
        by: i64,
        runs: bool,
    },
}

fn key() -> impl Strategy<Value = Key> {
    "[a-e]".prop_map(|text| Key::new(&text).unwrap())
}

fn run() -> impl Strategy<Value = Run> {
    (prop_oneof![Just("f"), Just("g")], 1..4_i64)
        .prop_map(|(fetcher, started)| Run { fetcher: fetcher.into(), started })
}

fn attempt() -> impl Strategy<Value = Attempt> {
    (1..30_i64).prop_map(Attempt)
}

fn rows() -> impl Strategy<Value = Op> {
    (run(), prop::collection::vec((key(), "[x-z]"), 0..5)).prop_map(|(run, rows)| {
        let rows = rows.into_iter().map(|(key, payload)| Row { key, payload }).collect();
        let (skipped, complete, position, reading) = (0, false, None, Reading::Onward);
        Op::AddRows(Rows { run, rows, skipped, complete, position, reading })
    })
}

fn operation() -> impl Strategy<Value = Op> {
    let code = prop_oneof![3 => Just(0_i64), 2 => Just(1), 2 => Just(2), 1 => Just(124)];
    let holder = || LeaseHolder { worker: "w".into(), lease_seconds: 60 };
    let lists = prop_oneof![
        3 => run().prop_map(Op::RegisterRun),
        6 => rows(),
        1 => run().prop_map(Op::BeginDeletion),
        1 => run().prop_map(|run| Op::DeleteRuns { runs: vec![run], limit: 1_000 }),
    ];
    let jobs = prop_oneof![
        8 => any::<bool>().prop_map(move |leased| Op::Dispatch {
            holder: leased.then(holder), fetchers: None,
        }),
        6 => (attempt(), code.clone())
            .prop_map(|(attempt, exit_code)| Op::CompleteAttempt { attempt, exit_code }),
        2 => (key(), code).prop_map(|(key, exit_code)| Op::Complete { key, exit_code }),
        2 => attempt().prop_map(Op::Expire),
        1 => attempt().prop_map(Op::Release),
        1 => attempt().prop_map(Op::Undo),
        1 => key().prop_map(Op::Requeue),
        1 => Just(Op::HasWork),
    ];
    let levers = prop_oneof![
        2 => (key(), "[x-z]").prop_map(|(key, payload)| Op::AddTask {
            task: Row { key, payload }, id: None,
        }),
        1 => key().prop_map(Op::CancelTasks),
        1 => (key(), prop::option::of(prop_oneof![Just("f"), Just("@tasks"), Just("none")]))
            .prop_map(|(key, fetcher)| Op::Retry { key, fetcher: fetcher.map(Into::into) }),
        1 => (key(), prop::option::of(1..40_u32)).prop_map(|(key, seconds)| Op::Hold {
            key, seconds, reason: String::new(), by: "o".into(),
        }),
        1 => key().prop_map(Op::Unhold),
        1 => key().prop_map(|key| Op::Bump { key, by: "o".into() }),
        2 => Just(Op::Wake),
        1 => (key(), -50..200_i64, 0..3_i64).prop_map(|(key, started, code)| {
            let started = NOW + started;
            let (finished, exit_code) = (Some(started + 1), Some(code));
            Op::EditLog { key, last: LastRun { started, finished, exit_code } }
        }),
    ];
    let pause = any::<bool>().prop_map(Op::SetPaused);
    prop_oneof![6 => lists, 12 => jobs, 6 => levers, 1 => pause]
}

pub fn history() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        12 => prop::collection::vec(operation(), 1..8).prop_map(Step::Batch),
        1 => prop::collection::vec(operation(), 8..64).prop_map(Step::Batch),
        4 => (0..30_i64).prop_map(Step::Passes),
        1 => prop::sample::select(vec![600, 3_600, 91 * 86_400]).prop_map(Step::Passes),
        1 => Just(Step::Restart),
        1 => (-100..100_i64, any::<bool>()).prop_map(|(by, runs)| Step::Set { by, runs }),
        1 => (-100_000..100_000_i64, any::<bool>()).prop_map(|(by, runs)| Step::Set { by, runs }),
    ];
    prop::collection::vec(step, 1..40)
}

fn check(history: Vec<Step>) -> Result<(), TestCaseError> {
    let mut model = Model::started(retries(), backoff());
    let mut engine = Engine::new(subject::new(), settings());
    model.now = NOW;
    for step in history {
        let step = match step {
            Step::Set { by, runs } => {
                model.now += by;
                if !runs {
                    engine = Engine::new(engine.into_store().reopened(), settings());
                }
                let by = if runs { by * 1_000 } else { 0 };
                Step::Batch(vec![Op::FollowClock { by }, Op::Wake])
            }
            step => step,
        };
        match step {
            Step::Set { .. } => {}
            Step::Passes(seconds) => model.now += seconds,
            Step::Restart => engine = Engine::new(engine.into_store().reopened(), settings()),
            Step::Batch(batch) => {
                model.latest = model.latest.max(model.now);
                let answers = ready(engine.apply(model.now * 1_000, batch.clone())).unwrap();
                for (operation, given) in batch.iter().zip(&answers) {
                    let (given, right) = (answer(given), model.perform(operation));
                    let is_wake = *operation == Op::Wake;
                    prop_assert!(
                        given == right || is_wake,
                        "{operation:?}: {given}, right: {right}"
                    );
                }
                prop_assert_eq!(subject::counts(engine.store()), model.counts());
                prop_assert_eq!(&subject::log(engine.store()), model.log());
                // What is too old goes with the next change.
                let mut hours = subject::hours(engine.store());
                hours.retain(|(hour, ..), _| *hour >= model.latest.div_euclid(3_600) - 90 * 24);
                prop_assert_eq!(hours, model.hours());
                let mut minutes = subject::minutes(engine.store());
                minutes.retain(|(minute, _), _| *minute >= model.latest.div_euclid(60) - 60);
                prop_assert_eq!(minutes, model.minutes());
            }
        }
    }
    Ok(())
}

proptest! {
    /// However the clock is set, and though lists are read again all the time, each key has its turn. A step may cost it one round.
    #[test]
    fn no_key_starves(steps in prop::collection::vec(prop_oneof![9 => Just(0), 1 => -100_000..100_000_i64], 16..50)) {
        let mut script = Script::new(Settings::default());
        script.run("list f.1 a b c d e");
        // Of each key: jobs of others since its own, and as many more as it may have to wait for.
        let mut waits = BTreeMap::from(["a", "b", "c", "d", "e"].map(|key| (key, (0, 10))));
        for by in steps {
            if by != 0 {
                script.run(&format!("clock {by}\nwake"));
                waits.values_mut().for_each(|(_, most)| *most += 5);
            }
            script.run("pass 1\nmore f.1 a b c d e");
            let job = script.say("ready");
            let key = job.split(' ').nth(2).unwrap();
            script.run(&format!("finish {key} 0\nretry {key} -> back 1"));
            waits.values_mut().for_each(|(jobs, _)| *jobs += 1);
            *waits.get_mut(key).unwrap() = (0, 10);
            prop_assert!(waits.values().all(|(jobs, most)| jobs <= most), "{:?}", waits);
        }
    }

    /// Answers, counts and the log are the model's, whatever happens in whatever batches, over restarts.
    #[test]
    fn histories_are_the_models(history in history()) {
        check(history)?;
    }
}
