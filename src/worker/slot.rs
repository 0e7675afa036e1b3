//! One of the jobs that a worker runs at a time: asks for a job, runs it, reports its end with the
//! request for the next, and goes on whatever becomes of the daemon meanwhile. [`super::run`] starts as
//! many as there are to be; what they have in common is in the [`Pool`].

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tracing::{debug, info, warn};

use super::backoff::Backoff;
use super::client::{Client, Ended, HELLO_PAUSE, Told};
use super::connection::Silence;
use super::pool::{LONG_WAIT, Permit, Pool, Stop};
use super::wire::Job;
use super::workshop::{Execution, Fault, Workshop};

/// The first delay of a new try.
const RETRY_FIRST: Duration = Duration::from_millis(100);
/// The longest.
const RETRY_LONGEST: Duration = Duration::from_secs(10);
/// A worker beats so often within a lease.
const BEATS_PER_LEASE: u32 = 3;
/// After a classic `NOJOBS`: it does not wait for work.
const CLASSIC_IDLE: Duration = Duration::from_secs(60);
/// After a `NOJOBS` that came at once.
const IDLE: Duration = Duration::from_secs(1);

/// The daemon was silent for too long, and somebody waits for the worker's end.
#[derive(Debug)]
pub struct GaveUp {
    /// What was tried last.
    pub silence: Silence,
    /// What could not be reported.
    pub unreported: Option<Ended>,
}

/// A slot.
pub struct Slot {
    client: Client,
    pool: watch::Sender<Pool>,
    changes: watch::Receiver<Pool>,
    workshop: Arc<Workshop>,
    lease: Duration,
}

/// How a job's run came to its end.
enum Run {
    Ended(u8),
    /// The job is somebody else's.
    Lost,
    /// A second signal.
    Killed,
}

impl Slot {
    /// A slot with a connection of its own.
    #[must_use]
    pub fn new(
        client: Client,
        pool: watch::Sender<Pool>,
        workshop: Arc<Workshop>,
        lease: Duration,
    ) -> Self {
        let changes = pool.subscribe();
        Self { client, pool, changes, workshop, lease }
    }

    /// Works until there is nothing more to do. Must not be cancelled.
    ///
    /// # Errors
    /// When the daemon was silent for too long.
    pub async fn work(mut self) -> Result<(), GaveUp> {
        let mut end = None;
        loop {
            let permit = self.changes.borrow_and_update().permit(end.is_some(), Instant::now());
            let wait = match permit {
                Permit::Ask(wait) => Some(wait),
                _ if end.is_some() => None,
                Permit::Later(until) => {
                    self.change(until).await;
                    continue;
                }
                Permit::Leave => return Ok(()),
            };
            let asked = Instant::now();
            match self.turn(&mut end, wait).await? {
                Some(job) if wait.is_some() && self.stopping() == Stop::No => {
                    end = self.run(job).await;
                }
                Some(job) => self.give_back(job).await,
                None if wait.is_some_and(|wait| self.pool.borrow().is_over(wait)) => return Ok(()),
                None if wait.is_some() => self.idle(asked).await,
                None => {}
            }
        }
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
            Some(_) => self.pool.send_modify(|pool| pool.asked(is_job)),
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
        let told = self.client.ask(end.as_ref(), wait).await?;
        self.is_answered();
        let busy = told.and_then(|told| self.settle(end, told));
        let job = match wait {
            Some(wait) => {
                let mut changes = self.changes.clone();
                let outdated = async move {
                    let _ = changes.wait_for(|pool| pool.is_outdated(wait)).await;
                };
                self.client.next(wait, outdated).await?
            }
            None => self.client.given(),
        };
        Ok((job, busy))
    }

