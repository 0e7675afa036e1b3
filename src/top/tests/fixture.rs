//! A picture of a queue that has something of everything, and what draws it.

use std::time::Duration;

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use shiftboss_protocol::answers::FetcherRecord;
use shiftboss_protocol::answers::live::{Daemon, DaemonMetrics, Health, Live};
use shiftboss_protocol::answers::metrics::Counted;
use shiftboss_protocol::answers::{
    Ended, FetcherStatus, GroupRow, GroupState, Groups, HeldKey, HeldKeys, Hold, HoldKind, Holding,
    Log, MinuteJobs, Next, Queue, QueueStatus, Rows, Stats, StatsGroup, Task, TaskStatus, Tasks,
    Waiting,
};
use shiftboss_queue::reader::Grouping;

use crate::lock::LockState;
use crate::stores::Database;
use crate::target::Target;
use crate::top::commits::Commits;
use crate::top::draw::draw;
use crate::top::picture::Picture;
use crate::top::plain::as_text;
use crate::top::state::{Abilities, State};
use crate::top::tabs::Tab;
use crate::top::theme::Theme;
use crate::view::health::Snapshot;
use crate::view::question::Listed;

pub const NOW: i64 = 1_795_690_518;
/// Moves the cursor, turns a line around, and hides.
pub const EVIL: &str = "evil\u{1b}[2J\u{202e}\u{200b}";

pub fn live() -> Live {
    let health = Health { in_flight: 3, ..Health::default() };
    Live { health, ..Live::default() }
}

pub fn picture() -> Picture {
    let daemon = Daemon {
        pid: 31_706,
        database: "/var/lib/shiftboss/state.db".into(),
        input_dir: "/srv/in".into(),
        socket: "/run/shiftboss/worker.sock".into(),
        started: NOW.unsigned_abs() - 7_500,
    };
    let counted = Counted { connections: 6, ..Counted::default() };
    let database = Database::File("/var/lib/shiftboss/state.db".into());
    let target = Target { database, daemon: LockState::By(daemon) };
    Picture {
        snapshot: Snapshot { at: NOW, target, queue: queue(), live: Ok(Some(live())) },
        metrics: Some(DaemonMetrics { started: 1, counted, ..DaemonMetrics::default() }),
        commits: Some(Commits { p50: 0.000_61, p99: 0.012_4 }),
        minutes: (0..60)
            .map(|back| MinuteJobs { since: (NOW / 60 - back) * 60, jobs: (back * 7) % 23 })
            .collect(),
        held: held(),
        found: found(),
        detail: None,
    }
}

/// A queue in which nothing ever was.
pub fn empty() -> Picture {
    let tasks = |status| {
        Some(Listed::Tasks(Tasks { status: Some(status), tasks: Vec::new(), truncated: false }))
    };
    let none = || HeldKeys { keys: Vec::new(), truncated: false };
    let found = [
        Some(sums(Vec::new())),
        None,
        Some(Listed::Next(Queue { paused: false, keys: Vec::new(), truncated: false })),
        Some(Listed::Log(Log { attempts: Vec::new(), looked_to: None })),
        tasks(TaskStatus::Delayed),
        Some(Listed::Held(none())),
        tasks(TaskStatus::Failed),
        tasks(TaskStatus::DeadLetter),
        Some(Listed::Groups(Groups::default())),
    ];
    let held = none();
    let mut picture = Picture { metrics: None, commits: None, held, found, ..picture() };
    (picture.snapshot.queue, picture.minutes) = (QueueStatus::default(), Vec::new());
    picture
}

fn queue() -> QueueStatus {
    let fetcher = |name: &str, lines, pending, skipped, complete| FetcherStatus {
        name: name.to_owned(),
        run: 1_795_686_818,
        complete,
        lines,
        pending,
        skipped,
        age_seconds: Some(3_700),
        ..FetcherStatus::default()
    };
    let holding = |worker: Option<&str>, key: &str, attempt, age| Holding {
        worker: worker.map(str::to_owned),
        key: key.to_owned(),
        attempt: Some(attempt),
        since: NOW - age,
        lease_seconds: worker.map(|_| 60),
        daemon: None,
    };
    QueueStatus {
        schema_version: 13,
        durability: Some("power".to_owned()),
        policy: Some("fair".to_owned()),
        lease_seconds: Some(43_200),
        rows: Rows { pending: 24_792, dispatched: 1_714, in_flight: 3, leased: 2, redelivered: 0 },
        dead_letters: 2,
        failed: 5,
        held: 1,
        delayed: 1,
        holders: vec![
            holding(Some("builder-1"), "python3.12-foo", 4_711, 3_700),
            holding(Some("builder-2"), EVIL, 4_713, 15),
            holding(None, "zlib", 4_712, 2),
        ],
        fetchers: vec![
            fetcher("links", 1_200, 1_142, 1, true),
            fetcher(EVIL, 25_306, 23_650, 0, false),
        ],
        managed_fetchers: vec![FetcherRecord {
            name: "links".into(),
            state: "idle".to_owned(),
            next_run: Some(NOW + 3_600),
            ..FetcherRecord::default()
        }],
        longest_wait: Some(Waiting {
            key: "pkg-20970".to_owned(),
            last_started: Some(NOW - 800_000),
        }),
        done_last_hour: vec![shiftboss_protocol::answers::Done { exit_code: 0, jobs: 660 }],
        done_since: Some(NOW - 3_600),
        busy_seconds: Some(3_600),
        ..QueueStatus::default()
    }
}

