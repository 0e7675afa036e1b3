//! The program `shiftspool`: each verb calls the library. This module has what they share: opening a spool, and the
//! exit codes of its errors. `main` calls [`run()`]; the library does not know it.

pub mod cli;
mod health;
mod look;
mod put;
mod run;
mod source;
mod take;

use std::io;
use std::path::Path;

use clap::CommandFactory;
use shiftboss_console::exit::{ExitCode, Failure};
use shiftboss_console::limits::Needs;
use shiftboss_console::logging::{self, LogFormat};
use shiftboss_console::near::did_you_mean;
use shiftboss_console::printing::print;
use shiftboss_console::program::completions;
use shiftboss_runner::child;

use crate::{FsckOptions, Options, QueueName, Spool, SpoolError, Stop};
use cli::{Cli, InQueue, Verb};

/// The resources that a verb needs, with some to spare.
const NEEDS: Needs = Needs { descriptors: 24, threads: 6 };
/// Level of the log for verbs without a flag for it: warnings of what is left alone, or was given back.
const LOG_LEVEL: &str = "warn";

pub fn run(typed: Cli) -> Result<(), Failure> {
    let level = match &typed.verb {
        // It stands by with what it was given.
        Verb::Guardian => return child::guard(io::stdin()).map_err(Failure::of(ExitCode::Usage)),
        Verb::Completions { shell } => return print(completions(Cli::command(), *shell)),
        Verb::Run(run) => &run.runner.run.log.log_level,
        _ => LOG_LEVEL,
    };
    NEEDS.require()?;
    logging::start(LogFormat::Auto, level)?;
    verb(typed.verb, Options { durability: typed.durability, ..Options::default() })
}

fn verb(verb: Verb, options: Options) -> Result<(), Failure> {
    match verb {
        Verb::Init { dir, queue } => {
            let spool = Spool::create(&dir, options)?;
            Ok(queue.iter().try_for_each(|queue| spool.ensure_queue(queue))?)
        }
        Verb::Put(put) => put::run(&with_queue(&put.place, options)?, put),
        Verb::Take(take) => take::take(&with_queue(&take.place, options)?, &take),
        Verb::Move { entry, to } => {
            let to = InQueue { dir: entry.dir.clone(), queue: to };
            take::shift(&with_queue(&to, options)?, &entry, &to.queue)
        }
        Verb::Release(entry) => take::release(&open(&entry.dir, options)?, &entry),
        Verb::Rm(entry) => take::remove(&open(&entry.dir, options)?, &entry),
        Verb::List(list) => {
            let spool = open(&list.dir, options)?;
            list.queue.iter().try_for_each(|queue| require(&spool, &list.dir, queue))?;
            look::list(&spool, &list)
        }
        Verb::Show { entry, json } => look::show(&open(&entry.dir, options)?, &entry, json),
        Verb::Run(typed) => run::run(options, typed),
        Verb::Monitor(typed) => health::monitor(open(&typed.dir, options)?, typed),
        Verb::Fsck { repair, older_than, json, dir } => {
            let spool = Spool::load_unchecked(&dir, options)?;
            health::fsck(&spool, FsckOptions { repair, older_than }, json)
        }
        Verb::Completions { .. } | Verb::Guardian => Ok(()),
    }
}

/// Opens a spool by its absolute path, because its paths are passed on to others.
fn open(dir: &Path, options: Options) -> Result<Spool, Failure> {
    let dir = std::path::absolute(dir)
        .map_err(|error| Failure::usage(format!("{}: {error}", dir.display())))?;
    Ok(Spool::load(&dir, options)?)
}

fn with_queue(InQueue { dir, queue }: &InQueue, options: Options) -> Result<Spool, Failure> {
    let spool = open(dir, options)?;
    require(&spool, dir, queue)?;
    Ok(spool)
}

/// Checks that a spool has this queue, so that a typing error does not make another.
fn require(spool: &Spool, dir: &Path, queue: &QueueName) -> Result<(), Failure> {
    let queues = spool.queues()?;
    // Every spool has a dead-letter queue, even if it is empty and not made yet.
    if queues.contains(queue) || *queue == spool.options().dead_letter {
        return Ok(());
    }
    let (queue, dir) = (queue.to_string(), dir.display());
    let names: Vec<_> = queues.iter().map(ToString::to_string).collect();
    let meant = did_you_mean(&queue, names.iter().map(String::as_str));
    let message = format!(
        "there is no queue {queue} in {dir}: `shiftspool init {dir} {queue}` makes it{meant}"
    );
    Err(Failure::new(ExitCode::BadData, message))
}

impl From<SpoolError> for Failure {
    fn from(error: SpoolError) -> Self {
        Self::new(code(&error), error.to_string())
    }
}

fn code(error: &SpoolError) -> ExitCode {
    use SpoolError as E;
    match error {
        E::Io { doing: "open the spool", .. }
        | E::NotASpool(_)
        | E::Incomplete { .. }
        | E::Version { .. } => ExitCode::Configuration,
        E::Io { doing: "make the directory", .. } | E::Foreign { .. } => ExitCode::CannotCreate,
        E::Io { .. } | E::NotDurable { .. } => ExitCode::StoreIo,
        E::Taken(_)
        | E::NoFreeName { .. }
        | E::NotFound { .. }
        | E::NotReserved(_)
        | E::Quarantined { .. }
        | E::TooLarge { .. }
        | E::Unread(_) => ExitCode::BadData,
        E::Held { .. } | E::Locked(_) => ExitCode::AlreadyRunning,
        E::Lost { .. } => ExitCode::Unavailable,
        E::Batch(_, _, source) => code(source),
    }
}

/// A wait that only time ends.
fn never() -> Result<Stop, Failure> {
    Stop::new().map_err(|error| {
        Failure::new(ExitCode::StoreIo, format!("cannot make a descriptor to wait on: {error}"))
    })
}
