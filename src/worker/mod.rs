//! The source of `shiftboss work`: takes jobs from the daemon and reports how they ended.
//!
//! [`source`] asks for jobs and reports them, one at a time; [`pool`] is what the slots decide together. [`client`]
//! speaks to the daemon over a [`connection`], and to the Python supervisor in the [`classic`] protocol.
//! [`crate::runner`] runs the commands.

mod caution;
mod classic;
mod client;
mod connection;
mod control;
mod pool;
mod progress;
mod source;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use humantime::format_duration;
use shiftboss_protocol::model::Idle;
use shiftboss_protocol::verbs::{Fetchers, Lease, Name};
use shiftboss_protocol::wire::session::Hello;
use tokio::sync::watch;
use tracing::{error, info, warn};

use crate::exit::{ExitCode, Failure};
use crate::hint::hint;
use crate::runner::command::CommandRunner;
use crate::runner::{self, Ended, RunnerSettings};
use crate::signals::Signals;
use client::Client;
pub use pool::Leaves;
use pool::{Counts, Pool};
use progress::Progress;
use source::{GaveUp, Slot, paused};

#[derive(Debug, Clone)]
pub struct Settings {
    pub socket: PathBuf,
    pub runner: RunnerSettings,
    /// The payload is each command's standard input.
    pub stdin: bool,
    /// The worker's name, as in `HELLO`; `None`: it is named by host and process.
    pub name: Option<Name>,
    /// Whose tasks it takes.
    pub fetchers: Fetchers,
    pub jobs: usize,
    pub leaves: Leaves,
    /// Jobs that failed, or that were left to others, make the exit code a failure.
    pub fail: bool,
    /// How long the daemon waits for a sign of life before it gives a job to another worker.
    pub lease: Lease,
}

/// Works until there is nothing more to do, or signals end it. Returns the signal that killed running commands.
pub async fn run(settings: Settings, signals: &mut Signals) -> Result<Option<i32>, Failure> {
    let progress = Progress::new();
    let shown = progress.clone();
    let runner = CommandRunner::new(settings.runner, move |text| shown.print(text))
        .map_err(Failure::of(ExitCode::CannotCreate))?;
    let pool = watch::Sender::new(Pool::new(settings.leaves));
    let worker = settings.name.unwrap_or_else(host_and_process);
    let hello = Hello { worker, lease: settings.lease };
    let slot = |_| {
        let client = Client::new(settings.socket.clone(), hello.clone(), settings.fetchers.clone());
        Slot::new(client, pool.clone(), settings.stdin)
    };
    let sources = (0..settings.jobs).map(slot).collect();
    let stop = |stop| pool.send_modify(|pool| pool.stop(stop, Instant::now()));
    let follow = progress.clone().follow(pool.subscribe(), settings.socket.clone());
    let ended = runner::run(sources, runner, signals, stop, follow).await;
    progress.finish();
    let pool = pool.borrow();
    warn_left(pool.left);
    log_end(pool.counts);
    log_unreported(&ended.errors);
    if ended.killed.is_some() {
        return Ok(ended.killed);
    }
    outcome(ended, &pool, settings.fail, &settings.socket.display().to_string()).map(|()| None)
}

/// Logs the ends that could not be reported to the daemon.
fn log_unreported(errors: &[GaveUp]) {
    for (job, code) in errors.iter().filter_map(|gave_up| gave_up.unreported.as_ref()) {
        error!(
            key = job.shown_key(),
            attempt = job.number(),
            code,
            "The end of a job could not be reported; it will be handed out again."
        );
    }
}

/// The first of these that applies is the most important.
fn outcome(ended: Ended<GaveUp>, pool: &Pool, fail: bool, socket: &str) -> Result<(), Failure> {
    let (code, message) = if ended.is_broken {
        let bug = "a bug in shiftboss ended a job's task; please report the message above";
        (ExitCode::Internal, bug.to_owned())
    } else if let Some(GaveUp { error, .. }) = ended.errors.last() {
        // The error says what to look at.
        let message = format!("no daemon answered on {socket} for 30 s: {error}");
        (ExitCode::Unavailable, message)
    } else if let Some(why) = &pool.no_start {
        (ExitCode::CannotCreate, format!("no job can be started: {why}"))
    } else if let Some(count) = pool.too_many_failures() {
        (ExitCode::Found, format!("{count} jobs failed one after the other"))
    } else if let Some(why) = failures(pool.counts, pool.left).filter(|_| fail) {
        (ExitCode::Found, format!("not all jobs were done well: {why}"))
    } else {
        return Ok(());
    };
    Err(Failure::new(code, message))
}

/// A name with nothing in it that `HELLO` does not take.
fn host_and_process() -> Name {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let is_fit = |character: &char| character.is_ascii_graphic();
    let host: String = host.chars().filter(is_fit).take(64).collect();
    let host = if host.is_empty() { "worker" } else { &host };
    Name::resembling(&format!("{host}-{}", std::process::id()))
}

/// Warns of jobs that exist but were not available: a queue that looks empty need not be.
fn warn_left(left: Idle) {
    let Idle { paused: waiting, busy, delayed, held, groups, others, due } = left;
    if let Some(left) = waiting {
        warn!(left, "{}", paused());
    }
    if busy > 0 {
        warn!(left = busy, "Other workers hold jobs that are not done yet.");
    }
    let next = due.map(|due| format_duration(Duration::from_secs(due.into())));
    let next = next.map(tracing::field::display);
    if delayed > 0 {
        let how = "Tasks that failed are tried again later; `--until-done` waits for them.";
        warn!(left = delayed, next, "{how}");
    }
    if groups > 0 {
        let how = "Groups with tasks are closed; `--until-done` waits for them.";
        warn!(groups, "{how}");
    }
    if others > 0 {
        warn!(left = others, "Tasks wait for workers of other fetchers.");
    }
    if held > 0 {
        let how = hint("tasks --held");
        warn!(keys = held, "Keys are held; if they have tasks, these were left: {how} lists them.");
    }
}

/// Jobs that failed or were lost, or that were left. What an operator holds is not to be done.
fn failures(counts: Counts, left: Idle) -> Option<String> {
    let count = |count: u64, what| (count > 0).then(|| format!("{count} {what}"));
    let paused = left.paused.filter(|left| *left > 0);
    let why = [
        count(counts.failed, "failed"),
        count(counts.lost, "lost"),
        paused.map(|left| format!("the queue is paused ({left} waiting)")),
        count(left.busy.into(), "left that other workers hold"),
        count(left.delayed.into(), "left that are tried again later"),
        count(left.groups.into(), "groups left that are closed"),
    ];
    let why: Vec<String> = why.into_iter().flatten().collect();
    (!why.is_empty()).then(|| why.join(", "))
}

/// What is still out could not be reported.
fn log_end(Counts { out, done, failed, given_back, cancelled, lost }: Counts) {
    let some = |count: u64| (count > 0).then_some(count);
    let (cancelled, lost) = (some(cancelled), some(lost + out));
    let succeeded = done.saturating_sub(failed);
    info!(succeeded, failed, given_back, cancelled, lost, "The worker has ended.");
}
