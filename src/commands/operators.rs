//! `shiftboss add`, `cancel`, `retry`, `requeue`, `hold`, `unhold`, `bump`, `pause`, `resume`, `drain`, `run-fetcher`, `accept-input`,
//! `forget` and `health`: each sends a request to a running daemon, and prints its answer, one JSON object, or a sentence made of
//! it. Of several keys each is a request of its own. `forget --daemon` alone asks no daemon.

mod drain;
mod levers;
mod retry_failed;
mod tasks;

use std::io::{self, Write};

use serde_json::Value;
use shiftboss_protocol::model::Key;

use super::printing::print;
use crate::cli::{DaemonArguments, KeyArguments, Operate};
use crate::client::{Answer, Session};
use crate::exit::{ExitCode, Failure};
use crate::stores;
use crate::target::{Asked, line};
use crate::text::{counted, quoted, shown};

pub fn run(operate: Operate) -> Result<(), Failure> {
    match operate {
        Operate::Pause(daemon) => tell(&daemon, "PAUSE", |_| {
            format!("Paused: nothing is handed out until {}.", line("resume"))
        }),
        Operate::Resume(daemon) => {
            tell(&daemon, "RESUME", |_| "Jobs are handed out again.".to_owned())
        }
        Operate::AcceptInput(daemon) => tell(&daemon, "ACCEPT-INPUT", accepted),
        Operate::RunFetcher { daemon, name } => {
            let shown = shown(&name);
            if name.contains(char::is_control) {
                return Err(Failure::usage(format!("{shown} is no fetcher's name")));
            }
            tell(&daemon, &format!("RUN-FETCHER {name}"), |answer| run_begun(&shown, answer))
        }
        Operate::Requeue(of) => for_each(of, requeue),
        Operate::Retry { of, failed } if failed.failed => retry_failed::run(&of.daemon, &failed),
        Operate::Retry { of, .. } => tell_of_each(of, "RETRY", retried),
        Operate::Add(add) => tasks::add(add),
        Operate::Cancel(of) => for_each(of, tasks::cancel),
        Operate::Hold(asked) => levers::hold(asked),
        Operate::Unhold { of, prefix, by } => levers::unhold(of, prefix, by),
        Operate::Bump { of, by } => levers::bump(of, by),
        Operate::Forget { of, gone: Some(name) } => forget_daemon(&of.daemon.target, &name),
        Operate::Forget { of, gone: None } => {
            tell_of_each(of, "FORGET", |key, _| format!("Forgotten: {key}."))
        }
        Operate::Drain(daemon) => drain::run(&daemon),
    }
}

pub fn health(daemon: &DaemonArguments) -> Result<(), Failure> {
    tell(daemon, "HEALTH", |answer| {
        let out = in_flight(answer);
        format!("Healthy: the daemon answers from its database; {out} in flight.")
    })
}

/// Asks for each key by itself. What is refused of one of several is said at once, and the others are done all the same.
fn for_each(
    of: KeyArguments,
    mut ask: impl FnMut(&DaemonArguments, &Key) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let KeyArguments { daemon, keys } = of;
    let mut refused = None;
    for key in &keys {
        match ask(&daemon, key) {
            Err(failure)
                if keys.len() > 1
                    && matches!(failure.code(), ExitCode::BadData | ExitCode::AlreadyRunning) =>
            {
                // Nobody may be reading.
                let _ = writeln!(io::stderr(), "shiftboss: {failure}");
                refused = Some(failure.code());
            }
            done => done?,
        }
    }
    refused.map_or(Ok(()), |code| Err(Failure::silent(code)))
}

fn tell_of_each(
    of: KeyArguments,
    request: &str,
    render: impl Fn(&str, &Value) -> String,
) -> Result<(), Failure> {
    for_each(of, |daemon, key| {
        tell(daemon, &format!("{request} {key}"), |answer| render(key.as_str(), answer))
    })
}

/// Sends one request, and prints what the daemon says: its line, or the sentence that `render` makes of it.
fn tell(
    daemon: &DaemonArguments,
    request: &str,
    render: impl FnOnce(&Value) -> String,
) -> Result<(), Failure> {
    show(&order(daemon, request)?, daemon.json, render)
}

/// The answer to one request.
fn order(daemon: &DaemonArguments, request: &str) -> Result<Answer, Failure> {
    let name = request.split(' ').next().unwrap_or_default().to_lowercase();
    begin(daemon, &name, &format!("{request}\n"))?.answer()
}

fn begin(daemon: &DaemonArguments, name: &str, requests: &str) -> Result<Session, Failure> {
    Session::begin(&daemon.target.socket(name)?, name, requests, daemon.timeout())
}

fn show(answer: &Answer, json: bool, render: impl FnOnce(&Value) -> String) -> Result<(), Failure> {
    let text = if json { answer.line.clone() } else { render(&answer.object) };
    print(text + "\n")
}

/// A hint that names the key.
fn line_of(command: &str, key: &str) -> String {
    line(format_args!("{command} {}", quoted(key)))
}

/// A daemon or a relay that is gone for good.
fn forget_daemon(target: &Asked, name: &str) -> Result<(), Failure> {
    let left = stores::forget_daemon(&target.database()?, name)?;
    print(format!(
        "Forgotten: {}. Lists that leave the queue: {}. Fetchers that are free: {}. Leased jobs that wait again: {}.\n",
        shown(name),
        left.lists,
        left.fetchers,
        left.jobs
    ))
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

/// Who names a job that is not in flight was mistaken.
fn requeue(daemon: &DaemonArguments, key: &Key) -> Result<(), Failure> {
    let answer = order(daemon, &format!("REQUEUE {key}"))?;
    let (key, is_requeued) = (key.as_str(), answer.object["requeued"] == true);
    if is_requeued || daemon.json {
        let name = shown(key);
        show(&answer, daemon.json, |_| format!("Back in the queue, at its old place: {name}."))?;
    }
    if is_requeued {
        return Ok(());
    }
    let text =
        format!("{} is not in flight: {} tells where it is", shown(key), line_of("why", key));
    Err(Failure::new(ExitCode::BadData, text))
}

fn retried(key: &str, answer: &Value) -> String {
    let name = shown(key);
    match answer["rows"].as_i64() {
        Some(rows) if rows > 0 => format!("Back in the queue: {} of {name}.", counted(rows, "row")),
        _ => format!(
            "Nothing of {name} was to be put back: {} tells where it is.",
            line_of("why", key)
        ),
    }
}
