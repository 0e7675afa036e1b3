//! The workers of several daemons: half of them classic, half of protocol 2, and half of either go to another daemon when
//! theirs is gone. A result is kept until it is acknowledged.
//!
//! All on one thread, so that a job's moments are what they seem. Most jobs are short; some are longer than a lease, with or
//! without beats, some are given back, and some are forgotten, as when a worker dies.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use shiftboss_protocol::wire::answers::{Answer, Job as Handed};
use tokio::task::LocalSet;
use tokio::time::sleep;

use super::World;
use super::claims::Job;
use super::link::Link;
use crate::random::Random;

const WORKERS: usize = 64;
/// Of protocol 2.
const LEASE: Duration = Duration::from_secs(8);
pub const CLASSIC_LEASE: Duration = Duration::from_secs(20);
/// A job is read at most so long after it was handed out: its daemon proves so often that it lives.
const READ_WITHIN: Duration = Duration::from_secs(5);
/// How the classic lease is counted: in whole seconds.
const SECOND: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(200);
/// The longest of most jobs.
const SHORT_MS: u64 = 150;

/// What becomes of a job.
enum Fate {
    Short,
    /// It lasts, and its worker beats.
    Long(Duration),
    GivenBack,
    /// Its worker dies.
    Forgotten,
    /// It lasts longer than its lease, and its worker does not beat.
    Late,
}

struct Worker {
    world: Arc<World>,
    number: usize,
    is_classic: bool,
    roams: bool,
    daemon: usize,
    link: Option<Link>,
    random: Random,
}

/// Runs all workers to their end.
///
/// # Errors
/// When there is no runtime.
pub fn run(world: &Arc<World>, seed: u64) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    LocalSet::new().block_on(&runtime, async {
        let start = |number| tokio::task::spawn_local(Worker::new(world, number, seed).work());
        let workers: Vec<_> = (0..WORKERS).map(start).collect();
        for worker in workers {
            worker.await.map_err(io::Error::other)?;
        }
        Ok(())
    })
}

impl Worker {
    fn new(world: &Arc<World>, number: usize, seed: u64) -> Self {
        let daemon = number % world.sockets.len();
        Self {
            world: Arc::clone(world),
            number,
            is_classic: (number / 4).is_multiple_of(2),
            roams: (number / 8).is_multiple_of(2),
            daemon,
            link: None,
            random: Random::new(seed ^ (number as u64 + 1) << 32),
        }
    }

