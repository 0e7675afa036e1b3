//! The status as text for people. Pure: from what was found to lines.

use std::collections::{BTreeMap, BTreeSet};

use shiftboss_actors::live::{Live, LiveStatus};
use shiftboss_queue::answers::{FetcherStatus, HOLDERS_MAX, QueueStatus, Waiting};
use shiftboss_queue::sums::total;

use super::trouble;
use super::{daemons, managed_fetchers, relays};
use crate::live::Unknown;
use crate::lock::LockState;
use crate::stores::Database;
use crate::target::{Target, line as hint};
use crate::text::{CELL_WIDTH_MAX, ago, columns, counted, cut, line, shown, span};
use crate::up::Up;

pub(super) fn render(
    target: &Target,
    status: &LiveStatus,
    unknown: Option<&Unknown>,
    now: i64,
) -> String {
    let LiveStatus { queue, live } = status;
    let database = target.database.to_string();
    let how = |status| format!("{} lists", hint(format_args!("tasks --status {status}")));
    let dead_letters = (queue.dead_letters > 0)
        .then(|| format!("{}: {} them", queue.dead_letters, how("dead_letter")));
    let lines = [
        ("Database", Some(shown(&database))),
        ("Daemon", Some(daemon(target, queue, now))),
        ("Moved", trouble::moved(queue)),
        ("Rules", Some(rules(target, queue))),
        ("Rows", Some(rows(queue))),
        ("Longest waiting", Some(oldest(queue, now))),
        ("Last hour", Some(last_hour(queue))),
        (
            "Failed",
            failed(queue).map(|tasks| format!("{tasks}: {} those that failed", how("failed"))),
        ),
        ("Dead letters", dead_letters),
        ("Delayed", delayed(queue)),
        ("Held", held(queue.held, "key")),
        ("Backed off", held(queue.backed_off, "key that fails")),
        ("Bumped", bumped(queue)),
        ("Single tasks", trouble::no_room(queue)),
        ("Paused", queue.paused.then(trouble::paused)),
        ("Live", unknown.map(ToString::to_string)),
    ];
    let mut out = rendered(lines);
    out += &live.as_ref().map_or_else(String::new, |live| known_to_daemon(live, now));
    out += &rendered([("Input", trouble::lost_directory(queue, "LOST", now))]);
    out += &daemons::render(&queue.daemons, now);
    out += &relays::render(queue, live.as_ref(), now);
    out += &fetchers(&queue.fetchers);
    let runs = !matches!(Up::of(target, queue), Up::Down | Up::OthersOnly);
    out += &managed_fetchers::render(&queue.managed_fetchers, runs, now);
    out += &workers(queue, live.as_ref(), now);
    for rejected in &queue.rejected_files {
        let (name, reason) = (trouble::rejected(rejected, queue), shown(&rejected.reason));
        out += &line(
            "Rejected",
            &format!("{name}: {reason} ({})", ago(now.saturating_sub(rejected.since))),
        );
    }
    out
}

/// What a daemon knows while its queue cannot be looked at.
pub(super) fn render_live(target: &Target, live: &Live, now: i64) -> String {
    let queue = QueueStatus::default();
    let head = [
        ("Database", Some(shown(&target.database.to_string()))),
        ("Daemon", Some(daemon(target, &queue, now))),
    ];
    rendered(head) + &known_to_daemon(live, now) + &workers(&queue, Some(live), now)
}

fn rendered<const N: usize>(lines: [(&str, Option<String>); N]) -> String {
    lines.into_iter().filter_map(|(name, value)| Some(line(name, &value?))).collect()
}

fn known_to_daemon(live: &Live, now: i64) -> String {
    let draining = live.health.draining.then(|| {
        let jobs = counted(live.health.in_flight, "job");
        format!("waits for the end of {jobs}; then the daemon stops")
    });
    let dropped = (live.dropped_log_lines > 0).then(|| {
        let lines = counted(live.dropped_log_lines, "line");
        format!("{lines} dropped: nobody read the daemon's standard error for a time")
    });
    rendered([
        ("Storage", trouble::outage(Some(live), "NOTHING CAN BE WRITTEN", now)),
        ("Draining", draining),
        ("Log", dropped),
        ("Spool", trouble::lost_spool(live)),
        ("Spool", trouble::dead_entries(live)),
    ])
}

fn bumped(queue: &QueueStatus) -> Option<String> {
    let keys = counted(queue.bumped, "key");
    let show = || format!("{keys}: {} shows when their turn is", hint("tasks --next"));
    (queue.bumped > 0).then(show)
}

