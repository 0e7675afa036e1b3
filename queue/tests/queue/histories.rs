//! Random histories of the engine over a store, against a naive model that knows only the specification.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use shiftboss_protocol::model::{Attempt, Key, Row, Run};
use shiftboss_queue::context::Settings;
use shiftboss_queue::engine::Engine;
use shiftboss_queue::groups::{GroupId, GroupRules};
use shiftboss_queue::hold_rules::HoldOf;
use shiftboss_queue::operation::*;
use shiftboss_queue::policy::{Backoff, CountedEnds, Delays, Retries, RetryRules};
use shiftboss_queue::record::LastRun;
use shiftboss_queue::records::{Edit, Outset, Records};
use shiftboss_queue::rules::groups::Group;

use crate::model::groups::grouping;
use crate::model::{KEPT, MAX_EXPIRED, MAX_SINGLES, Model, SHARE};
use crate::subject::{self, Store};
use crate::words::{NOW, Script, answer, dispatch, edited, holder, ready};

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
        groups: grouping(),
        unlisted_kept: Some(KEPT),
        ..Settings::default()
    }
}

/// Some workers take the tasks of these fetchers alone.
fn of_fetchers(leased: bool) -> impl Strategy<Value = Operation> {
    let fetchers = prop::sample::subsequence(vec!["f", "g", "@tasks"], 1..3);
    fetchers.prop_map(move |fetchers| {
        let fetchers = Some(fetchers.into_iter().map(Into::into).collect());
        Dispatch { holder: leased.then(holder), fetchers }.into()
    })
}

