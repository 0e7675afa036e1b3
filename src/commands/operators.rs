//! `shiftboss pause`, `resume`, `drain`, `retry`, `requeue`, `hold`, `unhold`, `bump`, `forget`, `run-fetcher`,
//! `accept-input`, `add`, `cancel` and `health`: each sends a request to a running daemon, and prints its answer, one JSON object, or a sentence made of
//! it.

mod drain;
mod levers;
mod retry_failed;
mod tasks;

use serde_json::Value;
use shiftboss_protocol::model::Key;

use super::printing::print;
use crate::cli::{DaemonArguments, KeyArguments, Operate};
use crate::client::{Answer, Session};
use crate::exit::Failure;
use crate::target::{move_up, socket};
use crate::text::{counted, shown};

pub fn run(operate: Operate) -> Result<(), Failure> {
    match operate {
        Operate::Pause(daemon) => tell(&daemon, "PAUSE", |_| {
            "Paused: nothing is handed out until `shiftboss resume`.".to_owned()
        }),
        Operate::Resume(daemon) => {
            tell(&daemon, "RESUME", |_| "Jobs are handed out again.".to_owned())
        }
        Operate::Health(daemon) => tell(&daemon, "HEALTH", |answer| {
            let out = in_flight(answer);
            format!("Healthy: the daemon answers from its database; {out} in flight.")
        }),
        Operate::AcceptInput(daemon) => tell(&daemon, "ACCEPT-INPUT", accepted),
        Operate::RunFetcher { daemon, name } => {
            let (daemon, name) = word(daemon, name, "NAME")?;
            let shown = shown(&name);
            if name.contains(char::is_control) {
                return Err(Failure::usage(format!("{shown} is no fetcher's name")));
            }
            tell(&daemon, &format!("RUN-FETCHER {name}"), |answer| run_begun(&shown, answer))
        }
        Operate::Requeue(of) => tell_of(of, "REQUEUE", requeued),
        Operate::Retry { of, failed } if failed.failed => retry_failed::run(of.daemon, &failed),
        Operate::Retry { of, .. } => tell_of(of, "RETRY", retried),
        Operate::Add(add) => tasks::add(add),
        Operate::Cancel(of) => tasks::cancel(of),
        Operate::Hold(asked) => levers::hold(asked),
        Operate::Unhold { of, prefix, by } => levers::unhold(of, prefix, by),
        Operate::Bump { of, by } => levers::bump(of, by),
        Operate::Forget(of) => tell_of(of, "FORGET", |key, _| format!("Forgotten: {key}.")),
        Operate::Drain(daemon) => drain::run(daemon),
    }
}

fn tell_of(
    of: KeyArguments,
    request: &str,
    render: impl FnOnce(&str, &Value) -> String,
) -> Result<(), Failure> {
    let (daemon, key) = key(of)?;
    let request = format!("{request} {key}");
    tell(&daemon, &request, |answer| render(&shown(key.as_str()), answer))
}

/// Sends one request, and prints what the daemon says: its line, or the sentence that `render` makes of it.
fn tell(
    daemon: &DaemonArguments,
    request: &str,
    render: impl FnOnce(&Value) -> String,
) -> Result<(), Failure> {
    let name = request.split(' ').next().unwrap_or_default().to_lowercase();
    let answer = begin(daemon, &name, &format!("{request}\n"))?.answer()?;
    show(&answer, daemon.json, render)
}

fn begin(daemon: &DaemonArguments, name: &str, requests: &str) -> Result<Session, Failure> {
    Session::begin(&socket(daemon.socket.clone(), name)?, name, requests, daemon.timeout())
}

fn show(answer: &Answer, json: bool, render: impl FnOnce(&Value) -> String) -> Result<(), Failure> {
    let text = if json { answer.line.clone() } else { render(&answer.object) };
    print(text + "\n")
}

/// The word behind a socket that may be left out.
fn word(
    mut daemon: DaemonArguments,
    word: Option<String>,
    name: &str,
) -> Result<(DaemonArguments, String), Failure> {
    let (socket, [word]) = move_up(daemon.socket.take(), [word], [name])?;
    daemon.socket = socket;
    Ok((daemon, word))
}

fn key(of: KeyArguments) -> Result<(DaemonArguments, Key), Failure> {
    let (daemon, key) = word(of.daemon, of.key, "KEY")?;
    let checked = Key::new(&key)
        .map_err(|error| Failure::usage(format!("{} is no key: {error}", shown(&key))))?;
    Ok((daemon, checked))
}

fn in_flight(answer: &Value) -> String {
    counted(answer["in_flight"].as_i64().unwrap_or(0), "job")
}

fn run_begun(name: &str, answer: &Value) -> String {
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

fn requeued(key: &str, answer: &Value) -> String {
    if answer["requeued"] == true {
        return format!("Back in the queue, at its old place: {key}.");
    }
    format!("{key} is not in flight; `shiftboss why` tells where it is.")
}

fn retried(key: &str, answer: &Value) -> String {
    match answer["rows"].as_i64() {
        Some(rows) if rows > 0 => format!("Back in the queue: {} of {key}.", counted(rows, "row")),
        _ => format!("Nothing of {key} was to be put back; `shiftboss why` tells where it is."),
    }
}
