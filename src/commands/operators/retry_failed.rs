//! `shiftboss retry --failed`: puts failed tasks back, in batches, after saying how many.
//!
//! Which they are it reads in the database; then each is a `RETRY-OF` as any operator's. What failed after
//! the look stays as it is, and what was put back meanwhile is left alone by the daemon.

use std::collections::BTreeSet;
use std::io::{self, IsTerminal, Write};
use std::path::Path;

use shiftboss_actors::store::TasksWith;
use shiftboss_actors::store::answers::TaskStatus;

use crate::cli::{DaemonArguments, FailedOnes};
use crate::client::Session;
use crate::commands::output::print;
use crate::commands::text::counted;
use crate::exit::{ExitCode, Failure};
use crate::target::{self, Target, socket};

/// Tasks that one command puts back at the most.
const TASKS_MAX: usize = 100_000;
/// Requests that are sent before their answers are read.
const BATCH: usize = 200;

pub(super) fn run(daemon: DaemonArguments, failed: &FailedOnes) -> Result<(), Failure> {
    let socket = socket(daemon.socket.clone(), "retry")?;
    let (tasks, count) = tasks_of(&socket, failed)?;
    if !tasks.is_empty() && !failed.yes {
        confirm(&count)?;
    }
    let mut rows = 0;
    for batch in tasks.chunks(BATCH) {
        rows += put_back(&socket, batch, &daemon)?;
    }
    print(if daemon.json {
        let keys: BTreeSet<&str> = tasks.iter().map(|(key, _)| key.as_str()).collect();
        format!("{}\n", serde_json::json!({"keys": keys.len(), "rows": rows}))
    } else {
        format!("Back in the queue: {}.\n", counted(rows, "row"))
    })
}

/// The failed tasks by key and fetcher, and how many there are, in words.
fn tasks_of(
    socket: &Path,
    failed: &FailedOnes,
) -> Result<(Vec<(String, String)>, String), Failure> {
    let target = Target::find(Some(socket.to_owned()), None)?;
    let asked = TasksWith {
        status: TaskStatus::Failed,
        fetcher: failed.fetcher.clone(),
        since: failed.since,
        count: TASKS_MAX,
    };
    let found = target::ask(&target.database, asked)?;
    let count = counted(found.tasks.len(), "failed task");
    let more = if found.truncated { " (there are more: say it again for them)" } else { "" };
    let tasks = found.tasks.into_iter().map(|task| (task.key, task.fetcher));
    let tasks: BTreeSet<(String, String)> = tasks.collect();
    Ok((tasks.into_iter().collect(), format!("{count}{more}")))
}

fn confirm(count: &str) -> Result<(), Failure> {
    if !io::stdin().is_terminal() {
        return Err(Failure::usage(format!("{count} would be put back: say so with --yes")));
    }
    let _ = write!(io::stderr(), "Put {count} back in the queue? [y/N] ");
    let mut answer = String::new();
    let read = io::stdin().read_line(&mut answer);
    match answer.trim() {
        "y" | "Y" | "yes" if read.is_ok() => Ok(()),
        _ => Err(Failure::usage("nothing was put back")),
    }
}

/// Puts the rows of some keys back, each of its fetcher alone; how many there were.
fn put_back(
    socket: &Path,
    tasks: &[(String, String)],
    daemon: &DaemonArguments,
) -> Result<i64, Failure> {
    let requests: String =
        tasks.iter().map(|(key, fetcher)| format!("RETRY-OF {key} {fetcher}\n")).collect();
    let mut session = Session::begin(socket, "retry", &requests, daemon.timeout())?;
    let mut rows = 0;
    for _ in tasks {
        match session.answer() {
            Ok(answer) => rows += answer.object["rows"].as_i64().unwrap_or(0),
            // A key that nobody lists any more needs nothing.
            Err(failure) if failure.code() == ExitCode::BadData => {}
            Err(failure) => return Err(failure),
        }
    }
    Ok(rows)
}
