//! The status as text for people. Pure: from what was found to lines.

use std::fmt::Write as _;
use std::time::Duration;

use super::Status;
use crate::sqlite::{FetcherStatus, QueueStatus};

/// Renders the whole table; `now` makes times relative.
pub(super) fn render(status: &Status, now: i64) -> String {
    let mut out = String::new();
    let mut line = |name: &str, value: String| {
        // Writing to a String cannot fail.
        let _ = writeln!(out, "{name:<16}{value}");
    };
    let queue = &status.queue;
    line("Database", shown(&status.database.display().to_string()));
    line("Daemon", daemon(status, now));
    line("Rules", rules(queue));
    line("Rows", rows(queue));
    line("Longest waiting", oldest(queue, now));
    line("Last hour", last_hour(queue));
    if let Some(since) = queue.directory_lost_since {
        line("Input", format!("LOST since {}: the directory is gone", ago(now - since)));
    }
    out.push_str(&fetchers(&queue.fetchers));
    for aside in &queue.set_aside {
        let _ = writeln!(
            out,
            "{:<16}{}: {} ({})",
            "Set aside",
            shown(&aside.name),
            shown(&aside.reason),
            ago(now - aside.since)
        );
    }
    out
}

fn daemon(status: &Status, now: i64) -> String {
    match &status.daemon {
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
        again => format!(" ({again} of them again, their lease ran out)"),
    };
    format!(
        "{} pending, {} dispatched, {} in flight{again}",
        rows.pending, rows.dispatched, rows.in_flight
    )
}

fn oldest(queue: &QueueStatus, now: i64) -> String {
    match &queue.oldest_waiting {
        None => "none".to_owned(),
        Some(waiting) => match waiting.last_started {
            None => format!("{} (never run)", shown(&waiting.key)),
            Some(started) => format!("{} (last run {})", shown(&waiting.key), ago(now - started)),
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
    let jobs = if total == 1 { "job" } else { "jobs" };
    format!("{total} {jobs} ended: {}", codes.collect::<Vec<_>>().join(", "))
}

/// One line a fetcher, in columns as wide as they need to be.
fn fetchers(fetchers: &[FetcherStatus]) -> String {
    let head = ["Fetcher", "run", "state", "lines", "pending", "skipped", "age", "older runs"];
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
    let width =
        |column: usize| cells.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let mut out = String::new();
    for row in &cells {
        let padded = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        out.push_str(padded.collect::<Vec<_>>().join("  ").trim_end());
        out.push('\n');
    }
    out
}

/// A text from outside: control characters cannot move the cursor or forge lines.
fn shown(text: &str) -> String {
    text.chars()
        .flat_map(|c| if c.is_control() { c.escape_default().collect::<Vec<_>>() } else { vec![c] })
        .collect()
}

/// `3m 20s`: a number of seconds in its two largest units.
fn span(seconds: i64) -> String {
    let seconds = u64::try_from(seconds).unwrap_or(0);
    let text = humantime::format_duration(Duration::from_secs(seconds)).to_string();
    text.split(' ').take(2).collect::<Vec<_>>().join(" ")
}

fn ago(seconds: i64) -> String {
    if seconds <= 0 { "just now".to_owned() } else { format!("{} ago", span(seconds)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sqlite::{Aside, Done, Rows, Waiting};

    /// What a user sees, to the letter.
    #[test]
    fn the_table_is_as_documented() {
        let queue = QueueStatus {
            schema_version: 3,
            durability: Some("power".to_owned()),
            policy: Some("fair".to_owned()),
            lease_seconds: Some(43_200),
            paused: false,
            parked: 0,
            holders: Vec::new(),
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
        };
        let status = Status { database: "/var/state.db".into(), daemon: None, queue };
        let expected = "\
Database        /var/state.db
Daemon          not running
Rules           fair, lease 12h, durability power
Rows            3 pending, 4 dispatched, 2 in flight (1 of them again, their lease ran out)
Longest waiting evil\\u{1b}[2J (last run 1m ago)
Last hour       7 jobs ended: 5 with exit code 0, 2 with exit code 1
Input           LOST since 10s ago: the directory is gone
Fetcher   run         state     lines  pending  skipped  age    older runs
repology  1000000000  complete  7      3        1        1h 1m  0
Set aside       a.b.txt: no number (1s ago)
";
        assert_eq!(render(&status, 1_000_003_700), expected);
    }
}
