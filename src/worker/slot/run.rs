//! A job in its slot: started, kept alive at the daemon while it runs, and given back when it is not to
//! be finished here.

use std::time::{Duration, Instant};

use tracing::{debug, warn};

use super::Slot;
use super::trouble::{BEATS_PER_LEASE, Trouble};
use crate::child::{End, Fault};
use crate::worker::pool::{Pool, Stop};
use shiftboss_protocol::model::Attempt;

use crate::worker::wire::{Ended, Job};
use crate::worker::workshop::Execution;

/// How a job's run came to its end.
enum Run {
    Ended(End),
    /// The job is somebody else's.
    Lost,
    Killed,
}

/// A job's failure is told where the worker runs, too: not everybody looks at the daemon.
fn tell_failure(job: &Job, end: End, execution: &Execution) {
    if end.is_success() {
        return;
    }
    let took = format_args!("{:.1}s", execution.took().as_secs_f64());
    let ended = end.to_string();
    let output = execution.log().map(|path| path.display().to_string());
    let (key, attempt) = (job.shown_key(), job.number());
    warn!(key, attempt, ended, %took, output, "A job failed.");
}

impl Slot {
    /// Runs a job to its end; returns what is to be reported.
    pub(super) async fn run(&mut self, job: Job) -> Option<Ended> {
        let mut execution = match self.start(&job).await {
            Ok(execution) => execution,
            Err(Some(code)) => return Some(Ended { job, code }),
            Err(None) => {
                self.give_back(job).await;
                return None;
            }
        };
        match self.attend(&mut execution, job.attempt).await {
            Run::Ended(end) => {
                tell_failure(&job, end, &execution);
                return Some(Ended { job, code: end.shell_code() });
            }
            Run::Lost => {
                execution.kill().await;
                warn!(
                    key = job.shown_key(),
                    attempt = job.number(),
                    "The daemon took a running job back, for it heard too little of us or was told otherwise; its command was killed."
                );
                self.pool.send_modify(Pool::lost);
            }
            Run::Killed => {
                execution.kill().await;
                self.give_back(job).await;
            }
        }
        None
    }

    /// Waits for a command's end, and says meanwhile that it goes on.
    async fn attend(&mut self, execution: &mut Execution, attempt: Option<Attempt>) -> Run {
        let mut changes = self.changes.clone();
        let killed = async move {
            let _ = changes.wait_for(|pool| pool.stopping() == Stop::Kill).await;
        };
        tokio::select! {
            biased;
            end = execution.wait() => Run::Ended(end),
            () = killed => Run::Killed,
            () = self.beat(attempt) => Run::Lost,
        }
    }

    /// Beats, until the attempt is lost.
    async fn beat(&mut self, attempt: Option<Attempt>) {
        let Some(attempt) = attempt else {
            return std::future::pending().await;
        };
        loop {
            tokio::time::sleep(self.lease / BEATS_PER_LEASE).await;
            let mut trouble = Trouble::new(self.lease);
            loop {
                match self.client.beat(attempt).await {
                    Ok(true) => break self.is_answered(),
                    Ok(false) => return,
                    // A job that runs is not given up: it can be reported later.
                    Err(silence) => tokio::time::sleep(self.delay(&silence, &mut trouble)).await,
                }
            }
        }
    }

    /// Starts a job's command. The error is the code to be reported, or nothing: the job is to be
    /// given back.
    async fn start(&mut self, job: &Job) -> Result<Execution, Option<u8>> {
        loop {
            let fault = match self.workshop.start(job) {
                Ok(execution) => {
                    self.pool.send_modify(Pool::started);
                    return Ok(execution);
                }
                Err(fault) => fault,
            };
            let pause = match &fault {
                Fault::Job(_) => Duration::ZERO,
                Fault::Program(_) | Fault::System(_) => self.hold(),
            };
            let shown = humantime::format_duration(Duration::from_secs(pause.as_secs()));
            let then = match &fault {
                Fault::System(_) => "given back, or tried again",
                Fault::Job(_) => {
                    "reported as ended with 126; {payload_file} or --stdin take any payload"
                }
                Fault::Program(_) => "reported as ended with 126 or 127",
            };
            let key = job.shown_key();
            warn!(key, error = %fault, then, pause = %shown, "A job could not be started.");
            match fault {
                Fault::Job(error) | Fault::Program(error) => return Err(Some(error.shell_code())),
                Fault::System(error) => {
                    self.pool.send_modify(|pool| pool.had_no_room(error.to_string()));
                    if job.attempt.is_some() {
                        return Err(None);
                    }
                    self.idle_for(pause).await;
                }
            }
            if self.stopping() > Stop::No {
                return Err(None);
            }
        }
    }

    /// Has all slots wait before they ask again.
    fn hold(&self) -> Duration {
        let mut pause = Duration::ZERO;
        self.pool.send_modify(|pool| pause = pool.could_not_start(Instant::now()));
        pause
    }

    /// Puts a job back in its place, if the protocol allows it.
    pub(super) async fn give_back(&mut self, job: Job) {
        let mut trouble = Trouble::new(self.lease);
        let is_back = loop {
            let Some(attempt) = job.attempt else {
                break Ok(false);
            };
            match self.client.release(attempt).await {
                Ok(is_back) => break Ok(is_back),
                Err(silence) => {
                    if let Err(silence) = self.wait_out(silence, &mut trouble).await {
                        break Err(silence);
                    }
                }
            }
        };
        let key = job.shown_key();
        match is_back {
            Ok(true) => {
                debug!(key, "A job was given back.");
                return self.pool.send_modify(Pool::gave_back);
            }
            Ok(false) => {
                warn!(key, "A job is abandoned: the classic protocol takes none back.");
            }
            Err(error) => {
                warn!(key, %error, "A job could not be given back; it is handed out again when its lease ends.");
            }
        }
        self.pool.send_modify(Pool::lost);
    }
}
