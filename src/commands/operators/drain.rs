//! `shiftboss drain`: the daemon hands nothing out any more, and stops when no job is in flight.
//!
//! Waits for the close of the connection, and then for the daemon's end: its lock on the socket
//! tells. On a terminal it shows meanwhile what is still out.

use std::io::{self, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;
use shiftboss_actors::clock::{Clock, SystemClock};

use super::session::Session;
use super::{Answer, print};
use shiftboss_protocol::client::Deadline;

use crate::client;
use crate::commands::text::{counted, cut, shown};
use crate::commands::view_failure;
use crate::exit::{ExitCode, Failure};
use crate::lock;
use crate::stores::sqlite::views::queue_status;
use crate::terminal;

/// How long an answer may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the daemon may take to end once it has closed its connections: it brings its database
/// into one file.
const END_PATIENCE: Duration = Duration::from_secs(30);
/// How often what is in flight is shown.
const SHOW_EVERY: Duration = Duration::from_secs(1);
const NAMED_MAX: usize = 8;
/// Characters of the line that shows them: a terminal's, so that it can be written over.
const SHOWN_WIDTH: usize = 78;

/// Drains the daemon, and waits until it has gone, at most for `timeout`.
pub(super) fn run(socket: &Path, timeout: Option<Duration>, json: bool) -> Result<(), Failure> {
    client::check_path(socket)?;
    let whole = timeout.map_or(Ok(Deadline::NEVER), client::deadline)?;
    // Where the kernel does not tell, the note does: if nobody runs, nobody answers.
    let holder = lock::holder_of(socket).or_else(|| lock::noted(socket));
    let soon = whole.or_after(ANSWER_TIMEOUT);
    let patience = timeout.map_or(ANSWER_TIMEOUT, |timeout| timeout.min(ANSWER_TIMEOUT));
    let (mut session, answer) = Session::begin(socket, "drain", "DRAIN", patience, soon)?;
    print(&answer, json, |_| begun(&answer))?;
    let waited = wait_closed(&mut session, whole, terminal::shows_progress());
    match waited.map_err(|error| client::no_answer(socket, ANSWER_TIMEOUT, &error))? {
        Waited::Closed => {}
        Waited::Over => return Err(too_long(timeout)),
        Waited::Resumed => {
            let text = "somebody resumed the daemon: it hands jobs out again, and does not stop";
            return Err(Failure::new(ExitCode::Unavailable, text));
        }
    }
    let patience = whole.or_after(END_PATIENCE).end().unwrap_or_else(Instant::now);
    if let Some(holder) = holder {
        if !lock::wait_given_up(socket, holder.pid, patience) {
            let text = "the daemon closed the connection, and still runs: see its log";
            return Err(Failure::new(ExitCode::Unavailable, text));
        }
        require_drained(&holder.database)?;
    }
    if json {
        return Ok(());
    }
    print(&answer, false, |_| "The daemon has gone.".to_owned())
}

/// A daemon that was killed, or stopped otherwise, has gone as well.
fn require_drained(database: &Path) -> Result<(), Failure> {
    let found = queue_status(database, SystemClock.now()).map_err(|error| view_failure(&error))?;
    if found.holders.is_empty() {
        return Ok(());
    }
    let jobs = counted(i64::try_from(found.holders.len()).unwrap_or(i64::MAX), "job");
    let text = format!(
        "the daemon ended otherwise, with {jobs} in flight: start it again (it hands nothing out \
         until `shiftboss resume`), and drain it again if it is to stop by itself"
    );
    Err(Failure::new(ExitCode::Unavailable, text))
}

fn begun(answer: &Answer) -> String {
    let jobs = counted(answer.object["in_flight"].as_i64().unwrap_or(0), "job");
    format!("Nothing is handed out any more; {jobs} in flight.")
}

fn too_long(timeout: Option<Duration>) -> Failure {
    let waited = humantime::format_duration(timeout.unwrap_or_default());
    let text = format!(
        "waited {waited}, and jobs are still in flight (`shiftboss status` shows them); the daemon \
         stops when they have ended, or goes on after `shiftboss resume`"
    );
    Failure::new(ExitCode::Unavailable, text)
}

/// What a wait for the daemon's end came to.
enum Waited {
    Closed,
    Over,
    Resumed,
}

/// Waits until the daemon closes, and asks meanwhile how it is.
fn wait_closed(session: &mut Session, whole: Deadline, shows: bool) -> io::Result<Waited> {
    let mut asks = true;
    let waited = loop {
        let step = if asks { whole.or_after(SHOW_EVERY) } else { whole };
        match session.line(step) {
            Ok(None) => break Waited::Closed,
            Ok(Some(line)) => match serde_json::from_str::<Value>(&line) {
                Ok(status) if status["paused"] == false => break Waited::Resumed,
                Ok(status) if shows => show_line(&in_flight(&status)),
                Ok(_) => {}
                // It does not say; too many errors would end the connection.
                Err(_) => asks = false,
            },
            Err(error) if shiftboss_protocol::client::is_timeout(&error) && whole.is_over() => {
                break Waited::Over;
            }
            Err(error) if shiftboss_protocol::client::is_timeout(&error) => {
                session.ask("STATUS", whole.or_after(ANSWER_TIMEOUT))?;
            }
            Err(error) => return Err(error),
        }
    };
    if shows {
        show_line("");
    }
    Ok(waited)
}

/// What is out, from the daemon's status, in one line.
fn in_flight(status: &Value) -> String {
    let none = Vec::new();
    let holders = status["holders"].as_array().unwrap_or(&none);
    let name = |held: &Value| {
        let worker = held["worker"].as_str().unwrap_or("classic");
        format!("{} ({})", shown(held["key"].as_str().unwrap_or("?")), shown(worker))
    };
    let named: Vec<String> = holders.iter().take(NAMED_MAX).map(name).collect();
    let count = i64::try_from(holders.len()).unwrap_or(i64::MAX);
    cut(&format!("{} in flight: {}", counted(count, "job"), named.join(", ")), SHOWN_WIDTH)
}

/// Writes over the line that was shown before.
fn show_line(text: &str) {
    // Nobody may be looking.
    let _ = write!(io::stderr(), "\r\x1b[K{text}");
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// What is in flight fits into a line.
    #[test]
    fn what_is_in_flight() {
        let held = |key: &str, worker| json!({"key": key, "worker": worker});
        let status = json!({"holders": [held("alpha", Some("w")), held("b\u{1b}", None)]});
        assert_eq!(in_flight(&status), "2 jobs in flight: alpha (w), b\\u{1b} (classic)");
        let many: Vec<Value> = (0..100).map(|n| held(&format!("key{n}"), Some("w"))).collect();
        let line = in_flight(&json!({"holders": many}));
        assert_eq!(line.len(), SHOWN_WIDTH);
        assert!(line.starts_with("100 jobs in flight: key0 (w), ") && line.ends_with("..."));
    }
}
