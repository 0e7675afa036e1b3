//! However much there is, one batch does a bounded part of it.

use shiftboss_protocol::model::{Key, Row, Run};
use shiftboss_queue::context::Settings;
use shiftboss_queue::counts::OF_SINGLES;
use shiftboss_queue::engine::{Engine, STEP_KEYS};
use shiftboss_queue::operation::{Answer, Operation as Op, Reading, Rows};

use crate::subject::{self, Store};
use crate::words::{NOW, Script, ready};

fn run(fetcher: &str) -> Run {
    Run { fetcher: fetcher.into(), started: 1 }
}

fn rows(fetcher: &str, keys: std::ops::Range<usize>, reading: Reading) -> Op {
    let row =
        |at| Row { key: Key::new(&format!("{fetcher}{at}")).unwrap(), payload: String::new() };
    let (rows, skipped, complete, position) = (keys.map(row).collect(), 0, true, None);
    Op::AddRows(Rows { run: run(fetcher), rows, skipped, complete, position, reading })
}

fn ask(engine: &mut Engine<Store>, batch: Vec<Op>) -> Vec<Answer> {
    let answers = ready(engine.apply(NOW * 1_000, batch)).unwrap();
    answers.into_iter().map(Result::unwrap).collect()
}

fn count_rows(engine: &Engine<Store>) -> i64 {
    subject::counts(engine.store()).values().map(|it| it[0]).sum()
}

/// Keys of a run that goes are before all others: some at a time are set aside, and each batch is answered.
#[test]
fn a_dispatch_meets_many_keys_of_a_run_that_goes() {
    const KEYS: usize = 10_000;
    let mut engine = Engine::new(subject::new(), Settings::default());
    ask(&mut engine, vec![Op::RegisterRun(run("f")), rows("f", 0..KEYS, Reading::Onward)]);
    ready(engine.apply(
        (NOW + 1) * 1_000,
        vec![Op::RegisterRun(run("g")), rows("g", 0..2, Reading::Onward)],
    ))
    .unwrap();
    ask(&mut engine, vec![Op::BeginDeletion(run("f"))]);
    let mut batches = 0;
    loop {
        let before = subject::ready(engine.store());
        let dispatch = Op::Dispatch { holder: None, fetchers: None };
        let answers = ask(&mut engine, vec![dispatch.clone(), Op::HasWork, dispatch]);
        batches += 1;
        if let [Answer::Job(one), Answer::Is(true), Answer::Job(other)] = &answers[..] {
            assert_ne!(one.row.key, other.row.key);
            break;
        }
        assert_eq!(answers, [Answer::Later, Answer::Is(true), Answer::Later]);
        assert_eq!(before - subject::ready(engine.store()), STEP_KEYS);
    }
    assert_eq!(batches, KEYS / STEP_KEYS + 1);
    while count_rows(&engine) > 2 {
        let before = count_rows(&engine);
        ask(&mut engine, vec![Op::DeleteRuns { runs: vec![run("f")], limit: STEP_KEYS }]);
        assert!(before - count_rows(&engine) <= STEP_KEYS as i64);
    }
}

/// A prune goes on where it was, looks at as many rows as it may, and begins anew with a newer listing.
#[test]
fn a_prune_looks_at_each_row_once() {
    let mut engine = Engine::new(subject::new(), Settings::default());
    let prune = Op::Prune { run: run("f"), limit: 100 };
    ask(&mut engine, vec![Op::RegisterRun(run("f")), rows("f", 0..1_000, Reading::Onward)]);
    ask(&mut engine, vec![rows("f", 0..900, Reading::Listing)]);
    for _ in 0..5 {
        assert_eq!(ask(&mut engine, vec![prune.clone()]), [Answer::Is(true)]);
    }
    ask(
        &mut engine,
        vec![rows("f", 0..800, Reading::Listing), rows("f", 2_000..2_100, Reading::Onward)],
    );
    let left = count_rows(&engine);
    assert!((900..1_100).contains(&left), "{left}");
    let steps = (0..).take_while(|_| ask(&mut engine, vec![prune.clone()]) == [Answer::Is(true)]);
    assert_eq!(steps.count() as i64, left / 100);
    assert_eq!(count_rows(&engine), 900);
}

/// A run of the same number that comes after it is pruned from its begin on.
#[test]
fn a_prune_of_a_run_that_is_gone_is_forgotten() {
    let mut engine = Engine::new(subject::new(), Settings::default());
    let prune = Op::Prune { run: run("f"), limit: 100 };
    for goes in [true, false] {
        ask(&mut engine, vec![Op::RegisterRun(run("f")), rows("f", 0..150, Reading::Onward)]);
        ask(&mut engine, vec![rows("f", 0..0, Reading::Listing), prune.clone()]);
        if goes {
            ask(&mut engine, vec![Op::DeleteRuns { runs: vec![run("f")], limit: 1_000 }]);
        }
    }
    assert_eq!(ask(&mut engine, vec![prune]), [Answer::Is(false)]);
    assert_eq!(count_rows(&engine), 0);
}

/// A single task that is done is known by its ID until so many others were added.
#[test]
fn ids_of_single_tasks_are_forgotten_in_time() {
    let mut script = Script::new(Settings { singles_kept: 2, ..Settings::default() });
    script.run(
        "add a=1 x -> added 1
        ready -> job 1 a 1
        finish a 0
        add a=2 y -> added 2
        cancel a -> cancelled 1 false
        add a=1 x -> known
        add b=3 z -> added 3
        at 60
        add b=4 -> added 4
        add a=1 x -> added 5
        add a=2 y -> known
        at 120
        add b=6 -> added 6
        add a=2 y -> added 7
        add b=3 z -> known",
    );
    assert_eq!(subject::counts(script.store())[&(OF_SINGLES.0.0, OF_SINGLES.1)][0], 5);
}
