//! `shiftboss retry --failed`: puts failed tasks back, in batches, after saying how many.
//!
//! Which they are it reads in the database; then each is a `RETRY-OF` as any operator's. What failed after
//! the look stays as it is, and what was put back meanwhile is left alone by the daemon.

use std::collections::BTreeSet;
use std::io::{self, IsTerminal, Write};
use std::path::Path;

use serde_json::Value;
use shiftboss_actors::clock::{Clock, SystemClock};

use super::Session;
use crate::cli::{DaemonArguments, FailedOnes};

use crate::client;
use crate::commands::text::{counted, shown};
use crate::commands::{seconds, target, view_failure};
use crate::exit::{self, ExitCode, Failure};
use crate::stores::sqlite::views::{Asked, TaskStatus, tasks};
use crate::target::socket;

/// Tasks that one command puts back at the most.
const TASKS_MAX: usize = 100_000;
/// Requests that are sent before their answers are read.
const BATCH: usize = 200;

/// Puts the failed tasks back that are meant.
pub(super) fn run(arguments: DaemonArguments, failed: &FailedOnes) -> Result<(), Failure> {
    let socket = socket(arguments.socket.clone(), "retry")?;
    client::check_path(&socket)?;
    let (tasks, count) = tasks_of(&socket, failed)?;
    if !tasks.is_empty() && !failed.yes {
        confirm(&count)?;
    }
    let mut rows = 0;
    for batch in tasks.chunks(BATCH) {
        rows += put_back(&socket, batch, &arguments)?;
    }
    let text = if arguments.json {
        let keys: BTreeSet<&str> = tasks.iter().map(|(key, _)| key.as_str()).collect();
        serde_json::json!({"keys": keys.len(), "rows": rows}).to_string()
    } else {
        format!("Back in the queue: {}.", counted(rows, "row"))
    };
    writeln!(io::stdout(), "{text}").or_else(|error| exit::output_failed(&error))
}

/// The failed tasks by key and fetcher, and how many there are, in words.
fn tasks_of(
    socket: &Path,
    failed: &FailedOnes,
) -> Result<(Vec<(String, String)>, String), Failure> {
    let target = target::find(Some(socket.to_owned()), None)?;
    let asked = Asked {
        status: TaskStatus::Failed,
        fetcher: failed.fetcher.clone(),
        since: failed.since.map(seconds),
        count: TASKS_MAX,
    };
    let found =
        tasks(&target.database, &asked, SystemClock.now()).map_err(|error| view_failure(&error))?;
    let count = counted(i64::try_from(found.tasks.len()).unwrap_or(i64::MAX), "failed task");
    let more = if found.truncated { " (there are more: say it again for them)" } else { "" };
    let tasks = found.tasks.into_iter().map(|task| (task.key, task.fetcher));
    let tasks: BTreeSet<(String, String)> = tasks.collect();
    Ok((tasks.into_iter().collect(), format!("{count}{more}")))
}

fn confirm(count: &str) -> Result<(), Failure> {
    let refused = |text: String| Err(Failure::new(ExitCode::Usage, text));
    if !io::stdin().is_terminal() {
        return refused(format!("{count} would be put back: say so with --yes"));
    }
    let _ = write!(io::stderr(), "Put {count} back in the queue? [y/N] ");
    let mut answer = String::new();
    let read = io::stdin().read_line(&mut answer);
    match answer.trim() {
        "y" | "Y" | "yes" if read.is_ok() => Ok(()),
        _ => refused("nothing was put back".to_owned()),
    }
}

/// Puts the rows of some keys back, each of its fetcher alone; how many there were.
fn put_back(
    socket: &Path,
    tasks: &[(String, String)],
    arguments: &DaemonArguments,
) -> Result<i64, Failure> {
    let deadline = client::deadline(arguments.timeout)?;
    let failed = |error: io::Error| client::no_answer(socket, arguments.timeout, &error);
    let retries: String =
        tasks.iter().map(|(key, fetcher)| format!("\nRETRY-OF {key} {fetcher}")).collect();
    let requests = format!("HEALTH{retries}");
    let (mut session, _) = Session::begin(socket, "retry", &requests, arguments.timeout, deadline)?;
    let mut rows = 0;
    for (key, _) in tasks {
        let line = session.line(deadline).map_err(failed)?.ok_or_else(|| {
            let key = shown(key);
            let text = format!("the daemon closed the connection before {key}: say it again");
            Failure::new(ExitCode::Unavailable, text)
        })?;
        // A key that nobody lists any more needs nothing.
        if !line.starts_with("ERROR unknown ") {
            let answer: Value = serde_json::from_str(&line).map_err(|_| session.refused(&line))?;
            rows += answer["rows"].as_i64().unwrap_or(0);
        }
    }
    Ok(rows)
}