/// One step of a history.
#[derive(Debug, Clone)]
pub enum Step {
    Batch(Vec<Operation>),
    /// A batch that the store refuses if it writes anything: then nothing of it has happened.
    Refused(Vec<Operation>),
    /// The log was edited.
    Edit(Key, LastRun),
    Passes(i64),
    Restart,
    /// The clock is set by some seconds: while the daemon runs, or while it does not.
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

fn rows() -> impl Strategy<Value = Operation> {
    (run(), prop::collection::vec((key(), "[x-z]"), 0..5)).prop_map(|(run, rows)| {
        let rows = rows.into_iter().map(|(key, payload)| Row { key, payload }).collect();
        AddRows(RowBatch::of(run, rows)).into()
    })
}

fn operation() -> impl Strategy<Value = Operation> {
    let code = prop_oneof![3 => Just(0_i64), 2 => Just(1), 2 => Just(2), 1 => Just(124)];
    let lists = prop_oneof![
        3 => run().prop_map(|run| RegisterRun(run).into()),
        6 => rows(),
        1 => run().prop_map(|run| BeginDeletion(run).into()),
        1 => run().prop_map(|run| DeleteRuns { runs: vec![run], limit: 1_000 }.into()),
    ];
    let jobs = prop_oneof![
        8 => any::<bool>().prop_map(|leased| dispatch(leased.then(holder))),
        3 => any::<bool>().prop_flat_map(of_fetchers),
        6 => (attempt(), code.clone())
            .prop_map(|(attempt, exit_code)| CompleteAttempt { attempt, exit_code }.into()),
        2 => (key(), code).prop_map(|(key, exit_code)| Complete { key, exit_code }.into()),
        2 => attempt().prop_map(|it| Expire(it).into()),
        1 => attempt().prop_map(|it| Release(it).into()),
        1 => (key(), attempt()).prop_map(|(key, attempt)| Undo { key, attempt }.into()),
        1 => key().prop_map(|key| Requeue(key).into()),
        1 => key().prop_map(|key| Stop(key).into()),
        1 => prop::sample::select(vec![Stops.into(), HasWork.into(), CountInFlight.into(), WhyIdle(None).into()]),
    ];
    let levers = prop_oneof![
        2 => (key(), "[x-z]").prop_map(|(key, payload)| AddTask {
            task: Row { key, payload }, id: None,
        }.into()),
        1 => key().prop_map(|key| CancelTasks(key).into()),
        1 => (key(), prop::option::of(prop_oneof![Just("f"), Just("@tasks"), Just("none")]))
            .prop_map(|(key, fetcher)| Retry { key, fetcher: fetcher.map(Into::into) }.into()),
        1 => (key(), prop::option::of(1..40_u32)).prop_map(|(key, seconds)| Hold {
            key, seconds, reason: String::new(), by: "o".into(),
        }.into()),
        1 => key().prop_map(|key| Unhold(key).into()),
        1 => key().prop_map(|key| Bump { key, by: "o".into() }.into()),
        2 => Just(EndHolds.into()),
    ];
    let pause = any::<bool>().prop_map(|paused| SetPaused(paused).into());
    prop_oneof![6 => lists, 12 => jobs, 6 => levers, 1 => pause]
}

fn rule() -> impl Strategy<Value = Operation> {
    let of = prop_oneof![
        key().prop_map(|key| HoldOf::Prefix(key.as_str().into())),
        prop::sample::select(vec!["f", "g", "@tasks"]).prop_map(|it| HoldOf::Fetcher(it.into())),
    ];
    (of, any::<bool>(), prop::option::of(1..40_u32)).prop_map(|(of, holds, seconds)| match holds {
        true => HoldAll { of, seconds, reason: String::new(), by: "o".into() }.into(),
        false => UnholdAll(of).into(),
    })
}

/// `with_rules`: also with rules that hold many keys.
pub fn history(with_rules: bool) -> impl Strategy<Value = Vec<Step>> {
    let operation = || match with_rules {
        true => prop_oneof![20 => operation(), 1 => rule()].boxed(),
        false => operation().boxed(),
    };
    let step = prop_oneof![
        12 => prop::collection::vec(operation(), 1..8).prop_map(Step::Batch),
        1 => prop::collection::vec(operation(), 8..64).prop_map(Step::Batch),
        1 => prop::collection::vec(operation(), 1..8).prop_map(Step::Refused),
        4 => (0..30_i64).prop_map(Step::Passes),
        1 => prop::sample::select(vec![600, 3_600, 91 * 86_400]).prop_map(Step::Passes),
        1 => Just(Step::Restart),
        2 => (key(), -50..200_i64, 0..3_i64).prop_map(|(key, started, code)| {
            let started = NOW + started;
            let (finished, exit_code) = (Some(started + 1), Some(code));
            Step::Edit(key, LastRun { started, finished, exit_code })
        }),
        1 => (-100..100_i64, any::<bool>()).prop_map(|(by, runs)| Step::Set { by, runs }),
        1 => (-100_000..100_000_i64, any::<bool>()).prop_map(|(by, runs)| Step::Set { by, runs }),
    ];
    let steps = prop::collection::vec(step, 1..40);
    (steps, any::<bool>()).prop_map(|(mut steps, has_deletions)| {
        for batch in steps.iter_mut().filter_map(batch_mut).filter(|_| !has_deletions) {
            batch.retain(|it| !is_deletion(it));
        }
        steps
    })
}

fn batch_mut(step: &mut Step) -> Option<&mut Vec<Operation>> {
    match step {
        Step::Batch(batch) | Step::Refused(batch) => Some(batch),
        _ => None,
    }
}

fn is_deletion(operation: &Operation) -> bool {
    matches!(operation, Operation::BeginDeletion(_))
}

/// Numbers of attempts as the model has them, and as the stores have: where several daemons draw them there are gaps.
#[derive(Default)]
struct Numbers(BTreeMap<i64, i64>);

impl Numbers {
    fn said(&self, operation: &Operation) -> Operation {
        let theirs = |attempt: Attempt| Attempt(self.0.get(&attempt.0).copied().unwrap_or(NOBODYS));
        let mut said = operation.clone();
        if let Some(attempt) = attempt_mut(&mut said) {
            *attempt = theirs(*attempt);
        }
        said
    }

