//! One of the jobs that a worker runs at a time: asks for a job, reports its end with the request for the
//! next, and goes on whatever happens to the daemon meanwhile ([`exchange`]). The slots share the [`Pool`].

mod exchange;

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::time::{Duration, Instant};

use shiftboss_protocol::client::{BeatAnswer, ClientError};
use shiftboss_protocol::model::Idle;
use shiftboss_protocol::verbs::Asks;
use shiftboss_protocol::wire::answers::Job;
use tokio::sync::watch;
use tokio::time::{sleep, sleep_until, timeout, timeout_at};
use tracing::{debug, info, warn};

use super::classic;
use super::client::Client;
use super::control::Control;
use super::pool::{LONG_WAIT, Permit, Pool, State};
use crate::child::{StartError, Template};
use crate::runner::command::{JobCommand, VARIABLE_BYTES_MAX};
use crate::runner::payload::Payload;
use crate::runner::{Ending, Source, Stop};
pub use exchange::paused;
use exchange::{BEATS_PER_LEASE, Trouble};

/// The pause after a `NOJOBS` that came at once.
const IDLE: Duration = Duration::from_secs(1);
/// When a job is first kept, at the latest: shorter ones need no beat.
const FIRST_BEAT: Duration = Duration::from_secs(1);

/// The daemon was silent for too long, and the worker is ending.
#[derive(Debug)]
pub struct GaveUp {
    pub error: ClientError,
    /// A job whose end was not reported, and its exit code.
    pub unreported: Option<(Job, u8)>,
}

pub struct Slot {
    client: Client,
    pool: watch::Sender<Pool>,
    changes: watch::Receiver<Pool>,
    /// The payload is each command's standard input.
    stdin: bool,
    /// A classic job that could not be started, and cannot be given back.
    again: Option<Job>,
    started_at: Instant,
    /// How long the command ran whose end is to be reported.
    took: Duration,
    control: Control,
    /// What the command asked for whose end is to be reported.
    asks: Asks,
}

impl Slot {
    pub fn new(client: Client, pool: watch::Sender<Pool>, stdin: bool) -> Self {
        let changes = pool.subscribe();
        let (started_at, took) = (Instant::now(), Duration::ZERO);
        let (again, control, asks) = (None, Control::default(), Asks::NOTHING);
        Self { client, pool, changes, stdin, again, started_at, took, control, asks }
    }

    fn stopping(&self) -> Stop {
        self.pool.borrow().stop
    }

    /// Waits for a change, or a time.
    async fn change(&mut self, until: Option<Instant>) {
        match until {
            None => _ = self.changes.changed().await,
            Some(until) => _ = timeout_at(until.into(), self.changes.changed()).await,
        }
    }

    /// A worker that waits for what comes by itself says so after a while.
    fn tell_of_waiting(&self, left: Idle, waited: Duration) {
        let waits = waited >= LONG_WAIT / 2 && self.pool.borrow().waits();
        if waits && self.is_news(State::Waiting, true) {
            let Idle { delayed, groups, due, .. } = left;
            let why = "Waits for tasks that are tried again, and for groups that open.";
            info!(delayed, groups, due, "{why}");
        }
    }

    /// Lets time pass after an answer that there is nothing to do.
    async fn idle(&mut self, asked: Instant, wait: Duration) {
        if self.client.is_classic() {
            self.idle_for(classic::IDLE).await;
        } else if asked.elapsed() < IDLE && !wait.is_zero() {
            self.idle_for(IDLE).await;
        }
    }

    async fn idle_for(&mut self, time: Duration) {
        let outdated = self.changes.wait_for(|pool| pool.is_outdated(LONG_WAIT));
        let _ = timeout(time, outdated).await;
    }

    /// Has all slots wait before they ask again.
    fn hold(&self) -> Duration {
        let mut pause = Duration::ZERO;
        self.pool.send_modify(|pool| pause = pool.could_not_start(Instant::now()));
        pause
    }

    /// Puts a job back in its place, if the protocol allows it.
    async fn give_back(&mut self, job: Job) {
        self.release_as(job, Pool::gave_back).await;
    }

