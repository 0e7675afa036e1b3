//! The status as text for people. Pure: from what was found to lines.

use std::collections::BTreeMap;

use super::own_fetchers;
use crate::commands::text::{CELL_WIDTH_MAX, ago, columns, counted, cut, line, shown, span};
use crate::reports::Target;
use crate::sqlite::views::{HOLDERS_MAX, Holding};
use crate::sqlite::{FetcherStatus, QueueStatus};

/// Renders the whole table; `now` makes times relative.
pub(super) fn render(target: &Target, queue: &QueueStatus, now: i64) -> String {
    let mut out = [
        line("Database", &shown(&target.database.display().to_string())),
        line("Daemon", &daemon(target, now)),
        line("Rules", &rules(queue)),
        line("Rows", &rows(queue)),
        line("Longest waiting", &oldest(queue, now)),
        line("Last hour", &last_hour(queue)),
    ]
    .concat();
    if queue.paused {
        out.push_str(&line("Paused", "nothing is handed out until `shiftboss resume`"));
    }
    if let Some(since) = queue.directory_lost_since {
        let reason = queue.directory_lost_reason.as_deref().map(shown).unwrap_or_default();
        out.push_str(&line("Input", &format!("LOST since {}: {reason}", ago(now - since))));
    }
    out.push_str(&fetchers(&queue.fetchers));
    out.push_str(&own_fetchers::render(&queue.own_fetchers, target.daemon.is_some(), now));
    out.push_str(&workers(&queue.holders, now));
    for aside in &queue.set_aside {
        let (name, reason) = (shown(&aside.name), shown(&aside.reason));
        let text = format!("{name}: {reason} ({})", ago(now - aside.since));
        out.push_str(&line("Set aside", &text));
    }
    out
}

fn daemon(target: &Target, now: i64) -> String {
    match &target.daemon {
        Some(holder) => {
            let started = i64::try_from(holder.started).unwrap_or(now);
            format!(
                "running, pid {}, socket {}, started {}",
                holder.pid,
                shown(&holder.socket.display().to_string()),
                ago(now - started)
            )
        }
        None => "not running".to_owned(),
    }
}

