//! `shiftboss spool`: one verb each calls [`shiftboss_spool`]. Here is what they share: how a spool is
//! opened, what its errors mean for the exit code, and how something is printed.

mod health;
mod look;
mod put;
mod run;
mod source;
mod take;

use std::path::Path;

use crate::cli::{InQueue, SpoolArguments, SpoolVerb};
use crate::exit::{ExitCode, Failure};
use crate::logging::{self, LogFormat};
use crate::near::did_you_mean;
use shiftboss_spool::{Options, Spool, SpoolError};

/// Level of the log where a verb has no flag for it: what is left alone, or was given back.
const LOG_LEVEL: &str = "warn";

pub fn run(typed: SpoolArguments) -> Result<(), Failure> {
    let level = match &typed.verb {
        SpoolVerb::Run(run) => run.runner.run.log_level.clone(),
        _ => LOG_LEVEL.to_owned(),
    };
    logging::start(LogFormat::Auto, &level)?;
    let options = Options { durability: typed.durability, ..Options::default() };
    match typed.verb {
        SpoolVerb::Init { dir, queue } => {
            let spool = Spool::create(&dir, options).map_err(failure)?;
            queue.iter().try_for_each(|queue| spool.ensure_queue(queue)).map_err(failure)
        }
        SpoolVerb::Put(put) => put::run(&with_queue(&put.place, options)?, put),
        SpoolVerb::Take(take) => take::take(&with_queue(&take.place, options)?, &take),
        SpoolVerb::Move { entry, to } => {
            let to = InQueue { dir: entry.dir.clone(), queue: to };
            take::shift(&with_queue(&to, options)?, &entry, &to.queue)
        }
        SpoolVerb::Release(entry) => take::release(&open(&entry.dir, options)?, &entry),
        SpoolVerb::Rm(entry) => take::remove(&open(&entry.dir, options)?, &entry),
        SpoolVerb::List { place, checkouts, json } => {
            look::list(&with_queue(&place, options)?, &place.queue, checkouts, json)
        }
        SpoolVerb::Show { entry, json } => look::show(&open(&entry.dir, options)?, &entry, json),
        SpoolVerb::Stat { dir, json } => look::stat(&open(&dir, options)?, json),
        SpoolVerb::Watch { every, json, dir } => look::watch(&open(&dir, options)?, every, json),
        SpoolVerb::Run(typed) => run::run(options, typed),
        SpoolVerb::Monitor(typed) => health::monitor(open(&typed.dir, options)?, typed),
        SpoolVerb::Fsck { repair, older_than, json, dir } => {
            let spool = Spool::load_unchecked(&dir, options).map_err(failure)?;
            health::fsck(&spool, shiftboss_spool::FsckOptions { repair, older_than }, json)
        }
    }
}

/// Opens a spool; its paths are whole, for those who are given them.
fn open(dir: &Path, options: Options) -> Result<Spool, Failure> {
    let dir = std::path::absolute(dir)
        .map_err(|error| Failure::usage(format!("{}: {error}", dir.display())))?;
    Spool::load(&dir, options).map_err(failure)
}

/// Opens a spool that has this queue: a slip of the keyboard makes no other.
fn with_queue(InQueue { dir, queue }: &InQueue, options: Options) -> Result<Spool, Failure> {
    let spool = open(dir, options)?;
    let queues = spool.queues().map_err(failure)?;
    // Every spool has dead letters, if none yet.
    if queues.contains(queue) || *queue == spool.options().dead_letter {
        return Ok(spool);
    }
    let (queue, dir) = (queue.to_string(), dir.display());
    let names: Vec<_> = queues.iter().map(ToString::to_string).collect();
    let meant = did_you_mean(&queue, names.iter().map(String::as_str));
    let message = format!(
        "there is no queue {queue} in {dir}: `shiftboss spool init {dir} {queue}` makes it{meant}"
    );
    Err(Failure::new(ExitCode::BadData, message))
}

/// What an error means for the exit code.
#[allow(clippy::needless_pass_by_value, reason = "it stands in `map_err`")]
fn failure(error: SpoolError) -> Failure {
    Failure::new(code(&error), error.to_string())
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
        E::Held { .. } | E::Locked(_) | E::Accepting(_) => ExitCode::AlreadyRunning,
        E::Lost { .. } => ExitCode::Unavailable,
        E::Batch(_, _, source) => code(source),
    }
}

/// A wait that only time ends.
fn never() -> Result<shiftboss_spool::Stop, Failure> {
    shiftboss_spool::Stop::new().map_err(|error| {
        Failure::new(ExitCode::StoreIo, format!("cannot make a descriptor to wait on: {error}"))
    })
}
