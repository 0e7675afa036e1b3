//! The ready-made worker: takes jobs from the daemon, runs a command for each, and reports how it
//! ended. `shiftboss work` calls it.
//!
//! [`slot`] is a job's way through a worker, and [`pool`] what the slots decide together. [`client`]
//! speaks to the daemon, over [`connection`] and by [`wire`]. [`workshop`] runs commands, with their
//! [`payload`]s; their output goes to [`Outputs`].

mod backoff;
mod client;
mod connection;
mod payload;
mod pool;
mod progress;
mod question;
mod slot;
mod wire;
mod workshop;

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::task::JoinSet;
use tracing::{error, info, warn};

use crate::child::{Guardian, Outputs, Template};
use crate::terminal;
use client::Client;
use pool::{Counts, Pool, Stop};
use progress::{Finish, Progress};
use slot::{GaveUp, PAUSED, Slot};
use wire::{Ended, Idle};
use workshop::Workshop;

/// What a worker does, and how.
#[derive(Debug, Clone)]
pub struct Settings {
    pub socket: PathBuf,
    /// What is run for each job.
    pub command: Template,
    /// The payload is each command's standard input.
    pub stdin: bool,
    /// The worker's name, as in `HELLO`; `None`: it is named by host and process.
    pub name: Option<String>,
    /// Jobs at a time, from 1.
    pub jobs: usize,
    /// Leave when there is nothing to do.
    pub once: bool,
    /// Jobs that failed, or that were left to others, are no good end.
    pub fail: bool,
    /// Leave after so many jobs.
    pub jobs_max: Option<u64>,
    /// How long a job may run.
    pub time_limit: Option<Duration>,
    pub grace: Duration,
    /// How long the daemon waits for a word of us before it gives a job to somebody else.
    pub lease_seconds: u32,
    /// The logs' directory, and how long logs are kept; `None`: output is printed.
    pub logs: Option<(PathBuf, Duration)>,
}

/// How a worker came to its end.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All that was done is reported.
    Done,
    /// The same, and there were jobs that failed, were lost, or were left: what nobody is to miss who asked
    /// for [`Settings::fail`].
    Failed(String),
    /// The system had no room for any job; they were given back.
    NoRoom(String),
    /// No daemon answered for too long. Results that it does not know were logged.
    Unanswered(String),
    /// A second signal ended it.
    Killed,
    /// A bug ended a part of it.
    Broken,
}

/// Works. `signal` waits for the next signal that asks for the end; it is called again and again, and
/// may be cancelled.
pub async fn run(settings: Settings, mut signal: impl AsyncFnMut()) -> io::Result<Outcome> {
    let progress = Progress::new(terminal::shows_progress());
    let (outputs, writer) = outputs(&settings, &progress)?;
    let (pool, _) = watch::channel(Pool::new(settings.once, settings.jobs_max));
    let shown = Finish(progress.clone());
    let mut follow = std::pin::pin!(progress.follow(pool.subscribe(), settings.socket.clone()));
    let mut sweep = std::pin::pin!(outputs.sweep());
    let mut slots = start(&settings, &pool, outputs);
    let mut outcome = Outcome::Done;
    loop {
        tokio::select! {
            ended = slots.join_next() => match ended {
                None => break,
                Some(ended) => outcome = worse(outcome, ended),
            },
            () = signal() => stop(&pool),
            () = &mut follow => {}
            () = &mut sweep => {}
        }
    }
    drop(shown);
    let (stopping, counts, left, no_room) = {
        let pool = pool.borrow();
        (pool.stopping(), pool.counts(), pool.left(), pool.no_room().map(str::to_owned))
    };
    tell_left(left);
    tell_end(counts);
    if stopping == Stop::Kill {
        // Whoever reads our output may have stopped: the writer is left alone.
        return Ok(Outcome::Killed);
    }
    join(writer).await;
    if let (Outcome::Done, Some(why)) = (&outcome, no_room) {
        return Ok(Outcome::NoRoom(why));
    }
    Ok(if settings.fail { failed(outcome, counts, left) } else { outcome })
}

fn outputs(
    settings: &Settings,
    progress: &Progress,
) -> io::Result<(Outputs, Option<JoinHandle<()>>)> {
    let progress = progress.clone();
    Outputs::new(settings.logs.clone(), move |text| {
        progress.suspend(|| io::stdout().lock().write_all(text))?;
        io::stdout().flush()
    })
}

