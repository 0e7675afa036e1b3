//! What `status` prints of a queue in all sorts of trouble, and what is wrong with it.

use shiftboss_protocol::answers::live::{
    BrokerLive, ConnectedWorker, Failing, FailingKind, Health, HeardRelay, Live, Outage, RangeLive,
};
use shiftboss_protocol::answers::{
    DaemonState, DaemonStatus, Done, EndedRun, FetcherRecord, FetcherStatus, GroupCount,
    GroupState, HeldBy, HoldRule, Holding, NotStopped, QueueStatus, RejectedFile, RelayStatus,
    Rows, Waiting,
};

use super::health::{Severity, Snapshot, Unknown, Up};
use super::status::{held_as_whole, render};
use crate::lock::LockState;
use crate::stores::Database;
use crate::target::Target;

const NOW: i64 = 1_000_003_700;

fn held(worker: Option<&str>, since: i64) -> Holding {
    let worker = worker.map(str::to_owned);
    Holding { worker, key: "x".to_owned(), since, ..Holding::default() }
}

fn queue() -> QueueStatus {
    QueueStatus {
        schema_version: 5,
        durability: Some("power".to_owned()),
        policy: Some("fair".to_owned()),
        lease_seconds: Some(43_200),
        paused: true,
        dead_letters: 1,
        failed: 3,
        single_tasks: 5,
        single_tasks_ended: 3,
        held: 2,
        delayed: 1,
        bumped: 1,
        max_single_tasks: Some(5),
        holders: vec![
            held(None, 1_000_000_000),
            held(Some("builder-3"), 1_000_003_400),
            held(Some("builder-3"), 1_000_003_500),
        ],
        rows: Rows { pending: 3, dispatched: 4, in_flight: 2, leased: 1, redelivered: 1 },
        fetchers: vec![FetcherStatus {
            name: "repology".to_owned(),
            run: 1_000_000_000,
            complete: true,
            lines: 7,
            pending: 3,
            skipped: 1,
            age_seconds: Some(3_700),
            ..FetcherStatus::default()
        }],
        managed_fetchers: vec![FetcherRecord {
            name: "repology".into(),
            state: "running, pending".to_owned(),
            run_started: Some(NOW - 300),
            last_run: Some(EndedRun {
                started: 1_000_003_000,
                ended: 1_000_003_100,
                exit_code: 7,
                message: "the command ended with exit code 7".to_owned(),
            }),
            next_run: Some(1_000_010_000),
        }],
        oldest_waiting: Some(Waiting {
            key: "evil\u{1b}[2J".to_owned(),
            last_started: Some(1_000_003_640),
        }),
        done_last_hour: vec![Done { exit_code: 0, jobs: 5 }, Done { exit_code: 1, jobs: 2 }],
        rejected_files: vec![RejectedFile {
            name: "a.b.txt".to_owned(),
            reason: "no number".to_owned(),
            since: 1_000_003_699,
            daemon: None,
        }],
        directory_lost_since: Some(1_000_003_690),
        directory_lost_reason: Some("another directory is at its path".to_owned()),
        not_stopped: Some(NotStopped {
            pid: 711,
            started: 1_000_000_100,
            last_write: Some(1_000_003_400),
        }),
        ..QueueStatus::default()
    }
}

fn live() -> Live {
    let connected = |name: &str, connections, silent_seconds| ConnectedWorker {
        name: name.to_owned(),
        connections,
        silent_seconds,
    };
    Live {
        health: Health {
            in_flight: 2,
            draining: true,
            outage: Some(Outage { since: 1_000_003_580, error: "no space left".to_owned() }),
        },
        workers: vec![connected("builder-3", 2, 7), connected("idle", 1, 3_700)],
        broker: None,
        dropped_log_lines: 17,
        failing: vec![Failing {
            kind: FailingKind::Worker,
            name: "builder-3".to_owned(),
            jobs: 120,
        }],
    }
}

fn snapshot(queue: QueueStatus, live: Live) -> Snapshot {
    let database = Database::File("/var/state.db".into());
    Snapshot {
        at: NOW,
        target: Target { database, daemon: LockState::Free },
        queue,
        live: Ok(Some(live)),
    }
}

