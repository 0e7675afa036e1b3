//! Runs a command for each of many jobs, some at a time. A [`Source`] supplies the jobs and takes them back.
//! [`crate::command`] starts the commands.

use std::sync::Arc;

use tokio::sync::{oneshot, watch};
use tokio::task::{JoinSet, LocalSet};
use tokio::time::sleep;
use tracing::{info, warn};

use crate::child::{End, StartError, Template};
use crate::command::{CommandRunner, Execution, JobCommand, Printing, UNREAD_MAX};
use crate::signals::Signals;

/// How urgently a run must end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stop {
    #[default]
    No,
    Finish,
    Kill,
}

/// Why a job's command is to end before its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// The job was cancelled: once its command has ended, it is given back.
    Cancelled,
    Lost,
}

/// Gives jobs to one slot, one after the other.
pub trait Source {
    type Job;
    type Error;

    /// Records the exit code of the last job, and returns the next; `None`: there is nothing more to do, or [`run`] has
    /// asked it to stop.
    fn take(
        &mut self,
        ended: Option<(Self::Job, u8)>,
    ) -> impl Future<Output = Result<Option<Self::Job>, Self::Error>>;

    fn command(&self, job: &Self::Job, template: &Template) -> Result<JobCommand, StartError>;

    /// A command was started: whatever was wrong is over.
    fn started(&mut self) {}

    /// A command did not start. If a job is returned it has ended, with this exit code; else the source took it back.
    fn not_started(
        &mut self,
        job: Self::Job,
        error: StartError,
    ) -> impl Future<Output = Result<Option<(Self::Job, u8)>, Self::Error>>;

    /// Keeps a job while its command runs; resolves if that is to end. Dropped at any point when the command has ended.
    fn keep(&mut self, _: &Self::Job) -> impl Future<Output = Ending> {
        std::future::pending()
    }

    /// Gives back a job whose command was killed.
    fn release(&mut self, job: Self::Job) -> impl Future<Output = Result<(), Self::Error>>;

    /// Gives back a job that was cancelled, whose command has ended.
    fn cancelled(&mut self, job: Self::Job) -> impl Future<Output = Result<(), Self::Error>> {
        self.release(job)
    }

    /// A job was lost, and its command killed.
    fn lost(&mut self, _: Self::Job) {}
}

/// How a run came to its end.
pub struct Ended<E> {
    /// Errors of the slots that gave up, in order.
    pub errors: Vec<E>,
    /// A slot panicked.
    pub is_broken: bool,
    /// The signal that killed the running commands.
    pub killed: Option<i32>,
}

/// Runs one slot for each source until they have no more to do. The first signal, or a slot that panics, stops the
/// sources by `stop`; the second signal kills the running commands.
pub async fn run<S: Source + 'static>(
    sources: Vec<S>,
    mut runner: CommandRunner,
    signals: &mut Signals,
    stop: impl Fn(Stop),
    beside: impl Future<Output = ()>,
) -> Ended<S::Error> {
    let mut beside = std::pin::pin!(beside);
    let (printing, printed) = (runner.printing.clone(), runner.printed.take());
    let runner = Arc::new(runner);
    let local = LocalSet::new();
    let (kill, killed) = watch::channel(false);
    let mut slots = JoinSet::new();
    for source in sources {
        let slot = slot(source, Arc::clone(&runner), killed.clone());
        slots.spawn_local_on(slot, &local);
    }
    drop(runner);
    let mut is_signalled = false;
    let mut ended = Ended { errors: Vec::new(), is_broken: false, killed: None };
    let work = async {
        loop {
            tokio::select! {
                slot = slots.join_next() => match slot {
                    None => break,
                    Some(Ok(Ok(()))) => {}
                    Some(Ok(Err(error))) => ended.errors.push(error),
                    // Other slots may meet the same bug.
                    Some(Err(_)) => {
                        ended.is_broken = true;
                        stop(Stop::Finish);
                    }
                },
                signal = signals.next() => if is_signalled {
                    info!("Stopping at once: killing what runs, and giving it back.");
                    ended.killed = Some(signal);
                    stop(Stop::Kill);
                    kill.send_replace(true);
                } else {
                    info!(
                        "Stopping: finishing what runs. Another signal, a second after this one or later, kills it."
                    );
                    is_signalled = true;
                    stop(Stop::Finish);
                    printing.send_replace(Printing::Ending);
                },
                _ = &mut beside => {}
            }
        }
        if ended.killed.is_none() {
            all_printed(printed, is_signalled, signals).await;
        }
        ended
    };
    local.run_until(work).await
}