fn held() -> HeldKeys {
    let reason = "upstream is down".to_owned();
    let hold =
        Hold { kind: HoldKind::Hold, since: NOW - 60, until: None, reason, by: "ann".to_owned() };
    HeldKeys { keys: vec![HeldKey { key: "zlib".to_owned(), hold }], truncated: false }
}

fn sums(groups: Vec<StatsGroup>) -> Listed {
    Listed::Sums(Stats { since: 0, by: Grouping::Fetcher, groups, truncated: false })
}

pub fn delayed(due: i64) -> Option<Listed> {
    let task = Task {
        status: TaskStatus::Delayed,
        key: "python3.12-bar".to_owned(),
        fetcher: "links".to_owned(),
        run: 1,
        since: Some(NOW - 90),
        reason: "failure, exit code 1; retry 1 in 30s".to_owned(),
        due: Some(due),
    };
    let status = Some(TaskStatus::Delayed);
    Some(Listed::Tasks(Tasks { status, tasks: vec![task], truncated: false }))
}

/// Keys that wait, from that number on.
pub fn next(first: i64) -> Option<Listed> {
    let next = |at: i64| Next {
        key: format!("pkg-{at:05}"),
        fetcher: "links".to_owned(),
        run: 1,
        group: None,
        last_started: (at > 2).then_some(NOW - 800_000 + at * 60),
        again: at == 4,
        bumped: false,
        payload: format!("1.0 1.1 https://example.org/package/{at}"),
    };
    let keys = (first..40).map(next).collect();
    Some(Listed::Next(Queue { paused: false, keys, truncated: false }))
}

fn found() -> [Option<Listed>; Tab::ALL.len()] {
    let group = |fetcher: &str, jobs, success| StatsGroup {
        fetcher: Some(fetcher.to_owned()),
        jobs,
        success,
        cycle_seconds: Some(90_000),
        ..StatsGroup::default()
    };
    let ended = |number: i64| Ended {
        ended: number,
        attempt: 4_700 + number,
        key: format!("pkg-{number:05}"),
        fetcher: Some("links".to_owned()),
        run: 1,
        worker: (number % 3 > 0).then(|| "builder-1".to_owned()),
        started: NOW - 100,
        finished: NOW - 1_000 + number * 20,
        duration_seconds: 1,
        took_ms: Some(1_045 * number),
        outcome: ["success", "failure", "expired"][number.unsigned_abs() as usize % 3].to_owned(),
        exit_code: (number % 3 < 2).then_some(139),
        output: None,
    };
    let ended = Log { attempts: (0..30).rev().map(ended).collect(), looked_to: None };
    [
        Some(sums(vec![group(EVIL, 100, 99), group("links", 120, 50)])),
        None,
        next(0),
        Some(Listed::Log(ended)),
        delayed(NOW + 30),
        Some(Listed::Held(held())),
        None,
        None,
        Some(Listed::Groups(groups())),
    ]
}

fn groups() -> Groups {
    let group = |name: &str, state, opens, reason: &str| GroupRow {
        group: name.to_owned(),
        state,
        waiting: 12,
        in_flight: 0,
        opens,
        reason: reason.to_owned(),
    };
    let (held, delayed) = (GroupState::Held, GroupState::Delayed);
    let groups = vec![
        group("host:a.example", held, None, "held by ann: it is down"),
        group("host:b.example", delayed, Some(NOW + 90), "a worker asked for a pause"),
        group("host:c.example", GroupState::Open, None, ""),
    ];
    Groups { counts: Vec::new(), groups, truncated: false }
}

pub fn state(picture: Picture) -> State {
    let abilities = Abilities { may_change: true, has_outputs: true };
    State::new(picture, Duration::from_secs(2), abilities)
}

/// A frame of that size, as text; the state gets its extent.
pub fn frame(state: &mut State, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    let theme = Theme::new(false, false);
    terminal.draw(|frame| state.extent = draw(frame, state, &theme)).unwrap();
    as_text(terminal.backend().buffer())
}
