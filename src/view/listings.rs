//! What is listed of keys and their attempts: one builder a listing, from what a reader answers to a [`Table`]. Commands, pages and
//! `top` show the same one; the JSON object is the answer itself. Pure. Of fetchers and machines: [`machines`](super::machines).

use std::collections::HashSet;

use super::key::{held_for, row_state};
use super::question::Turns;
use super::table::{Attempt, Cell, Column, Kind, Row, Table, Tone, column, number, table, text};
use crate::stores::outcome_words::{in_words, of_code};
use crate::text::{TEXT_WIDTH, ago, cut, span, time, took};
use shiftboss_protocol::answers::{
    Ended, Found, GroupRow, GroupState, Groups, HeldKey, HeldKeys, Holding, KeyRow, KnownKey, Next,
    Queue, QueueStatus, Stats, StatsGroup, Task, TaskStatus, Tasks,
};
use shiftboss_queue::waits;

/// Keys that are held, as far as they are known: marked wherever they are listed.
pub type HeldSet<'a> = HashSet<&'a str>;

const NEXT: &[Column] = &[
    text("key", 0, 12),
    number("place", 1),
    column("last run", 2),
    column("expected", 4),
    text("fetcher", 3, 8),
    number("run", 6),
    text("payload", 5, 10),
];
const TASKS: &[Column] = &[
    text("key", 0, 12),
    column("status", 1),
    text("fetcher", 3, 8),
    column("since", 2),
    column("due", 1),
    text("reason", 1, 10),
];
const HELD: &[Column] = &[
    text("key", 0, 12),
    column("held", 1),
    column("since", 2),
    text("by", 4, 6),
    text("reason", 3, 10),
];
const GROUPS: &[Column] = &[
    text("group", 0, 12),
    column("state", 1),
    column("opens", 1),
    number("waiting", 1),
    number("in flight", 2),
    text("reason", 3, 10),
];
const IN_FLIGHT: &[Column] = &[
    text("key", 0, 12),
    text("worker", 2, 8),
    number("attempt", 4),
    column("since", 1),
    column("lease", 3),
    text("daemon", 5, 6),
];
const LOG: &[Column] = &[
    text("key", 0, 12),
    column("outcome", 1),
    column("ended", 2),
    number("took", 3),
    text("worker", 4, 8),
    text("fetcher", 5, 8),
    number("attempt", 6),
];
const FOUND: &[Column] = &[text("key", 0, 12), column("last run", 1), column("outcome", 1)];
const ROWS: &[Column] = &[
    text("fetcher", 0, 8),
    number("run", 1),
    column("file", 2),
    column("row", 1),
    text("payload", 3, 10),
];
const STATS: &[Column] = &[
    text("group", 0, 8),
    number("jobs", 1),
    number("success", 1),
    number("failure", 1),
    number("timeout", 1),
    number("released", 2),
    number("undone", 2),
    number("expired", 2),
    number("cancelled", 2),
    number("took", 2),
    number("cycle time", 2),
];

fn of_key(key: &str, cells: Vec<Cell>) -> Row {
    Row { id: key.to_owned(), key: Some(key.to_owned()), cells, ..Row::default() }
}

fn key(key: &str, held: &HeldSet<'_>) -> Cell {
    let cell = Cell::key(key);
    if !held.contains(key) {
        return cell;
    }
    Cell { text: cell.text + " (held)", tone: Tone::Warning, ..cell }
}

fn payload(payload: &str) -> Cell {
    Cell::outside(payload).of(Kind::Payload(payload.to_owned()))
}

/// The next jobs, in the order in which they would be handed out.
pub fn next(queue: &Queue, turns: &Turns, now: i64) -> Table {
    // Those of closed groups have no place: others overtake them.
    let mut before = 0;
    let row = |next: &Next| {
        let closed = next.group.as_ref().and_then(|it| waits::closed(it, now));
        let place = closed.is_none().then_some(before);
        before += usize::from(closed.is_none());
        let last = Cell::optional(next.last_started, |at| ago(now.saturating_sub(at)));
        let last = if next.last_started.is_none() { Cell::word("never") } else { last };
        let lost = if next.again { ", lease expired" } else { "" };
        let ahead = if next.bumped { ", ahead" } else { "" };
        let cells = vec![
            Cell::key(&next.key),
            Cell::optional(place.map(number_of), |number| number.to_string()),
            Cell { text: last.text.clone() + lost + ahead, ..last },
            expected(turns, place, closed),
            Cell::fetcher(&next.fetcher),
            Cell::number(next.run),
            payload(&next.payload),
        ];
        of_key(&next.key, cells)
    };
    table("Next jobs", NEXT, "Nothing can be handed out now.", queue.keys.iter().map(row))
}

