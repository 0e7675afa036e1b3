//! However much there is to do, one batch does a bounded part of it.

use shiftboss_protocol::model::{Key, Row, Run};
use shiftboss_queue::context::Settings;
use shiftboss_queue::counts::OF_SINGLES;
use shiftboss_queue::credit::BUMPS_MAX;
use shiftboss_queue::engine::{Engine, STEP_KEYS};
use shiftboss_queue::operation::*;
use shiftboss_queue::sums::OVER_STEP;

use crate::subject::{self, Store};
use crate::words::{NOW, Script, dispatch, ready};

fn run(fetcher: &str) -> Run {
    Run { fetcher: fetcher.into(), started: 1 }
}

fn rows(fetcher: &str, keys: std::ops::Range<usize>, reading: Reading) -> Operation {
    let row =
        |at| Row { key: Key::new(&format!("{fetcher}{at}")).unwrap(), payload: String::new() };
    AddRows(RowBatch { reading, ..RowBatch::of(run(fetcher), keys.map(row).collect()) }).into()
}

fn ask(engine: &mut Engine<Store>, batch: Vec<Operation>) -> Vec<Outcome> {
    let answers = ready(engine.apply(NOW * 1_000, batch)).unwrap();
    answers.into_iter().map(Result::unwrap).collect()
}

fn count_rows(engine: &Engine<Store>) -> i64 {
    subject::counts(engine.store()).values().map(|it| it[0]).sum()
}

/// A list of `keys` keys.
fn listed(keys: usize) -> Engine<Store> {
    let mut engine = Engine::new(subject::new(), Settings::default());
    ask(&mut engine, vec![RegisterRun(run("f")).into(), rows("f", 0..keys, Reading::Onward)]);
    engine
}

/// A list of many keys, and a later one of a few; the first one will be deleted.
fn many_in_front() -> Engine<Store> {
    let mut engine = listed(2_500);
    let behind = vec![RegisterRun(run("g")).into(), rows("g", 0..3, Reading::Onward)];
    ready(engine.apply((NOW + 1) * 1_000, behind)).unwrap();
    engine
}

fn go() -> Operation {
    BeginDeletion(run("f")).into()
}

/// Keys of a run under deletion come before all others, and yet each batch is answered. A store that steps over them
/// hands them out until it knows what comes after; another store sets some aside at a time.
#[test]
fn a_dispatch_meets_many_keys_of_a_run_that_goes() {
    let mut engine = many_in_front();
    let mut steps = 0;
    let key = loop {
        let answers = ask(&mut engine, vec![go(), dispatch(None)]);
        match &answers[..] {
            [Outcome::BeginDeletion(false), Outcome::Dispatch(Dispatched::Job(_, row, _))] => {
                assert!(row.key.as_str().starts_with('f'), "{row:?}");
                steps += 1;
            }
            [Outcome::BeginDeletion(true), Outcome::Dispatch(Dispatched::Job(_, row, _))] => {
                break row.key.clone();
            }
            [Outcome::BeginDeletion(true), Outcome::Dispatch(Dispatched::Later)] => {
                assert_eq!(steps, 0);
                break set_aside(&mut engine);
            }
            other => panic!("{other:?}"),
        }
    };
    assert!(key.as_str().starts_with('g'), "{key}");
    assert!(steps < 4, "{steps}");
    while count_rows(&engine) > 3 {
        let before = count_rows(&engine);
        ask(&mut engine, vec![DeleteRuns { runs: vec![run("f")], limit: STEP_KEYS }.into()]);
        assert!(before - count_rows(&engine) <= STEP_KEYS as i64);
    }
}

/// The first key after those; each batch sets aside a bounded number of them.
fn set_aside(engine: &mut Engine<Store>) -> Key {
    let most = subject::ready(engine.store()) / STEP_KEYS + 1;
    for _ in 0..most {
        let before = subject::ready(engine.store());
        let answers = ask(engine, vec![dispatch(None), HasWork.into()]);
        match &answers[..] {
            [Outcome::Dispatch(Dispatched::Job(_, row, _)), _] => return row.key.clone(),
            later => {
                assert_eq!(later, [Outcome::Dispatch(Dispatched::Later), Outcome::HasWork(true)])
            }
        }
        // Some stores step over them.
        assert!([0, STEP_KEYS].contains(&(before - subject::ready(engine.store()))));
    }
    panic!("more than {most} batches");
}