fn delayed(queue: &QueueStatus) -> Option<String> {
    let tasks = counted(queue.delayed, "task");
    let list = || format!("{tasks}: {} lists them", hint("tasks --status delayed"));
    (queue.delayed > 0).then(list)
}

fn held(keys: i64, what: &str) -> Option<String> {
    let counted = counted(keys, what);
    (keys > 0).then(|| format!("{counted}: {} lists them", hint("tasks --held")))
}

/// Single tasks that do not go on by themselves.
fn failed(queue: &QueueStatus) -> Option<String> {
    let are = match queue.single_tasks_ended {
        ..=0 => return None,
        1 => "is a dead letter",
        _ => "are dead letters",
    };
    Some(format!("{} failed or {are}", counted(queue.single_tasks_ended, "single task")))
}

/// Its daemons are known without a lock of theirs.
pub(super) fn is_on_server(target: &Target) -> bool {
    matches!(target.database, Database::Server(_))
}

pub(super) fn daemon(target: &Target, queue: &QueueStatus, now: i64) -> String {
    match &target.daemon {
        LockState::By(holder) => {
            let started = i64::try_from(holder.started).unwrap_or(now);
            format!(
                "running, pid {}, socket {}, started {}",
                holder.pid,
                shown(&holder.socket.display().to_string()),
                ago(now.saturating_sub(started))
            )
        }
        LockState::Unknown(_) if is_on_server(target) => daemons::summary(&queue.daemons),
        LockState::Unknown(why) => format!("whether one runs is not known: {why}"),
        LockState::Free if is_on_server(target) => {
            format!("not running at this socket; {}", daemons::summary(&queue.daemons))
        }
        LockState::Free => queue.not_stopped.map_or("not running".to_owned(), |died| {
            let wrote = |last| format!(", last wrote {}", ago(now.saturating_sub(last)));
            let wrote = died.last_write.map_or(String::new(), wrote);
            format!(
                "not running: pid {} ended without a clean stop{wrote}, started {}",
                died.pid,
                ago(now.saturating_sub(died.started))
            )
        }),
    }
}

fn rules(target: &Target, queue: &QueueStatus) -> String {
    let (Some(policy), Some(durability)) = (&queue.policy, &queue.durability) else {
        let version = queue.schema_version;
        if is_on_server(target) {
            return "no daemon has used it yet: start `shiftboss serve` on it".to_owned();
        }
        return format!(
            "database of version {version}, not yet taken over: start `shiftboss serve` on it"
        );
    };
    let lease =
        queue.lease_seconds.map_or(String::new(), |seconds| format!(", lease {}", span(seconds)));
    format!("{policy}{lease}, durability {durability}")
}

fn rows(queue: &QueueStatus) -> String {
    let rows = &queue.rows;
    let again = match rows.redelivered {
        0 => String::new(),
        again => format!(" ({again} of them again, after a lease that expired)"),
    };
    let dead_letters = match queue.dead_letters {
        0 => String::new(),
        dead => format!(", {dead} dead-lettered"),
    };
    // Every row that was handed out is counted as dispatched.
    let ended =
        rows.dispatched.saturating_sub(rows.in_flight).saturating_sub(queue.dead_letters).max(0);
    format!(
        "{} waiting, {} running{again}, {ended} ended{dead_letters}",
        rows.pending, rows.in_flight
    )
}

fn oldest(queue: &QueueStatus, now: i64) -> String {
    let named = |waiting: &Waiting| {
        let last = waiting.last_started;
        let run = last.map_or("never run".to_owned(), |at| {
            format!("last run {}", ago(now.saturating_sub(at)))
        });
        format!("{} ({run})", cut(&waiting.key, CELL_WIDTH_MAX))
    };
    match (&queue.oldest_waiting, &queue.longest_wait) {
        (None, _) => "none".to_owned(),
        (Some(next), Some(longest)) if next.last_started.is_none() => {
            format!("{}; of those that ran, {}", named(next), named(longest))
        }
        (Some(next), _) => named(next),
    }
}

fn last_hour(queue: &QueueStatus) -> String {
    if queue.done_last_hour.is_empty() {
        return "no job ended".to_owned();
    }
    let done = queue.done_last_hour.iter();
    let total = total(done.clone().map(|done| done.jobs));
    let codes = done.map(|done| format!("{} with exit code {}", done.jobs, done.exit_code));
    format!("{} ended: {}", counted(total, "job"), codes.collect::<Vec<_>>().join(", "))
}