/// The place behind so many others.
fn number_of(before: usize) -> i64 {
    i64::try_from(before).unwrap_or(i64::MAX).saturating_add(1)
}

/// When its turn comes, or why there is none.
fn expected(turns: &Turns, place: Option<usize>, closed: Option<String>) -> Cell {
    let seconds = place.and_then(|before| turns.seconds(before));
    let closed = closed.map(|closed| format!("group {closed}"));
    let words = place.map(|before| turns.words(before)).or(closed).unwrap_or_default();
    Cell { value: seconds, ..Cell::word(words) }
}

/// Tasks, each with its status unless one was asked for; those that are delayed with when they are due.
pub fn tasks(found: &Tasks, held: &HeldSet<'_>, now: i64) -> Table {
    let row = |task: &Task| {
        let left = task.due.map(|due| due.saturating_sub(now).max(0));
        let due = match left {
            Some(0) => "now".to_owned(),
            Some(left) => format!("in {}", span(left)),
            None => String::new(),
        };
        let cells = vec![
            key(&task.key, held),
            Cell::word(if found.status.is_some() { "" } else { status(task.status) }),
            Cell::fetcher(&task.fetcher),
            Cell::since(task.since, now),
            Cell { value: left, ..Cell::word(due) },
            Cell::words(&task.reason),
        ];
        let attempt = |since| Attempt { key: task.key.clone(), started: since, number: None };
        let id = format!("{} {} {}", task.key, task.fetcher, task.run);
        Row { id, attempt: task.since.map(attempt), ..of_key(&task.key, cells) }
    };
    let none = match found.status {
        Some(_) => "No task has that status.",
        None => "No task waits, runs or ended badly.",
    };
    table("Tasks", TASKS, none, found.tasks.iter().map(row))
}

fn status(status: TaskStatus) -> &'static str {
    match status {
        TaskStatus::Waiting => "waiting",
        TaskStatus::InFlight => "in flight",
        TaskStatus::Delayed => "delayed",
        TaskStatus::Failed => "failed",
        TaskStatus::DeadLetter => "dead letter",
    }
}

pub fn held(found: &HeldKeys, now: i64) -> Table {
    let row = |HeldKey { key, hold }: &HeldKey| {
        let cells = vec![
            Cell::key(key),
            Cell { value: hold.until, ..Cell::word(held_for(hold, now)) },
            Cell::since(Some(hold.since), now),
            Cell::outside(&hold.by),
            Cell::words(&hold.reason),
        ];
        of_key(key, cells)
    };
    table("Held keys", HELD, "No key is held.", found.keys.iter().map(row))
}

/// Groups, closed ones first.
pub fn groups(found: &Groups, now: i64) -> Table {
    let row = |it: &GroupRow| {
        let tone = if it.state == GroupState::Held { Tone::Warning } else { Tone::Plain };
        let cells = vec![
            Cell::group(&it.group),
            Cell { tone, ..Cell::word(it.state.word()) },
            Cell::optional(it.opens, |at| waits::until(at, now)),
            Cell::number(it.waiting),
            Cell::number(it.in_flight),
            Cell::words(&it.reason),
        ];
        Row { id: it.group.clone(), group: Some(it.group.clone()), cells, ..Row::default() }
    };
    table("Groups", GROUPS, "There are no groups.", found.groups.iter().map(row))
}

/// Jobs in flight, the one that is so for longest first.
pub fn in_flight(queue: &QueueStatus, held: &HeldSet<'_>, now: i64) -> Table {
    let row = |job: &Holding| {
        let cells = vec![
            key(&job.key, held),
            job.worker.as_deref().map_or(Cell::word("(classic)"), Cell::outside),
            Cell::optional(job.attempt, |attempt| attempt.to_string()),
            Cell::since(Some(job.since), now),
            Cell::seconds(job.lease_seconds.or(queue.lease_seconds)),
            job.daemon.as_deref().map_or(Cell::word(""), Cell::outside),
        ];
        let attempt = Attempt { key: job.key.clone(), started: job.since, number: job.attempt };
        Row { attempt: Some(attempt), ..of_key(&job.key, cells) }
    };
    table("In flight", IN_FLIGHT, "Nothing is in flight.", queue.holders.iter().map(row))
}