/// Waits for the reader of the commands' output; once a signal came, no longer than for one piece.
async fn all_printed(
    printed: Option<oneshot::Receiver<()>>,
    is_signalled: bool,
    signals: &mut Signals,
) {
    let unread = async {
        if !is_signalled {
            signals.next().await;
        }
        sleep(UNREAD_MAX).await;
    };
    if let Some(printed) = printed {
        tokio::select! {
            _ = printed => {}
            () = unread => {}
        }
    }
}

async fn slot<S: Source>(
    mut source: S,
    runner: Arc<CommandRunner>,
    mut killed: watch::Receiver<bool>,
) -> Result<(), S::Error> {
    let mut ended = None;
    while let Some(job) = source.take(ended.take()).await? {
        ended = run_job(&mut source, &runner, &mut killed, job).await?;
    }
    Ok(())
}

/// Runs a job to its end, and returns it with its exit code if that must be recorded.
async fn run_job<S: Source>(
    source: &mut S,
    runner: &CommandRunner,
    killed: &mut watch::Receiver<bool>,
    job: S::Job,
) -> Result<Option<(S::Job, u8)>, S::Error> {
    let command = source.command(&job, &runner.settings.template);
    let mut execution = match command.and_then(|command| runner.start(command)) {
        Ok(execution) => execution,
        Err(error) => return source.not_started(job, error).await,
    };
    source.started();
    let ending = tokio::select! {
        biased;
        end = execution.wait() => return Ok(Some((job, failed(&execution, end)))),
        _ = killed.wait_for(|killed| *killed) => None,
        ending = source.keep(&job) => Some(ending),
    };
    let (key, attempt) = (execution.command.shown.clone(), execution.command.attempt);
    if ending == Some(Ending::Cancelled) {
        info!(key, attempt, "A running job was cancelled: its command is asked to end.");
        tokio::select! {
            biased;
            _ = killed.wait_for(|killed| *killed) => drop(execution.kill().await),
            _ = execution.stop() => {}
        }
        return source.cancelled(job).await.map(|()| None);
    }
    let end = execution.kill().await;
    if ending == Some(Ending::Lost) {
        warn!(
            key,
            attempt,
            "A running job was lost: its lease expired, or it was requeued. Its command was killed."
        );
        source.lost(job);
        return Ok(None);
    }
    match end {
        Some(end) => Ok(Some((job, failed(&execution, end)))),
        None => source.release(job).await.map(|()| None),
    }
}

/// Logs a failure, because not everyone looks where it is recorded. Returns the exit code.
fn failed(execution: &Execution, end: End) -> u8 {
    let code = end.shell_code();
    if !end.is_success() {
        let took = format_args!("{:.1}s", execution.started.elapsed().as_secs_f64());
        let output = execution.log().map(|path| path.display().to_string());
        let (key, attempt, ended) =
            (&*execution.command.shown, execution.command.attempt, end.to_string());
        warn!(key, attempt, code, ended, %took, output, "A job failed.");
    }
    code
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RunnerSettings;

    /// Has no jobs: it panics, or waits for a stop.
    struct Fake {
        panics: bool,
        stopped: watch::Receiver<bool>,
    }

    impl Source for Fake {
        type Job = ();
        type Error = ();

        async fn take(&mut self, _: Option<((), u8)>) -> Result<Option<()>, ()> {
            assert!(!self.panics, "on demand");
            self.stopped.wait_for(|stopped| *stopped).await.map(|_| None).map_err(|_| ())
        }

        fn command(&self, _: &(), _: &Template) -> Result<JobCommand, StartError> {
            unreachable!()
        }

        async fn not_started(&mut self, _: (), _: StartError) -> Result<Option<((), u8)>, ()> {
            unreachable!()
        }

        async fn release(&mut self, _: ()) -> Result<(), ()> {
            unreachable!()
        }
    }

    /// A slot that panics ends all others: they may meet the same bug.
    #[tokio::test]
    async fn a_panic_stops_all() {
        let template = Template { program: "true".into(), arguments: Vec::new() };
        let (time_limit, grace) = (None, std::time::Duration::ZERO);
        let settings = RunnerSettings { template, time_limit, grace, logs: None };
        let runner = CommandRunner::new(settings, |_| Ok(())).unwrap();
        let (stop, stopped) = watch::channel(false);
        let sources = [true, false].map(|panics| Fake { panics, stopped: stopped.clone() });
        let stop = |_| _ = stop.send_replace(true);
        let mut signals = Signals::new().unwrap();
        let pending = std::future::pending();
        let ended = run(sources.into(), runner, &mut signals, stop, pending).await;
        assert!(ended.is_broken && ended.errors.is_empty() && ended.killed.is_none());
    }
}