/// One line a fetcher, in columns as wide as they need to be.
fn fetchers(fetchers: &[FetcherStatus]) -> String {
    if fetchers.is_empty() {
        return "No fetcher has a run.\n".to_owned();
    }
    let row = |fetcher: &FetcherStatus| {
        [
            shown(&fetcher.name),
            fetcher.run.to_string(),
            if fetcher.complete { "complete" } else { "growing" }.to_owned(),
            fetcher.lines.to_string(),
            fetcher.pending.to_string(),
            fetcher.skipped.to_string(),
            fetcher.age_seconds.map_or("-".to_owned(), span),
            fetcher.older_runs.to_string(),
        ]
    };
    let head = ["Fetcher", "run", "state", "lines", "waiting", "skipped", "age", "older runs"];
    columns(head, fetchers.iter().map(row))
}

#[derive(Default)]
struct Worker<'a> {
    jobs: i64,
    oldest: Option<i64>,
    connected: Option<(u64, u64)>,
    /// Whose jobs it has.
    daemons: BTreeSet<&'a str>,
}

/// One line a worker that holds jobs, or is connected; those of one name are one.
fn workers(
    QueueStatus { holders, daemons, .. }: &QueueStatus,
    live: Option<&Live>,
    now: i64,
) -> String {
    let mut by_name: BTreeMap<Option<&str>, Worker<'_>> = BTreeMap::new();
    for held in holders {
        let worker = by_name.entry(held.worker.as_deref()).or_default();
        worker.jobs += 1;
        worker.oldest = Some(worker.oldest.map_or(held.since, |oldest| oldest.min(held.since)));
        worker.daemons.extend(held.daemon.as_deref().filter(|_| daemons.len() > 1));
    }
    for connected in live.iter().flat_map(|live| &live.workers) {
        let worker = by_name.entry(Some(&connected.name)).or_default();
        worker.connected = Some((connected.connections, connected.silent_seconds));
    }
    if by_name.is_empty() {
        return String::new();
    }
    let row = |(name, worker): (Option<&str>, Worker<'_>)| {
        let or_none = |text: Option<String>| text.unwrap_or("-".to_owned());
        let at: Vec<String> = worker.daemons.iter().map(|daemon| shown(daemon)).collect();
        let at = if at.is_empty() { String::new() } else { format!(" at {}", at.join(", ")) };
        let (connections, seen) = worker.connected.unzip();
        [
            name.map_or("(classic)".to_owned(), shown) + &at,
            worker.jobs.to_string(),
            or_none(worker.oldest.map(|oldest| ago(now.saturating_sub(oldest)))),
            or_none(connections.map(|count| count.to_string())),
            or_none(seen.map(|seconds| ago(i64::try_from(seconds).unwrap_or(i64::MAX)))),
        ]
    };
    let head = ["Worker", "jobs", "oldest", "connections", "last sign of life"];
    let mut out = columns(head, by_name.into_iter().map(row));
    if holders.len() >= HOLDERS_MAX {
        out.push_str(&format!("Only the oldest {HOLDERS_MAX} jobs are counted by worker.\n"));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use shiftboss_actors::live::{ConnectedWorker, Health, Outage, SpoolLive};
    use shiftboss_queue::answers::{Done, Holding, NotStopped, RejectedFile, Rows};
    use shiftboss_queue::answers::{EndedRun, FetcherRecord};

    fn connected(name: &str, connections: u64, silent_seconds: u64) -> ConnectedWorker {
        ConnectedWorker { name: name.to_owned(), connections, silent_seconds }
    }

    fn held(worker: Option<&str>, since: i64) -> Holding {
        let worker = worker.map(str::to_owned);
        let (attempt, lease_seconds, daemon) = (None, None, None);
        Holding { worker, key: "x".to_owned(), attempt, since, lease_seconds, daemon }
    }

    /// A queue in all sorts of trouble.
    fn queue() -> QueueStatus {
        QueueStatus {
            schema_version: 5,
            durability: Some("power".to_owned()),
            policy: Some("fair".to_owned()),
            lease_seconds: Some(43_200),
            paused: true,
            moved_to: Some("postgres://u@h/db".to_owned()),
            dead_letters: 1,
            single_tasks: 5,
            single_tasks_ended: 3,
            held: 2,
            backed_off: 0,
            delayed: 1,
            bumped: 1,
            max_single_tasks: Some(1_000_000),
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
                older_runs: 0,
                dead_letters: 0,
                age_seconds: Some(3_700),
            }],
            managed_fetchers: vec![FetcherRecord {
                name: "repology".into(),
                state: "idle".to_owned(),
                run_started: None,
                last_run: Some(EndedRun {
                    started: 1_000_003_000,
                    ended: 1_000_003_100,
                    exit_code: 0,
                    message: "7 lines".to_owned(),
                }),
                next_run: Some(1_000_010_000),
            }],
            longest_wait: None,
            oldest_waiting: Some(Waiting {
                key: "evil\u{1b}[2J".to_owned(),
                last_started: Some(1_000_003_640),
            }),
            done_since: None,
            busy_seconds: None,
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
            daemons: Vec::new(),
            relays: Vec::new(),
        }
    }

    fn live() -> Live {
        Live {
            health: Health {
                in_flight: 2,
                draining: true,
                outage: Some(Outage { since: 1_000_003_580, error: "no space left".to_owned() }),
            },
            workers: vec![connected("builder-3", 2, 7), connected("idle", 1, 3_700)],
            spool: Some(SpoolLive { path: "/var/a spool".to_owned(), lost: true, dead_letters: 2 }),
            broker: None,
            dropped_log_lines: 17,
        }
    }

    /// Whatever somebody wrote into the counts.
    #[test]
    fn no_count_is_too_large() {
        for (one, other) in [(i64::MIN, i64::MAX), (i64::MAX, i64::MIN)] {
            let mut queue = queue();
            queue.rows.dispatched = one;
            (queue.rows.in_flight, queue.dead_letters) = (other, other);
            queue.done_last_hour.iter_mut().for_each(|done| done.jobs = one);
            assert!(rows(&queue).contains(" ended") && last_hour(&queue).contains(" ended"));
        }
    }

    /// What a user sees, to the letter.
    #[test]
    fn the_table_is_as_documented() {
        let target =
            Target { database: Database::File("/var/state.db".into()), daemon: LockState::Free };
        let expected = "\
Database        /var/state.db
Daemon          not running: pid 711 ended without a clean stop, last wrote 5m ago, started 1h ago
Moved           the queue is in postgres://u@h/db now: use that; no daemon starts on what is left here
Rules           fair, lease 12h, durability power
Rows            3 waiting, 2 running (1 of them again, after a lease that expired), 1 ended, 1 dead-lettered
Longest waiting evil\\u{1b}[2J (last run 1m ago)
Last hour       7 jobs ended: 5 with exit code 0, 2 with exit code 1
Failed          3 single tasks failed or are dead letters: `shiftboss tasks --status failed` lists those that failed
Dead letters    1: `shiftboss tasks --status dead_letter` lists them
Delayed         1 task: `shiftboss tasks --status delayed` lists them
Held            2 keys: `shiftboss tasks --held` lists them
Bumped          1 key: `shiftboss tasks --next` shows when their turn is
Paused          nothing is handed out until `shiftboss resume`
Storage         NOTHING CAN BE WRITTEN since 2m ago: no space left
Draining        waits for the end of 2 jobs; then the daemon stops
Log             17 lines dropped: nobody read the daemon's standard error for a time
Spool           LOST: /var/a spool was removed, moved or replaced, and no task comes from it; put it back, or restart the daemon to use what is there now
Spool           2 entries in dead-letter: `shiftboss spool list '/var/a spool' dead-letter` lists them
Input           LOST since 10s ago: another directory is at its path
Fetcher   run         state     lines  waiting  skipped  age    older runs
repology  1000000000  complete  7      3        1        1h 1m  0
Run by the daemon  state  last run              result       next run
repology           -      10m ago, took 1m 40s  ok: 7 lines  -
Worker     jobs  oldest     connections  last sign of life
(classic)  1     1h 1m ago  -            -
builder-3  2     5m ago     2            7s ago
idle       0     -          1            1h 1m ago
Rejected        a.b.txt: no number (1s ago)
";
        let mut status = LiveStatus { queue: queue(), live: Some(live()) };
        assert_eq!(render(&target, &status, None, 1_000_003_700), expected);
        let trouble = trouble::of(&status, None, 1_000_003_700);
        assert_eq!(
            trouble,
            [
                "moved: the queue is in postgres://u@h/db now: use that; no daemon starts on what is left here",
                "storage: nothing can be written since 2m ago: no space left",
                "input: the directory is lost since 10s ago: another directory is at its path",
                "paused: nothing is handed out until `shiftboss resume`",
                "dead letters: 1 task lost too many leases",
                "spool: LOST: /var/a spool was removed, moved or replaced, and no task comes from it; put it back, or restart the daemon to use what is there now",
                "spool: 2 entries in dead-letter: `shiftboss spool list '/var/a spool' dead-letter` lists them",
                "input: a.b.txt is left out: no number",
            ]
        );
        status.live = None;
        let unknown = Unknown::Withheld("only the daemon's user and root may ask".to_owned());
        let text = render(&target, &status, Some(&unknown), 1_000_003_700);
        assert!(
            text.contains("\nLive            unknown: only the daemon's user and root may ask\n")
        );
    }
}
