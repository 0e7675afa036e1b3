//! `shiftboss spool run`: takes entries, runs a command for each, and resolves them by how it ended.
//! Here is when something is taken and what signals do; [`command`] is what is run, and [`resolve`]
//! what becomes of an entry.
//!
//! Commands are started on the main thread, as [`crate::child`] wants it. The spool blocks, so its
//! calls are made on others; one at a time waits for entries.

mod command;
mod resolve;

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle as JoinThread;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tracing::{error, info, warn};

use super::{code, open};
use crate::child::Fault;
use crate::cli::SpoolRunArguments;
use crate::exit::{ExitCode, Failure};
use crate::signals::{SIGNAL_BASE, Signals};
use command::CommandRunner;
use resolve::{Ended, Failed, OutcomePolicy};
use shiftboss_spool::{
    DEAD_LETTER, EntryName, Guard, Options, Order, QueueName, Reader, SpoolError, Stop, Taken,
};

/// Attempts without `--failed` and `--attempts`; and those after which an entry is a failed one that
/// ends all who take it.
const ATTEMPTS: u32 = 5;
/// Before the next command, when the system had no room for one.
const PAUSE: Duration = Duration::from_secs(1);

/// Runs until there is nothing to do, or signals end it.
pub fn run(mut options: Options, typed: SpoolRunArguments) -> Result<(), Failure> {
    let attempts = typed.attempts.unwrap_or(if typed.failed.is_some() { 1 } else { ATTEMPTS });
    let failed = match &typed.failed {
        Some(failed) => failed.clone(),
        None => QueueName::new(DEAD_LETTER)
            .map_err(|error| Failure::new(ExitCode::Internal, error.to_string()))?,
    };
    options.attempts_max = Some(attempts.max(ATTEMPTS));
    options.dead_letter = failed.clone();
    let spool = open(&typed.place.dir, options)?;
    let cannot = |error: io::Error| {
        Failure::new(ExitCode::StoreIo, format!("cannot begin to work: {error}"))
    };
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(cannot)?;
    let ended = runtime.block_on(async {
        let signals = Signals::new().map_err(cannot)?;
        let stop = Stop::new().map_err(cannot)?;
        let order = if typed.spread { Order::Spread } else { Order::Strict };
        let reader = spool.reader(&typed.place.queue, order).map_err(super::failure)?;
        typed.failed.iter().try_for_each(|to| spool.ensure_queue(to)).map_err(super::failure)?;
        let (jobs_max, once) = (usize::from(typed.jobs), typed.once);
        let policy = OutcomePolicy { attempts, failed, rest: typed.retry_after };
        let (runner, printer) = CommandRunner::new(&spool, typed, policy)?;
        let runner = Arc::new(runner);
        let run = Run {
            runner,
            jobs_max,
            once,
            stop,
            signals,
            over: false,
            failed: Failed::default(),
            failure: None,
            signalled: false,
            killed: None,
        };
        Ok((run.work(reader).await, printer))
    });
    drop(runtime);
    let ((failure, killed), printer) = ended?;
    if let Some(number) = killed {
        // The claims are resolved; the record of them goes with the spool. What still waits for a reader
        // of standard output is not waited for.
        drop(spool);
        std::process::exit(SIGNAL_BASE + number);
    }
    // The panic hook reported a panic there.
    let _ = printer.map(JoinThread::join);
    failure.map_or(Ok(()), Err)
}

/// A reader at work elsewhere.
type Taking = JoinHandle<(Reader, Result<Taken, SpoolError>)>;

struct Run {
    runner: Arc<CommandRunner>,
    jobs_max: usize,
    once: bool,
    /// Ends the waiting for entries.
    stop: Stop,
    signals: Signals,
    over: bool,
    failed: Failed,
    failure: Option<Failure>,
    /// Whether a signal has come.
    signalled: bool,
    killed: Option<i32>,
}

impl Run {
    /// Works; why it failed, and the signal that broke it off.
    async fn work(mut self, reader: Reader) -> (Option<Failure>, Option<i32>) {
        let (kill, killed) = watch::channel(false);
        let (mut idle, mut taking): (_, Option<Taking>) = (Some(reader), None);
        let mut jobs = JoinSet::new();
        let mut sweep = std::pin::pin!(self.runner.outputs.sweep());
        loop {
            if !self.over && jobs.len() < self.jobs_max {
                taking = taking.or_else(|| idle.take().map(|reader| self.take(reader)));
            }
            if self.over && taking.is_none() && jobs.is_empty() {
                return (self.outcome(), self.killed);
            }
            tokio::select! {
                taken = finished(&mut taking) => {
                    taking = None;
                    match taken {
                        Ok((reader, taken)) => {
                            idle = Some(reader);
                            if let Some(guard) = self.taken(taken) {
                                jobs.spawn(job(Arc::clone(&self.runner), guard, killed.clone()));
                            }
                        }
                        Err(_) => self.give_up(bug()),
                    }
                }
                Some(ended) = jobs.join_next() => match ended {
                    Ok(Ok((name, ended))) => self.failed.note(name, ended),
                    Ok(Err(failure)) => self.give_up(failure),
                    Err(_) => self.give_up(bug()),
                },
                () = &mut sweep => {}
                number = self.signals.next() => self.obey(number, &kill, jobs.len()),
            }
        }
    }

