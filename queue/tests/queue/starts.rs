//! A daemon starts with a queue that another one left, with the same rules or with others.

use std::num::NonZeroU32;
use std::time::Duration;

use shiftboss_queue::context::Settings;
use shiftboss_queue::documents::{Daemon, Policy, REJECTED, Running};
use shiftboss_queue::engine::Engine;
use shiftboss_queue::policy::{Backoff, CountedEnds, Delays, Retries, RetryRules};
use shiftboss_queue::records::{Outset, Records};

use crate::words::{NOW, Script, ready};

/// The next daemon.
fn start(script: &mut Script, settings: Settings) {
    let policy = if settings.is_fair { Policy::Fair } else { Policy::Classic };
    let running = Some(Running { pid: 1, started: NOW });
    let store = script.engine.take().unwrap().into_store().reopened();
    let mut engine = Engine::new(store, settings);
    let daemon = Daemon { policy, running, ..Daemon::default() };
    ready(engine.start(NOW * 1_000, &daemon)).unwrap();
    script.engine = Some(engine);
}

fn classic() -> Settings {
    Settings { is_fair: false, ..Settings::default() }
}

/// Keys have the places of the present rules; with `--classic` a pause ends, because nothing could end it there.
#[test]
fn places_follow_the_rules() {
    let mut script = Script::new(Settings::default());
    script.run("list f.1 a c\nready -> job 1 a p\nadd d=1\npause");
    start(&mut script, classic());
    script.run("ready -> job + c p\nready -> nothing\nat 43201\nlist g.1 a\nready -> job + a p");
    start(&mut script, Settings::default());
    script.run("at 43202\nready -> job + d 1\nfinish d 0");
    start(&mut script, Settings::default());
    script.run("ready -> nothing");
}

/// A key held for its failures is free without a backoff rule; with the rule, failures are counted anew.
#[test]
fn a_hold_without_its_rule_ends() {
    let first = Duration::from_secs(60);
    let (delays, after) = (Delays::new(first, 1.0, first), NonZeroU32::new(2).unwrap());
    let backoff = Some(Backoff { after, on: CountedEnds::failed(), delays });
    let rule = || Settings { backoff: backoff.clone(), ..Settings::default() };
    let mut script = Script::new(rule());
    let twice = "list f.1 a\nready -> job 1 a p\nfinish a 1\nlist f.2 a\nready -> job 2 a p";
    script.run(twice);
    script.run("finish a 1\nlist f.3 a\nready -> nothing");
    start(&mut script, Settings::default());
    script.run("follow\nready -> job + a p\nfinish a 1");
    start(&mut script, rule());
    script.run("list f.4 a\nready -> job + a p\nfinish a 1\nlist f.5 a\nready -> job + a p");
    script.run("finish a 1\nlist f.6 a\nready -> nothing");
}

/// The reference's rules do not retry: delayed tasks stay delayed until a daemon with other rules comes.
#[test]
fn a_delayed_task_waits_for_other_rules() {
    let first = Duration::from_secs(60);
    let retries =
        Retries { on: CountedEnds::failed(), most: 1, delays: Delays::new(first, 1.0, first) };
    let retries = RetryRules { lists: Some(retries), ..RetryRules::default() };
    let rule = || Settings { retries: retries.clone(), ..Settings::default() };
    let mut script = Script::new(rule());
    script.run("list f.1 a\nready -> job 1 a p\nfinish a 1\nready -> nothing");
    start(&mut script, classic());
    script.run("at 100\nwake\nready -> nothing");
    start(&mut script, rule());
    script.run("wake\nready -> job + a p");
}

/// Rejected files are found anew; and it is known whether the last daemon was stopped.
#[test]
fn what_a_daemon_notes() {
    let mut script = Script::new(Settings::default());
    let store = |script: &mut Script| script.engine.take().unwrap().into_store().reopened();
    let mut kept = store(&mut script);
    ready(kept.begin(&Outset::default())).unwrap();
    ready(kept.note(REJECTED.of("x"), Some("{}".to_owned()))).unwrap();
    ready(kept.commit()).unwrap();
    script.engine = Some(Engine::new(kept, Settings::default()));
    start(&mut script, Settings::default());
    let noted = |script: &mut Script| {
        let mut kept = store(script);
        assert_eq!(ready(kept.documents(REJECTED.name())).unwrap(), []);
        let noted = ready(kept.document("daemon")).unwrap().unwrap();
        script.engine = Some(Engine::new(kept, Settings::default()));
        noted
    };
    let begun = noted(&mut script);
    assert!(begun.contains(r#""running":{"pid":1"#), "{begun}");
    ready(script.engine.as_mut().unwrap().stop()).unwrap();
    let stopped = noted(&mut script);
    assert!(stopped.contains(r#""running":null"#), "{stopped}");
}

/// Single tasks of these keys, each handed out, under other rules by now.
fn handed_out(adds: &str) -> Script {
    let mut script = Script::new(Settings::default());
    script.run(adds);
    while script.say("ready") != "nothing" {}
    start(&mut script, classic());
    script
}

/// A job that ended under other rules does not run again, whatever the log says of its key by then.
#[test]
fn what_ended_elsewhere_is_over() {
    let mut script = handed_out("add a=1\nadd b=1");
    script.run("finish a 0\nfinish b 3");
    start(&mut script, Settings::default());
    script
        .run("ready -> nothing\ncounts -> rows 1, failed 1\nretry b -> back 1\nready -> job + b 1");
    let mut script = handed_out("add a=1\nadd b=1");
    script.run("finish a 0\nfinish b 3\nlist f.1 a b\njobs -> a b\nfinish a 5\nfinish b 5");
    start(&mut script, Settings::default());
    script.run("ready -> nothing\ncounts -> rows 3, failed 3");
}

/// A job that is still out keeps its lease: its worker may be alive.
#[test]
fn what_is_out_elsewhere_is_out() {
    let mut script = handed_out("add a=1\nadd b=1");
    start(&mut script, Settings::default());
    script.run(
        "ready -> nothing\ndone 1 0 -> recorded\nexpire 2 -> expired b false\nready -> job + b 1",
    );
}

/// Tasks that were put back wait; and so does one that lost its lease there to another job of its key.
#[test]
fn what_waits_elsewhere_waits() {
    let mut script = Script::new(Settings::default());
    script.run("add a=1\nready -> job 1 a 1\ndone 1 3\nretry a -> back 1");
    start(&mut script, classic());
    script.run("ready -> nothing");
    start(&mut script, Settings::default());
    script.run("ready -> job + a 1");
    let mut script = handed_out("add a=1");
    script.run("at 50000\nlist f.1 a\nready -> job + a p\nfinish a 5");
    start(&mut script, Settings::default());
    script.run("at 50001\nready -> job + a 1");
}

/// A backup was restored: jobs handed out after it was made are out under numbers that are not given again.
#[test]
fn numbers_of_attempts_are_not_used_again() {
    let mut script = Script::new(Settings::default());
    start(&mut script, Settings::default());
    let [first, second] = [1, 2].map(|it| NOW * 1_000_000 + it);
    script.run(&format!("list f.1 a b\nready -> job {first} a p"));
    start(&mut script, Settings::default());
    script.run(&format!(
        "ready -> job {second} b p\ndone 1 7 -> unknown\ndone {first} 0 -> recorded"
    ));
}
