//! One of the jobs that a worker runs at a time: asks for a job, reports its end with the request for the
//! next, and goes on whatever becomes of the daemon meanwhile. What slots have in common is in the [`Pool`].

mod job;
mod trouble;

use std::panic::resume_unwind;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use shiftboss_protocol::client::{ANSWER_TIMEOUT, ClientError, Interrupt};
use shiftboss_protocol::model::Idle;
use shiftboss_protocol::wire::answers::Job;
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use tracing::{info, warn};

use super::client::{Client, Given, is_not_ours};
use super::pool::{LONG_WAIT, Permit, Pool, State};
use crate::child::{StartError, Template};
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
    pub error: ClientError,
    /// A job whose end was not reported, and its exit code.
    pub unreported: Option<(Job, u8)>,
}

pub struct Slot {
    client: Arc<Mutex<Client>>,
    /// As the client said last.
    is_classic: bool,
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
        let (changes, client) = (pool.subscribe(), Arc::new(Mutex::new(client)));
        Self { client, is_classic: false, pool, changes, name, stdin, lease }
    }

    /// Has the client do something beside the runtime's thread. Dropped, it is done all the same; who comes
    /// next waits for it.
    async fn client<T: Send + 'static>(
        &mut self,
        call: impl FnOnce(&mut Client) -> T + Send + 'static,
    ) -> T {
        let client = Arc::clone(&self.client);
        let called = spawn_blocking(move || {
            let mut client = client.lock().unwrap_or_else(PoisonError::into_inner);
            (call(&mut client), client.is_classic())
        });
        let (result, is_classic) =
            called.await.unwrap_or_else(|error| resume_unwind(error.into_panic()));
        self.is_classic = is_classic;
        result
    }

    /// Reports an end and asks for a job, either or both, and counts what comes of it.
    async fn exchange(
        &mut self,
        end: &mut Option<(Job, u8)>,
        wait: Option<Duration>,
    ) -> Result<Option<Given>, ClientError> {
        if wait.is_some() {
            self.pool.send_modify(|pool| pool.asking += 1);
        }
        let answered = self.answers(end, wait).await;
        let is_job = matches!(answered, Ok((Some(Ok(_)), _)));
        self.pool.send_modify(|pool| {
            if wait.is_some() {
                pool.asked(answered.is_ok());
            }
            pool.counts.out += u64::from(is_job);
        });
        match answered? {
            (given, None) => Ok(given),
            (given, Some(busy)) => {
                // Two jobs cannot be kept in mind: the new one waits.
                if let Some(Ok(job)) = given {
                    self.give_back(job).await;
                }
                Err(busy)
            }
        }
    }

    /// The next job, and why the end could not be recorded.
    async fn answers(
        &mut self,
        end: &mut Option<(Job, u8)>,
        wait: Option<Duration>,
    ) -> Result<(Option<Given>, Option<ClientError>), ClientError> {
        let kept = end.take();
        let ask = move |client: &mut Client| (client.ask(kept.as_ref(), wait), kept);
        let (asked, kept) = self.client(ask).await;
        *end = kept;
        let asked = asked?;
        let is_reported = asked.reported.is_some();
        let busy = asked.reported.and_then(|reported| self.settle(end, reported).err());
        if asked.is_greeted || (is_reported && busy.is_none()) {
            self.is_answered();
        }
        let given = self.next(wait, asked.interrupt).await?;
        // What was sent may yet meet a daemon that stops: only an answer is one.
        if wait.is_some() && busy.is_none() {
            self.is_answered();
            self.is_paused(given.as_ref());
        }
        Ok((given, busy))
    }

    /// The job that was asked for. A request that has become outdated is taken back; a job may have come all the
    /// same. Must not be cancelled: the job would be lost to us until its lease ends.
    async fn next(
        &mut self,
        wait: Option<Duration>,
        interrupt: Option<Interrupt>,
    ) -> Result<Option<Given>, ClientError> {
        let mut changes = self.changes.clone();
        let outdated = async move {
            match wait.zip(interrupt) {
                Some((wait, interrupt)) => {
                    let _ = changes.wait_for(|pool| pool.is_outdated(wait)).await;
                    interrupt
                }
                None => std::future::pending().await,
            }
        };
        let given = {
            let mut next = std::pin::pin!(self.client(move |client| client.next(wait)));
            let interrupt = tokio::select! {
                given = &mut next => return given,
                interrupt = outdated => interrupt,
            };
            interrupt.quit();
            match timeout(ANSWER_TIMEOUT, &mut next).await {
                Ok(given) => given,
                Err(_) => {
                    interrupt.close();
                    next.await
                }
            }
        };
        self.client(Client::hang_up).await;
        given
    }

    /// An end that was answered is not kept any longer. The error is why it is to be said again.
    fn settle(
        &self,
        end: &mut Option<(Job, u8)>,
        reported: Result<(), ClientError>,
    ) -> Result<(), ClientError> {
        let Some((job, code)) = end else {
            return reported;
        };
        match reported {
            Ok(()) => self.pool.send_modify(|pool| pool.reported(*code)),
            Err(ClientError::Refused { code: why, text }) if is_not_ours(&why) => {
                let (key, attempt, answer) = (job.shown_key(), job.number(), why + " " + &text);
                warn!(
                    key,
                    attempt,
                    code,
                    answer,
                    "The end of a job came too late: it was handed to somebody else, or is forgotten."
                );
                self.pool.send_modify(Pool::lost);
            }
            Err(error) => return Err(error),
        }
        *end = None;
        Ok(())
    }

    fn stopping(&self) -> Stop {
        self.pool.borrow().stop
    }

    /// Waits for a change, or a time.
    async fn change(&mut self, until: Option<Instant>) {
        match until {
            None => _ = self.changes.changed().await,
            Some(until) => {
                _ = tokio::time::timeout_at(until.into(), self.changes.changed()).await;
            }
        }
    }

    /// Logs that the queue is paused, and that it is not any more. Who leaves at once says it at the end, and a
    /// request that was taken back is answered without a reason.
    fn is_paused(&self, given: Option<&Given>) {
        let paused = given.and_then(|given| match given {
            Err(Idle::Paused(waiting)) => Some(waiting),
            _ => None,
        });
        let is_silent = self.pool.borrow().once || self.stopping() > Stop::No;
        if is_silent || !self.is_news(State::Paused, paused.is_some()) {
            return;
        }
        match paused {
            Some(waiting) => warn!(waiting, "{PAUSED}"),
            None => info!("The queue is not paused any more."),
        }
    }

    /// Lets time pass after an answer that there is nothing to do.
    async fn idle(&mut self, asked: Instant, wait: Duration) {
        if self.is_classic {
            self.idle_for(CLASSIC_IDLE).await;
        } else if asked.elapsed() < IDLE && !wait.is_zero() {
            self.idle_for(IDLE).await;
        }
    }

    async fn idle_for(&mut self, time: Duration) {
        let outdated = self.changes.wait_for(|pool| pool.is_outdated(LONG_WAIT));
        let _ = timeout(time, outdated).await;
    }
}