    /// Has the daemon take a job back, and counts it as what it is then.
    async fn release_as(&mut self, job: Job, count: fn(&mut Pool)) {
        let mut trouble = Trouble::new(self.client.lease());
        let is_back = loop {
            let Some(attempt) = job.attempt else {
                break Ok(false);
            };
            let given_back = self.client.release(attempt).await;
            let Err(error) = given_back else { break given_back };
            if let Err(error) = self.wait_out(error, &mut trouble).await {
                break Err(error);
            }
        };
        let key = job.shown_key();
        match is_back {
            Ok(true) => {
                debug!(key, "A job was given back.");
                return self.pool.send_modify(count);
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

impl Source for Slot {
    type Job = Job;
    type Error = GaveUp;

    /// Must not be cancelled.
    async fn take(&mut self, mut end: Option<(Job, u8)>) -> Result<Option<Job>, GaveUp> {
        if let Some(job) = self.again.take() {
            return Ok(Some(job));
        }
        self.took = self.started_at.elapsed();
        self.asks = end.as_ref().map_or(Asks::NOTHING, |it| self.control.asks(&it.0.shown_key()));
        let mut trouble = Trouble::new(self.client.lease());
        loop {
            let permit = self.changes.borrow_and_update().permit(end.is_some(), Instant::now());
            let wait = match permit {
                Permit::Ask(wait) => Some(wait),
                _ if end.is_some() => None,
                Permit::Later(until) => {
                    self.change(until).await;
                    continue;
                }
                Permit::Leave => return Ok(None),
            };
            let asked = Instant::now();
            let given = match self.exchange(&mut end, wait).await {
                Ok(given) => given,
                Err(error) => match self.wait_out(error, &mut trouble).await {
                    Ok(()) => continue,
                    Err(error) => return Err(GaveUp { error, unreported: end }),
                },
            };
            trouble = Trouble::new(self.client.lease());
            match (given, wait) {
                (Some(Ok(job)), Some(_)) if self.stopping() == Stop::No => return Ok(Some(job)),
                (Some(Ok(job)), _) => self.give_back(job).await,
                (Some(Err(left)), Some(wait)) => {
                    self.pool.send_modify(|pool| pool.left = left);
                    if self.pool.borrow().is_over(wait) {
                        return Ok(None);
                    }
                    self.tell_of_waiting(left, asked.elapsed());
                    self.idle(asked, wait).await;
                }
                (_, None) | (None, _) => {}
            }
        }
    }

    /// The payload is written to files, as far as the command takes it from there.
    fn command(&self, job: &Job, template: &Template) -> Result<JobCommand, StartError> {
        let payload = Payload::of(&job.payload, template, self.stdin)?;
        let about = job.about.clone().unwrap_or_default();
        let places = [
            ("{key}", &job.key[..]),
            ("{payload}", &job.payload),
            ("{fetcher}", about.fetcher.as_bytes()),
            payload.place(),
        ];
        let (this, of) = about.tries();
        let attempt = job.number().map(|attempt| attempt.to_string()).unwrap_or_default();
        let mut variables = vec![
            ("SHIFTBOSS_KEY", OsString::from_vec(job.key.clone())),
            ("SHIFTBOSS_ATTEMPT", attempt.into()),
            ("SHIFTBOSS_FETCHER", about.fetcher.to_string().into()),
            ("SHIFTBOSS_RETRY", format!("{this}/{of}").into()),
            ("SHIFTBOSS_WORKER", self.client.hello.worker.to_string().into()),
        ];
        variables.extend(self.control.begin().map(|path| ("SHIFTBOSS_CONTROL", path)));
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

    fn started(&mut self) {
        self.started_at = Instant::now();
        self.pool.send_modify(Pool::started);
    }

    async fn not_started(
        &mut self,
        job: Job,
        error: StartError,
    ) -> Result<Option<(Job, u8)>, GaveUp> {
        let key = job.shown_key();
        if error.is_of_job() {
            let then = "reported as ended with 126; {payload_file} or --stdin take any payload";
            warn!(key, %error, then, "A job could not be started.");
            return Ok(Some((job, error.shell_code())));
        }
        let pause = self.hold();
        let shown = humantime::format_duration(Duration::from_secs(pause.as_secs()));
        warn!(key, %error, then = "given back, or tried again", pause = %shown, "A job could not be started.");
        self.pool.send_modify(|pool| pool.could_start_none(error.to_string()));
        if job.attempt.is_none() {
            self.idle_for(pause).await;
            if self.stopping() == Stop::No {
                self.again = Some(job);
                return Ok(None);
            }
        }
        self.give_back(job).await;
        Ok(None)
    }

    /// Beats, until the attempt is lost or cancelled. Each beat waits for that until the next one is due.
    async fn keep(&mut self, job: &Job) -> Ending {
        let Some(attempt) = job.attempt else {
            return std::future::pending().await;
        };
        let every = self.client.lease() / BEATS_PER_LEASE;
        sleep(FIRST_BEAT.min(every)).await;
        loop {
            let begun = tokio::time::Instant::now();
            let mut trouble = Trouble::new(self.client.lease());
            let answer = loop {
                match self.client.beat(attempt, every).await {
                    Ok(answer) => break answer,
                    // A job that runs is not given up: it can be reported later.
                    Err(error) => sleep(self.delay(&error, &mut trouble)).await,
                }
            };
            self.is_answered();
            match answer {
                BeatAnswer::GoOn => sleep_until(begun + every).await,
                BeatAnswer::Stop => return Ending::Cancelled,
                BeatAnswer::Lost => return Ending::Lost,
            }
        }
    }

    async fn release(&mut self, job: Job) -> Result<(), GaveUp> {
        self.give_back(job).await;
        Ok(())
    }

    async fn cancelled(&mut self, job: Job) -> Result<(), GaveUp> {
        self.release_as(job, Pool::was_cancelled).await;
        Ok(())
    }

    fn lost(&mut self, _: Job) {
        self.pool.send_modify(Pool::lost);
    }
}