/// Starts the slots, which share a workshop.
fn start(
    settings: &Settings,
    pool: &watch::Sender<Pool>,
    outputs: Outputs,
) -> JoinSet<Result<(), GaveUp>> {
    let name = settings.name.clone().unwrap_or_else(host_and_process);
    let workshop = Arc::new(Workshop {
        guardian: Guardian::new(),
        template: settings.command.clone(),
        stdin: settings.stdin,
        name: name.clone(),
        time_limit: settings.time_limit,
        grace: settings.grace,
        outputs,
    });
    workshop.clean();
    let lease = Duration::from_secs(settings.lease_seconds.into());
    let mut slots = JoinSet::new();
    for _ in 0..settings.jobs {
        let client = Client::new(settings.socket.clone(), &name, settings.lease_seconds);
        slots.spawn(Slot::new(client, pool.clone(), Arc::clone(&workshop), lease).work());
    }
    slots
}

/// A name with nothing in it that `HELLO` does not take.
fn host_and_process() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let is_fit = |character: &char| character.is_ascii_graphic();
    let host: String = host.chars().filter(is_fit).take(64).collect();
    let host = if host.is_empty() { "worker" } else { &host };
    format!("{host}-{}", std::process::id())
}

fn stop(pool: &watch::Sender<Pool>) {
    pool.send_modify(|pool| pool.stop(Instant::now()));
    let out = pool.borrow().counts().out;
    match pool.borrow().stopping() {
        Stop::Kill => info!(jobs = out, "Stopping at once: killing what runs, and giving it back."),
        _ => info!(
            jobs = out,
            "Stopping: finishing what runs. Another signal, a second after this one or later, kills it."
        ),
    }
}

/// What there was and could not be had: a queue that looks empty need not be.
fn tell_left(left: Idle) {
    match left {
        Idle::Nothing => {}
        Idle::Paused(left) => warn!(left, "{PAUSED}"),
        Idle::Busy(left) => warn!(left, "Other workers hold jobs that are not done yet."),
    }
}

/// A good end that is none if some jobs failed or were lost, or others are not done. Any other end has an
/// exit code of its own, which says more.
fn failed(outcome: Outcome, counts: Counts, left: Idle) -> Outcome {
    let left = match left {
        Idle::Nothing => String::new(),
        Idle::Paused(left) => format!("the queue is paused ({left} waiting)"),
        Idle::Busy(left) => format!("{left} left that other workers hold"),
    };
    let count = |count, what| if count == 0 { String::new() } else { format!("{count} {what}") };
    let all = [count(counts.failed, "failed"), count(counts.lost, "lost"), left];
    let why: Vec<String> = all.into_iter().filter(|why| !why.is_empty()).collect();
    if outcome == Outcome::Done && !why.is_empty() {
        Outcome::Failed(why.join(", "))
    } else {
        outcome
    }
}

/// The last word. What is still out could not be reported.
fn tell_end(Counts { out, done, failed, given_back, lost }: Counts) {
    let lost = lost + out as u64;
    let lost = (lost > 0).then_some(lost);
    let succeeded = done.saturating_sub(failed);
    info!(succeeded, failed, given_back, lost, "The worker has ended.");
}

/// What is left to be said when one more slot has ended.
fn worse(outcome: Outcome, ended: Result<Result<(), GaveUp>, tokio::task::JoinError>) -> Outcome {
    match ended {
        Ok(Ok(())) => outcome,
        Ok(Err(GaveUp { silence, unreported })) => {
            if let Some(Ended { job, code }) = unreported {
                error!(
                    key = job.shown_key(),
                    attempt = job.number(),
                    code,
                    "The end of a job could not be reported; it will be handed out again."
                );
            }
            if outcome == Outcome::Broken {
                outcome
            } else {
                Outcome::Unanswered(silence.to_string())
            }
        }
        Err(_) => Outcome::Broken,
    }
}

/// Waits until all that commands printed is written.
async fn join(writer: Option<JoinHandle<()>>) {
    if let Some(writer) = writer {
        let _ = tokio::task::spawn_blocking(|| writer.join()).await;
    }
}
