//! The workers: half of them classic, half of protocol 2, and half of either go to another daemon when theirs is gone. A result is
//! kept until it is acknowledged. At full load all are classic, and always have a request in flight: nothing that the soak does may
//! close their connections, or have them wait for long.
//!
//! All on one thread, so that a job's moments are what they seem. Under faults most jobs are short; some are longer than a lease, with
//! or without beats, some are given back, and some are forgotten, as when a worker dies.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use shiftboss_protocol::wire::answers::{Answer, Job as Handed};
use tokio::task::LocalSet;
use tokio::time::sleep;

use crate::ledger::Job;
use crate::link::Link;
use crate::random::Random;
use crate::{Soak, is, tasks};

const WORKERS: usize = 64;
/// The longest that a worker may wait for its answer at full load.
pub const WAIT_MAX: Duration = Duration::from_secs(5);
/// Of protocol 2.
const LEASE: Duration = Duration::from_secs(8);
pub const CLASSIC_LEASE: Duration = Duration::from_secs(20);
/// A job is read at most so long after it was handed out: its daemon proves so often that it lives.
const READ_WITHIN: Duration = Duration::from_secs(5);
/// How the classic lease is counted: in whole seconds.
const SECOND: Duration = Duration::from_secs(1);
/// Before a worker that got no job, or no answer, asks again; and at full load.
const PAUSE: Duration = Duration::from_millis(200);
const CALM_PAUSE: Duration = Duration::from_millis(20);
/// The longest of most jobs.
const SHORT_MS: u64 = 150;

struct Worker {
    soak: Arc<Soak>,
    number: usize,
    is_classic: bool,
    roams: bool,
    daemon: usize,
    link: Option<Link>,
    random: Random,
}

/// Runs all workers to their end.
pub fn run(soak: &Arc<Soak>, seed: u64) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    LocalSet::new().block_on(&runtime, async {
        let start = |number| tokio::task::spawn_local(Worker::new(soak, number, seed).work());
        let workers: Vec<_> = (0..WORKERS).map(start).collect();
        for worker in workers {
            worker.await.map_err(io::Error::other)?;
        }
        Ok(())
    })
}

impl Worker {
    fn new(soak: &Arc<Soak>, number: usize, seed: u64) -> Self {
        let daemon = number % soak.sockets.len();
        Self {
            soak: Arc::clone(soak),
            number,
            is_classic: soak.is_calm || (number / 4).is_multiple_of(2),
            roams: (number / 8).is_multiple_of(2),
            daemon,
            link: None,
            random: Random::new(seed ^ (number as u64 + 1) << 32),
        }
    }

    async fn work(mut self) {
        let mut next = None;
        while !is(&self.soak.is_over) {
            let job = match next.take() {
                Some(job) => job,
                None => match self.ask_for_job().await {
                    Some(job) => job,
                    None => {
                        sleep(if self.soak.is_calm { CALM_PAUSE } else { PAUSE }).await;
                        continue;
                    }
                },
            };
            next = self.do_job(job).await;
        }
    }

    /// A lease after the moment that a job was handed out at the earliest.
    fn until(&self, asked: Instant) -> Instant {
        let lease = if self.is_classic { CLASSIC_LEASE - SECOND } else { LEASE };
        asked.max(Instant::now().checked_sub(READ_WITHIN).unwrap_or(asked)) + lease
    }

    async fn ask_for_job(&mut self) -> Option<Job> {
        let asked = Instant::now();
        let line = if self.is_classic { "READY" } else { "READY 1" };
        match self.ask(line).await {
            Some(Answer::Job(handed)) => self.read(&handed, asked),
            Some(Answer::NoJobs(_)) => None,
            answer if is_busy(&answer) => None,
            other => {
                self.soak.fault(&format!("READY is answered {other:?}"));
                None
            }
        }
    }

    fn read(&self, handed: &Handed, asked: Instant) -> Option<Job> {
        let (key, payload) = (handed.shown_key(), String::from_utf8_lossy(&handed.payload));
        let until = self.until(asked);
        let mut ledger = self.soak.ledger();
        let found = ledger.find(&key, &payload).map(|line| {
            let job = Job { key, line, attempt: handed.number(), worker: self.number, until };
            let noted = ledger.read(&job, Instant::now());
            (job, noted)
        });
        drop(ledger);
        self.soak.served[self.daemon].fetch_add(1, Ordering::Relaxed);
        match found {
            Ok((job, noted)) => {
                self.soak.check(noted);
                if !self.soak.is_calm {
                    let socket = self.soak.sockets[self.daemon].display();
                    self.soak.report.event(&format!("{socket} gave {job:?}"));
                }
                Some(job)
            }
            Err(text) => {
                self.soak.fault(&text);
                None
            }
        }
    }

