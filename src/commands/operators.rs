//! `shiftboss pause`, `resume`, `drain`, `retry`, `requeue`, `run-fetcher`, `accept-input`, `add`, `cancel` and
//! `health`: requests to a running daemon.
//!
//! Clients of protocol 2 (docs/protocol.md): a greeting and one request in one write, one line of
//! JSON as the answer. `drain` then waits until the daemon has gone.

mod drain;
mod retry_failed;
mod session;
mod tasks;

use std::io::{self, Write};

use serde_json::Value;
use shiftboss_protocol::model::Key;

use super::text::{counted, shown};
use crate::cli::{DaemonArguments, Operate};

use crate::client;
use crate::exit::{self, ExitCode, Failure};
use crate::target::{move_up, socket};
pub(super) use session::Session;

/// Tells the daemon, and shows its answer.
pub fn run(operate: Operate) -> Result<(), Failure> {
    match operate {
        Operate::Pause(arguments) => tell(&arguments, "pause", "PAUSE", |_| {
            "Paused: nothing is handed out until `shiftboss resume`.".to_owned()
        }),
        Operate::Resume(arguments) => {
            tell(&arguments, "resume", "RESUME", |_| "Jobs are handed out again.".to_owned())
        }
        Operate::Retry { arguments, failed, .. } if failed.failed => {
            retry_failed::run(arguments, &failed)
        }
        Operate::Retry { arguments, key, .. } => tell_of(arguments, key, "retry", retried),
        Operate::Requeue { arguments, key } => tell_of(arguments, key, "requeue", requeued),
        Operate::Health(arguments) => tell(&arguments, "health", "HEALTH", |answer| {
            let out = counted(answer["in_flight"].as_i64().unwrap_or(0), "job");
            format!("Healthy: the daemon answers from its database; {out} in flight.")
        }),
        Operate::RunFetcher { mut arguments, name } => {
            let (target, [name]) = move_up(arguments.socket.take(), [name], ["NAME"])?;
            arguments.socket = target;
            if name.contains(char::is_control) {
                let text = format!("{} is no fetcher's name", shown(&name));
                return Err(Failure::new(ExitCode::Usage, text));
            }
            let request = format!("RUN-FETCHER {name}");
            tell(&arguments, "run-fetcher", &request, |answer| run_begun(&name, answer))
        }
        Operate::AcceptInput(arguments) => {
            tell(&arguments, "accept-input", "ACCEPT-INPUT", accepted)
        }
        Operate::Add(add) => tasks::add(add),
        Operate::Cancel { arguments, key } => tasks::cancel(arguments, key),
        Operate::Drain { timeout, socket: target, json } => {
            drain::run(&socket(target, "drain")?, timeout, json)
        }
    }
}

/// Sends a request about one key.
fn tell_of(
    mut arguments: DaemonArguments,
    key: Option<String>,
    name: &str,
    render: impl FnOnce(&Key, &Value) -> String,
) -> Result<(), Failure> {
    let (target, [key]) = move_up(arguments.socket.take(), [key], ["KEY"])?;
    arguments.socket = target;
    let key = Key::new(&key).map_err(|error| {
        Failure::new(ExitCode::Usage, format!("{} is no key: {error}", shown(&key)))
    })?;
    let request = format!("{} {key}", name.to_uppercase());
    tell(&arguments, name, &request, |answer| render(&key, answer))
}

/// Sends one request, and prints what the daemon says: its line, or the sentence that `render`
/// makes of it.
fn tell(
    arguments: &DaemonArguments,
    name: &str,
    request: &str,
    render: impl FnOnce(&Value) -> String,
) -> Result<(), Failure> {
    let socket = socket(arguments.socket.clone(), name)?;
    client::check_path(&socket)?;
    let deadline = client::deadline(arguments.timeout)?;
    let (_, answer) = Session::begin(&socket, name, request, arguments.timeout, deadline)?;
    print(&answer, arguments.json, render)
}

/// An answer: one JSON object, as the daemon sent it.
pub(super) struct Answer {
    line: String,
    pub(super) object: Value,
}

fn print(
    answer: &Answer,
    json: bool,
    render: impl FnOnce(&Value) -> String,
) -> Result<(), Failure> {
    let text = if json { answer.line.clone() } else { render(&answer.object) };
    say(&text)
}

fn say(text: &str) -> Result<(), Failure> {
    writeln!(io::stdout(), "{text}").or_else(|error| exit::output_failed(&error))
}

fn run_begun(name: &str, answer: &Value) -> String {
    let name = shown(name);
    match answer["state"].as_str() {
        Some("idle" | "waiting") => format!("A run of {name} starts."),
        _ => format!("A run of {name} starts as soon as its cooldown is over."),
    }
}

fn accepted(answer: &Value) -> String {
    match answer["accepted"].as_bool() {
        Some(true) => "The directory is the input directory from now on.",
        _ => "The input directory is not lost: there is nothing to accept.",
    }
    .to_owned()
}

fn requeued(key: &Key, answer: &Value) -> String {
    let key = shown(key.as_str());
    if answer["requeued"] == true {
        return format!("Back in the queue, at its old place: {key}.");
    }
    format!("{key} is not in flight; `shiftboss why` tells where it is.")
}

fn retried(key: &Key, answer: &Value) -> String {
    let key = shown(key.as_str());
    match answer["rows"].as_i64() {
        Some(rows) if rows > 0 => format!("Back in the queue: {} of {key}.", counted(rows, "row")),
        _ => format!("Nothing of {key} was to be put back; `shiftboss why` tells where it is."),
    }
}
