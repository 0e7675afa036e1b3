//! Daemons that share a queue: what each owns, what another takes over when it is gone, and what is undone after a lost
//! answer.

use shiftboss_protocol::model::Attempt;
use shiftboss_queue::context::Settings;
use shiftboss_queue::documents::{Daemon, Gone, MEMBER};
use shiftboss_queue::engine::Forgetting;
use shiftboss_queue::groups::{By, GroupRules, Limits, Table};
use shiftboss_queue::operation::{
    Ack, CompleteAttempt, CountInFlight, DeleteRuns, Dispatch, Dispatched, Drain, EndHolds, Expire,
    Heartbeat, Leases, NextHoldEnd, RegisterRun, Registered, RejectFile, Runs, SetGroups,
    SetPaused,
};
use shiftboss_queue::policy::{CountedEnds, Delays, Retries, RetryRules};

use crate::asked::{Asked, lease, rows, run};
use crate::words::{NOW, ready};

/// How long daemons wait for each other's fetchers.
pub const TAKEOVER: i64 = 600;

/// A queue in which the daemon `one` has a list of these keys.
fn of_one(keys: &[&str]) -> Asked {
    let mut queue = daemon(Asked::with(&[]), "one");
    queue.ask(RegisterRun(run("g", 1))).unwrap();
    queue.ask(rows("g", keys)).unwrap();
    queue
}

fn join(queue: &mut Asked, unheard: &[Attempt]) {
    ready(queue.engine.join(NOW * 1_000, "process", false, unheard)).unwrap();
}

/// From now on this daemon sends the requests.
fn daemon(queue: Asked, name: &str) -> Asked {
    let mut queue = queue.acts_for(name, TAKEOVER);
    join(&mut queue, &[]);
    queue
}

/// From now on the other daemon does.
fn other(queue: Asked) -> Asked {
    daemon(queue, "other")
}

fn adopt(queue: &mut Asked, since: i64) -> u64 {
    let one = MEMBER.of("one").into();
    ready(queue.engine.adopt(NOW * 1_000, &one, Gone::Silent, since)).unwrap()
}

fn leased(queue: &mut Asked) -> Attempt {
    match queue.ask(lease()).unwrap() {
        Dispatched::Job(attempt, _, _) => attempt,
        nothing => panic!("{nothing:?}"),
    }
}

fn leases(queue: &mut Asked) -> Vec<Attempt> {
    queue.ask(Leases).unwrap().into_iter().map(|it| it.0).collect()
}

/// A fetcher may be taken over when its daemon has been gone for long enough, with lists that this one reads anew; or
/// when that has been without a list of it.
#[test]
fn a_fetcher_is_taken_over() {
    let mut queue = other(of_one(&["alpha"]));
    let whose = |queue: &mut Asked| queue.ask(RegisterRun(run("g", 1))).unwrap();
    let Registered::Elsewhere(why) = whose(&mut queue) else { panic!() };
    assert!(why.contains("the daemon one; it is taken over (--takeover)") && why.ends_with("10m"));
    assert_eq!(queue.ask(Runs).unwrap(), []);
    assert!(queue.ask(rows("g", &["bravo"])).is_err(), "it is another one's");
    adopt(&mut queue, NOW);
    queue.later(TAKEOVER - 1);
    assert!(matches!(whose(&mut queue), Registered::Elsewhere(_)));
    queue.later(1);
    let Registered::Run(found) = whose(&mut queue) else { panic!() };
    assert_eq!((found.rows, found.position, found.stale), (1, None, true));
    let news = queue.engine.take_news();
    assert_eq!(news.taken, [("g".into(), "the daemon one".to_owned())]);
    queue.ask(rows("g", &["bravo"])).unwrap();
    let mut queue = daemon(queue, "one");
    assert!(matches!(whose(&mut queue), Registered::Elsewhere(_)));
    assert_eq!(queue.ask(Runs).unwrap(), []);
}