    /// To its end. When nothing more is listed all is worked off.
    async fn do_job(&mut self, mut job: Job) -> Option<Job> {
        let is_short = self.soak.is_calm || is(&self.soak.is_listed);
        let fate = if is_short { 0 } else { self.random.below(1_000) };
        match (fate, self.is_classic) {
            // It lasts, and its worker beats.
            (960..970, false) => {
                let time = Duration::from_millis(1_000 + self.random.below(12_000));
                if !self.beat_for(&mut job, time).await {
                    return None;
                }
            }
            (970..980, false) => {
                self.soak.ledger().give_back(&job);
                let line = format!("RELEASE {}", job.attempt.unwrap_or_default());
                while !is(&self.soak.is_over) && is_busy(&self.ask(&line).await) {
                    sleep(PAUSE).await;
                }
                return None;
            }
            // Its worker dies.
            (980..985, _) => {
                self.link = None;
                return None;
            }
            // It lasts longer than its lease, and its worker does not beat.
            (985..990, false) => sleep(LEASE + LEASE / 4).await,
            _ if self.soak.is_calm => {}
            _ => sleep(Duration::from_millis(self.random.below(SHORT_MS))).await,
        }
        // A single task that failed would be tried again.
        let is_single = job.line.is_some_and(|(run, _)| run == tasks::RUN);
        let code = if is_single { 0 } else { self.random.below(250) };
        let code = i64::try_from(code).unwrap_or_default();
        self.report(&job, code).await
    }

    /// Whether it may go on to the end.
    async fn beat_for(&mut self, job: &mut Job, time: Duration) -> bool {
        let begun = Instant::now();
        while begun.elapsed() < time {
            sleep(LEASE / 3).await;
            let asked = Instant::now();
            let line = format!("BEAT {}", job.attempt.unwrap_or_default());
            match self.ask(&line).await {
                Some(Answer::Ok) => {
                    job.until = asked + LEASE;
                    self.soak.ledger().extend(job);
                }
                Some(Answer::Lost) => {
                    let lost = self.soak.ledger().lose(job, Instant::now(), "LOST");
                    self.soak.check(lost);
                    return false;
                }
                answer if is_busy(&answer) => {}
                other => self.soak.fault(&format!("{line} is answered {other:?}")),
            }
        }
        true
    }

    /// Says `DONE` until it is answered with more than that the daemon is busy, or the load is over. A classic worker has its next job
    /// then.
    async fn report(&mut self, job: &Job, code: i64) -> Option<Job> {
        let number = job.attempt.map(|attempt| attempt.to_string());
        let line = format!("DONE {} {code}", number.as_ref().unwrap_or(&job.key));
        let (said, mut repeats) = (Instant::now(), false);
        while !is(&self.soak.is_over) {
            self.soak.ledger().report(job, repeats);
            let asked = Instant::now();
            let answer = self.ask(&line).await;
            let heard = Instant::now();
            let is_own = matches!(answer, Some(Answer::Ok)) == job.attempt.is_some();
            match answer {
                answer if is_busy(&answer) => {}
                Some(Answer::Error { code, .. }) if code == "stale" => {
                    let lost = self.soak.ledger().lose(job, heard, "ERROR stale");
                    self.soak.check(lost);
                    return None;
                }
                Some(answer @ (Answer::Ok | Answer::Job(_) | Answer::NoJobs(_))) if is_own => {
                    self.soak.ledger().acknowledge(job, code, said, heard);
                    let Answer::Job(handed) = answer else { return None };
                    return self.read(&handed, asked);
                }
                other => {
                    self.soak.fault(&format!("DONE of {job:?} is answered {other:?}"));
                    return None;
                }
            }
            repeats = true;
            sleep(PAUSE).await;
        }
        None
    }

    /// Asks its daemon; `None`: it does not answer, and another one may be asked next.
    async fn ask(&mut self, line: &str) -> Option<Answer> {
        let begun = Instant::now();
        let asked = self.try_ask(line).await;
        if self.soak.is_calm {
            let (soak, waited) = (&self.soak, begun.elapsed());
            let mut figures = soak.figures();
            figures.wait = figures.wait.max(waited);
            drop(figures);
            if waited > WAIT_MAX {
                soak.fault(&format!("a worker waited {waited:?} for its answer to {line:?}"));
            }
            if let Err(why) = &asked {
                soak.fault(&format!("no answer to {line:?}: {why}"));
            }
        }
        if asked.is_err() {
            self.link = None;
            if self.roams {
                self.daemon = self.random.below(self.soak.sockets.len() as u64) as usize;
            }
        }
        asked.ok()
    }

    async fn try_ask(&mut self, line: &str) -> io::Result<Answer> {
        let mut link = match self.link.take() {
            Some(link) => link,
            None => {
                let name = format!("worker-{}", self.number);
                let leased = (!self.is_classic).then_some((name.as_str(), LEASE));
                Link::new(&self.soak.sockets[self.daemon], leased).await?
            }
        };
        let answer = link.ask(line).await?;
        self.link = Some(link);
        Ok(answer)
    }
}

/// Whether it did not answer more than that.
fn is_busy(answer: &Option<Answer>) -> bool {
    answer
        .as_ref()
        .is_none_or(|answer| matches!(answer, Answer::Error { code, .. } if code == "busy"))
}