    /// The store's answer, in the model's numbers. That of a job is taken from the right answer: the store's numbers
    /// ascend as the model's do.
    fn heard(&mut self, given: &str, right: &str) -> String {
        let words = |text: &str| {
            text.split_once(' ').map(|(word, rest)| (word.to_owned(), rest.to_owned()))
        };
        let number = |rest: &str| rest.split(' ').next().and_then(|it| it.parse::<i64>().ok());
        let ours = |it: &Self, theirs| {
            let known = it.0.iter().find(|(_, known)| **known == theirs);
            known.map_or(0, |(ours, _)| *ours)
        };
        if let Some(stops) = given.strip_prefix("to stop:") {
            let stops = stops.split_whitespace().map(|it| ours(self, it.parse().unwrap()));
            return stops.fold("to stop:".into(), |said, it| format!("{said} {it}"));
        }
        let is_numbered = |word: &str| ["job", "requeued", "asked"].contains(&word);
        let Some((word, rest)) = words(given).filter(|(word, _)| is_numbered(word)) else {
            return given.to_owned();
        };
        let Some(theirs) = number(&rest) else { return given.to_owned() };
        if word == "job"
            && let Some(ours) = words(right).and_then(|(_, rest)| number(&rest))
        {
            assert!(self.0.values().all(|it| *it < theirs), "{theirs} is not the highest");
            self.0.insert(ours, theirs);
        }
        given.replacen(&theirs.to_string(), &ours(self, theirs).to_string(), 1)
    }
}

/// An attempt that no worker has.
const NOBODYS: i64 = 1 << 40;

/// Daemons of one queue, each with its store, take turns.
///
/// A key whose row is under deletion may stand in that row's group until the row is gone, so there are no groups then.
pub fn check(mut history: Vec<Step>, stores: Vec<Store>) -> Result<(), TestCaseError> {
    let mut steps = history.iter_mut().filter_map(batch_mut);
    let is_grouped = !steps.any(|batch| batch.iter().any(is_deletion));
    let settings = || match is_grouped {
        true => settings(),
        false => Settings { groups: GroupRules::default(), ..settings() },
    };
    let mut model = Model::started(retries(), backoff(), is_grouped);
    let mut engines: Vec<_> =
        stores.into_iter().map(|store| Some(Engine::new(store, settings()))).collect();
    let is_refused = history.iter().any(|step| matches!(step, Step::Refused(_)));
    let has_gaps = subject::HAS_GAPS || engines.len() > 1 || is_refused;
    let mut numbers = has_gaps.then(Numbers::default);
    model.now = NOW;
    // As a daemon begins: it is noted by which rules an empty queue is sorted into groups.
    let first = engines[0].as_mut().unwrap();
    for _ in 0..3 {
        ready(first.apply(NOW * 1_000, vec![EndHolds.into()])).unwrap();
    }
    model.perform(&EndHolds.into());
    for (turn, step) in history.into_iter().enumerate() {
        model.daemon = turn % engines.len();
        let engine = &mut engines[model.daemon];
        let restart = |engine: &mut Option<Engine<Store>>| {
            let store = engine.take().map(|it| it.into_store().reopened());
            *engine = store.map(|it| Engine::new(it, settings()));
        };
        match step {
            Step::Set { by, runs } => {
                model.now += by;
                if !runs {
                    restart(engine);
                    model.restarted();
                }
                let (by, engine) = (if runs { by } else { 0 }, engine.as_mut().unwrap());
                ready(engine.follow_clock(model.now * 1_000, by * 1_000)).unwrap();
                model.follow_clock(by);
                if by == 0 {
                    model.follow_groups();
                }
                ready(engine.apply(model.now * 1_000, vec![EndHolds.into()])).unwrap();
                model.perform(&EndHolds.into());
            }
            Step::Passes(seconds) => model.now += seconds,
            Step::Restart => {
                restart(engine);
                model.restarted();
                model.follow_groups();
                let engine = engine.as_mut().unwrap();
                ready(engine.apply(model.now * 1_000, vec![EndHolds.into()])).unwrap();
                model.perform(&EndHolds.into());
            }
            Step::Edit(key, last) => {
                let engine = engine.as_mut().unwrap();
                let edit = Edit::Log { key: key.clone(), last };
                let given = edited(&ready(engine.edit(model.now * 1_000, vec![edit])));
                prop_assert_eq!(given, model.edit_log(key.as_str(), last));
            }
            Step::Batch(ref batch) | Step::Refused(ref batch) => {
                let engine = engine.as_mut().unwrap();
                let is_refused =
                    matches!(step, Step::Refused(_)) && subject::refuse(engine.store(), true);
                let said: Vec<Operation> = match &numbers {
                    None => batch.clone(),
                    Some(numbers) => batch.iter().map(|it| numbers.said(it)).collect(),
                };
                let answers = ready(engine.apply(model.now * 1_000, said.clone()));
                if is_refused {
                    subject::refuse(engine.store(), false);
                }
                let answers = match answers {
                    Err(_) if is_refused => {
                        model.restarted();
                        Vec::new()
                    }
                    answers => answers.unwrap(),
                };
                for ((operation, said), given) in batch.iter().zip(&said).zip(&answers) {
                    // Keys get their routes first.
                    if matches!(given, Ok(Outcome::Dispatch(Dispatched::Later))) {
                        continue;
                    }
                    // A worker does not yet know of a job that this batch hands out.
                    let is_known = numbers.is_none() || !is_nobodys(said);
                    let right = model.perform(if is_known { operation } else { said });
                    let mut given = answer(given);
                    if let Some(numbers) = &mut numbers {
                        given = numbers.heard(&given, &right);
                    }
                    prop_assert!(given == right, "{operation:?}: {given}, right: {right}");
                }
            }
        }
        let engine = engines[model.daemon].as_ref().unwrap();
        are_alike(&mut model, engine.store())?;
    }
    groups_are_alike(&model, &mut engines)
}

fn groups_are_alike(
    model: &Model,
    engines: &mut [Option<Engine<Store>>],
) -> Result<(), TestCaseError> {
    let Some(Some(engine)) = engines.first_mut() else { return Ok(()) };
    let store = engine.store_mut();
    ready(store.begin(&Outset::default())).unwrap();
    for name in ["x", "y", "z"] {
        let found = ready(store.groups(&[GroupId::of(&format!("g:{name}"))])).unwrap();
        let counts = |it: &Group| [it.in_flight, it.waiting, it.tasks];
        let counts = found[0].as_ref().map_or([0; 3], counts);
        prop_assert_eq!(counts, model.counts_of_group(name), "{}", name);
    }
    ready(store.roll_back());
    Ok(())
}

fn are_alike(model: &mut Model, store: &Store) -> Result<(), TestCaseError> {
    model.latest = model.latest.max(model.now);
    prop_assert_eq!(subject::counts(store), model.counts());
    prop_assert_eq!(&subject::log(store), model.log());
    // What is too old is deleted with the next change.
    let mut hours = subject::hours(store);
    hours.retain(|(hour, ..), _| *hour >= model.latest.div_euclid(3_600) - 90 * 24);
    prop_assert_eq!(hours, model.hours());
    let mut minutes = subject::minutes(store);
    minutes.retain(|(minute, _), _| *minute >= model.latest.div_euclid(60) - 60);
    prop_assert_eq!(minutes, model.minutes());
    Ok(())
}

fn is_nobodys(operation: &Operation) -> bool {
    attempt_mut(&mut operation.clone()).is_some_and(|it| it.0 == NOBODYS)
}

/// The attempt that a worker's operation concerns.
fn attempt_mut(operation: &mut Operation) -> Option<&mut Attempt> {
    match operation {
        Operation::CompleteAttempt(CompleteAttempt { attempt, .. })
        | Operation::Release(Release(attempt))
        | Operation::Expire(Expire(attempt))
        | Operation::Undo(Undo { attempt, .. }) => Some(attempt),
        _ => None,
    }
}

proptest! {
    /// However the clock is set, and though lists are read again all the time, each key has its turn. A step may cost it one round.
    #[test]
    fn no_key_starves(steps in prop::collection::vec(prop_oneof![9 => Just(0), 1 => -100_000..100_000_i64], 16..50)) {
        let mut script = Script::new(Settings::default());
        script.run("list f.1 a b c d e");
        // For each key: jobs of others since its own, and how many more it may have to wait for.
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
    fn histories_are_the_models(history in history(true)) {
        check(history, vec![subject::new()])?;
    }
}
