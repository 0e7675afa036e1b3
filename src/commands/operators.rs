//! `shiftboss add`, `cancel`, `retry`, `requeue`, `hold`, `unhold`, `bump`, `pause`, `resume`, `drain`, `run-fetcher`, `accept-input`,
//! `forget` and `health`: each sends a request to a running daemon, and prints its answer, one JSON object, or a sentence made of
//! it. Of several keys each is a request of its own. `forget --daemon` alone asks no daemon.

mod drain;
mod levers;
mod retry_failed;
mod tasks;

use std::io::{self, Write};

use serde::de::DeserializeOwned;
use shiftboss_protocol::model::Key;
use shiftboss_protocol::verbs::{
    AcceptInput, AcceptInputAnswer, FetcherName, Forget, ForgetAnswer, Health, Pause, Requeue,
    RequeueAnswer, Resume, Retry, RetryAnswer, RunFetcher, RunFetcherAnswer, Verb, checked,
};

use super::printing::print;
use crate::cli::{DaemonArguments, KeyArguments, Operate};
use crate::client::{self, Answer};
use crate::exit::{ExitCode, Failure};
use crate::stores;
use crate::target::{Asked, line};
use crate::text::{counted, quoted, shown};

pub fn run(operate: Operate) -> Result<(), Failure> {
    match operate {
        Operate::Pause(daemon) => tell(&daemon, Pause {}, |_| {
            format!("Paused: nothing is handed out until {}.", line("resume"))
        }),
        Operate::Resume(daemon) => {
            tell(&daemon, Resume {}, |_| "Jobs are handed out again.".to_owned())
        }
        Operate::AcceptInput(daemon) => tell(&daemon, AcceptInput {}, accepted),
        Operate::RunFetcher { daemon, name } => {
            let fetcher = checked::<FetcherName>(&name).map_err(|why| {
                Failure::usage(format!("{} is no fetcher's name: {why}", shown(&name)))
            })?;
            tell(&daemon, RunFetcher { fetcher }, run_begun)
        }
        Operate::Requeue(of) => for_each(of, requeue),
        Operate::Retry { of, failed } if failed.failed => retry_failed::run(&of.daemon, &failed),
        Operate::Retry { of, .. } => tell_of_each(of, |key| Retry { key }, retried),
        Operate::Add(add) => tasks::add(add),
        Operate::Cancel(of) => for_each(of, tasks::cancel),
        Operate::Hold(asked) => levers::hold(asked),
        Operate::Unhold { of, prefix, by } => levers::unhold(of, prefix, by),
        Operate::Bump { of, by } => levers::bump(of, by),
        Operate::Forget { of, gone: Some(name) } => forget_daemon(&of.daemon.target, &name),
        Operate::Forget { of, gone: None } => {
            let forgotten = |answer: &ForgetAnswer| format!("Forgotten: {}.", text(&answer.key));
            tell_of_each(of, |key| Forget { key }, forgotten)
        }
        Operate::Drain(daemon) => drain::run(&daemon),
    }
}

pub fn health(daemon: &DaemonArguments) -> Result<(), Failure> {
    tell(daemon, Health {}, |answer| {
        let jobs = counted(answer.in_flight, "job");
        format!("Healthy: the daemon answers from its database; {jobs} in flight.")
    })
}

/// Asks for each key by itself. What is refused of one of several is said at once, and the others are done all the same.
fn for_each(
    of: KeyArguments,
    mut ask: impl FnMut(&DaemonArguments, Key) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let KeyArguments { daemon, keys } = of;
    let are_several = keys.len() > 1;
    let mut refused = None;
    for key in keys {
        match ask(&daemon, key) {
            Err(failure)
                if are_several
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

fn tell_of_each<V: Verb<Answer: DeserializeOwned>>(
    of: KeyArguments,
    request: impl Fn(Key) -> V,
    render: impl Fn(&V::Answer) -> String,
) -> Result<(), Failure> {
    for_each(of, |daemon, key| tell(daemon, request(key), &render))
}

/// Sends one request, and prints what the daemon says: its line, or the sentence that `render` makes of it.
fn tell<V: Verb<Answer: DeserializeOwned>>(
    daemon: &DaemonArguments,
    request: V,
    render: impl FnOnce(&V::Answer) -> String,
) -> Result<(), Failure> {
    show(&order(daemon, request)?, daemon.json, render)
}

/// The answer to one request.
fn order<V: Verb<Answer: DeserializeOwned>>(
    daemon: &DaemonArguments,
    request: V,
) -> Result<Answer<V::Answer>, Failure> {
    let socket = daemon.target.socket(&V::NAME.to_lowercase())?;
    client::ask(&socket, request, daemon.timeout())
}

fn show<T>(
    answer: &Answer<T>,
    json: bool,
    render: impl FnOnce(&T) -> String,
) -> Result<(), Failure> {
    let text = if json { answer.line.clone() } else { render(&answer.object) };
    print(text + "\n")
}

/// A hint that names the key.
fn line_of(command: &str, key: &Key) -> String {
    line(format_args!("{command} {}", quoted(key.as_str())))
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

fn text(key: &Key) -> String {
    shown(key.as_str())
}

fn run_begun(answer: &RunFetcherAnswer) -> String {
    let name = shown(&answer.fetcher);
    match answer.state.as_str() {
        "idle" | "waiting" => format!("A run of {name} starts."),
        _ => format!("A run of {name} starts as soon as its cooldown is over."),
    }
}

fn accepted(answer: &AcceptInputAnswer) -> String {
    match answer.accepted {
        true => "The directory is the input directory from now on.",
        false => "The input directory is not lost: there is nothing to accept.",
    }
    .to_owned()
}

/// Who names a job that is not in flight was mistaken.
fn requeue(daemon: &DaemonArguments, key: Key) -> Result<(), Failure> {
    let answer = order(daemon, Requeue { key })?;
    let RequeueAnswer { key, requeued, .. } = &answer.object;
    let (name, is_requeued) = (text(key), *requeued);
    if is_requeued || daemon.json {
        show(&answer, daemon.json, |_| format!("Back in the queue, at its old place: {name}."))?;
    }
    if is_requeued {
        return Ok(());
    }
    let why = line_of("why", key);
    Err(Failure::new(
        ExitCode::BadData,
        format!("{name} is not in flight: {why} tells where it is"),
    ))
}

fn retried(answer: &RetryAnswer) -> String {
    let name = text(&answer.key);
    match answer.rows {
        0 => {
            let why = line_of("why", &answer.key);
            format!("Nothing of {name} was to be put back: {why} tells where it is.")
        }
        rows => format!("Back in the queue: {} of {name}.", counted(rows, "row")),
    }
}