impl Source for Slot {
    type Job = Job;
    type Error = GaveUp;

    /// Must not be cancelled.
    async fn take(&mut self, mut end: Option<(Job, u8)>) -> Result<Option<Job>, GaveUp> {
        let mut trouble = Trouble::new(self.lease);
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
            trouble = Trouble::new(self.lease);
            match (given, wait) {
                (Some(Ok(job)), Some(_)) if self.stopping() == Stop::No => return Ok(Some(job)),
                (Some(Ok(job)), _) => self.give_back(job).await,
                (Some(Err(left)), Some(wait)) if self.pool.borrow().is_over(wait) => {
                    self.pool.send_modify(|pool| pool.left = left);
                    return Ok(None);
                }
                (Some(Err(_)), Some(wait)) => self.idle(asked, wait).await,
                (_, None) | (None, _) => {}
            }
        }
    }

    fn command(&self, job: &Job, template: &Template) -> Result<JobCommand, StartError> {
        job::command(job, template, self.stdin, &self.name)
    }

    fn started(&mut self) {
        self.pool.send_modify(Pool::started);
    }

    async fn not_started(
        &mut self,
        job: Job,
        error: StartError,
    ) -> Result<NotStarted<Job>, GaveUp> {
        Ok(self.after_fault(job, error).await)
    }

    async fn keep(&mut self, job: &Job) {
        match job.attempt {
            Some(attempt) => self.beat(attempt).await,
            None => std::future::pending().await,
        }
    }

    async fn release(&mut self, job: Job) -> Result<(), GaveUp> {
        self.give_back(job).await;
        Ok(())
    }

    fn lost(&mut self, _: Job) {
        self.pool.send_modify(Pool::lost);
    }
}