#[test]
fn a_fetcher_without_a_list_is_free_in_a_while() {
    let mut queue = of_one(&["alpha"]);
    queue.ask(DeleteRuns { runs: vec![run("g", 1)], limit: 9 }).unwrap();
    let mut queue = other(queue);
    let whose = |queue: &mut Asked| queue.ask(RegisterRun(run("g", 2))).unwrap();
    assert!(matches!(whose(&mut queue), Registered::Elsewhere(_)));
    queue.later(TAKEOVER);
    assert!(matches!(whose(&mut queue), Registered::Run(_)));
    assert_eq!(queue.engine.take_news().taken, [], "nobody lost anything");
}

/// Leased jobs stay the other daemon's; classic ones are every daemon's while their own is gone.
#[test]
fn jobs_of_a_daemon_that_is_gone_are_seen_to() {
    let mut queue = of_one(&["alpha", "bravo"]);
    let attempt = leased(&mut queue);
    let classic = queue.ask(Dispatch { holder: None, fetchers: None }).unwrap();
    let Dispatched::Job(classic, _, _) = classic else { panic!() };
    assert_eq!(leases(&mut queue), [attempt, classic]);
    let mut queue = other(queue);
    assert_eq!(leases(&mut queue), []);
    assert_eq!(queue.ask(Expire(attempt)), Ok(None), "it is another one's");
    assert_eq!(adopt(&mut queue, NOW), 1);
    assert_eq!(leases(&mut queue), [attempt, classic]);
    assert_eq!(queue.ask(CountInFlight), Ok(1));
    assert!(queue.ask(Expire(attempt)).unwrap().is_some());
    let mut queue = daemon(queue, "one");
    assert_eq!(leases(&mut queue), [classic]);
    let mut queue = queue.acts_for("other", TAKEOVER);
    assert_eq!(leases(&mut queue), []);
}

/// A worker may go on at another daemon, which keeps its lease from then on, even if the batch otherwise only reads.
#[test]
fn a_beat_takes_a_job_along() {
    let mut queue = of_one(&["alpha"]);
    let attempt = leased(&mut queue);
    let mut queue = other(queue);
    assert_eq!(queue.ask(Heartbeat(attempt)), Ok(Ack::Recorded));
    assert!(queue.engine.take_news().has_lease);
    assert_eq!(leases(&mut queue), [attempt]);
    assert_eq!(queue.ask(Heartbeat(attempt)), Ok(Ack::Recorded));
    assert!(!queue.engine.take_news().has_lease, "it is known");
}

/// Jobs handed out by a batch whose answer was lost are undone with the next joining.
#[test]
fn what_nobody_heard_of_is_undone() {
    let mut queue = of_one(&["alpha"]);
    let attempt = leased(&mut queue);
    join(&mut queue, &[attempt, Attempt(attempt.0 + 99)]);
    assert_eq!(queue.ask(CountInFlight), Ok(0));
    assert!(queue.engine.take_news().has_work);
    assert!(leased(&mut queue) > attempt);
}

/// A daemon that drains hands nothing out; the others do, and the queue is not paused.
#[test]
fn a_drain_is_one_daemon_s() {
    let mut queue = of_one(&["alpha"]);
    queue.ask(Drain).unwrap();
    assert_eq!(queue.ask(lease()), Ok(Dispatched::Nothing));
    assert!(!queue.engine.is_paused());
    let mut queue = other(queue);
    leased(&mut queue);
    let mut queue = queue.acts_for("one", TAKEOVER);
    queue.ask(rows("g", &["bravo"])).unwrap();
    join(&mut queue, &[]);
    assert_eq!(queue.ask(lease()), Ok(Dispatched::Nothing), "the same process");
    queue.ask(SetPaused(false)).unwrap();
    leased(&mut queue);
}

