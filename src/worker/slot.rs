//! One of the jobs that a worker runs at a time: asks for a job, reports its end with the request for the
//! next, and goes on whatever becomes of the daemon meanwhile. What slots have in common is in the [`Pool`].

mod job;
mod trouble;

use std::pin::Pin;
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tracing::{info, warn};

use super::client::Client;
use super::connection::Silence;
use super::pool::{LONG_WAIT, Permit, Pool};
use super::wire::{Ended, Idle, Job, Reported};
use crate::child::{Fault, Template};
use crate::runner::command::JobCommand;
use crate::runner::{NotStarted, Source, Stop};
use trouble::Trouble;

/// After a classic `NOJOBS`: it does not wait for work.
const CLASSIC_IDLE: Duration = Duration::from_secs(60);
/// After a `NOJOBS` that came at once.
const IDLE: Duration = Duration::from_secs(1);

/// Said of a queue that is paused, which looks like one with nothing in it.
pub const PAUSED: &str = "The queue is paused: nothing is handed out until `shiftboss resume`.";

/// The daemon was silent for too long, and somebody waits for the worker's end.
#[derive(Debug)]
pub struct GaveUp {
    pub silence: Silence,
    pub unreported: Option<Ended>,
}

pub struct Slot {
    client: Client,
    pool: watch::Sender<Pool>,
    changes: watch::Receiver<Pool>,
    name: String,
    /// The payload is each command's standard input.
    stdin: bool,
    lease: Duration,
}

impl Slot {
    pub fn new(
        client: Client,
        pool: watch::Sender<Pool>,
        name: String,
        stdin: bool,
        lease: Duration,
    ) -> Self {
        let changes = pool.subscribe();
        Self { client, pool, changes, name, stdin, lease }
    }

    /// Reports an end and asks for a job, either or both, until that is answered.
    async fn turn(
        &mut self,
        end: &mut Option<Ended>,
        mut wait: Option<Duration>,
    ) -> Result<Option<Job>, GaveUp> {
        let mut trouble = Trouble::new(self.lease);
        loop {
            if self.stopping() > Stop::No {
                wait = None;
            }
            if end.is_none() && wait.is_none() {
                return Ok(None);
            }
            match self.exchange(end, wait).await {
                Ok(job) => return Ok(job),
                Err(silence) => {
                    if let Err(silence) = self.wait_out(silence, &mut trouble).await {
                        return Err(GaveUp { silence, unreported: end.take() });
                    }
                }
            }
        }
    }

    async fn exchange(
        &mut self,
        end: &mut Option<Ended>,
        wait: Option<Duration>,
    ) -> Result<Option<Job>, Silence> {
        if wait.is_some() {
            self.pool.send_modify(Pool::asks);
        }
        let answered = self.answers(end, wait).await;
        let is_job = matches!(answered, Ok((Some(_), _)));
        match wait {
            Some(_) => self.pool.send_modify(|pool| pool.asked(answered.is_ok(), is_job)),
            None if is_job => self.pool.send_modify(Pool::was_given),
            None => {}
        }
        match answered? {
            (Some(job), Some(busy)) => {
                // Two jobs cannot be kept in mind: the new one waits.
                self.give_back(job).await;
                Err(Silence::Refused(busy))
            }
            (None, Some(busy)) => Err(Silence::Refused(busy)),
            (job, None) => Ok(job),
        }
    }

    /// The next job, and why the end could not be recorded.
    async fn answers(
        &mut self,
        end: &mut Option<Ended>,
        wait: Option<Duration>,
    ) -> Result<(Option<Job>, Option<String>), Silence> {
        let reported = self.client.ask(end.as_ref(), wait).await?;
        if self.client.was_greeted()
            || matches!(reported, Some(Reported::Recorded | Reported::Refused(_)))
        {
            self.is_answered();
        }
        let busy = reported.and_then(|reported| self.settle(end, reported));
        let job = match wait {
            Some(wait) => {
                let mut changes = self.changes.clone();
                let outdated = async move {
                    let _ = changes.wait_for(|pool| pool.is_outdated(wait)).await;
                };
                let job = self.client.next(wait, outdated).await?;
                // What was sent may yet meet a daemon that stops: only an answer is one.
                if busy.is_none() {
                    self.is_answered();
                    self.is_paused(job.is_none());
                }
                job
            }
            None => self.client.given(),
        };
        Ok((job, busy))
    }