/// One of the passed keys is listed anew, while the others are searched or later: it comes before all keys after it.
#[test]
fn what_was_passed_may_come_back() {
    for is_early in [true, false] {
        let mut engine = many_in_front();
        let listed = || {
            let row = Row { key: Key::new("f7").unwrap(), payload: String::new() };
            let again = AddRows(RowBatch::of(run("h"), vec![row]));
            vec![RegisterRun(run("h")).into(), again.into()]
        };
        ask(&mut engine, vec![go()]);
        if is_early {
            ask(&mut engine, listed());
        }
        while ask(&mut engine, vec![go()]) == [Outcome::BeginDeletion(false)] {}
        if !is_early {
            ask(&mut engine, listed());
        }
        for key in ["f7", "g"] {
            let given = loop {
                match ask(&mut engine, vec![dispatch(None)]).remove(0) {
                    Outcome::Dispatch(Dispatched::Job(_, row, _)) => break row.key,
                    other => assert_eq!(other, Outcome::Dispatch(Dispatched::Later)),
                }
            };
            assert!(given.as_str().starts_with(key), "{given}");
        }
    }
}

/// Keys that come back in the batch that searches the front are found by the next one.
#[test]
fn what_comes_back_while_others_go_is_found() {
    let mut engine = listed(2);
    let mut given = || match ask(&mut engine, vec![dispatch(None)]).remove(0) {
        Outcome::Dispatch(Dispatched::Job(_, row, _)) => row.key,
        other => panic!("{other:?}"),
    };
    let out = [given(), given()];
    let behind = vec![RegisterRun(run("g")).into(), rows("g", 0..5, Reading::Onward)];
    ready(engine.apply((NOW + 1) * 1_000, behind)).unwrap();
    ask(&mut engine, vec![BeginDeletion(run("g")).into()]);
    let mut batch: Vec<Operation> = out.iter().map(|key| Requeue(key.clone()).into()).collect();
    batch.push(dispatch(None));
    let mut again = vec![ask(&mut engine, batch).remove(2)];
    again.push(ask(&mut engine, vec![dispatch(None)]).remove(0));
    let is_of_f = |it: &Outcome| matches!(it, Outcome::Dispatch(Dispatched::Job(_, row, _)) if out.contains(&row.key));
    assert!(again.iter().all(is_of_f), "{again:?}");
}

/// A prune goes on where it stopped, checks at most its limit of rows, and begins anew with a newer listing.
#[test]
fn a_prune_looks_at_each_row_once() {
    let prune = Operation::from(Prune { run: run("f"), limit: 100 });
    let mut engine = listed(1_000);
    ask(&mut engine, vec![rows("f", 0..900, Reading::Listing)]);
    for _ in 0..5 {
        assert_eq!(ask(&mut engine, vec![prune.clone()]), [Outcome::Prune(true)]);
    }
    ask(
        &mut engine,
        vec![rows("f", 0..800, Reading::Listing), rows("f", 2_000..2_100, Reading::Onward)],
    );
    let left = count_rows(&engine);
    assert!((900..1_100).contains(&left), "{left}");
    let steps =
        (0..).take_while(|_| ask(&mut engine, vec![prune.clone()]) == [Outcome::Prune(true)]);
    assert_eq!(steps.count() as i64, left / 100);
    assert_eq!(count_rows(&engine), 900);
}

/// A later run of the same number is pruned from its beginning.
#[test]
fn a_prune_of_a_run_that_is_gone_is_forgotten() {
    let mut engine = Engine::new(subject::new(), Settings::default());
    let prune = Operation::from(Prune { run: run("f"), limit: 100 });
    for goes in [true, false] {
        ask(&mut engine, vec![RegisterRun(run("f")).into(), rows("f", 0..150, Reading::Onward)]);
        ask(&mut engine, vec![rows("f", 0..0, Reading::Listing), prune.clone()]);
        if goes {
            ask(&mut engine, vec![DeleteRuns { runs: vec![run("f")], limit: 1_000 }.into()]);
        }
    }
    assert_eq!(ask(&mut engine, vec![prune]), [Outcome::Prune(false)]);
    assert_eq!(count_rows(&engine), 0);
}

