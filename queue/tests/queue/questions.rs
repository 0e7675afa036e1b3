//! What a reader answers about states that operations made.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::json;
use shiftboss_protocol::answers::{Bump, KeyRow, KeyState, QueueStatus, Rows, TaskStatus, Why};
use shiftboss_protocol::model::{Key, Row};
use shiftboss_queue::attempt::Outcome as End;
use shiftboss_queue::context::Settings;
use shiftboss_queue::documents::{Daemon, INPUT, Policy, REJECTED, RELAY};
use shiftboss_queue::engine::Engine;
use shiftboss_queue::operation::{AddTask, Forget};
use shiftboss_queue::policy::{CountedEnds, Delays, Retries, RetryRules};
use shiftboss_queue::reader::{
    EndedAttempts, FailedTasks, Grouping, Order, Reader, Selection, StatsOf, TasksWith,
};
use shiftboss_queue::record::FetcherId;
use shiftboss_queue::records::{Changes, Outset, Records, StoreResult};
use shiftboss_queue::sums::{Hour, Sums};

use crate::subject::{self, Looking, Store};
use crate::words::{NOW, Script, ready};

/// Notes the settings, as a daemon does at its start.
pub fn started<S: Records>(engine: &mut Engine<S>, settings: &Settings) {
    let daemon = Daemon {
        durability: "power".to_owned(),
        policy: if settings.is_fair { Policy::Fair } else { Policy::Classic },
        lease_seconds: settings.lease_seconds,
        bump_share: settings.bump_share,
        max_single_tasks: settings.max_single_tasks.cast_signed(),
        running: None,
    };
    ready(engine.start(0, &daemon)).unwrap();
}

/// Writes into a script's store without an operation.
fn write(script: &mut Script, work: impl AsyncFnOnce(&mut Store) -> StoreResult<()>) {
    let mut store = script.engine.take().unwrap().into_store();
    let outset = Outset { is_alone: true, ..Outset::default() };
    ready(async {
        store.begin(&outset).await?;
        work(&mut store).await?;
        store.commit().await
    })
    .unwrap();
    script.engine = Some(Engine::new(store.reopened(), Settings::default()));
}

/// Questions about a script's queue, some seconds after its beginning.
struct At {
    reader: Looking,
    now: i64,
}

impl At {
    fn new(script: &Script, seconds: i64) -> Self {
        Self { reader: subject::reader(script.store()), now: NOW + seconds }
    }

    fn status(&self) -> QueueStatus {
        self.reader.status(self.now).unwrap()
    }

    fn why(&self, key: &str) -> Why {
        self.reader.why(self.now, key, 10).unwrap().unwrap()
    }

    /// The state of a key, and of its rows as `fetcher.run state code`.
    fn rows(&self, key: &str) -> (KeyState, Vec<String>) {
        let why = self.why(key);
        let row = |row: &KeyRow| {
            let code = row.exit_code.map_or(String::new(), |code| format!(" {code}"));
            format!("{}.{} {:?}{code}", row.fetcher, row.run, row.state)
        };
        (why.state, why.rows.iter().map(row).collect())
    }

    /// `key fetcher.run, reason`
    fn tasks(&self, status: TaskStatus) -> Vec<String> {
        let asked =
            TasksWith { status: Some(status), fetcher: None, group: None, since: None, count: 100 };
        let tasks = self.reader.tasks(self.now, &asked).unwrap().tasks.into_iter();
        tasks.map(|it| format!("{} {}.{}, {}", it.key, it.fetcher, it.run, it.reason)).collect()
    }

    /// `attempt key outcome`
    fn ended(&self, asked: &EndedAttempts) -> Vec<String> {
        let asked = EndedAttempts { count: 100, ..asked.clone() };
        let ended = self.reader.ended_attempts(&asked).unwrap().attempts.into_iter();
        ended.map(|it| format!("{} {} {}", it.attempt, it.key, it.outcome)).collect()
    }
}

fn played(settings: Settings, script: &str) -> Script {
    let mut it = Script::new(settings.clone());
    started(it.engine.as_mut().unwrap(), &settings);
    it.run(script);
    it
}

fn run(script: &str) -> Script {
    played(Settings::default(), script)
}

