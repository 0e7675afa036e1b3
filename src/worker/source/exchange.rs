//! A slot's requests to the daemon, and its handling of the answers: reporting ends, asking for jobs, and a daemon that
//! does not answer: what is logged, how long until the next try, and whether there is one.

use std::time::{Duration, Instant};

use shiftboss_protocol::backoff::{Backoff, shortened};
use shiftboss_protocol::client::ClientError;
use shiftboss_protocol::wire::answers::Job;
use tracing::{debug, info, warn};

use super::Slot;
use crate::hint::hint;
use crate::runner::Stop;
use crate::worker::client::is_not_ours;
use crate::worker::connection::Given;
use crate::worker::pool::{News, Pool, State};

/// The first delay before a retry.
const RETRY_FIRST: Duration = Duration::from_millis(100);
const RETRY_LONGEST: Duration = Duration::from_secs(5);
/// How many beats a worker sends within a lease.
pub(super) const BEATS_PER_LEASE: u32 = 3;

/// Said of a queue that is paused, which looks like one with nothing in it.
pub fn paused() -> String {
    let resume = hint("resume");
    format!("The queue is paused, or the daemon drains: nothing is handed out until {resume}.")
}

/// A request that is not answered.
pub(super) struct Trouble {
    backoff: Backoff,
    since: Option<Instant>,
}

impl Trouble {
    /// With short leases there is no time for long delays.
    pub(super) fn new(lease: Duration) -> Self {
        let longest = RETRY_LONGEST.min(lease / (2 * BEATS_PER_LEASE));
        Self { backoff: Backoff::new(RETRY_FIRST, longest), since: None }
    }
}

impl Slot {
    /// Reports an end and asks for a job, either or both, and counts what comes of it.
    pub(super) async fn exchange(
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
            pool.took(is_job);
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
        let mut changes = self.changes.clone();
        let mut outdated = async || match wait {
            Some(wait) => _ = changes.wait_for(|pool| pool.is_outdated(wait)).await,
            None => std::future::pending().await,
        };
        let is_greeted = tokio::select! {
            is_greeted = self.client.greet() => is_greeted?,
            () = outdated(), if end.is_none() => return Ok((None, None)),
        };
        // A daemon that greets but refuses everything else has not answered.
        if is_greeted && !self.pool.borrow().is(State::Busy) {
            self.is_answered();
        }
        let busy = match (&end, wait) {
            (Some(_), _) => self.report(end, wait).await?,
            (None, Some(wait)) => self.client.ask(wait).await.map(|()| None)?,
            (None, None) => None,
        };
        let given = self.client.job(wait, outdated()).await?;
        // A sent request may still reach a daemon that is stopping: only its answer counts.
        if wait.is_some() && busy.is_none() {
            self.is_answered();
            self.is_paused(given.as_ref());
        }
        Ok((given, busy))
    }

    /// Reports an end, and asks for a job at the same time. An end that was answered is no longer kept; otherwise
    /// returns why it must be reported again.
    async fn report(
        &mut self,
        end: &mut Option<(Job, u8)>,
        wait: Option<Duration>,
    ) -> Result<Option<ClientError>, ClientError> {
        let Some(ended) = end else { return Ok(None) };
        let (job, code) = &*ended;
        match self.client.report(ended, self.asks, wait).await {
            Ok(()) => self.count(&job.key, *code),
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
            Err(busy @ ClientError::Refused { .. }) => return Ok(Some(busy)),
            Err(error) => return Err(error),
        }
        *end = None;
        self.is_answered();
        Ok(None)
    }

    /// Counts an end that the daemon knows, and logs what it changes.
    fn count(&self, key: &[u8], code: u8) {
        let mut news = None;
        self.pool.send_modify(|pool| news = pool.reported(key, code, self.took, Instant::now()));
        match news {
            None => {}
            Some(News::Suspicious) => warn!(
                "The last jobs, of 20 keys, all failed within a second each. From now on one at a time is tried, after a pause, until one \
                 succeeds; `--max-failures N` ends the worker instead."
            ),
            Some(News::Recovered) => {
                info!("A job succeeded again: as many as before are run at a time.")
            }
        }
    }

    /// Logs that the queue is paused, and that it no longer is. With `--once` it is reported at the end, and a request
    /// that was taken back is answered without a reason.
    fn is_paused(&self, given: Option<&Given>) {
        let paused = given.and_then(|given| given.as_ref().err()?.paused);
        let is_silent = self.pool.borrow().is_once() || self.stopping() > Stop::No;
        if is_silent || !self.is_news(State::Paused, paused.is_some()) {
            return;
        }
        match paused {
            Some(waiting) => warn!(waiting, "{}", super::paused()),
            None => info!("The queue is not paused any more."),
        }
    }

    /// Waits before the next try; an error means that there is none.
    pub(super) async fn wait_out(
        &mut self,
        error: ClientError,
        trouble: &mut Trouble,
    ) -> Result<(), ClientError> {
        let delay = self.delay(&error, trouble);
        let since = *trouble.since.get_or_insert_with(Instant::now);
        let deadline = self.pool.borrow().patience(since);
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.is_zero()) {
            return Err(error);
        }
        let stop = self.stopping();
        let stopped = self.changes.wait_for(|pool| pool.stop > stop);
        let _ = tokio::time::timeout(left.map_or(delay, |left| left.min(delay)), stopped).await;
        Ok(())
    }

    /// How long to wait before the next try; logs the first time that there has to be one.
    pub(super) fn delay(&self, error: &ClientError, trouble: &mut Trouble) -> Duration {
        debug!(%error, "A request was not answered.");
        let is_refused = matches!(error, ClientError::Refused { .. });
        if matches!(error, ClientError::Refused { code, .. } if code == "busy") {
            self.is_news(State::Busy, true);
        }
        match (self.is_news(State::Silent, true), is_refused) {
            (true, true) => {
                warn!(%error, "The daemon cannot serve now; trying again until it can.")
            }
            (true, false) => {
                warn!(%error, "The daemon does not answer; trying again until it does.")
            }
            (false, _) => {}
        }
        // Shortened by up to a half: a daemon that was restarted does not meet all workers at once.
        shortened(trouble.backoff.next_delay())
    }

    /// The daemon has answered.
    pub(super) fn is_answered(&self) {
        self.is_news(State::Busy, false);
        if self.is_news(State::Silent, false) {
            info!("The daemon answers again.");
        }
        let is_classic = self.client.is_classic();
        if self.is_news(State::Classic, is_classic) {
            let protocol = if is_classic { "the classic protocol" } else { "protocol 2" };
            info!("The daemon speaks {protocol}.");
        }
    }

    /// Notes whether something is so without waking anybody. True: no slot has noted it yet.
    pub(super) fn is_news(&self, state: State, is_so: bool) -> bool {
        let mut is_news = false;
        self.pool.send_if_modified(|pool| {
            is_news = pool.is_news(state, is_so);
            false
        });
        is_news
    }
}