    fn take(&self, mut reader: Reader) -> Taking {
        let (stop, limit) = (self.stop.clone(), self.once.then_some(Duration::ZERO));
        tokio::task::spawn_blocking(move || {
            let taken = reader.dequeue(&stop, limit);
            (reader, taken)
        })
    }

    fn taken(&mut self, taken: Result<Taken, SpoolError>) -> Option<Guard> {
        match taken {
            Ok(Taken::Entry(guard)) => return Some(guard),
            Ok(Taken::Stopped) => {}
            Ok(Taken::TimedOut) => self.end(),
            Err(error) => self.give_up(Failure::new(code(&error), error.to_string())),
        }
        None
    }

    /// Nothing more is taken; what runs is finished.
    fn end(&mut self) {
        self.over = true;
        self.stop.stop();
    }

    fn give_up(&mut self, failure: Failure) {
        self.end();
        // The first is what the others follow from.
        self.failure.get_or_insert(failure);
    }

    /// Why it ends otherwise than well. A service that was told to stop, and did, has not failed,
    /// whatever its entries did; who asks for one pass wants to know.
    fn outcome(&mut self) -> Option<Failure> {
        let failed = self.failed.count();
        self.failure.take().or_else(|| {
            let text = format!("entries that failed: {failed}; see above");
            (self.once && failed > 0).then(|| Failure::new(ExitCode::Found, text))
        })
    }

    fn obey(&mut self, number: i32, kill: &watch::Sender<bool>, jobs: usize) {
        if std::mem::replace(&mut self.signalled, true) {
            info!(jobs, "Stopping at once: killing what runs, and giving it back.");
            self.killed = Some(number);
            kill.send_replace(true);
        } else {
            info!(
                jobs,
                "Stopping: finishing what runs. Another signal, a second after this one or later, kills it."
            );
            self.end();
        }
    }
}

fn bug() -> Failure {
    Failure::new(
        ExitCode::Internal,
        "a bug in shiftboss ended a task; please report the message above",
    )
}

async fn finished(
    taking: &mut Option<Taking>,
) -> Result<(Reader, Result<Taken, SpoolError>), tokio::task::JoinError> {
    match taking {
        Some(taking) => taking.await,
        None => std::future::pending().await,
    }
}

/// An entry's way: its command is run, and it is resolved. The error is one for all that follow.
async fn job(
    runner: Arc<CommandRunner>,
    guard: Guard,
    mut killed: watch::Receiver<bool>,
) -> Result<(EntryName, Ended), Failure> {
    let name = guard.name().clone();
    // A signal may have come while it was taken: then it is finished too, or not begun.
    let (ended, failure) = if *killed.borrow() {
        (Ended::Untried, None)
    } else {
        attend(&runner, &guard, &mut killed).await
    };
    let resolved = tokio::task::spawn_blocking(move || runner.policy.resolve(guard, ended)).await;
    match resolved {
        Ok(Ok(())) => failure.map_or(Ok((name, ended)), Err),
        Ok(Err(error)) => Err(Failure::new(code(&error), error.to_string())),
        Err(_) => Err(bug()),
    }
}

async fn wait(killed: &mut watch::Receiver<bool>) {
    // The sender stays as long as there are jobs.
    let _ = killed.wait_for(|killed| *killed).await;
}

async fn attend(
    runner: &CommandRunner,
    guard: &Guard,
    killed: &mut watch::Receiver<bool>,
) -> (Ended, Option<Failure>) {
    let name = guard.name();
    let (mut running, mut kept) = match runner.start(guard) {
        Ok(started) => started,
        Err(error @ Fault::Job(_)) => {
            warn!(%name, %error, "A command was not started: this entry cannot be put on its command line.");
            return (Ended::Failed, None);
        }
        Err(Fault::Program(error)) => {
            error!(%name, %error, "The command cannot be run, for any entry; this one is given back.");
            return (
                Ended::Untried,
                Some(Failure::new(ExitCode::Configuration, error.to_string())),
            );
        }
        Err(Fault::System(error)) => {
            warn!(%name, %error, "A command was not started; the entry is given back.");
            tokio::select! {
                () = tokio::time::sleep(PAUSE) => {}
                () = wait(killed) => {}
            }
            return (Ended::Untried, None);
        }
    };
    let end = tokio::select! {
        biased;
        end = running.wait() => end,
        () = wait(killed) => {
            running.kill();
            running.wait().await;
            kept.close("killed, for `run` was to end at once");
            return (Ended::Untried, None);
        }
    };
    // All that it printed is passed on before its entry is resolved.
    tokio::select! {
        () = kept.end(end) => {}
        () = wait(killed) => {}
    }
    if end.is_success() {
        return (Ended::Done, None);
    }
    warn!(%name, attempt = guard.attempt(), code = end.shell_code(), "A command failed.");
    (Ended::Failed, None)
}
