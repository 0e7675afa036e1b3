//! `shiftspool run`: wires its [source](super::source) to standard output and signals.

use shiftboss_console::exit::{ExitCode, Failure};
use shiftboss_console::program::with_signals;
use shiftboss_console::standard_error;
use shiftboss_runner::child::{StartError, look_for};
use shiftboss_runner::command::{CommandRunner, print};
use shiftboss_runner::signals::SIGNAL_BASE;
use shiftboss_runner::{self as runner, Ended};

use super::cli::RunEntries;
use super::source::{PLACES, SpoolRunError, SpoolSettings, SpoolSource};
use super::with_queue;
use crate::{Options, Order};

/// Attempts without `--failed` and `--attempts`; and after how many attempts an entry counts as failed if it kills
/// every process that takes it.
const ATTEMPTS: u32 = 5;

/// Runs until there is nothing to do, or signals end it. With `--once` it is an error if an entry failed. After a
/// second signal the process ends here, with 128 and the signal's number.
pub fn run(mut options: Options, typed: RunEntries) -> Result<(), Failure> {
    let attempts = typed.attempts.unwrap_or(if typed.failed.is_some() { 1 } else { ATTEMPTS });
    let failed = typed.failed.clone().unwrap_or(options.dead_letter);
    options.attempts_max = Some(attempts.max(ATTEMPTS));
    options.dead_letter = failed.clone();
    let spool = with_queue(&typed.place, options)?;
    let order = if typed.spread { Order::Spread } else { Order::Strict };
    let reader = spool.reader(&typed.place.queue, order)?;
    typed.failed.iter().try_for_each(|to| spool.ensure_queue(to))?;
    let jobs = typed.runner.jobs.into();
    let settings = typed.runner.settings(&PLACES)?;
    let is_logged = settings.logs.is_some();
    look_for(&settings.template.program).map_err(Failure::of(ExitCode::Configuration))?;
    let runner =
        CommandRunner::new(settings, print).map_err(Failure::of(ExitCode::CannotCreate))?;
    let settings = SpoolSettings {
        directory: spool.path().into(),
        once: typed.once,
        is_logged,
        attempts,
        failed,
        rest: typed.retry_after,
        defer: typed.defer,
    };
    let source = SpoolSource::new(reader, super::never()?, settings);
    let ended = with_signals(async |mut signals| {
        let sources = vec![source.clone(); jobs];
        let stop = |_| source.stop();
        Ok(runner::run(sources, runner, &mut signals, stop, std::future::pending()).await)
    })?;
    let failed = source.failed();
    drop(source);
    if let Some(signal) = ended.killed {
        // The claims are resolved; this process's record is removed with the spool's handle.
        drop(spool);
        standard_error::exit(SIGNAL_BASE + signal);
    }
    outcome(ended, failed, typed.once)
}

/// A service that stopped when asked has not failed, whatever happened to its entries; with one pass, failed entries
/// are an error.
fn outcome(ended: Ended<SpoolRunError>, failed: usize, once: bool) -> Result<(), Failure> {
    // The other errors follow from the first.
    match ended.errors.into_iter().next() {
        Some(SpoolRunError::Spool(error)) => Err(error.into()),
        Some(SpoolRunError::NotStarted(error @ StartError::System { .. })) => {
            Err(Failure::of(ExitCode::CannotCreate)(error))
        }
        Some(SpoolRunError::NotStarted(error)) => Err(Failure::of(ExitCode::Configuration)(error)),
        Some(error @ SpoolRunError::Deferred(_)) => {
            Err(Failure::of(ExitCode::AlreadyRunning)(error))
        }
        None if ended.is_broken => {
            let bug = "a bug ended a task; please report the message above";
            Err(Failure::new(ExitCode::Internal, bug.to_owned()))
        }
        None if once && failed > 0 => {
            Err(Failure::new(ExitCode::Found, format!("entries that failed: {failed}; see above")))
        }
        None => Ok(()),
    }
}
