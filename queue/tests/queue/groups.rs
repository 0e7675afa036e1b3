//! Groups: limits, whose turn it is, and what becomes of tasks that the configuration sorts otherwise.

use shiftboss_queue::context::Settings;
use shiftboss_queue::engine::Engine;
use shiftboss_queue::groups::{By, GroupRules, Limits, Table};

use crate::statements::hold;
use crate::words::Script;

/// Groups by the first word of the payload: `one` has one job at a time, `slow` one in ten seconds, others what they want.
fn grouped() -> Settings {
    let one = Limits { max_in_flight: Some(1), ..Limits::default() };
    let slow = Limits { delay: Some(10_000), ..Limits::default() };
    let exceptions = vec![("one".to_owned(), one), ("slow".to_owned(), slow)];
    let limits = Limits::default();
    let table = Table { name: "g".into(), by: By::Word(2), keys: None, limits, exceptions };
    Settings { groups: GroupRules::new(vec![table]).unwrap(), ..Settings::default() }
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
restart; pass 1; lease -> job 2 a slow
pass 10; lease -> job 3 b slow
## time opens it for workers that wait, too
list f.1 a=slow b=slow; lease; pass 10; work -> true
## a clock that is set closes no group for longer than its delay, and opens none before
list f.1 a=slow b=slow; lease; clock -1000; lease -> nothing
pass 10; lease -> job 2 b slow
list f.2 a=slow; done 1 0; clock 1000; lease -> nothing
pass 10; lease -> job 3 a slow
## set while no daemon runs
list f.1 a=slow b=slow; lease; restart; at -5000; follow; lease -> nothing
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
## single tasks of fetchers' workers
list f.1 a=one; add b=two; lease @tasks -> job 1 b two
lease @tasks -> nothing
lease f g -> job 2 a one
";

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
    script.run("follow; due -> due in 0\nwake; due -> due in 0\nwake; due -> due never");
    script.run("done 1 0; lease -> job 2 c one\nlease -> nothing\ndone 2 0; lease -> job 3 b one");
    set(&mut script, Settings::default());
    script.run("wake; wake; due -> due never\nlease -> job 4 d one");
    script.run("add e=one; add f=one; lease -> job 5 e one\nlease -> job 6 f one");
}