#[test]
fn the_table_is_as_documented() {
    let expected = "\
Database        /var/state.db
Daemon          not running: pid 711 ended without a clean stop, last wrote 5m ago, started 1h ago
Rules           fair, lease 12h, durability power
Rows            3 waiting, 2 running (1 of them again, after a lease that expired), 0 ended (3 failed), 1 delayed, 1 dead-lettered
Longest waiting evil\\u{1b}[2J (last run 1m ago)
Last hour       7 jobs ended: 5 success, 2 failure (exit code 1)
Failed          3 tasks: `shiftboss tasks --status failed` lists them
Delayed         1 task: `shiftboss tasks --status delayed` lists them
Held            2 keys: `shiftboss tasks --held` lists them
Bumped          1 key: `shiftboss tasks --next` shows when their turn is
Stopped         no daemon runs, and nothing is handed out
Storage         nothing can be written since 2m ago: no space left
Input           the directory is lost since 10s ago: another directory is at its path
Single tasks    5 kept, and max_single_tasks is 5: `add` is refused until some are done or cancelled
Fetcher repology the command ended with exit code 7 (10m ago)
Rejected        a.b.txt: no number (1s ago)
Draining        nothing is handed out, and the daemon stops at the end of 2 jobs in flight
Paused          nothing is handed out until `shiftboss resume`
Dead letters    1 task lost too many leases: `shiftboss tasks --status dead_letter` lists them
Not done        3 single tasks, kept until `shiftboss retry KEY` or `shiftboss cancel KEY`: `shiftboss tasks --fetcher @tasks` lists them
Worker builder-3 the last 120 jobs failed: `shiftboss log --failed` lists them
Log             17 lines dropped: nobody read the daemon's standard error for a time
Fetcher   run         state     lines  waiting  failed  skipped  dead letters  age    older runs  next run  failed with
repology  1000000000  complete  7      3        0       1        0             1h 1m  0           -         exit code 7
Run by the daemon  state  last run              result                              next run
repology           -      10m ago, took 1m 40s  the command ended with exit code 7  -
Worker     jobs  oldest     connections  last sign of life
(classic)  1     1h 1m ago  -            -
builder-3  2     5m ago     2            7s ago
idle       0     -          1            1h 1m ago
";
    let snapshot = snapshot(queue(), live());
    assert_eq!(render(&snapshot), expected);
    let health = snapshot.health();
    assert_eq!((health.up, health.count(Severity::Error)), (Up::Down, 6));
    let lines: Vec<String> = health.troubles.iter().map(ToString::to_string).collect();
    assert!(
        lines.contains(&"warning: paused: nothing is handed out until `shiftboss resume`".into())
    );
    assert!(lines[1].starts_with("error: storage: nothing can be written since 2m ago"));
    let silent = Snapshot { live: Err(Unknown::Withheld("for others".to_owned())), ..snapshot };
    assert!(render(&silent).contains("\nLive            unknown: for others\n"));
}

/// The worst comes first; where the queue was moved to nothing else counts.
#[test]
fn the_worst_is_above_all() {
    let mut snapshot = snapshot(queue(), live());
    let mut expect = |change: fn(&mut Snapshot), subject: &str| {
        change(&mut snapshot);
        assert_eq!(snapshot.health().banner().map_or("", |it| &*it.subject), subject);
    };
    expect(|it| it.queue.moved_to = Some("/other".to_owned()), "moved");
    expect(|it| it.queue.moved_to = None, "stopped");
    expect(|it| it.target.daemon = LockState::Unknown("no right"), "storage");
    expect(|it| it.live = Err(Unknown::Silent("timeout".to_owned())), "daemon");
    expect(|it| it.live = Ok(None), "input");
    expect(|it| it.queue.directory_lost_since = None, "paused");
    expect(|it| it.queue.paused = false, "");
}

/// A daemon that does not answer serves nobody; one that this user may not ask does, as far as he can know.
#[test]
fn who_is_silent_serves_nobody() {
    let daemons = vec![daemon("alpha", DaemonState::Running, 60, &[], 0)];
    let mut snapshot = snapshot(QueueStatus { daemons, ..queue() }, live());
    snapshot.target.daemon = LockState::Unknown("no right");
    let mut serves = |live| {
        snapshot.live = live;
        snapshot.is_served()
    };
    assert!(serves(Ok(None)) && serves(Err(Unknown::Withheld("for others".to_owned()))));
    assert!(!serves(Err(Unknown::Silent("timeout".to_owned()))));
}

/// Who asks for held keys learns of rules and groups, too.
#[test]
fn what_is_held_as_a_whole() {
    let of = |state, groups| GroupCount { state, groups, waiting: 9 };
    let mut queue = queue();
    queue.groups = vec![of(GroupState::Held, 0), of(GroupState::Full, 3)];
    assert_eq!(held_as_whole(&queue, NOW), "");
    queue.groups[0].groups = 2;
    queue.hold_rules = vec![HoldRule {
        rule: HeldBy::Prefix,
        of: "https://a.org/".to_owned(),
        since: NOW - 60,
        until: None,
        reason: String::new(),
        by: "eve".to_owned(),
    }];
    let expected = "\
Hold rules      1: prefix https://a.org/, 1m ago by eve, until it is unheld
Held groups     2 groups: `shiftboss groups` lists them
";
    assert_eq!(held_as_whole(&queue, NOW), expected);
}

/// Whatever somebody wrote into the counts and the notes of fetchers.
#[test]
fn nonsense_is_shown_as_something() {
    for (one, other) in [(i64::MIN, i64::MAX), (i64::MAX, i64::MIN)] {
        let mut queue = queue();
        queue.rows.dispatched = one;
        (queue.rows.in_flight, queue.dead_letters) = (other, other);
        queue.done_last_hour.iter_mut().for_each(|done| done.jobs = one);
        let fetcher = &mut queue.managed_fetchers[0];
        (fetcher.run_started, fetcher.next_run) = (Some(one), Some(other));
        let message = "\u{1b}[2J\n".repeat(1_000);
        fetcher.last_run = Some(EndedRun { started: one, ended: other, exit_code: 255, message });
        let text = render(&snapshot(queue, live()));
        assert!(text.contains(" ended") && !text.contains('\u{1b}'), "{text}");
    }
}

fn daemon(
    name: &str,
    state: DaemonState,
    since: i64,
    fetchers: &[&str],
    in_flight: i64,
) -> DaemonStatus {
    DaemonStatus {
        name: name.to_owned(),
        state,
        since: NOW - since,
        version: "0.1.0".to_owned(),
        host: (state != DaemonState::Stopped).then(|| "mill".to_owned()),
        pid: (state == DaemonState::Running).then_some(711),
        input_dir: Some("/srv/in".to_owned()),
        socket: None,
        fetchers: fetchers.iter().map(|name| (*name).to_owned()).collect(),
        in_flight,
        went_back: (state == DaemonState::Draining).then_some(NOW - 10),
    }
}

/// Daemons of a server and relays, to the letter: those that are gone for long may be forgotten.
#[test]
fn those_who_take_part_are_as_documented() {
    let relay = |name: &str, gone, joined: i64| RelayStatus {
        name: name.to_owned(),
        joined_since: NOW - joined,
        gone,
        silent: name == "three",
        directory_lost_since: Some(NOW - 30),
        directory_lost_reason: Some("gone\u{7}".to_owned()),
        rejected_files: 2,
        in_flight: 3,
        fetchers: vec!["f".to_owned(), "g".to_owned()],
    };
    let range = |range, messages, consumers| RangeLive { range, messages, consumers };
    let broker = BrokerLive {
        url: "amqp://u@h".to_owned(),
        connected: true,
        relays: vec![HeardRelay { name: "one".to_owned(), silent_seconds: 2 }],
        requests: Some(1),
        dead_letters: Some(4),
        ranges: vec![range(3, 7, 1), range(10, 0, 0), range(14, 5, 1)],
    };
    let queue = QueueStatus {
        daemons: vec![
            daemon("alpha", DaemonState::Running, 7_200, &["links", "notes"], 16),
            daemon("bravo", DaemonState::Silent, 18_000, &["repology"], 0),
            daemon("charlie\u{1b}", DaemonState::Stopped, 60, &[], 0),
            daemon("delta", DaemonState::Draining, 30, &[], 2),
        ],
        relays: vec![relay("one", false, 60), relay("two", true, 3_700), relay("three", true, 60)],
        ..QueueStatus::default()
    };
    let live = Live { workers: live().workers, broker: Some(broker), ..Live::default() };
    let snapshot = snapshot(queue, live);
    let text = render(&snapshot);
    let expected = "\
Broker          amqp://u@h: 1 request of relays wait
Ranges          3; 12 messages with rows wait: 7 in 03, 5 in 0e; NOBODY TAKES 1 OF THEM
Daemon          not running at this socket; 2 of 4 running
Daemon          bravo has not been heard of for 5h, and was not stopped
Relay one       its input directory is lost since 30s ago: gone\\u{7}
Relay one       2 files left out; its log says why
Relay three     it is silent, and was not stopped: start it again, or forget it (`shiftboss forget --daemon three`)
Broker          refused 4 messages: `shiftboss broker dead-letters` shows what, and why
Daemon         state             version  jobs  fetchers      where
alpha          running for 2h    0.1.0    16    links, notes  pid 711 on mill:/srv/in
bravo          SILENT for 5h     0.1.0    0     repology      mill:/srv/in
charlie\\u{1b}  stopped 1m ago    0.1.0    0     -             -
delta          draining for 30s  0.1.0    2     -             mill:/srv/in
delta found 10s ago that the queue went back to an older state than it had written: what happened between is done again.
bravo is gone for good? `shiftboss forget --daemon bravo` takes its lists out of the queue, and frees its fetchers.
Relay  state                           jobs  fetchers
one    heard of 2s ago, joined 1m ago  3     f, g
two    gone, joined 1h 1m ago          3     f, g
three  SILENT, joined 1m ago           3     f, g
two is gone for good? `shiftboss forget --daemon two` takes its lists out of the queue, and frees its fetchers.
three is gone for good? `shiftboss forget --daemon three` takes its lists out of the queue, and frees its fetchers.
";
    assert!(text.contains(expected), "{text}");
    assert_eq!(snapshot.up(), Up::OthersOnly);
}