pub fn log(attempts: &[Ended], held: &HeldSet<'_>, now: i64) -> Table {
    let row = |ended: &Ended| {
        let ms = ended.took_ms.unwrap_or(ended.duration_seconds.saturating_mul(1_000));
        let took = Cell::word(took(ended.took_ms, ended.duration_seconds));
        let cells = vec![
            key(&ended.key, held),
            Cell::outcome(&ended.outcome, in_words(&ended.outcome, ended.exit_code)),
            Cell::since(Some(ended.finished), now),
            Cell { value: Some(ms), ..took },
            Cell::name(ended.worker.as_deref()),
            ended.fetcher.as_deref().map_or(Cell::word("-"), Cell::fetcher),
            Cell::number(ended.attempt),
        ];
        let number = Some(ended.attempt);
        let attempt = Attempt { key: ended.key.clone(), started: ended.started, number };
        let id = ended.ended.to_string();
        Row { id, attempt: Some(attempt), ..of_key(&ended.key, cells) }
    };
    table("Attempts", LOG, "No such attempt is known.", attempts.iter().map(row))
}

pub fn found(found: &Found, now: i64) -> Table {
    let row = |KnownKey { key, last_started, exit_code }: &KnownKey| {
        let outcome = match (last_started, exit_code) {
            (None, _) => Cell::word("-"),
            (Some(_), None) => Cell::word("in flight"),
            (_, Some(code)) => {
                let word = of_code(*code);
                Cell::outcome(word, in_words(word, Some(*code)))
            }
        };
        let last = match last_started {
            None => Cell::word("never"),
            started => Cell::since(*started, now),
        };
        of_key(key, vec![Cell::key(key), last, outcome])
    };
    table("Keys", FOUND, "No such key is known.", found.keys.iter().map(row))
}

pub fn rows(rows: &[KeyRow]) -> Table {
    let row = |row: &KeyRow| {
        let cells = vec![
            Cell::fetcher(&row.fetcher),
            Cell::number(row.run),
            Cell::word(if row.complete { "complete" } else { "growing" }),
            Cell::word(row_state(row)),
            payload(&row.payload),
        ];
        Row { id: format!("{} {}", row.fetcher, row.run), cells, ..Row::default() }
    };
    table("Lists", ROWS, "No list has this key.", rows.iter().map(row))
}

pub fn stats(stats: &Stats) -> Table {
    let row = |group: &StatsGroup| {
        let StatsGroup { jobs, success, failure, timeout, released, .. } = *group;
        let StatsGroup { undone, expired, cancelled, .. } = *group;
        let counts = [jobs, success, failure, timeout, released, undone, expired, cancelled];
        let mean = Cell::optional(group.mean_ms, |ms| took(Some(ms), 0));
        let mut cells = vec![Cell { value: group.since, ..Cell::word(of(group)) }];
        cells.extend(counts.map(Cell::number));
        cells.extend([mean, Cell::seconds(group.cycle_seconds)]);
        Row { id: of(group), cells, ..Row::default() }
    };
    table("Sums", STATS, "Nothing ended.", stats.groups.iter().map(row))
}

