//! `shiftboss drain`: the daemon no longer hands anything out, and stops when no job is in flight.
//!
//! Waits for the close of the connection, and then for the daemon's end, which its lock on the socket shows. On a
//! terminal it shows meanwhile what is still out.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use shiftboss_protocol::answers::Holding;
use shiftboss_protocol::client::{Deadline, is_timeout, within};
use shiftboss_protocol::verbs::{Drain, Status, StatusAnswer};

use super::show;
use crate::cli::DaemonArguments;
use crate::client::Session;
use crate::commands::printing::print;
use crate::exit::{ExitCode, Failure};
use crate::hint::hint;
use crate::lock;
use crate::orders::Said;
use crate::stores::Database;
use crate::target;
use crate::terminal;
use crate::text::{counted, cut, shown};

const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the daemon may take to end once it has closed its connections: it brings its database
/// into one file.
const END_PATIENCE: Duration = Duration::from_secs(30);
const SHOW_EVERY: Duration = Duration::from_secs(1);
const NAMED_MAX: usize = 8;
/// Characters of the line that shows them: a terminal's, so that it can be written over.
const SHOWN_WIDTH: usize = 78;

/// Drains the daemon, and waits until it has gone, at most for the timeout.
pub(super) fn run(daemon: &DaemonArguments) -> Result<(), Failure> {
    let socket = &daemon.target.socket("drain")?;
    let whole = daemon.timeout.and_then(within);
    // If the lock cannot be checked, the note must do: if no daemon runs, none will answer.
    let holder = lock::holder_of(socket).or_else(|| lock::noted(socket));
    let patience = daemon.timeout().min(ANSWER_TIMEOUT);
    let mut session = Session::begin(socket, &[Drain {}], patience)?;
    let answer = session.answer::<Drain>()?;
    show(&answer, daemon.json, answer.object.said())?;
    let shows = terminal::shows_progress();
    let waited = wait_closed(&mut session, whole, shows);
    if shows {
        show_line("");
    }
    if !waited? {
        let waited = humantime::format_duration(daemon.timeout.unwrap_or_default());
        return Err(unavailable(format!(
            "waited {waited}, and jobs are still in flight ({} shows them); the daemon stops when they have \
             ended, or goes on after {}",
            hint("status"),
            hint("resume")
        )));
    }
    let database = holder.as_ref().map(|holder| Database::from(holder.database.clone()));
    if let Some(holder) = holder {
        let patience = at_most(END_PATIENCE, whole).unwrap_or_else(Instant::now);
        if !lock::wait_given_up(socket, holder.pid, patience) {
            return Err(unavailable(
                "the daemon closed the connection, and still runs: see its log",
            ));
        }
    }
    database.as_ref().map_or(Ok(()), require_drained)?;
    if daemon.json { Ok(()) } else { print(gone(database.as_ref())) }
}

fn unavailable(text: impl Into<String>) -> Failure {
    Failure::new(ExitCode::Unavailable, text)
}

fn gone(database: Option<&Database>) -> String {
    match database {
        Some(Database::File(_)) => format!(
            "The daemon has gone. The queue stays paused: once a daemon runs again, {} hands tasks out.\n",
            hint("resume")
        ),
        _ => "The daemon has gone.\n".to_owned(),
    }
}

/// A daemon that was killed, or stopped otherwise, has gone as well. On a server the jobs of other daemons are in flight.
fn require_drained(database: &Database) -> Result<(), Failure> {
    if database.file().is_none() {
        return Ok(());
    }
    let found = target::ask(database, |reader, now| reader.status(now))?;
    if found.holders.is_empty() {
        return Ok(());
    }
    let jobs = counted(found.holders.len(), "job");
    Err(unavailable(format!(
        "the daemon ended otherwise, with {jobs} in flight: start it again (it hands nothing out \
         until {}), and drain it again if it is to stop by itself",
        hint("resume")
    )))
}

/// This time from now on, but no longer than the whole.
fn at_most(time: Duration, whole: Deadline) -> Deadline {
    [within(time), whole].into_iter().flatten().min()
}

/// Waits until the daemon closes, and asks meanwhile how it is; whether it closed in time.
fn wait_closed(session: &mut Session, whole: Deadline, shows: bool) -> Result<bool, Failure> {
    let mut asks = true;
    loop {
        let step = if asks { at_most(SHOW_EVERY, whole) } else { whole };
        match session.connection.line(step) {
            Ok(None) => return Ok(true),
            Ok(Some(line)) => match serde_json::from_str::<StatusAnswer>(&line) {
                Ok(StatusAnswer { live: Some(live), .. }) if !live.health.draining => {
                    return Err(unavailable(
                        "somebody resumed the daemon: it hands jobs out again, and does not stop",
                    ));
                }
                Ok(StatusAnswer { queue: Some(queue), .. }) if shows => {
                    show_line(&holders(&queue.found.holders));
                }
                Ok(_) => {}
                // The daemon does not answer this; too many errors would end the connection.
                Err(_) => asks = false,
            },
            Err(error) if !is_timeout(&error) => return Err(session.no_answer(&error)),
            Err(_) if whole.is_some_and(|end| end <= Instant::now()) => return Ok(false),
            Err(_) => {
                let asked = format!("{}\n", Status {});
                let asked =
                    session.connection.send(asked.as_bytes(), at_most(ANSWER_TIMEOUT, whole));
                asked.map_err(|error| session.no_answer(&error))?;
            }
        }
    }
}

fn holders(holders: &[Holding]) -> String {
    let name = |held: &Holding| {
        format!("{} ({})", shown(&held.key), shown(held.worker.as_deref().unwrap_or("classic")))
    };
    let named: Vec<String> = holders.iter().take(NAMED_MAX).map(name).collect();
    let jobs = counted(holders.len(), "job");
    cut(&format!("{jobs} in flight: {}", named.join(", ")), SHOWN_WIDTH)
}

fn show_line(text: &str) {
    // There may be no reader.
    let _ = write!(io::stderr(), "\r\x1b[K{text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_flight() {
        let held = |key: &str, worker: Option<&str>| Holding {
            key: key.to_owned(),
            worker: worker.map(str::to_owned),
            ..Holding::default()
        };
        let few = [held("alpha", Some("w")), held("b\u{1b}", None)];
        assert_eq!(holders(&few), "2 jobs in flight: alpha (w), b\\u{1b} (classic)");
        let many: Vec<_> = (0..100).map(|n| held(&format!("key{n}"), Some("w"))).collect();
        let line = holders(&many);
        assert_eq!(line.len(), SHOWN_WIDTH);
        assert!(line.starts_with("100 jobs in flight: key0 (w), ") && line.ends_with("..."));
    }
}