    async fn work(mut self) {
        let mut next = None;
        while !self.world.is_over() {
            let job = match next.take() {
                Some(job) => job,
                None => match self.ask_for_job().await {
                    Some(job) => job,
                    None => {
                        sleep(PAUSE).await;
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
        match self.ask(line).await? {
            Answer::Job(handed) => self.read(&handed, asked),
            Answer::NoJobs(_) => None,
            Answer::Error { code, .. } if code == "busy" => None,
            other => {
                self.world.report.fault(&format!("READY is answered {other:?}"));
                None
            }
        }
    }

    fn read(&self, handed: &Handed, asked: Instant) -> Option<Job> {
        let (key, payload) = (handed.shown_key(), String::from_utf8_lossy(&handed.payload));
        let mut ledger = self.world.ledger();
        let Some(line) = ledger.find(&key, &payload) else {
            self.world.report.fault(&format!("a job that nobody wrote: {handed:?}"));
            return None;
        };
        let until = self.until(asked);
        let job = Job { key, line, attempt: handed.number(), worker: self.number, until };
        let noted = self.world.claims().read(&mut ledger, &job, Instant::now());
        drop(ledger);
        self.world.served[self.daemon].fetch_add(1, Ordering::Relaxed);
        self.world.event(&format!("{} gave {job:?}", self.world.name(self.daemon)));
        noted.unwrap_or_else(|text| self.world.report.fault(&text));
        Some(job)
    }

    /// When nothing more is listed all is worked off.
    fn fate(&mut self) -> Fate {
        match self.random.below(1_000) {
            _ if self.world.is_listed.load(Ordering::Relaxed) => Fate::Short,
            ..960 => Fate::Short,
            960..970 if !self.is_classic => {
                Fate::Long(Duration::from_millis(1_000 + self.random.below(12_000)))
            }
            970..980 if !self.is_classic => Fate::GivenBack,
            980..985 => Fate::Forgotten,
            985..990 if !self.is_classic => Fate::Late,
            _ => Fate::Short,
        }
    }

    /// To its end. A classic worker has its next job then.
    async fn do_job(&mut self, mut job: Job) -> Option<Job> {
        match self.fate() {
            Fate::Short => sleep(Duration::from_millis(self.random.below(SHORT_MS))).await,
            Fate::Long(time) => {
                if !self.beat_for(&mut job, time).await {
                    return None;
                }
            }
            Fate::Late => sleep(LEASE + LEASE / 4).await,
            Fate::GivenBack => {
                self.world.claims().give_back(&job);
                self.until_answered(&job, |attempt| format!("RELEASE {attempt}")).await;
                return None;
            }
            Fate::Forgotten => {
                self.link = None;
                return None;
            }
        }
        let code = i64::try_from(self.random.below(250)).unwrap_or_default();
        match self.is_classic {
            true => self.report_by_key(&job, code).await,
            false => {
                self.report_attempt(&job, code).await;
                None
            }
        }
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
                    self.world.claims().extend(job);
                }
                Some(Answer::Lost) => {
                    let lost = self.world.claims().lose(job, Instant::now(), "LOST");
                    lost.unwrap_or_else(|text| self.world.report.fault(&text));
                    return false;
                }
                Some(Answer::Error { code, .. }) if code == "busy" => {}
                None => {}
                Some(other) => self.world.report.fault(&format!("{line} is answered {other:?}")),
            }
        }
        true
    }

    async fn report_attempt(&mut self, job: &Job, code: i64) {
        self.world.claims().report(job, false);
        let said = Instant::now();
        let line = |attempt| format!("DONE {attempt} {code}");
        let Some(answer) = self.until_answered(job, line).await else { return };
        let heard = Instant::now();
        match answer {
            Answer::Ok => self.acknowledged(job, code, said, heard),
            Answer::Error { code, .. } if code == "stale" => {
                let lost = self.world.claims().lose(job, heard, "ERROR stale");
                lost.unwrap_or_else(|text| self.world.report.fault(&text));
            }
            other => self.world.report.fault(&format!("DONE of {job:?} is answered {other:?}")),
        }
    }

    /// Says a line until it is answered with more than that the daemon is busy; `None`: the run is given up.
    async fn until_answered(&mut self, job: &Job, line: impl Fn(i64) -> String) -> Option<Answer> {
        let line = line(job.attempt.unwrap_or_default());
        while !self.world.is_given_up() {
            match self.ask(&line).await {
                Some(Answer::Error { code, .. }) if code == "busy" => {}
                Some(answer) => return Some(answer),
                None => {}
            }
            sleep(PAUSE).await;
        }
        None
    }

    /// The answer is the next job, or that there is none.
    async fn report_by_key(&mut self, job: &Job, code: i64) -> Option<Job> {
        let (first, line) = (Instant::now(), format!("DONE {} {code}", job.key));
        let mut repeats = false;
        while !self.world.is_given_up() {
            self.world.claims().report(job, repeats);
            let asked = Instant::now();
            if let Some(answer) = self.ask(&line).await {
                self.acknowledged(job, code, first, Instant::now());
                return match answer {
                    Answer::Job(handed) => self.read(&handed, asked),
                    _ => None,
                };
            }
            repeats = true;
            sleep(PAUSE).await;
        }
        None
    }

    fn acknowledged(&self, job: &Job, code: i64, said: Instant, heard: Instant) {
        let mut ledger = self.world.ledger();
        self.world.claims().acknowledge(&mut ledger, job, code, said, heard);
    }

    /// Asks its daemon; `None`: it does not answer, and another one may be asked next.
    async fn ask(&mut self, line: &str) -> Option<Answer> {
        let asked = self.try_ask(line).await;
        if asked.is_err() {
            self.link = None;
            if self.roams {
                self.daemon = self.random.below(self.world.sockets.len() as u64) as usize;
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
                Link::new(&self.world.sockets[self.daemon], leased).await?
            }
        };
        let answer = link.ask(line).await?;
        self.link = Some(link);
        Ok(answer)
    }
}
