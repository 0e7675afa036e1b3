//! The worker's side of the protocol: protocol 2 where the daemon speaks it, else the classic one. Each
//! request is tried once; whether to try again, and when, is for [`super::source`] to decide. It blocks.
//!
//! A daemon that closes a `HELLO` without a byte is a classic one, or is being restarted. Only two such
//! closes in a row, a second apart, say which. Protocol 2 goes over one connection that is kept; the
//! classic one takes a connection for each request, as its stock worker does.

use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

use shiftboss_protocol::client::{ClientError, Interrupt, Worker, ask_classic};
use shiftboss_protocol::model::{Attempt, Idle};
use shiftboss_protocol::wire::answers::Job;

/// Between two `HELLO`s that are closed.
const HELLO_PAUSE: Duration = Duration::from_secs(1);
/// After so long one more `HELLO` tells whether the daemon is a classic one: two that were restarted
/// may have looked so.
const DOUBT_AFTER: Duration = Duration::from_secs(600);

/// A job, or why there is none.
pub type Given = Result<Job, Idle>;

pub struct Client {
    socket: PathBuf,
    name: String,
    lease_seconds: u32,
    /// The connection on which `HELLO` was answered.
    worker: Option<Worker>,
    /// The daemon spoke the classic protocol alone; when it is asked again.
    classic_until: Option<Instant>,
    /// The classic answer to an end: the next job, or that there is none.
    given: Option<Given>,
}

/// What came of [`Client::ask`].
pub struct Asked {
    /// What was said to the end, if one was reported.
    pub reported: Option<Result<(), ClientError>>,
    /// The daemon answered `HELLO`.
    pub is_greeted: bool,
    /// Ends the wait for the job that was asked for.
    pub interrupt: Option<Interrupt>,
}

impl Client {
    /// A client of the daemon on `socket`, by this name and for this lease. Connects when it has to.
    pub fn new(socket: PathBuf, name: String, lease_seconds: u32) -> Self {
        Self { socket, name, lease_seconds, worker: None, classic_until: None, given: None }
    }

    /// Whether the daemon speaks nothing but the classic protocol.
    pub fn is_classic(&self) -> bool {
        self.classic_until.is_some()
    }

    /// Reports an end and asks for the next job, either or both, in one write. The job is taken by
    /// [`Client::next`].
    pub fn ask(
        &mut self,
        end: Option<&(Job, u8)>,
        wait: Option<Duration>,
    ) -> Result<Asked, ClientError> {
        let is_greeted = self.greet()?;
        let reported = match end {
            Some((Job { attempt: Some(attempt), .. }, code)) if !self.is_classic() => {
                Some(self.report(*attempt, i64::from(*code), wait)?)
            }
            Some((job, code)) => {
                self.given = Some(self.classic(&format!("DONE {} {code}", job.shown_key()))?);
                Some(Ok(()))
            }
            None => {
                if let Some(wait) = wait.filter(|_| !self.is_classic()) {
                    self.over(|worker| worker.ask(wait))?;
                }
                None
            }
        };
        Ok(Asked { reported, is_greeted, interrupt: self.worker.as_ref().map(Worker::interrupt) })
    }

    /// The daemon's word on an end. An error inside is about the end alone.
    fn report(
        &mut self,
        attempt: Attempt,
        exit_code: i64,
        wait: Option<Duration>,
    ) -> Result<Result<(), ClientError>, ClientError> {
        let reported = self.over(|worker| match wait {
            Some(wait) => worker.done_and_ask(attempt, exit_code, wait),
            None => worker.done(attempt, exit_code),
        });
        match reported {
            Ok(()) => Ok(Ok(())),
            Err(refused @ ClientError::Refused { .. }) => Ok(Err(refused)),
            Err(error) => Err(error),
        }
    }

    /// The job that was asked for, if there is one within `wait`; none where nothing was asked for, except that the
    /// classic protocol gives one in return for an end.
    pub fn next(&mut self, wait: Option<Duration>) -> Result<Option<Given>, ClientError> {
        match (self.given.take(), wait) {
            (Some(given), _) => Ok(Some(given)),
            (None, None) => Ok(None),
            (None, Some(_)) if self.is_classic() => self.classic("READY").map(Some),
            (None, Some(wait)) => self.over(|worker| worker.job(wait)).map(Some),
        }
    }

    /// Keeps an attempt. False: it is ours no longer.
    pub fn beat(&mut self, attempt: Attempt) -> Result<bool, ClientError> {
        self.greet()?;
        if self.is_classic() { Ok(true) } else { self.over(|worker| worker.beat(attempt)) }
    }

    /// Gives an attempt back. False: a classic daemon takes nothing back.
    pub fn release(&mut self, attempt: Attempt) -> Result<bool, ClientError> {
        self.greet()?;
        if self.is_classic() {
            return Ok(false);
        }
        match self.over(|worker| worker.release(attempt)) {
            Err(ClientError::Refused { code, .. }) if is_not_ours(&code) => Ok(true),
            released => released.map(|()| true),
        }
    }

    /// The next request goes over another connection.
    pub fn hang_up(&mut self) {
        self.worker = None;
    }

    /// What is no answer ends the connection: there is no telling what comes next.
    fn over<T>(
        &mut self,
        talk: impl FnOnce(&mut Worker) -> Result<T, ClientError>,
    ) -> Result<T, ClientError> {
        let said = talk(self.worker.as_mut().ok_or(ClientError::Closed)?);
        if !matches!(said, Ok(_) | Err(ClientError::Refused { .. })) {
            self.hang_up();
        }
        said
    }

    /// Has a connection on which `HELLO` was answered, or knows that the daemon is a classic one. True: it was
    /// answered now.
    #[allow(clippy::disallowed_methods)] // The thread is this client's own, beside the runtime.
    fn greet(&mut self) -> Result<bool, ClientError> {
        let is_classic = self.classic_until.is_some_and(|until| Instant::now() < until);
        if is_classic || self.worker.is_some() {
            return Ok(false);
        }
        let mut connected = self.connect();
        // One that was a classic one is so if it closes once more.
        if self.classic_until.take().is_none() && matches!(connected, Err(ClientError::Closed)) {
            sleep(HELLO_PAUSE);
            connected = self.connect();
        }
        if matches!(connected, Err(ClientError::Closed)) {
            self.classic_until = Instant::now().checked_add(DOUBT_AFTER);
            return Ok(false);
        }
        self.worker = Some(connected?);
        Ok(true)
    }

    fn connect(&self) -> Result<Worker, ClientError> {
        Worker::connect(&self.socket, &self.name, self.lease_seconds)
    }

    /// One classic request. Without an answer the daemon may have been replaced by one that speaks protocol 2.
    fn classic(&mut self, line: &str) -> Result<Given, ClientError> {
        let asked = ask_classic(&self.socket, line);
        if asked.is_err() {
            self.classic_until = Some(Instant::now());
        }
        asked
    }
}

/// Whether an attempt was refused because it is somebody else's by now, or forgotten.
pub fn is_not_ours(code: &str) -> bool {
    matches!(code, "stale" | "unknown")
}