/// The number of held or bumped keys is limited; a key that already is may be held or bumped again.
#[test]
fn levers_are_bounded() {
    let mut engine = Engine::new(subject::new(), Settings::default());
    let key = |at: usize| Key::new(&format!("f{at}")).unwrap();
    let bump = |at| Bump { key: key(at), by: "o".into() }.into();
    let hold = |at| Hold { key: key(at), seconds: None, reason: String::new(), by: "o".into() };
    ask(
        &mut engine,
        vec![RegisterRun(run("f")).into(), rows("f", 0..BUMPS_MAX + 2, Reading::Onward)],
    );
    let answers = ask(&mut engine, (0..=BUMPS_MAX).map(bump).collect());
    let behind = |at: usize| Outcome::Bump(Bumped::Behind(at as u64));
    assert_eq!(answers[BUMPS_MAX - 1], behind(BUMPS_MAX - 1));
    assert_eq!(answers[BUMPS_MAX], Outcome::Bump(Bumped::Full));
    assert_eq!(
        ask(&mut engine, vec![bump(7), bump(BUMPS_MAX + 1)]),
        [behind(7), Outcome::Bump(Bumped::Full)]
    );
    for from in (0..HOLDS_MAX).step_by(500) {
        ask(&mut engine, (from..from + 500).map(|at| hold(at).into()).collect());
    }
    let held = ask(&mut engine, vec![hold(3).into(), hold(HOLDS_MAX).into()]);
    assert!(matches!(
        &held[0],
        Outcome::Hold(Held::Held { replaced: Some(_), is_known: true, .. })
    ));
    assert_eq!(held[1], Outcome::Hold(Held::Full));
}

/// An operator's order about very many single tasks of one key is carried out some at a time, the newest first.
#[test]
fn single_tasks_of_a_key_are_changed_some_at_a_time() {
    let mut engine = Engine::new(subject::new(), Settings::default());
    let key = || Key::new("a").unwrap();
    let add =
        |at: usize| AddTask { task: Row { key: key(), payload: at.to_string() }, id: None }.into();
    ask(&mut engine, (0..10_001).map(add).collect());
    let mut cancel = || match ask(&mut engine, vec![CancelTasks(key()).into()]).remove(0) {
        Outcome::CancelTasks(it) => (it.deleted, it.more),
        other => panic!("{other:?}"),
    };
    assert_eq!([cancel(), cancel(), cancel()], [(10_000, true), (1, false), (0, false)]);
}

/// A single task is remembered by its ID as long as it is kept, and `ids_kept` minutes longer.
#[test]
fn ids_of_single_tasks_are_forgotten_in_time() {
    let mut script = Script::new(Settings { ids_kept: 2, ..Settings::default() });
    script.run(
        "add a=1 x -> added 1
        add c=1 z -> added 2
        add a=2 y -> added 3
        at 600; add c=2 z -> known
        ready -> job 1 a 1
        finish a 0; at 660; cancel c -> cancelled 1 false
        add a=1 x -> known
        at 720; add b=3 -> added 4
        add a=1 x -> known
        at 780; add b=4 -> added 5
        add a=1 x -> added 6
        add c=1 z -> known
        at 840; add b=5 -> added 7
        add c=1 z -> added 8",
    );
    assert_eq!(subject::counts(script.store())[&(OF_SINGLES.0.0, OF_SINGLES.1)][0], 6);
}

/// Very many of them go in steps: the request in whose batch that is done waits for one.
#[test]
fn ids_of_very_many_single_tasks_are_forgotten_in_steps() {
    let mut script = Script::new(Settings { ids_kept: 2, ..Settings::default() });
    let add = |at: i64| format!("add a={at} i{at}");
    let all: Vec<String> = (0..=OVER_STEP).map(add).collect();
    script.run(&format!("at 600; {}; cancel a", all.join("; ")));
    // One of them is left after the first step, whichever a store comes to last.
    script.run("at 780; add b=1");
    let ends = [format!("add a i{OVER_STEP}"), "add a i0".to_owned()];
    let left = ends.map(|add| (script.say(&add) == "known").then_some(add));
    let [add] = left.iter().flatten().collect::<Vec<_>>()[..] else { panic!("{left:?}") };
    script.run("at 781; add b=2");
    assert!(script.say(&add.replace("add a", "add c")).starts_with("added"));
}
