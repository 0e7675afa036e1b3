//! `shiftboss add`, `cancel`, `retry`, `requeue`, `hold`, `unhold`, `bump`, `pause`, `resume`, `drain`, `run-fetcher`, `accept-input`,
//! `forget` and `health`: each sends a request to a running daemon, and prints its answer, one JSON object, or the sentence that
//! [`orders`](crate::orders) makes of it. With several keys, each is a request of its own; keys that are not named, but chosen, are
//! those of [`many`]. Only `forget --daemon` works without a daemon.

mod drain;
mod many;
mod tasks;

use std::io::{self, Write};

use serde::de::DeserializeOwned;
use shiftboss_protocol::model::Key;
use shiftboss_protocol::verbs::{
    self, AcceptInput, Bump, Cancel, CancelRunning, FetcherName, Forget, Health, HoldAll,
    HoldFetcher, HoldGroup, HoldTime, Name, Pause, Requeue, RequeueAnswer, Resume, RunFetcher,
    Unhold, UnholdAll, UnholdFetcher, UnholdGroup, Verb, checked,
};
use shiftboss_queue::reader::{FailedTasks, Order};

use super::printing::print;
use crate::cli::{self, By, DaemonArguments, KeyArguments, ManyKeys, Operate};
use crate::client::{self, Answer};
use crate::exit::{ExitCode, Failure};
use crate::orders::{Said, line_of, text};
use crate::stores;
use crate::target::Asked;
use crate::text::shown;
use many::{Again, Each, Meant};

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
        Operate::Retry { of, failed } => {
            let of_failed = FailedTasks { since: failed.since, exit_code: failed.exit_code };
            let is_failed = failed.failed || failed.exit_code.is_some();
            let order = if is_failed { Order::RetryFailed(of_failed) } else { Order::Retry };
            each(of, order, None, |(key, fetcher)| Again(key, fetcher))
        }
        Operate::Add(add) => tasks::add(add),
        Operate::Cancel { of, running: true } => {
            tell_as(By { by: None }, of.named(), |key| CancelRunning { key })
        }
        Operate::Cancel { of, .. } if of.keys.is_empty() => {
            many::give(&of, Order::Cancel, None, |(key, _)| Cancel { key })
        }
        Operate::Cancel { of, .. } => for_each(of.named(), tasks::cancel),
        Operate::Hold(asked) => hold(asked),
        Operate::Unhold { of, by } => unhold(of, by),
        Operate::Bump { of, by } => each(of, Order::Bump, Some(by), |(key, _)| Bump { key }),
        Operate::Forget { of, gone: Some(name) } => forget_daemon(&of.daemon.target, &name),
        Operate::Forget { of, .. } => each(of, Order::Forget, None, |(key, _)| Forget { key }),
        Operate::Drain(daemon) => drain::run(&daemon),
    }
}

pub fn health(daemon: &DaemonArguments) -> Result<(), Failure> {
    tell(daemon, Health {})
}

fn hold(cli::Hold { of, time, reason, by }: cli::Hold) -> Result<(), Failure> {
    let (seconds, reason) = (time.unwrap_or(HoldTime::UNTIL_UNHELD), reason.unwrap_or_default());
    match rule_of(&of)? {
        None => each(of, Order::Hold, Some(by), |(key, _)| verbs::Hold {
            key,
            seconds,
            reason: reason.clone(),
        }),
        Some(Rule::Prefix(prefix)) => {
            tell_once(by, &of.daemon, HoldAll { prefix, seconds, reason })
        }
        Some(Rule::Fetcher(fetcher)) => {
            tell_once(by, &of.daemon, HoldFetcher { fetcher, seconds, reason })
        }
        Some(Rule::Group(group)) => tell_once(by, &of.daemon, HoldGroup { group, seconds, reason }),
    }
}

/// What a rule holds.
enum Rule {
    Prefix(Key),
    Fetcher(Name),
    Group(Name),
}