    /// An end that was answered is not kept any longer, unless it is to be said again.
    fn settle(&mut self, end: &mut Option<Ended>, reported: Reported) -> Option<String> {
        match (reported, end.take()) {
            (Reported::Busy(text), kept) => {
                *end = kept;
                return Some(text);
            }
            (Reported::Recorded, Some(ended)) => {
                self.pool.send_modify(|pool| pool.reported(ended.code));
            }
            (Reported::Refused(answer), Some(Ended { job, code })) => {
                warn!(
                    key = job.shown_key(),
                    attempt = job.number(),
                    code,
                    answer,
                    "The end of a job came too late: it was handed to somebody else, or is forgotten."
                );
                self.pool.send_modify(Pool::lost);
            }
            (_, None) => {}
        }
        None
    }

    fn stopping(&self) -> Stop {
        self.pool.borrow().stopping()
    }

    /// Waits for a change, or a time.
    async fn change(&mut self, until: Option<Instant>) {
        match until {
            None => {
                let _ = self.changes.changed().await;
            }
            Some(until) => {
                let _ = tokio::time::timeout_at(until.into(), self.changes.changed()).await;
            }
        }
    }

    /// Says that the queue is paused, and that it is not any more.
    fn is_paused(&self, is_idle: bool) {
        let idle = if is_idle { self.client.idle() } else { Idle::Nothing };
        let paused = matches!(idle, Idle::Paused(_));
        // A request that was taken back is answered without a reason.
        if self.stopping() > Stop::No || !self.note(|pool| pool.finds_paused(paused)) {
            return;
        }
        if let Idle::Paused(waiting) = idle {
            warn!(waiting, "{PAUSED}");
        } else {
            info!("The queue is not paused any more.");
        }
    }

    /// Lets time pass after an answer that there is nothing to do.
    async fn idle(&mut self, asked: Instant, wait: Duration) {
        if self.client.is_classic() {
            self.idle_for(CLASSIC_IDLE).await;
        } else if asked.elapsed() < IDLE && !wait.is_zero() {
            self.idle_for(IDLE).await;
        }
    }

    async fn idle_for(&mut self, time: Duration) {
        let outdated = self.changes.wait_for(|pool| pool.is_outdated(LONG_WAIT));
        let _ = tokio::time::timeout(time, outdated).await;
    }
}

impl Source for Slot {
    type Job = Job;
    type Error = GaveUp;

    /// Must not be cancelled.
    async fn take(&mut self, ended: Option<(Job, u8)>) -> Result<Option<Job>, GaveUp> {
        let mut end = ended.map(|(job, code)| Ended { job, code });
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
            match self.turn(&mut end, wait).await? {
                Some(job) if wait.is_some() && self.stopping() == Stop::No => return Ok(Some(job)),
                Some(job) => self.give_back(job).await,
                None => match wait {
                    Some(wait) if self.pool.borrow().is_over(wait) => {
                        self.pool.send_modify(|pool| pool.leaves(self.client.idle()));
                        return Ok(None);
                    }
                    Some(wait) => self.idle(asked, wait).await,
                    None => {}
                },
            }
        }
    }

    fn command(&self, job: &Job, template: &Template) -> Result<JobCommand, Fault> {
        job::command(job, template, self.stdin, &self.name)
    }

    fn started(&mut self) {
        self.pool.send_modify(Pool::started);
    }

    async fn not_started(&mut self, job: Job, fault: Fault) -> Result<NotStarted<Job>, GaveUp> {
        Ok(self.after_fault(job, fault).await)
    }

    async fn keep(&mut self, job: &Job) {
        match job.attempt {
            Some(attempt) => self.beat(attempt).await,
            None => std::future::pending().await,
        }
    }

    fn killed(&self) -> Pin<Box<dyn Future<Output = ()>>> {
        let mut changes = self.changes.clone();
        Box::pin(async move {
            let _ = changes.wait_for(|pool| pool.stopping() == Stop::Kill).await;
        })
    }

    async fn release(&mut self, job: Job) -> Result<(), GaveUp> {
        self.give_back(job).await;
        Ok(())
    }

    fn lost(&mut self, _: Job) {
        self.pool.send_modify(Pool::lost);
    }
}