#[test]
fn how_a_queue_stands() {
    let script = run(
        "list f.1 a b c; list f.1699999900 a d; list g.7 a; at 1; add s=1; add s=2; lease; ready",
    );
    let status = At::new(&script, 60).status();
    let lists: Vec<_> = status
        .fetchers
        .iter()
        .map(|it| (&*it.name, it.run, it.lines, it.pending, it.older_runs, it.age_seconds))
        .collect();
    let age = Some(160);
    let right =
        [("@tasks", 2, 2, 2, 0, None), ("f", 1_699_999_900, 2, 0, 1, age), ("g", 7, 1, 1, 0, None)];
    assert_eq!(lists, right);
    let Rows { pending, dispatched, in_flight, leased, redelivered } = status.rows;
    assert_eq!((pending, dispatched, in_flight, leased, redelivered), (5, 3, 2, 1, 0));
    let holders: Vec<_> = status.holders.iter().map(|it| (it.attempt, it.lease_seconds)).collect();
    assert_eq!(holders, [(Some(1), Some(60)), (Some(2), None)]);
    assert_eq!((status.single_tasks, status.single_tasks_ended), (2, 0));
    assert_eq!((status.policy.as_deref(), status.lease_seconds), (Some("fair"), Some(43_200)));
    assert!(status.oldest_waiting.is_some_and(|it| it.last_started.is_none()));
    assert_eq!(status.longest_wait, None);
}

/// Keys that nothing lists are counted, and so are those that were forgotten by themselves.
#[test]
fn keys_that_nothing_lists() {
    let settings = Settings { unlisted_kept: Some(100), ..Settings::default() };
    let counted = |script: &Script| {
        let status = At::new(script, 0).status();
        (status.keys, status.unlisted_keys, status.forgotten_keys)
    };
    let mut script = played(settings, "list f.1 a b c; list g.1 c; ready; add d=1; hold b; hold n");
    assert_eq!(counted(&script), (5, 0, 0));
    script.run("delete f.1; cancel d; unhold n");
    assert_eq!(counted(&script), (4, 1, 0), "a is out, b is held, and nothing is known of n");
    script.run("finish a 0; unhold b");
    assert_eq!(counted(&script), (4, 3, 0));
    script.run("at 99; list h.1 a; at 101; wake");
    assert_eq!(counted(&script), (2, 0, 2));
}

/// Each of several tasks of one key waits; failed and delayed tasks are distinguished.
#[test]
fn every_single_task_counts() {
    let mut script = run("add a=1; add a=2; add a=3; add a=4; add a=5");
    let at = At::new(&script, 0);
    assert_eq!((at.status().rows.pending, at.tasks(TaskStatus::Waiting).len()), (5, 5));
    assert_eq!(at.rows("a").1.len(), 5);
    script.run("ready; done 1 3; lease");
    let at = At::new(&script, 0);
    let status = at.status();
    assert_eq!((status.rows.pending, status.rows.in_flight), (3, 1));
    assert_eq!((status.single_tasks, status.single_tasks_ended), (5, 1));
    let waiting = ["a @tasks.3", "a @tasks.4", "a @tasks.5"];
    assert_eq!(
        at.tasks(TaskStatus::Waiting),
        waiting.map(|it| format!("{it}, its key is in flight"))
    );
    assert_eq!(at.tasks(TaskStatus::InFlight), ["a @tasks.2, w, attempt 2"]);
    assert_eq!(at.tasks(TaskStatus::Failed), ["a @tasks.1, failure 3"]);
    let rows = ["1 Failed 3", "2 InFlight", "3 Waiting", "4 Waiting", "5 Waiting"];
    assert_eq!(at.rows("a"), (KeyState::InFlight, rows.map(|it| format!("@tasks.{it}")).to_vec()));
    let why = at.why("a");
    assert_eq!((why.failed_single_tasks, why.last_result.unwrap().exit_code), (1, Some(3)));
}

