//! `shiftboss pause`, `resume`, `drain`, `retry`, `requeue`, `run-fetcher`, `accept-input`, `add`, `cancel` and
//! `health`: what a running daemon is told and asked.
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
use crate::cli::{Operate, Told};
use crate::client::{self, Deadline};
use crate::exit::{self, ExitCode, Failure};
use crate::target::{move_up, socket};
pub(super) use session::Session;

/// Tells the daemon, and shows its answer.
///
/// # Errors
/// `Unavailable` when nobody answers; `Denied` to other users; `BadData` for an unknown key.
pub fn run(operate: Operate) -> Result<(), Failure> {
    match operate {
        Operate::Pause(told) => tell(&told, "pause", "PAUSE", |_| {
            "Paused: nothing is handed out until `shiftboss resume`.".to_owned()
        }),
        Operate::Resume(told) => {
            tell(&told, "resume", "RESUME", |_| "Jobs are handed out again.".to_owned())
        }
        Operate::Retry { told, failed, .. } if failed.failed => retry_failed::run(told, &failed),
        Operate::Retry { told, key, .. } => tell_of(told, key, "retry", retried),
        Operate::Requeue { told, key } => tell_of(told, key, "requeue", requeued),
        Operate::Health(told) => tell(&told, "health", "HEALTH", |answer| {
            let out = counted(answer["in_flight"].as_i64().unwrap_or(0), "job");
            format!("Healthy: the daemon answers from its database; {out} in flight.")
        }),
        Operate::RunFetcher { mut told, name } => {
            let (target, [name]) = move_up(told.socket.take(), [name], ["NAME"])?;
            told.socket = target;
            if name.contains(char::is_control) {
                let text = format!("{} is no fetcher's name", shown(&name));
                return Err(Failure::new(ExitCode::Usage, text));
            }
            let request = format!("RUN-FETCHER {name}");
            tell(&told, "run-fetcher", &request, |answer| run_begun(&name, answer))
        }
        Operate::AcceptInput(told) => tell(&told, "accept-input", "ACCEPT-INPUT", accepted),
        Operate::Add(add) => tasks::add(add),
        Operate::Cancel { told, key } => tasks::cancel(told, key),
        Operate::Drain { timeout, socket: target, json } => {
            drain::run(&socket(target, "drain")?, timeout, json)
        }
    }
}

/// Sends a request about one key.
fn tell_of(
    mut told: Told,
    key: Option<String>,
    name: &str,
    render: impl FnOnce(&Key, &Value) -> String,
) -> Result<(), Failure> {
    let (target, [key]) = move_up(told.socket.take(), [key], ["KEY"])?;
    told.socket = target;
    let key = Key::new(&key).map_err(|error| {
        Failure::new(ExitCode::Usage, format!("{} is no key: {error}", shown(&key)))
    })?;
    let request = format!("{} {key}", name.to_uppercase());
    tell(&told, name, &request, |answer| render(&key, answer))
}

/// Sends one request, and prints what the daemon says: its line, or the sentence that `render`
/// makes of it.
fn tell(
    told: &Told,
    name: &str,
    request: &str,
    render: impl FnOnce(&Value) -> String,
) -> Result<(), Failure> {
    let socket = socket(told.socket.clone(), name)?;
    client::check_path(&socket)?;
    let deadline = Deadline::after(told.timeout)?;
    let (_, answer) = Session::begin(&socket, name, request, told.timeout, deadline)?;
    print(&answer, told.json, render)
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