    /// An end that was answered is not kept any longer, unless it is to be said again.
    fn settle(&mut self, end: &mut Option<Ended>, told: Told) -> Option<String> {
        match (told, end.take()) {
            (Told::Busy(text), kept) => {
                *end = kept;
                return Some(text);
            }
            (Told::Recorded, Some(ended)) => {
                self.pool.send_modify(|pool| pool.reported(ended.code));
            }
            (Told::Refused(answer), Some(Ended { job, code })) => {
                warn!(
                    key = job.shown_key(),
                    attempt = job.attempt,
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

    /// Runs a job to its end; returns what is to be reported.
    async fn run(&mut self, job: Job) -> Option<Ended> {
        let mut execution = match self.start(&job).await {
            Ok(execution) => execution,
            Err(Some(code)) => return Some(Ended { job, code }),
            Err(None) => {
                self.give_back(job).await;
                return None;
            }
        };
        match self.attend(&mut execution, job.attempt).await {
            Run::Ended(code) => return Some(Ended { job, code }),
            Run::Lost => {
                execution.kill().await;
                warn!(
                    key = job.shown_key(),
                    attempt = job.attempt,
                    "The daemon gave a running job to somebody else, for it heard too little of us; its command was killed."
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
    async fn attend(&mut self, execution: &mut Execution, attempt: Option<u64>) -> Run {
        let mut changes = self.changes.clone();
        let killed = async move {
            let _ = changes.wait_for(|pool| pool.stopping() == Stop::Kill).await;
        };
        tokio::select! {
            biased;
            code = execution.wait() => Run::Ended(code),
            () = killed => Run::Killed,
            () = self.beat(attempt) => Run::Lost,
        }
    }

    /// Beats, until the attempt is lost.
    async fn beat(&mut self, attempt: Option<u64>) {
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
            warn!(key = job.shown_key(), error = %fault, pause = %shown, "A job was not started.");
            match fault {
                Fault::Job(error) | Fault::Program(error) => return Err(Some(error.shell_code())),
                Fault::System(_) if job.attempt.is_some() => return Err(None),
                Fault::System(_) => self.idle_for(pause).await,
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
    async fn give_back(&mut self, job: Job) {
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

    /// Waits before the next try; an error says that there is to be none.
    async fn wait_out(&mut self, silence: Silence, trouble: &mut Trouble) -> Result<(), Silence> {
        let delay = self.delay(&silence, trouble);
        let since = *trouble.since.get_or_insert_with(Instant::now);
        let deadline = self.pool.borrow().patience(since);
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.is_zero()) {
            return Err(silence);
        }
        let stop = self.stopping();
        let _ = tokio::time::timeout(
            left.map_or(delay, |left| left.min(delay)),
            self.changes.wait_for(|pool| pool.stopping() > stop),
        )
        .await;
        Ok(())
    }

    /// How long to wait before the next try; tells the first time that there has to be one.
    fn delay(&self, silence: &Silence, trouble: &mut Trouble) -> Duration {
        debug!(error = %silence, "A request was not answered.");
        if self.note(|pool| pool.hears(false)) {
            warn!(error = %silence, "The daemon does not answer; trying again until it does.");
        }
        let delay = trouble.backoff.next_delay();
        if matches!(silence, Silence::Closed) { delay + HELLO_PAUSE } else { delay }
    }

    /// The daemon has said something.
    fn is_answered(&self) {
        if self.note(|pool| pool.hears(true)) {
            info!("The daemon answers again.");
        }
        let is_classic = self.client.is_classic();
        if self.note(|pool| pool.meets_classic(is_classic)) {
            let protocol = if is_classic { "the classic protocol" } else { "protocol 2" };
            info!("The daemon speaks {protocol}.");
        }
    }

    /// Changes the pool without waking anybody.
    fn note(&self, change: impl FnOnce(&mut Pool) -> bool) -> bool {
        let mut is_news = false;
        self.pool.send_if_modified(|pool| {
            is_news = change(pool);
            false
        });
        is_news
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

    /// Lets time pass after an answer that there is nothing to do.
    async fn idle(&mut self, asked: Instant) {
        if self.client.is_classic() {
            self.idle_for(CLASSIC_IDLE).await;
        } else if asked.elapsed() < IDLE {
            self.idle_for(IDLE).await;
        }
    }

    async fn idle_for(&mut self, time: Duration) {
        let outdated = self.changes.wait_for(|pool| pool.is_outdated(LONG_WAIT));
        let _ = tokio::time::timeout(time, outdated).await;
    }
}

/// A request that is not answered.
struct Trouble {
    backoff: Backoff,
    since: Option<Instant>,
}

impl Trouble {
    /// With short leases there is no time for long delays.
    fn new(lease: Duration) -> Self {
        let longest = RETRY_LONGEST.min(lease / (2 * BEATS_PER_LEASE));
        Self { backoff: Backoff::new(RETRY_FIRST, longest), since: None }
    }
}
