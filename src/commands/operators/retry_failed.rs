//! `shiftboss retry --failed`: puts failed tasks back, in batches, after saying how many.
//!
//! Which they are it reads in the database; then each is a `RETRY-OF` as any operator's. What failed after
//! the look stays as it is, and what was put back meanwhile is left alone by the daemon.

use std::collections::BTreeSet;
use std::io::{self, IsTerminal, Write};
use std::path::Path;

use shiftboss_protocol::answers::TaskStatus;
use shiftboss_protocol::model::Key;
use shiftboss_protocol::verbs::{Argument, FetcherName, RetryOf};
use shiftboss_queue::operation::HOLDS_MAX;
use shiftboss_queue::reader::TasksWith;

use crate::cli::{DaemonArguments, FailedOnes};
use crate::client::Session;
use crate::commands::printing::print;
use crate::exit::{ExitCode, Failure};
use crate::stores::Database;
use crate::target;
use crate::text::counted;

/// Tasks that one command puts back at most.
const TASKS_MAX: usize = 100_000;
/// Requests that are sent before their answers are read.
const BATCH: usize = 200;
/// After so many refusals the daemon closes a connection.
const REFUSALS_MAX: usize = 10;

pub(super) fn run(daemon: &DaemonArguments, failed: &FailedOnes) -> Result<(), Failure> {
    let socket = daemon.target.socket("retry")?;
    let (tasks, count, held) = tasks_of(&daemon.target.database()?, failed)?;
    if !tasks.is_empty() && !failed.yes && !confirm(&count)? {
        return print("Nothing was put back.\n");
    }
    let rows = put_back(&socket, &tasks, daemon)?;
    print(if daemon.json {
        let keys: BTreeSet<&str> = tasks.iter().map(|task| task.key.as_str()).collect();
        format!("{}\n", serde_json::json!({"keys": keys.len(), "rows": rows, "held": held}))
    } else {
        format!("Back in the queue: {}{}.\n", counted(rows, "row"), left_alone(held))
    })
}

/// Of so many tasks the keys are held.
fn left_alone(held: usize) -> String {
    match held {
        0 => String::new(),
        held => format!(", but for {} of held keys", counted(held, "task")),
    }
}

/// The failed tasks by key and fetcher, how many there are, in words, and how many more have a key that is held.
fn tasks_of(
    database: &Database,
    failed: &FailedOnes,
) -> Result<(Vec<RetryOf>, String, usize), Failure> {
    let asked = TasksWith {
        status: Some(TaskStatus::Failed),
        fetcher: failed.fetcher.clone(),
        since: failed.since,
        count: TASKS_MAX,
    };
    let (mut found, held) = target::ask(database, |reader, now| {
        Ok((reader.tasks(now, &asked)?, reader.held(HOLDS_MAX)?))
    })?;
    let held: BTreeSet<String> = held.keys.into_iter().map(|held| held.key).collect();
    let all = found.tasks.len();
    found.tasks.retain(|task| !held.contains(&task.key));
    let count = counted(found.tasks.len(), "failed task");
    let more = if found.truncated { " (there are more: say it again for them)" } else { "" };
    let left = all - found.tasks.len();
    let tasks = found.tasks.into_iter().map(|task| (task.key, task.fetcher));
    let tasks: BTreeSet<(String, String)> = tasks.collect();
    // What is no key, whoever put it into the database, would be another request.
    let request = |(key, fetcher): (String, String)| {
        Some(RetryOf { key: Key::new(&key).ok()?, fetcher: FetcherName::read(&fetcher)? })
    };
    let tasks = tasks.into_iter().filter_map(request).collect();
    Ok((tasks, format!("{count}{}{more}", left_alone(left)), left))
}

fn confirm(count: &str) -> Result<bool, Failure> {
    if !io::stdin().is_terminal() {
        return Err(Failure::usage(format!("{count} would be put back: say so with --yes")));
    }
    let _ = write!(io::stderr(), "Put {count} back in the queue? [y/N] ");
    let mut answer = String::new();
    let read = io::stdin().read_line(&mut answer);
    Ok(read.is_ok() && matches!(answer.trim(), "y" | "Y" | "yes"))
}

/// Puts the rows of these keys back, each of its fetcher alone; how many there were. What a daemon did not answer
/// because it refused too much before is asked again on another connection.
fn put_back(
    socket: &Path,
    mut tasks: &[RetryOf],
    daemon: &DaemonArguments,
) -> Result<u64, Failure> {
    let mut rows = 0;
    while !tasks.is_empty() {
        let batch = &tasks[..tasks.len().min(BATCH)];
        let mut session = Session::begin(socket, batch, daemon.timeout())?;
        let (mut answered, mut refused) = (0, 0);
        while answered < batch.len() && refused < REFUSALS_MAX {
            match session.answer::<RetryOf>() {
                Ok(answer) => rows += answer.object.rows,
                // A key that nobody lists any more needs nothing.
                Err(failure) if failure.code() == ExitCode::BadData => refused += 1,
                Err(failure) => return Err(failure),
            }
            answered += 1;
        }
        tasks = &tasks[answered..];
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::os::unix::net::UnixListener;
    use std::thread;

    use super::*;

    /// A daemon closes a connection after ten refusals. What was not answered is asked again on the next one.
    #[test]
    fn many_keys_that_are_gone() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("socket");
        let listener = UnixListener::bind(&socket).unwrap();
        let daemon = thread::spawn(move || {
            let mut gone = 12;
            for connection in listener.incoming().take(2) {
                let mut connection = connection.unwrap();
                let mut refused = 0;
                for line in BufReader::new(connection.try_clone().unwrap()).lines() {
                    let answer = match line.unwrap().starts_with("HELLO ") {
                        true => "HELLO 2",
                        false if gone > 0 => {
                            (gone, refused) = (gone - 1, refused + 1);
                            "ERROR unknown gone"
                        }
                        false => r#"{"key":"k","rows":1}"#,
                    };
                    writeln!(connection, "{answer}").unwrap();
                    if refused == 10 {
                        break;
                    }
                }
            }
        });
        let fetcher = FetcherName::read("f").unwrap();
        let task = |n| RetryOf { key: Key::stored(&format!("key{n}")), fetcher: fetcher.clone() };
        let tasks: Vec<_> = (0..15).map(task).collect();
        let arguments =
            DaemonArguments { timeout: None, target: crate::target::Asked::default(), json: false };
        assert_eq!(put_back(&socket, &tasks, &arguments).unwrap(), 3);
        daemon.join().unwrap();
    }
}
