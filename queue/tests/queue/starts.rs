//! A daemon begins with a queue that another one left, with the same rules or with others.

use std::num::NonZeroU32;
use std::time::Duration;

use shiftboss_queue::context::Settings;
use shiftboss_queue::documents::{Daemon, Policy, REJECTED, Running};
use shiftboss_queue::engine::Engine;
use shiftboss_queue::policy::{Backoff, CountedEnds, Delays};
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

/// Keys stand where the rules have them; with `--classic` a pause ends, for nobody could end it.
#[test]
fn places_follow_the_rules() {
    let mut script = Script::new(Settings::default());
    script.run("list f.1 a c\nready -> job 1 a p\nadd d=1\npause");
    start(&mut script, classic());
    script.run("ready -> job 2 c p\nready -> nothing\nat 43201\nlist g.1 a\nready -> job 3 a p");
    start(&mut script, Settings::default());
    script.run("at 43202\nready -> job 4 d 1\nfinish d 0");
    start(&mut script, Settings::default());
    script.run("ready -> nothing");
}

/// A key that its failures hold is free where no rule holds any.
#[test]
fn a_hold_without_its_rule_ends() {
    let first = Duration::from_secs(60);
    let (delays, after) = (Delays::new(first, 1.0, first), NonZeroU32::MIN);
    let backoff = Some(Backoff { after, on: CountedEnds::failed(), delays });
    let mut script = Script::new(Settings { backoff, ..Settings::default() });
    script.run("list f.1 a\nready -> job 1 a p\nfinish a 1\nlist f.2 a\nready -> nothing");
    start(&mut script, Settings::default());
    script.run("follow\nready -> job 2 a p");
}

/// What was rejected is found out anew; and it is known whether a daemon was stopped.
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
