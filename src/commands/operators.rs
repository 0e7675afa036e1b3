//! `shiftboss add`, `cancel`, `retry`, `requeue`, `hold`, `unhold`, `bump`, `pause`, `resume`, `drain`, `run-fetcher`, `accept-input`,
//! `forget` and `health`: each sends a request to a running daemon, and prints its answer, one JSON object, or the sentence that
//! [`orders`](crate::orders) makes of it. With several keys, each is a request of its own. Only `forget --daemon` works
//! without a daemon.

mod drain;
mod retry_failed;
mod tasks;

use std::io::{self, Write};

use serde::de::DeserializeOwned;
use shiftboss_protocol::model::Key;
use shiftboss_protocol::verbs::{
    AcceptInput, Bump, FetcherName, Forget, Health, HoldAll, HoldTime, Pause, Requeue,
    RequeueAnswer, Resume, Retry, RunFetcher, Unhold, UnholdAll, Verb, checked,
};

use super::printing::print;
use crate::cli::{self, By, DaemonArguments, KeyArguments, Operate};
use crate::client::{self, Answer, this_user};
use crate::exit::{ExitCode, Failure};
use crate::orders::{Said, line_of, text};
use crate::stores;
use crate::target::Asked;
use crate::text::shown;

pub fn run(operate: Operate) -> Result<(), Failure> {
    match operate {
        Operate::Pause(daemon) => tell(&daemon, Pause {}),
        Operate::Resume(daemon) => tell(&daemon, Resume {}),
        Operate::AcceptInput(daemon) => tell(&daemon, AcceptInput {}),
        Operate::RunFetcher { daemon, name } => {
            let fetcher = checked::<FetcherName>(&name).map_err(|why| {
                Failure::usage(format!("{} is no fetcher's name: {why}", shown(&name)))
            })?;
            tell(&daemon, RunFetcher { fetcher })
        }
        Operate::Requeue(of) => for_each(of, requeue),
        Operate::Retry { of, failed } if failed.failed => retry_failed::run(&of.daemon, &failed),
        Operate::Retry { of, .. } => for_each(of, |daemon, key| tell(daemon, Retry { key })),
        Operate::Add(add) => tasks::add(add),
        Operate::Cancel(of) => for_each(of, tasks::cancel),
        Operate::Hold(asked) => hold(asked),
        Operate::Unhold { of, prefix: true, by } => tell_as(by, of, |prefix| UnholdAll { prefix }),
        Operate::Unhold { of, by, .. } => tell_as(by, of, |key| Unhold { key }),
        Operate::Bump { of, by } => tell_as(by, of, |key| Bump { key }),
        Operate::Forget { of, gone: Some(name) } => forget_daemon(&of.daemon.target, &name),
        Operate::Forget { of, .. } => for_each(of, |daemon, key| tell(daemon, Forget { key })),
        Operate::Drain(daemon) => drain::run(&daemon),
    }
}

pub fn health(daemon: &DaemonArguments) -> Result<(), Failure> {
    tell(daemon, Health {})
}

fn hold(cli::Hold { of, prefix, time, reason, by }: cli::Hold) -> Result<(), Failure> {
    let (seconds, reason) = (time.unwrap_or(HoldTime::UNTIL_UNHELD), reason.unwrap_or_default());
    let reason = || reason.clone();
    match prefix {
        true => tell_as(by, of, |prefix| HoldAll { prefix, seconds, reason: reason() }),
        false => tell_as(by, of, |key| shiftboss_protocol::verbs::Hold {
            key,
            seconds,
            reason: reason(),
        }),
    }
}

/// Sends a request for each key. If one of several is refused, that is reported at once, and the others are done all
/// the same.
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
                // There may be no reader.
                let _ = writeln!(io::stderr(), "shiftboss: {failure}");
                refused = Some(failure.code());
            }
            done => done?,
        }
    }
    refused.map_or(Ok(()), |code| Err(Failure::silent(code)))
}

fn tell<V: Verb<Answer: DeserializeOwned + Said>>(
    daemon: &DaemonArguments,
    request: V,
) -> Result<(), Failure> {
    let answer = order(daemon, request)?;
    show(&answer, daemon.json, answer.object.said())
}

/// The same for each key, in the name of a person whom the daemon is to remember.
fn tell_as<V: Verb<Answer: DeserializeOwned + Said>>(
    By { by }: By,
    of: KeyArguments,
    request: impl Fn(Key) -> V,
) -> Result<(), Failure> {
    let by = by.unwrap_or_else(this_user);
    for_each(of, |daemon, key| {
        let socket = daemon.target.socket(&V::NAME.to_lowercase())?;
        let answer = client::ask_as(&socket, by.clone(), request(key), daemon.timeout())?;
        show(&answer, daemon.json, answer.object.said())
    })
}

fn order<V: Verb<Answer: DeserializeOwned>>(
    daemon: &DaemonArguments,
    request: V,
) -> Result<Answer<V::Answer>, Failure> {
    let socket = daemon.target.socket(&V::NAME.to_lowercase())?;
    client::ask(&socket, request, daemon.timeout())
}

/// Prints the daemon's line, or the sentence that was made of it.
fn show<T>(answer: &Answer<T>, json: bool, said: String) -> Result<(), Failure> {
    print(if json { answer.line.clone() } else { said } + "\n")
}

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

/// Who names a job that is not in flight was mistaken.
fn requeue(daemon: &DaemonArguments, key: Key) -> Result<(), Failure> {
    let answer = order(daemon, Requeue { key })?;
    let RequeueAnswer { key, requeued, .. } = &answer.object;
    let name = text(key);
    if *requeued || daemon.json {
        show(&answer, daemon.json, format!("Back in the queue, at its old place: {name}."))?;
    }
    if *requeued {
        return Ok(());
    }
    let why = line_of("why", key);
    Err(Failure::new(
        ExitCode::BadData,
        format!("{name} is not in flight: {why} tells where it is"),
    ))
}