#[test]
fn where_a_key_is() {
    let mut script = run("list f.1 a b; list f.2 a; list g.1 a; ready; done 1 0");
    let at = At::new(&script, 1);
    let (state, rows) = at.rows("a");
    assert_eq!(
        (state, rows),
        (
            KeyState::Waiting,
            ["f.2 Dispatched 0", "f.1 Hidden", "g.1 Waiting"].map(str::to_owned).to_vec()
        )
    );
    let place = at.why("a").place.unwrap();
    assert_eq!((place.keys_before, place.exact, place.first), (1, true, vec!["b".to_owned()]));
    assert_eq!(at.reader.why(NOW, "nobody", 10), Ok(None));
    let turns = at.reader.turns(NOW, &["b", "nobody"].map(Key::stored)).unwrap();
    assert_eq!(turns.iter().map(|it| it.keys_before).collect::<Vec<_>>(), [Some(0), None]);
    script.run("at 5; ready; ready; done 3 7");
    let at = At::new(&script, 9);
    assert_eq!(at.rows("a").1[0], "f.2 Dispatched 0");
    assert_eq!((at.rows("a").0, at.rows("a").1[2].as_str()), (KeyState::Failed, "g.1 Failed 7"));
    assert_eq!(at.tasks(TaskStatus::Failed), ["a g.1, failure 7"]);
    let out = at.why("b").in_flight.unwrap();
    assert_eq!((out.attempt, out.since, out.held_until), (Some(2), NOW + 5, Some(NOW + 43_206)));
    script.run("hold a 60; go g.1");
    let at = At::new(&script, 9);
    assert_eq!(at.rows("a").1[2], "g.1 Leaving");
    assert_eq!(at.why("a").hold.map(|it| (it.since, it.until)), Some((NOW + 5, Some(NOW + 65))));
}

/// All keys that an order is for, with the fetcher if one is meant, and how many were held, in as many steps as it takes.
pub fn selected(reader: &dyn Reader, now: i64, asked: &Selection) -> (Vec<String>, u64) {
    let (mut keys, mut held, mut behind) = (Vec::new(), 0, None);
    loop {
        let found = reader.select(now, asked, behind.as_ref()).unwrap();
        held += found.held;
        keys.extend(found.keys.into_iter().map(|(key, fetcher)| match fetcher {
            Some(fetcher) => format!("{key}/{fetcher}"),
            None => key.to_string(),
        }));
        match found.behind {
            Some(next) => behind = Some(next),
            None => return (keys, held),
        }
    }
}

