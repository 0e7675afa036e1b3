//! A job in its slot: what is run for it, its heartbeats, and its way back when it is not finished here.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::time::{Duration, Instant};

use tracing::{debug, warn};

use super::Slot;
use super::trouble::{BEATS_PER_LEASE, Trouble};
use crate::child::{Blame, StartError, Template};
use crate::runner::command::{JobCommand, VARIABLE_BYTES_MAX};
use crate::runner::payload::Payload;
use crate::runner::{NotStarted, Stop};
use crate::worker::pool::Pool;
use shiftboss_protocol::model::Attempt;
use shiftboss_protocol::wire::answers::Job;

/// What is run for a job. The payload is written to files, as far as the command takes it from there.
pub(super) fn command(
    job: &Job,
    template: &Template,
    stdin: bool,
    worker: &str,
) -> Result<JobCommand, StartError> {
    let payload = Payload::of(&job.payload, template, stdin)?;
    let places = [("{key}", &job.key[..]), ("{payload}", &job.payload), payload.place()];
    let attempt = job.number().map(|attempt| attempt.to_string()).unwrap_or_default();
    let mut variables = vec![
        ("SHIFTBOSS_KEY", OsString::from_vec(job.key.clone())),
        ("SHIFTBOSS_ATTEMPT", attempt.into()),
        ("SHIFTBOSS_WORKER", worker.into()),
    ];
    // One with a zero byte is left out if the command has it otherwise.
    let is_short = job.payload.len() <= VARIABLE_BYTES_MAX;
    if is_short && !(payload.is_in_file() && job.payload.contains(&0)) {
        variables.push(("SHIFTBOSS_PAYLOAD", OsString::from_vec(job.payload.clone())));
    }
    Ok(JobCommand {
        key: job.key.clone(),
        shown: job.shown_key(),
        attempt: job.number(),
        arguments: template.arguments_with(&places),
        environment: variables.into_iter().map(|(name, value)| (name.into(), value)).collect(),
        payload,
    })
}

impl Slot {
    /// What becomes of a job whose command did not start.
    pub(super) async fn after_fault(&mut self, job: Job, error: StartError) -> NotStarted<Job> {
        let (pause, then) = match error.blame() {
            Blame::Job => (
                Duration::ZERO,
                "reported as ended with 126; {payload_file} or --stdin take any payload",
            ),
            Blame::Program => (self.hold(), "reported as ended with 126 or 127"),
            Blame::System => (self.hold(), "released, or tried again"),
        };
        let shown = humantime::format_duration(Duration::from_secs(pause.as_secs()));
        let key = job.shown_key();
        warn!(key, %error, then, pause = %shown, "A job could not be started.");
        if error.blame() != Blame::System {
            return NotStarted::Ended(job, error.shell_code());
        }
        self.pool.send_modify(|pool| pool.had_no_room(error.to_string()));
        if job.attempt.is_none() {
            self.idle_for(pause).await;
            if self.stopping() == Stop::No {
                return NotStarted::Again(job);
            }
        }
        self.give_back(job).await;
        NotStarted::Released
    }

    /// Beats, until the attempt is lost.
    pub(super) async fn beat(&mut self, attempt: Attempt) {
        loop {
            tokio::time::sleep(self.lease / BEATS_PER_LEASE).await;
            let mut trouble = Trouble::new(self.lease);
            loop {
                match self.client(move |client| client.beat(attempt)).await {
                    Ok(true) => break self.is_answered(),
                    Ok(false) => return,
                    // A job that runs is not given up: it can be reported later.
                    Err(error) => tokio::time::sleep(self.delay(&error, &mut trouble)).await,
                }
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
            match self.client(move |client| client.release(attempt)).await {
                Ok(is_back) => break Ok(is_back),
                Err(error) => {
                    if let Err(error) = self.wait_out(error, &mut trouble).await {
                        break Err(error);
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
