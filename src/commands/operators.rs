//! `shiftboss pause`, `resume`, `drain`, `retry`, `requeue`, `hold`, `unhold`, `bump`, `forget`, `run-fetcher`,
//! `accept-input`, `add`, `cancel` and `health`: each sends a request to a running daemon, and prints its answer, one JSON object, or a sentence made of
//! it.

mod drain;
mod levers;
mod retry_failed;
mod tasks;

use serde::de::DeserializeOwned;
use shiftboss_protocol::model::Key;
use shiftboss_protocol::verbs::{
    AcceptInput, AcceptInputAnswer, FetcherName, Forget, Health, Pause, Requeue, RequeueAnswer,
    Resume, Retry, RetryAnswer, RunFetcher, RunFetcherAnswer, Verb, checked,
};

use super::printing::print;
use crate::cli::{DaemonArguments, KeyArguments, Operate};
use crate::client::{self, Answer};
use crate::exit::Failure;
use crate::target::{move_up, socket};
use crate::text::{counted, shown};

pub fn run(operate: Operate) -> Result<(), Failure> {
    match operate {
        Operate::Pause(daemon) => tell(&daemon, Pause {}, |_| {
            "Paused: nothing is handed out until `shiftboss resume`.".to_owned()
        }),
        Operate::Resume(daemon) => {
            tell(&daemon, Resume {}, |_| "Jobs are handed out again.".to_owned())
        }
        Operate::Health(daemon) => tell(&daemon, Health {}, |answer| {
            let jobs = counted(answer.in_flight, "job");
            format!("Healthy: the daemon answers from its database; {jobs} in flight.")
        }),
        Operate::AcceptInput(daemon) => tell(&daemon, AcceptInput {}, accepted),
        Operate::RunFetcher { daemon, name } => {
            let (daemon, name) = word(daemon, name, "NAME")?;
            let fetcher = checked::<FetcherName>(&name).map_err(|why| {
                Failure::usage(format!("{} is no fetcher's name: {why}", shown(&name)))
            })?;
            tell(&daemon, RunFetcher { fetcher }, run_begun)
        }
        Operate::Requeue(of) => tell_of(of, |key| Requeue { key }, requeued),
        Operate::Retry { of, failed } if failed.failed => retry_failed::run(of.daemon, &failed),
        Operate::Retry { of, .. } => tell_of(of, |key| Retry { key }, retried),
        Operate::Add(add) => tasks::add(add),
        Operate::Cancel(of) => tasks::cancel(of),
        Operate::Hold(asked) => levers::hold(asked),
        Operate::Unhold { of, prefix, by } => levers::unhold(of, prefix, by),
        Operate::Bump { of, by } => levers::bump(of, by),
        Operate::Forget(of) => {
            tell_of(of, |key| Forget { key }, |answer| format!("Forgotten: {}.", text(&answer.key)))
        }
        Operate::Drain(daemon) => drain::run(daemon),
    }
}

fn tell_of<V: Verb<Answer: DeserializeOwned>>(
    of: KeyArguments,
    request: impl FnOnce(Key) -> V,
    render: impl FnOnce(&V::Answer) -> String,
) -> Result<(), Failure> {
    let (daemon, key) = key(of)?;
    tell(&daemon, request(key), render)
}

/// Sends one request, and prints what the daemon says: its line, or the sentence that `render` makes of it.
fn tell<V: Verb<Answer: DeserializeOwned>>(
    daemon: &DaemonArguments,
    request: V,
    render: impl FnOnce(&V::Answer) -> String,
) -> Result<(), Failure> {
    let socket = socket(daemon.socket.clone(), &V::NAME.to_lowercase())?;
    show(&client::ask(&socket, request, daemon.timeout())?, daemon.json, render)
}

fn show<T>(
    answer: &Answer<T>,
    json: bool,
    render: impl FnOnce(&T) -> String,
) -> Result<(), Failure> {
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

fn requeued(answer: &RequeueAnswer) -> String {
    let key = text(&answer.key);
    match answer.requeued {
        true => format!("Back in the queue, at its old place: {key}."),
        false => format!("{key} is not in flight; `shiftboss why` tells where it is."),
    }
}

fn retried(answer: &RetryAnswer) -> String {
    let key = text(&answer.key);
    match answer.rows {
        0 => format!("Nothing of {key} was to be put back; `shiftboss why` tells where it is."),
        rows => format!("Back in the queue: {} of {key}.", counted(rows, "row")),
    }
}