/// An order to many is for the keys alone to which it does something; what is held is told apart.
#[test]
fn which_keys_an_order_is_for() {
    let script = run("list f.1 a b c; ready; finish a 7; ready; finish c 124; ready; finish b 0
        list g.1 a d; add s=1; at 9; lease @tasks; done 4 9; hold c; hold never; log u 1 2 3; add t=1");
    let at = At::new(&script, 9);
    let failed = |since, exit_code| Order::RetryFailed(FailedTasks { since, exit_code });
    let all = failed(None, None);
    for (order, prefix, fetcher, right, held) in [
        (Order::Unhold, "", "", "c never", 0),
        (Order::Unhold, "", "f", "c/f", 0),
        (Order::Unhold, "n", "", "never", 0),
        (Order::Cancel, "", "", "s t", 0),
        (Order::Cancel, "t", "@tasks", "t/@tasks", 0),
        (Order::Cancel, "", "f", "", 0),
        (Order::Retry, "", "", "a b s", 1),
        (Order::Retry, "", "f", "a/f b/f", 1),
        (Order::Retry, "", "g", "", 0),
        (all, "", "", "a/f s/@tasks", 1),
        (all, "", "f", "a/f", 1),
        (all, "s", "", "s/@tasks", 0),
        (failed(Some(NOW + 9), None), "", "", "s/@tasks", 0),
        (failed(None, Some(7)), "", "", "a/f", 0),
        (failed(None, Some(124)), "", "", "", 1),
        (Order::Bump, "", "", "a b d s t", 1),
        (Order::Bump, "", "g", "a/g d/g", 0),
        (Order::Forget, "", "", "never u", 0),
        (Order::Forget, "u", "", "u", 0),
        (Order::Forget, "", "none", "", 0),
    ] {
        let fetcher = Some(fetcher.to_owned()).filter(|name| !name.is_empty());
        let asked = Selection { order, prefix: prefix.to_owned(), fetcher, group: None };
        let (mut found, left) = selected(&at.reader, at.now, &asked);
        found.sort();
        assert_eq!((&*found.join(" "), left), (right, held), "{asked:?}");
    }
}

/// More keys than one answer looks at are found all the same, each once, though the order changes them meanwhile.
#[test]
fn many_keys_are_found_in_steps() {
    const MANY: usize = 4_200;
    let keys: String = (0..MANY).map(|number| format!(" k{number}")).collect();
    let script = run(&format!("list f.1{keys}; list f.2 k1; list g.1 z"));
    let at = At::new(&script, 0);
    for fetcher in [None, Some("f".to_owned())] {
        let asked = Selection { order: Order::Bump, prefix: "k".to_owned(), fetcher, group: None };
        let (found, _) = selected(&at.reader, at.now, &asked);
        let distinct: BTreeSet<&String> = found.iter().collect();
        assert_eq!((found.len(), distinct.len()), (MANY, MANY), "{asked:?}");
        assert!(at.reader.select(at.now, &asked, None).unwrap().keys.len() < MANY);
    }
}

/// A task is judged by its own last attempt, not by that of another task of its key.
#[test]
fn each_task_fails_for_itself() {
    let failed = |list: i64, single: i64| {
        let script =
            format!("list f.1 a; ready; done 1 {list}; at 5; add a=1; ready; done 2 {single}");
        At::new(&run(&script), 9).tasks(TaskStatus::Failed)
    };
    assert_eq!(failed(0, 0), [""; 0]);
    assert_eq!(failed(0, 7), ["a @tasks.1, failure 7"]);
    assert_eq!(failed(3, 0), ["a f.1, failure 3"]);
    assert_eq!(failed(3, 124), ["a @tasks.1, timeout", "a f.1, failure 3"]);
    let mut script = run("list f.1 a b; ready; ready; finish a 3; at 2; finish b 4");
    let both = ["b f.1, failure 4", "a f.1, failure 3"];
    assert_eq!(At::new(&script, 9).tasks(TaskStatus::Failed), both);
    // Once attempts are no longer kept, the records answer.
    let mut store = script.engine.take().unwrap().into_store();
    subject::forget_ends(&mut store);
    script.engine = Some(Engine::new(store, Settings::default()));
    assert_eq!(At::new(&script, 9).tasks(TaskStatus::Failed), both);
    script.run("list f.2 b");
    assert_eq!(At::new(&script, 9).tasks(TaskStatus::Failed), both[1..]);
    script.run("log a 1 2 0");
    assert_eq!(At::new(&script, 9).tasks(TaskStatus::Failed), [""; 0]);
}

/// Whatever became of the attempts, of their codes, and of the key's other tasks: count, listing, and key agree.
#[test]
fn what_failed_is_failed() {
    let mut script =
        run("list f.1 a; ready; finish a 0; finish a 3; list g.1 a; ready; finish a 0");
    let failed = |script: &Script| {
        let at = At::new(script, 9);
        let row = at.rows("a").1.into_iter().find(|row| row.starts_with("f.1"));
        (at.status().failed, at.tasks(TaskStatus::Failed), row.unwrap())
    };
    let right = |row: &str| (1, vec!["a f.1, failure".to_owned()], row.to_owned());
    assert_eq!(failed(&script), right("f.1 Failed 0"));
    let mut store = script.engine.take().unwrap().into_store();
    subject::forget_ends(&mut store);
    let mut engine = Engine::new(store.reopened(), Settings::default());
    started(&mut engine, &Settings::default());
    script.engine = Some(engine);
    assert_eq!(failed(&script), right("f.1 Failed"));
    script.run("add a=1");
    assert_eq!(failed(&script), right("f.1 Failed"));
    script.run("retry a -> back 2");
    assert_eq!((failed(&script).0, failed(&script).1.len()), (0, 0));
}

/// What was cancelled has the exit code of a command that SIGTERM ended, and is told from that.
#[test]
fn a_cancelled_job_is_no_failure() {
    let mut script = run("list f.1 a; lease; stop a; release 1");
    let last = |script: &Script| At::new(script, 1).why("a").last_result.unwrap();
    let found = |script: &Script| (last(script).exit_code, last(script).cancelled);
    assert_eq!(found(&script), (Some(143), true));
    script.run("list f.2 a; lease");
    assert_eq!(found(&script), (Some(143), true), "the one before that is out");
    script.run("release 2");
    assert_eq!(found(&script), (Some(143), true), "what came to nothing is no end");
    script.run("lease; done 3 143");
    assert_eq!(found(&script), (Some(143), false));
}

#[test]
fn dead_letters_and_delays() {
    let [first, most] = [10, 60].map(Duration::from_secs);
    let retries =
        Retries { on: CountedEnds::failed(), most: 2, delays: Delays::new(first, 1.0, most) };
    let retries = RetryRules { lists: Some(retries), ..RetryRules::default() };
    let settings = Settings { max_expired_leases: 2, retries, ..Settings::default() };
    let mut script = played(
        settings,
        "list f.1 b; add c=1; lease f; expire 1; lease f; expire 2; lease @tasks; expire 3; lease @tasks; expire 4
        list g.1 a; lease g; done 5 9",
    );
    let at = At::new(&script, 1);
    let dead = ["b f.1, 2 leases expired", "c @tasks.1, 2 leases expired"];
    assert_eq!(at.tasks(TaskStatus::DeadLetter), dead);
    assert_eq!(
        (at.status().dead_letters, at.rows("b")),
        (2, (KeyState::DeadLetter, vec!["f.1 DeadLetter".to_owned()]))
    );
    let delayed = at.tasks(TaskStatus::Delayed);
    assert!(delayed[0].starts_with("a g.1, failure 9; retry 1 in "), "{delayed:?}");
    assert_eq!((at.status().delayed, at.rows("a").0), (1, KeyState::Delayed));
    assert_eq!(at.rows("a").1, ["g.1 Delayed 9"]);
    script.run("at 20; wake");
    let why = At::new(&script, 20).why("a");
    assert_eq!((why.state, why.retry), (KeyState::Waiting, None));
    assert_eq!(why.bump.map(|it| it.by).as_deref(), Some(Bump::BY_RETRY));
}

#[test]
fn attempts_that_ended() {
    let script = run(
        "list f.1 a b c; list g.1 a; lease; undo a 1; lease; done 2 0; lease; release 3; lease; done 4 5; lease
        expire 5; done 5 124",
    );
    let at = At::new(&script, 1);
    let all = EndedAttempts::default();
    let ended = at.ended(&all);
    assert_eq!(ended.iter().filter(|it| it.ends_with("undone")).count(), 1);
    assert_eq!(ended.len(), 5, "{ended:?}");
    assert!(ended[0].starts_with("5 ") && ended[0].ends_with(" timeout"), "{ended:?}");
    let failed = EndedAttempts { outcomes: EndedAttempts::FAILED.to_vec(), ..all.clone() };
    assert_eq!(at.ended(&failed).len(), 2);
    let key = ended[0].split(' ').nth(1).unwrap().to_owned();
    let mut of_key: Vec<String> = ended
        .iter()
        .filter(|it| it.contains(&format!(" {key} ")) && !it.ends_with("undone"))
        .cloned()
        .collect();
    of_key.sort_by_key(|it| std::cmp::Reverse(it.clone()));
    assert_eq!(at.ended(&EndedAttempts { key: Some(key), ..all.clone() }), of_key);
    let none = EndedAttempts { fetcher: Some("none".into()), ..all.clone() };
    assert_eq!(at.ended(&none), [""; 0]);
    let reader = &at.reader;
    let first = reader.ends_after(Some(0), 2).unwrap();
    let rest = reader.ends_after(Some(first.upto), 9).unwrap();
    let upto = reader.ends_after(None, 9).unwrap().upto;
    assert!(rest.is_kept && first.upto < rest.upto && rest.upto <= upto);
    assert_eq!(reader.ends_after(Some(upto), 9).unwrap().attempts, []);
    assert_eq!(first.attempts.len() + rest.attempts.len(), 5);
    let among = EndedAttempts { among: Some(2), count: 9, ..all };
    let found = reader.ended_attempts(&among).unwrap();
    assert_eq!((found.attempts.len(), found.looked_to), (2, Some(found.attempts[1].ended)));
}

#[test]
fn keys_are_found_and_held() {
    let script =
        run("list f.1 ab ac b; hold nobody; at 5; hold b 60; at 9; hold ab; log ran 1 2 3");
    let at = At::new(&script, 9);
    let held = at.reader.held(9).unwrap().keys;
    let held: Vec<_> = held.iter().map(|it| (&*it.key, it.hold.until)).collect();
    assert_eq!(held, [("ab", None), ("b", Some(NOW + 65)), ("nobody", None)]);
    let found = |prefix, count| {
        let found = at.reader.search(prefix, count).unwrap();
        (found.keys.into_iter().map(|it| it.key).collect::<Vec<_>>(), found.truncated)
    };
    assert_eq!(found("a", 9), (vec!["ab".to_owned(), "ac".to_owned()], false));
    assert!(found("", 3).1);
    assert_eq!((found("n", 9).0.len(), found("r", 9).0), (0, vec!["ran".to_owned()]));
    let waiting = ["ac f.1, its turn comes", "ab f.1, its key is held", "b f.1, its key is held"];
    let mut listed = at.tasks(TaskStatus::Waiting);
    listed[1..].sort();
    assert_eq!(listed, waiting);
    let starts = at.reader.last_starts().unwrap();
    assert_eq!((starts.started, starts.is_all), (vec![None; 3], true));
}

/// A start from a clock that was ahead counts as when it was first noticed; ended attempts show that the clock was
/// ahead.
#[test]
fn a_start_in_the_future() {
    let script = run("list f.1 a; log a 1800000000 1800000001 0");
    let at = At::new(&script, 60);
    let next = at.reader.next_jobs(at.now, 1).unwrap().keys.remove(0);
    let last = at.why("a").last_result.unwrap();
    assert_eq!((next.last_started, last.started), (Some(NOW), 1_800_000_000));
    assert_eq!(at.status().longest_wait.and_then(|it| it.last_started), Some(NOW));
}

/// Starts that others wrote with a time long ago, or in the future, are neither in flight nor within the last hour; and
/// a run may have any number.
#[test]
fn what_others_wrote() {
    let script = run(&format!(
        "list f.9223372036854775807 a\nlog x 5\nlog y {NOW}\nlog z {NOW} 253402300799 0"
    ));
    let at = At::new(&script, 60);
    let status = at.status();
    assert_eq!((status.rows.in_flight, status.holders.len()), (1, 1));
    assert_eq!((status.done_last_hour, status.busy_seconds), (vec![], None));
    assert_eq!(at.reader.jobs_by_minute(at.now), Ok(vec![]));
    assert_eq!(at.reader.last_starts().unwrap().started, [None]);
}

/// What a daemon and relays note of themselves.
#[test]
fn documents_are_shown() {
    let mut script = run("list f.1 a");
    let mut note = |name: String, value: serde_json::Value| {
        write(&mut script, async |store| store.note(name, Some(value.to_string())).await);
    };
    note(REJECTED.of("a.b.txt"), json!({"reason": "two dots", "since": 5}));
    note(REJECTED.of("c"), json!("damaged"));
    note(INPUT.of(""), json!({"lost": {"since": 7, "reason": "gone"}}));
    note(
        RELAY.of("far"),
        json!({"process": "p", "epoch": 1, "joined": 3, "gone": "silent", "fetchers": ["f", "none"]}),
    );
    let status = At::new(&script, 0).status();
    assert_eq!(status.rejected_files.len(), 1);
    assert_eq!((&*status.rejected_files[0].name, status.rejected_files[0].since), ("a.b.txt", 5));
    assert_eq!(
        (status.directory_lost_since, status.directory_lost_reason),
        (Some(7), Some("gone".to_owned()))
    );
    let relay = &status.relays[0];
    assert_eq!((relay.name.as_str(), relay.silent, relay.in_flight), ("far", true, 0));
    assert_eq!(relay.fetchers, ["f"]);
}

#[test]
fn what_ended_is_summed_up() {
    let mut script = run("list f.1 a");
    let hour = |jobs, took_ms, revisits, revisit_seconds| Hour {
        jobs,
        took_ms,
        revisits,
        revisit_seconds,
    };
    let (now, f) = (NOW / 3_600, FetcherId(1));
    let hours = [
        ((now, f, End::Success), hour(4, 8_000, 2, 60)),
        ((now, f, End::Timeout), hour(1, 2_000, 0, 0)),
        ((now, FetcherId::TASKS, End::Expired), hour(1, 0, 0, 0)),
        ((now - 30, f, End::Success), hour(9, 9, 0, 0)),
    ];
    let now = NOW / 60;
    let minutes = [((now, 0), 4), ((now, 124), 1), ((now - 2, 0), 2), ((now - 99, 0), 5)];
    let sums = Sums { hours: hours.into(), minutes: minutes.into() };
    let mut store = script.engine.take().unwrap().into_store().reopened();
    ready(async {
        let begun = store.begin(&Outset { is_alone: true, ..Outset::default() }).await?;
        let header = &begun.header.unwrap_or_default();
        let (records, ended, runs, counts, minute, oldest) = Default::default();
        store
            .save(Changes {
                records,
                ended,
                groups: Vec::new(),
                header,
                runs,
                counts,
                sums,
                minute,
                oldest,
            })
            .await?;
        store.commit().await
    })
    .unwrap();
    script.engine = Some(Engine::new(store, Settings::default()));
    let at = At::new(&script, 0);
    let stats = |by, fetchers: &[&str]| {
        let fetchers = fetchers.iter().map(|it| (*it).to_owned()).collect();
        at.reader.stats(&StatsOf { since: NOW - 3_600, by, fetchers }).unwrap().groups
    };
    let all = &stats(Grouping::All, &[])[0];
    assert_eq!((all.jobs, all.success, all.timeout, all.expired), (5, 4, 1, 1));
    assert_eq!((all.mean_ms, all.cycle_seconds), (Some(2_000), Some(30)));
    let by_name = stats(Grouping::Fetcher, &[]);
    assert_eq!(
        by_name.iter().map(|it| it.fetcher.as_deref()).collect::<Vec<_>>(),
        [Some("@tasks"), Some("f")]
    );
    assert_eq!(stats(Grouping::Fetcher, &["f", "none"]), by_name[1..]);
    let minutes = at.reader.jobs_by_minute(at.now).unwrap();
    assert_eq!(minutes.iter().map(|it| it.jobs).collect::<Vec<_>>(), [2, 5]);
    let status = at.status();
    assert_eq!(
        status.done_last_hour.iter().map(|it| (it.exit_code, it.jobs)).collect::<Vec<_>>(),
        [(0, 6), (124, 1)]
    );
    assert!(status.busy_seconds.is_some());
}

/// A listing ends before its payloads take too much memory, and a count at its limit.
#[test]
fn answers_are_bounded() {
    let mut script = run("register f.1");
    let large = "p".repeat(1 << 20);
    for key in 'a'..='t' {
        script.say(&format!("more f.1 {key}={large}"));
    }
    script.run("pause");
    let reader = subject::reader(script.store());
    let listed = |count| {
        let listed = reader.next_jobs(NOW, count).unwrap();
        assert!(listed.paused);
        (listed.keys, listed.truncated)
    };
    let (few, many) = (listed(5), listed(20));
    assert_eq!((few.0.len(), few.1, many.0.len(), many.1), (5, false, 16, true));
    let why = reader.why(NOW, &many.0[9].key, 3).unwrap().unwrap();
    let place = why.place.unwrap();
    assert_eq!((place.keys_before, place.exact, why.expected_in_seconds), (3, false, None));
}

/// A key that is forgotten and added anew in one batch has no history.
#[test]
fn what_is_forgotten_and_added_in_one_batch_is_new() {
    let mut script = Script::new(Settings::default());
    script.run("list f.1 a\nready -> job 1 a p\nfinish a 0\ndelete f.1");
    let key = Key::new("a").unwrap();
    let task = Row { key: key.clone(), payload: "1".to_owned() };
    let batch = vec![Forget(key).into(), AddTask { task, id: None }.into()];
    ready(script.engine.as_mut().unwrap().apply(NOW * 1_000, batch)).unwrap();
    let reader = subject::reader(script.store());
    let all = EndedAttempts { count: 10, ..EndedAttempts::default() };
    assert_eq!(reader.ended_attempts(&all).unwrap().attempts, []);
    script.run("ready -> job 2 a 1");
}