/// The rule that `--prefix`, `--fetcher` or `--group` makes or ends.
fn rule_of(of: &ManyKeys) -> Result<Option<Rule>, Failure> {
    let named = |option: &str, name: &str| {
        checked(name).map_err(|why| Failure::usage(format!("--{option}: {why}")))
    };
    match (&of.prefix, &of.fetcher, &of.group) {
        (_, _, Some(_)) if of.dry_run => {
            Err(Failure::usage("--dry-run is for keys: a group is held as a whole"))
        }
        (None, None, None) => Ok(None),
        (Some(prefix), None, None) => {
            let prefix =
                Key::new(prefix).map_err(|why| Failure::usage(format!("--prefix: {why}")))?;
            Ok(Some(Rule::Prefix(prefix)))
        }
        (None, Some(name), None) => Ok(Some(Rule::Fetcher(named("fetcher", name)?))),
        (None, None, Some(name)) => Ok(Some(Rule::Group(named("group", name)?))),
        _ => Err(Failure::usage("a rule has a prefix, a fetcher or a group: give one of them")),
    }
}

/// The holds of keys, and the rule of the same words; a group's hold alone.
fn unhold(of: ManyKeys, by: By) -> Result<(), Failure> {
    if let Some(Rule::Group(group)) = rule_of(&of)? {
        return tell_once(by, &of.daemon, UnholdGroup { group });
    }
    let (daemon, is_dry) = (of.daemon.clone(), of.dry_run);
    let rule = rule_of(&of)?.filter(|_| !is_dry);
    each(of, Order::Unhold, Some(By { by: by.by.clone() }), |(key, _)| Unhold { key })?;
    match rule {
        None => Ok(()),
        Some(Rule::Prefix(prefix)) => {
            let answer = order_as(by, &daemon, UnholdAll { prefix })?;
            say_ended(answer.object.was_held, &answer, &daemon)
        }
        Some(Rule::Fetcher(fetcher)) => {
            let answer = order_as(by, &daemon, UnholdFetcher { fetcher })?;
            say_ended(answer.object.was_held, &answer, &daemon)
        }
        Some(Rule::Group(_)) => Ok(()),
    }
}

/// Where there was no rule, the holds of keys were meant.
fn say_ended<T: Said>(
    was_held: bool,
    answer: &Answer<T>,
    daemon: &DaemonArguments,
) -> Result<(), Failure> {
    if was_held { show(answer, daemon.json, answer.object.said()) } else { Ok(()) }
}

/// Gives an order to each key that is named, or to those that were chosen.
fn each<V: Each<Answer: Said>>(
    of: ManyKeys,
    order: Order,
    by: Option<By>,
    request: impl Fn(Meant) -> V,
) -> Result<(), Failure> {
    match (of.keys.is_empty(), by) {
        (true, by) => many::give(&of, order, by.map(By::name), request),
        (false, Some(by)) => tell_as(by, of.named(), |key| request((key, None))),
        (false, None) => for_each(of.named(), |daemon, key| tell(daemon, request((key, None)))),
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
        match ask(&daemon, key.clone()) {
            Err(failure)
                if are_several
                    && matches!(failure.code(), ExitCode::BadData | ExitCode::AlreadyRunning) =>
            {
                // There may be no reader.
                let _ = writeln!(io::stderr(), "shiftboss: {}: {failure}", text(&key));
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
    by: By,
    of: KeyArguments,
    request: impl Fn(Key) -> V,
) -> Result<(), Failure> {
    for_each(of, |daemon, key| tell_once(by.clone(), daemon, request(key)))
}

fn tell_once<V: Verb<Answer: DeserializeOwned + Said>>(
    by: By,
    daemon: &DaemonArguments,
    request: V,
) -> Result<(), Failure> {
    let answer = order_as(by, daemon, request)?;
    show(&answer, daemon.json, answer.object.said())
}

fn order_as<V: Verb<Answer: DeserializeOwned>>(
    by: By,
    daemon: &DaemonArguments,
    request: V,
) -> Result<Answer<V::Answer>, Failure> {
    let socket = daemon.target.socket(&V::NAME.to_lowercase())?;
    client::ask_as(&socket, by.name(), request, daemon.timeout())
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
