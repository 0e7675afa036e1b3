//! Groups: limits, whose turn it is, and what becomes of tasks that the configuration sorts otherwise.

use shiftboss_protocol::model::Attempt;
use shiftboss_protocol::verbs::Asks;
use shiftboss_queue::context::Settings;
use shiftboss_queue::engine::Engine;
use shiftboss_queue::groups::{By, GroupRules, Limits, Rest, Table};
use shiftboss_queue::operation::{AskFor, Dispatched, Outcome, SetGroups, UnholdGroup};

use crate::statements::hold;
use crate::words::{NOW, Script, dispatch, ready};

/// Groups by the first word of the payload: `one` has one job at a time, `slow` one in ten seconds, others what they want.
fn grouped() -> Settings {
    Settings { groups: rules(1, 10_000, Limits::default()), ..Settings::default() }
}

fn rules(one: u32, slow: i64, others: Limits) -> GroupRules {
    let one = Limits { max_in_flight: Some(one), ..Limits::default() };
    let slow = Limits { delay: Some(slow), ..Limits::default() };
    let exceptions = vec![("one".to_owned(), one), ("slow".to_owned(), slow)];
    let (by, limits) = (By::Word(2), others);
    GroupRules::new(vec![Table { name: "g".into(), by, keys: None, limits, exceptions }]).unwrap()
}

const STATEMENTS: &str = "
## keys of a group that is full are overtaken, and stand where they stood when it opens
list f.1 a=one b=one; list f.2 c=two; lease -> job 1 a one
lease -> job 2 c two
lease -> nothing
work -> false
done 1 0 -> recorded
lease -> job 3 b one
## an end and the next job in one batch
list f.1 a=one b=one; lease; done 1 0 & lease -> recorded & job 2 b one
## from start to start, whatever becomes of the job
list f.1 a=slow b=slow; lease -> job 1 a slow
release 1; lease -> nothing
opens -> opens in 10000
pass 9; lease -> nothing
opens -> opens in 1000
restart; wake; pass 1; lease -> job 2 a slow
pass 10; lease -> job 3 b slow
## time opens it for workers that wait, too
list f.1 a=slow b=slow; lease; pass 10; work -> true
## a clock that is set closes no group for longer than its delay, and opens none before
list f.1 a=slow b=slow; lease; clock -1000; lease -> nothing
pass 10; lease -> job 2 b slow
list f.2 a=slow; done 1 0; clock 1000; lease -> nothing
pass 10; lease -> job 3 a slow
## set while no daemon runs
list f.1 a=slow b=slow; lease; restart; at -5000; follow; wake; lease -> nothing
pass 10; lease -> job 2 b slow
## bumped keys and tried ones keep to their groups
list f.1 a=one b=one c=two; lease -> job 1 a one
bump b; lease -> job 2 c two
done 1 0; lease -> job 3 b one
## of a key's rows each has its own group
list f.1 a=one; list g.1 b=one a=two; lease f -> job 1 a one
done 1 0; lease g -> job 2 b one
lease -> job 3 a two
## no row waits for a group whose first place is of a fetcher that nobody works for
list f.1 a=one; list g.1 b=one; pass 1; lease g -> job 1 b one
done 1 0; lease g -> nothing
lease f -> job 2 a one
## a newer list has another group for a key
list f.1 a=one b=one; lease -> job 1 a one
list f.2 b=two; lease -> job 2 b two
list g.1 c=one; lease -> nothing
done 1 0; lease -> job 3 c one
## single tasks of fetchers' workers
list f.1 a=one; add b=two; lease @tasks -> job 1 b two
lease @tasks -> nothing
lease f g -> job 2 a one
## a group that is closed keeps nobody waiting who has no task in it
list f.1 a=one b=one; list g.1 c=x; lease f -> job 1 a one
lease g; done 2 0; idle g -> busy 1 others 1
idle f -> busy 1 groups 1
";

/// What a command asked for is in its way, too.
#[test]
fn unholding_ends_what_was_asked_for() {
    let mut script = Script::new(grouped());
    script.run("list f.1 a=two b=two; lease -> job 1 a two");
    let asks = Asks { group_wait: Some(60), ..Asks::NOTHING };
    script.ask(AskFor { attempt: Attempt(1), asks }.into());
    script.run("lease -> nothing");
    let unheld = |script: &mut Script| script.ask(UnholdGroup("g:two".into()).into());
    assert_eq!(unheld(&mut script), "true");
    script.run("lease -> job 2 b two");
    assert_eq!(unheld(&mut script), "false");
}

#[test]
fn groups_have_their_limits() {
    hold(&grouped(), STATEMENTS);
}

/// The next daemon has other settings.
fn set(script: &mut Script, settings: Settings) {
    let store = script.engine.take().unwrap().into_store().reopened();
    script.engine = Some(Engine::new(store, settings));
}

/// What the last configuration sorted otherwise is sorted anew in steps.
#[test]
fn another_configuration_sorts_anew() {
    let mut script = Script::new(Settings::default());
    script.run("list f.1 a=one b=one c=one; ready -> job 1 a one\npass 1; add d=one");
    set(&mut script, grouped());
    script.run("follow; due -> due in 0\nwake; wake; due -> due in 0\nwake; due -> due never");
    script.run("done 1 0; lease -> job 2 c one\nlease -> nothing\ndone 2 0; lease -> job 3 b one");
    set(&mut script, Settings::default());
    script.run("wake; wake; wake; due -> due never\nlease -> job 4 d one");
    script.run("add e=one; add f=one; lease -> job 5 e one\nlease -> job 6 f one");
}