/// A daemon that is gone for good is forgotten with its lists, notes and jobs.
#[test]
fn a_daemon_is_forgotten() {
    let mut queue = of_one(&["alpha"]);
    leased(&mut queue);
    let reject = RejectFile { name: "x.txt".to_owned(), reason: "why".to_owned() };
    queue.ask(reject).unwrap();
    let mut queue = other(queue);
    let one = MEMBER.of("one").into();
    let forget = |queue: &mut Asked| ready(queue.engine.forget_member(NOW * 1_000, &one)).unwrap();
    assert_eq!(forget(&mut queue), Forgetting::Lives);
    let given = ready(queue.engine.give_back(NOW * 1_000, &one, Gone::Silent, NOW)).unwrap();
    assert_eq!(given, 1);
    assert_eq!(forget(&mut queue), Forgetting::Gone { lists: 1, fetchers: 1 });
    assert_eq!(forget(&mut queue), Forgetting::Unknown);
    assert_eq!(queue.ask(CountInFlight), Ok(0));
    assert!(matches!(queue.ask(RegisterRun(run("g", 1))), Ok(Registered::Run(_))));
}

/// A failed task is retried by the rule of its fetcher's daemon, whichever daemon gets its end; all other rules are
/// those of the daemon that joined last.
#[test]
fn rules_are_shared() {
    let rule = Retries { on: CountedEnds::failed(), most: 1, delays: Delays { seconds: vec![60] } };
    let of_fetcher = [("g".to_owned(), rule)].into();
    let retries = RetryRules { of_fetcher, ..RetryRules::default() };
    let settings = Settings { retries, ..Settings::default() };
    let mut queue = daemon(Asked::new(settings), "one");
    queue.ask(RegisterRun(run("g", 1))).unwrap();
    queue.ask(rows("g", &["alpha"])).unwrap();
    let mut queue = other(queue.with_settings(Settings::default()));
    let attempt = leased(&mut queue);
    queue.ask(CompleteAttempt { attempt, exit_code: 1 }).unwrap();
    assert_eq!(queue.ask(lease()), Ok(Dispatched::Nothing));
    queue.later(120);
    queue.ask(EndHolds).unwrap();
    leased(&mut queue);
    let mut queue = daemon(queue.with_settings(grouped()), "third");
    queue.ask(RegisterRun(run("h", 1))).unwrap();
    queue.ask(rows("h", &["bravo", "charlie"])).unwrap();
    leased(&mut queue);
    let mut queue = queue.with_settings(Settings::default()).acts_for("other", TAKEOVER);
    assert_eq!(queue.ask(lease()), Ok(Dispatched::Nothing));
}

/// Groups by the payload's first word, with one job at a time.
fn grouped() -> Settings {
    let (limits, exceptions) = (Limits { max_in_flight: Some(1), ..Limits::default() }, vec![]);
    let table = Table { name: "word".into(), by: By::Word(2), keys: None, limits, exceptions };
    Settings { groups: GroupRules::new(vec![table]).unwrap(), ..Settings::default() }
}

/// Until all groups are looked at, and all tasks are sorted.
fn sort(queue: &mut Asked) {
    while queue.ask(NextHoldEnd).unwrap() == Some(0) {
        queue.ask(EndHolds).unwrap();
    }
}

/// Who joins with other groups brings them to all, and tasks that came before are sorted. Who only comes back brings none; a reload
/// does.
#[test]
fn groups_come_with_who_joins() {
    let queue = of_one(&["alpha", "bravo", "charlie"]);
    let mut queue = queue.with_settings(grouped()).acts_for("other", TAKEOVER);
    ready(queue.engine.start(NOW * 1_000, &Daemon::default())).unwrap();
    join(&mut queue, &[]);
    sort(&mut queue);
    leased(&mut queue);
    assert_eq!(queue.ask(lease()), Ok(Dispatched::Nothing));
    let mut queue = queue.with_settings(Settings::default()).acts_for("one", TAKEOVER);
    ready(queue.engine.join(NOW * 1_000, "process", true, &[])).unwrap();
    sort(&mut queue);
    assert_eq!(queue.ask(lease()), Ok(Dispatched::Nothing));
    queue.ask(SetGroups(GroupRules::default())).unwrap();
    sort(&mut queue);
    leased(&mut queue);
    let mut queue = daemon(queue.with_settings(grouped()), "other");
    sort(&mut queue);
    assert_eq!(queue.ask(lease()), Ok(Dispatched::Nothing));
}