fn of(group: &StatsGroup) -> String {
    let fetcher = |name: &str| match name {
        "" => "(gone)".to_owned(),
        name => cut(name, TEXT_WIDTH),
    };
    match (&group.fetcher, group.since) {
        (Some(name), Some(since)) => format!("{} {}", fetcher(name), time(since)),
        (Some(name), None) => fetcher(name),
        (None, Some(since)) => time(since),
        (None, None) => "all fetchers".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use shiftboss_protocol::answers::{Done, Hold, HoldKind};
    use shiftboss_queue::reader::Grouping;

    use super::*;

    #[test]
    fn the_queue_is_as_documented() {
        let next = |key: &str, last_started, again, payload: &str| Next {
            key: key.to_owned(),
            fetcher: "repology".to_owned(),
            run: 1_700_000_000,
            group: None,
            last_started,
            again,
            bumped: again,
            payload: payload.to_owned(),
        };
        let keys = vec![
            next("alpha", None, false, "1.0 1.1"),
            next("bravo\u{1b}", Some(1_000_000), true, &"x".repeat(90)),
        ];
        let expected = "\
Key          place  last run                      expected  fetcher   run         payload
alpha        1      never                         next      repology  1700000000  1.0 1.1
bravo\\u{1b}  2      1m ago, lease expired, ahead  in 6s     repology  1700000000  XXX...
";
        let status = QueueStatus {
            done_last_hour: vec![Done { exit_code: 0, jobs: 20 }],
            busy_seconds: Some(60),
            ..QueueStatus::default()
        };
        let turns = Turns::of(&status, false);
        let queue = Queue { paused: false, keys, truncated: false };
        let shown = super::next(&queue, &turns, 1_000_060).render();
        assert_eq!(shown, expected.replace("XXX", &"x".repeat(77)));
    }

    #[test]
    fn held_keys_and_tasks_are_as_documented() {
        let hold = |until, reason: &str| Hold {
            kind: HoldKind::Hold,
            since: 1_000_000,
            until,
            reason: reason.to_owned(),
            by: "eve".to_owned(),
        };
        let keys = vec![
            HeldKey { key: "alpha".to_owned(), hold: hold(None, "upstream is down") },
            HeldKey { key: "bravo".to_owned(), hold: hold(Some(1_007_260), "") },
        ];
        let expected = "\
Key    held                since   by   reason
alpha  until it is unheld  1m ago  eve  upstream is down
bravo  for another 2h      1m ago  eve
";
        assert_eq!(held(&HeldKeys { keys, truncated: true }, 1_000_060).render(), expected);
        let task = Task {
            status: TaskStatus::Delayed,
            key: "alpha".to_owned(),
            fetcher: "@tasks".to_owned(),
            run: 7,
            since: Some(1_000_000),
            reason: "failure 1; retry 1".to_owned(),
            due: Some(1_000_090),
        };
        let status = Some(TaskStatus::Delayed);
        let mut tasks = Tasks { status, tasks: vec![task], truncated: false };
        let expected = "\
Key           fetcher  since   due     reason
alpha (held)  @tasks   1m ago  in 30s  failure 1; retry 1
";
        assert_eq!(super::tasks(&tasks, &HeldSet::from(["alpha"]), 1_000_060).render(), expected);
        tasks.status = None;
        let expected = "\
Key    status   fetcher  since   due     reason
alpha  delayed  @tasks   1m ago  in 30s  failure 1; retry 1
";
        assert_eq!(super::tasks(&tasks, &HeldSet::new(), 1_000_060).render(), expected);
    }

    #[test]
    fn the_log_is_as_documented() {
        let done = Ended {
            ended: 9,
            attempt: 4711,
            key: "alpha".to_owned(),
            fetcher: Some("repology".to_owned()),
            run: 1,
            worker: Some("builder-3".to_owned()),
            started: 1_000_000,
            finished: 1_000_090,
            duration_seconds: 90,
            took_ms: None,
            outcome: "success".to_owned(),
            exit_code: Some(0),
            output: None,
        };
        let failed = Ended {
            attempt: 4710,
            took_ms: Some(1_045),
            outcome: "failure".to_owned(),
            exit_code: Some(139),
            ..done.clone()
        };
        let (fetcher, worker, exit_code) = (None, None, None);
        let outcome = "expired".to_owned();
        let expired = Ended { attempt: 4709, fetcher, worker, outcome, exit_code, ..done.clone() };
        let expected = "\
Key    outcome       ended   took    worker     fetcher   attempt
alpha  success       1m ago  1m 30s  builder-3  repology  4711
alpha  failure SEGV  1m ago  1.045s  builder-3  repology  4710
alpha  expired       1m ago  1m 30s  -          -         4709
";
        let table = log(&[done, failed, expired], &HeldSet::new(), 1_000_150);
        assert_eq!(table.render(), expected);
    }

    #[test]
    fn the_sums_are_as_documented() {
        let group = |fetcher: &str, jobs, cycle_seconds| StatsGroup {
            fetcher: Some(fetcher.to_owned()),
            jobs,
            success: jobs - 3,
            failure: 2,
            timeout: 1,
            mean_ms: Some(9_045),
            cycle_seconds,
            ..StatsGroup::default()
        };
        let groups = vec![group("", 3, None), group("repology", 120, Some(90_000))];
        let sums = Stats { since: 0, by: Grouping::Fetcher, groups, truncated: false };
        let expected = "\
Group     jobs  success  failure  timeout  released  undone  expired  cancelled  took    cycle time
(gone)    3     0        2        1        0         0       0        0          9.045s  -
repology  120   117      2        1        0         0       0        0          9.045s  1day 1h
";
        assert_eq!(stats(&sums).render(), expected);
    }
}