/// Tasks of which each one waits for longer than the next.
fn add(script: &mut Script, tasks: &str) {
    let tasks = tasks.split(' ').enumerate();
    tasks.for_each(|(at, it)| script.run(&format!("list f{at}.1 {it}; pass 1")));
}

/// A reload opens what is full or waits by former limits, and closes what was open.
#[test]
fn other_limits_hold_at_once() {
    let mut script = Script::new(grouped());
    script.run("follow; wake; wake; wake");
    add(&mut script, "a=one b=one c=slow d=slow e=x f=x g=x");
    script
        .run("lease -> job 1 a one\nlease -> job 2 c slow\nlease -> job 3 e x\nlease -> job 4 f x");
    let others = Limits { max_in_flight: Some(1), ..Limits::default() };
    script.ask(SetGroups(rules(2, 3_000, others)).into());
    script.run("due -> due in 0\nwake; due -> due never\nlease -> job 5 b one\nlease -> nothing");
    script.run("opens -> opens in 3000\npass 3; lease -> job 6 d slow\ndone 3 0; lease -> nothing");
    script.run("done 4 0; lease -> job 7 g x");
}

/// A reload that sorts otherwise is followed by keys in steps, also if it is followed by another one meanwhile.
#[test]
fn another_reload_sorts_anew() {
    let mut script = Script::new(grouped());
    let by = |by| {
        let (limits, exceptions) = (Limits { max_in_flight: Some(1), ..Limits::default() }, vec![]);
        GroupRules::new(vec![Table { name: "g".into(), by, keys: None, limits, exceptions }])
    };
    script.run("follow; wake; wake; wake");
    add(&mut script, "a/1=one b/1=one a/2=x b/2=x");
    script.ask(SetGroups(by(By::Word(2)).unwrap()).into());
    script.run("wake; due -> due never");
    script.ask(SetGroups(by(By::Field("none".into())).unwrap()).into());
    script.run("wake; wake; due -> due in 0");
    script.ask(SetGroups(by(By::Prefix("/".into())).unwrap()).into());
    script.run("wake; wake; due -> due in 0\nwake; due -> due never");
    script.run("lease -> job 1 a/1 one\nlease -> job 2 b/1 one\nlease -> nothing");
    script.ask(SetGroups(GroupRules::default()).into());
    script.run("wake; wake; wake; due -> due never\nlease -> job 3 a/2 x");
}

/// Who comes back to former rules finds what others sorted meanwhile, though nobody had the time to sort all; also after a kill.
#[test]
fn rules_that_come_back_are_followed() {
    let mut script = Script::new(Settings::default());
    script.run("follow; wake");
    script.ask(SetGroups(grouped().groups).into());
    add(&mut script, "a=one b=one");
    script.ask(SetGroups(GroupRules::default()).into());
    script.run("due -> due in 0\nlease -> job 1 a one\nwake; wake; wake; due -> due never");
    script.run("lease -> job 2 b one");
    set(&mut script, grouped());
    script.run("add c=one; add d=one");
    set(&mut script, Settings::default());
    script.run("wake; wake; wake; due -> due never\nlease -> job 3 c one\nlease -> job 4 d one");
}

/// A rest is as long as the job took, however the clock was set meanwhile.
#[test]
fn a_rest_does_not_follow_the_clock() {
    let rest = Some(Rest { factor: 2.0, min: 0, max: 1_000_000 });
    let limits = Limits { rest, ..Limits::default() };
    let mut script = Script::new(Settings { groups: rules(1, 0, limits), ..Settings::default() });
    script.run(
        "wake; list f.1 a=x b=x; lease; pass 5; clock 3600; done 1 0; opens -> opens in 10000",
    );
    script.run("pass 10; lease; pass 5; clock -3600; done 2 0; opens -> opens in 10000");
}

/// However many groups other limits have closed: a request looks at a bounded number of them.
#[test]
fn groups_that_others_limits_closed_are_passed_in_steps() {
    let most = |most| Limits { max_in_flight: Some(most), ..Limits::default() };
    let groups = rules(1, 0, most(2));
    let mut script = Script::new(Settings { groups, ..Settings::default() });
    let tasks = |key| (0..300).map(|at| format!(" {key}{at}=g{at}")).collect::<String>();
    script.run(&format!("wake; list f.1 z=z; lease; done 1 0; list g.1{}", tasks('a')));
    script.run(&vec!["lease"; 300].join(" & "));
    script.run(&format!("list f.2 z=z; list g.2{}", tasks('b')));
    script.ask(SetGroups(rules(1, 0, most(1))).into());
    let engine = script.engine.as_mut().unwrap();
    let answers = ready(engine.apply(NOW * 1_000, vec![dispatch(None)])).unwrap();
    assert_eq!(answers, [Ok(Outcome::Dispatch(Dispatched::Later))]);
    script.run("lease -> job + z z\nlease -> nothing");
}
