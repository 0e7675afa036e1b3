//! `shiftboss retry --failed`: puts failed tasks back, in batches, after saying how many.
//!
//! It reads in the database which tasks these are; then each is a `RETRY-OF`, like any operator's. Tasks that failed
//! after the look stay as they are, and the daemon leaves those alone that were put back meanwhile.

use std::collections::BTreeSet;
use std::io::{self, IsTerminal, Write};
use std::path::Path;

use shiftboss_protocol::answers::TaskStatus;
use shiftboss_protocol::model::Key;
use shiftboss_protocol::verbs::{Argument, FetcherName, RetryOf};
use shiftboss_queue::operation::HOLDS_MAX;
use shiftboss_queue::reader::TasksWith;

use crate::cli::{DaemonArguments, FailedOnes};
use crate::client::{BATCH_BYTES, Session};
use crate::commands::printing::print;
use crate::exit::{ExitCode, Failure};
use crate::stores::Database;
use crate::target;
use crate::text::counted;

/// Most tasks that one command puts back.
const TASKS_MAX: usize = 100_000;
/// Most requests that are sent before their answers are read, within [`BATCH_BYTES`].
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
        format!("Back in the queue: {}{}.\n", counted(rows, "task"), left_alone(held))
    })
}

/// The message that the keys of this many tasks are held.
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
    // An invalid key in the database would make another request of this.
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

/// Puts the rows of these keys back, each for its fetcher alone; returns how many there were. Requests that a daemon
/// did not answer after too many refusals are repeated on another connection.
fn put_back(
    socket: &Path,
    mut tasks: &[RetryOf],
    daemon: &DaemonArguments,
) -> Result<u64, Failure> {
    let mut rows = 0;
    while !tasks.is_empty() {
        let batch = &tasks[..batch(tasks)];
        let mut session = Session::begin(socket, batch, daemon.timeout())?;
        let (mut answered, mut refused) = (0, 0);
        while answered < batch.len() && refused < REFUSALS_MAX {
            match session.answer::<RetryOf>() {
                Ok(answer) => rows += answer.object.rows,
                // A key that is no longer listed needs nothing.
                Err(failure) if failure.code() == ExitCode::BadData => refused += 1,
                Err(failure) => return Err(failure),
            }
            answered += 1;
        }
        tasks = &tasks[answered..];
    }
    Ok(rows)
}

/// How many of these go into the next batch.
fn batch(tasks: &[RetryOf]) -> usize {
    let bytes = |task: &RetryOf| task.key.as_str().len();
    let sums = tasks.iter().scan(0, |sum, task| {
        *sum += bytes(task);
        Some(*sum)
    });
    sums.take(BATCH).take_while(|sum| *sum <= BATCH_BYTES).count().max(1).min(tasks.len())
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::os::unix::net::UnixListener;
    use std::thread;

    use super::*;

    /// So few long keys are sent at once that neither side waits for the other's answers to be read.
    #[test]
    fn long_keys_go_in_small_batches() {
        let task = |length| RetryOf {
            key: Key::stored(&"k".repeat(length)),
            fetcher: FetcherName::read("f").unwrap(),
        };
        for (length, expected) in [(1, 200), (4_096, 8), (BATCH_BYTES, 1)] {
            assert_eq!(batch(&vec![task(length); 300]), expected);
        }
        assert_eq!(batch(&[task(1)]), 1);
    }

    /// A daemon closes a connection after ten refusals. Unanswered requests are repeated on the next one.
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