fn rules(queue: &QueueStatus) -> String {
    let (Some(policy), Some(durability)) = (&queue.policy, &queue.durability) else {
        let version = queue.schema_version;
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
    let again = match rows.in_flight_again {
        0 => String::new(),
        again => format!(" ({again} of them again, after a lease that expired)"),
    };
    let parked = match queue.parked {
        0 => String::new(),
        parked => format!(", {parked} parked"),
    };
    // Every row that was handed out is counted as dispatched.
    let ended = (rows.dispatched - rows.in_flight - queue.parked).max(0);
    format!("{} waiting, {} running{again}, {ended} ended{parked}", rows.pending, rows.in_flight)
}

fn oldest(queue: &QueueStatus, now: i64) -> String {
    match &queue.oldest_waiting {
        None => "none".to_owned(),
        Some(waiting) => match waiting.last_started {
            None => format!("{} (never run)", cut(&waiting.key, CELL_WIDTH_MAX)),
            Some(started) => {
                format!("{} (last run {})", cut(&waiting.key, CELL_WIDTH_MAX), ago(now - started))
            }
        },
    }
}

fn last_hour(queue: &QueueStatus) -> String {
    if queue.done_last_hour.is_empty() {
        return "no job ended".to_owned();
    }
    let total: i64 = queue.done_last_hour.iter().map(|done| done.jobs).sum();
    let codes = queue
        .done_last_hour
        .iter()
        .map(|done| format!("{} with exit code {}", done.jobs, done.exit_code));
    format!("{} ended: {}", counted(total, "job"), codes.collect::<Vec<_>>().join(", "))
}

/// One line a fetcher, in columns as wide as they need to be.
fn fetchers(fetchers: &[FetcherStatus]) -> String {
    let head = ["Fetcher", "run", "state", "lines", "waiting", "skipped", "age", "older runs"];
    let mut cells = vec![head.map(str::to_owned)];
    for fetcher in fetchers {
        cells.push([
            shown(&fetcher.name),
            fetcher.run.to_string(),
            if fetcher.complete { "complete" } else { "growing" }.to_owned(),
            fetcher.lines.to_string(),
            fetcher.pending.to_string(),
            fetcher.skipped.to_string(),
            fetcher.age_seconds.map_or("-".to_owned(), span),
            fetcher.older_runs.to_string(),
        ]);
    }
    if fetchers.is_empty() {
        return "No fetcher has a run.\n".to_owned();
    }
    columns(&cells)
}

/// One line a worker that holds jobs; those of one name are one.
fn workers(holders: &[Holding], now: i64) -> String {
    let mut by_name: BTreeMap<Option<&str>, (i64, i64)> = BTreeMap::new();
    for held in holders {
        let (jobs, oldest) = by_name.entry(held.worker.as_deref()).or_insert((0, held.since));
        (*jobs, *oldest) = (*jobs + 1, held.since.min(*oldest));
    }
    if by_name.is_empty() {
        return String::new();
    }
    let mut cells = vec![["Worker", "jobs", "oldest"].map(str::to_owned)];
    for (name, (jobs, oldest)) in by_name {
        let name = name.map_or("(classic)".to_owned(), shown);
        cells.push([name, jobs.to_string(), ago(now - oldest)]);
    }
    let mut out = columns(&cells);
    if holders.len() >= HOLDERS_MAX {
        out.push_str("Only the oldest 1000 jobs are counted by worker.\n");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sqlite::{Aside, Done, OwnFetcher, OwnRun, Rows, Waiting};

    fn held(worker: Option<&str>, since: i64) -> Holding {
        let worker = worker.map(str::to_owned);
        Holding { worker, key: "x".to_owned(), attempt: None, since, lease_seconds: None }
    }

    /// What a user sees, to the letter.
    #[test]
    fn the_table_is_as_documented() {
        let queue = QueueStatus {
            schema_version: 5,
            durability: Some("power".to_owned()),
            policy: Some("fair".to_owned()),
            lease_seconds: Some(43_200),
            paused: true,
            parked: 1,
            holders: vec![
                held(None, 1_000_000_000),
                held(Some("builder-3"), 1_000_003_400),
                held(Some("builder-3"), 1_000_003_500),
            ],
            rows: Rows { pending: 3, dispatched: 4, in_flight: 2, in_flight_again: 1 },
            fetchers: vec![FetcherStatus {
                name: "repology".to_owned(),
                run: 1_000_000_000,
                complete: true,
                lines: 7,
                pending: 3,
                skipped: 1,
                older_runs: 0,
                age_seconds: Some(3_700),
            }],
            own_fetchers: vec![OwnFetcher {
                name: "repology".to_owned(),
                state: "idle".to_owned(),
                run_started: None,
                last_run: Some(OwnRun {
                    started: 1_000_003_000,
                    ended: 1_000_003_100,
                    exit_code: 0,
                    told: "7 lines".to_owned(),
                }),
                next_run: Some(1_000_010_000),
            }],
            oldest_waiting: Some(Waiting {
                key: "evil\u{1b}[2J".to_owned(),
                last_started: Some(1_000_003_640),
            }),
            done_last_hour: vec![Done { exit_code: 0, jobs: 5 }, Done { exit_code: 1, jobs: 2 }],
            set_aside: vec![Aside {
                name: "a.b.txt".to_owned(),
                reason: "no number".to_owned(),
                since: 1_000_003_699,
            }],
            directory_lost_since: Some(1_000_003_690),
            directory_lost_reason: Some("another directory is at its path".to_owned()),
        };
        let target = Target { database: "/var/state.db".into(), daemon: None };
        let expected = "\
Database        /var/state.db
Daemon          not running
Rules           fair, lease 12h, durability power
Rows            3 waiting, 2 running (1 of them again, after a lease that expired), 1 ended, 1 parked
Longest waiting evil\\u{1b}[2J (last run 1m ago)
Last hour       7 jobs ended: 5 with exit code 0, 2 with exit code 1
Paused          nothing is handed out until `shiftboss resume`
Input           LOST since 10s ago: another directory is at its path
Fetcher   run         state     lines  waiting  skipped  age    older runs
repology  1000000000  complete  7      3        1        1h 1m  0
Run by the daemon  state  last run              result       next run
repology           -      10m ago, took 1m 40s  ok: 7 lines  -
Worker     jobs  oldest
(classic)  1     1h 1m ago
builder-3  2     5m ago
Set aside       a.b.txt: no number (1s ago)
";
        assert_eq!(render(&target, &queue, 1_000_003_700), expected);
    }
}
