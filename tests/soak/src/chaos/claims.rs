//! Who has which key, for how long that is sure, and which results were acknowledged: what the workers say to the ledger
//! of several daemons.
//!
//! Knows no socket and no clock. A worker has a key from the moment it *read* the job until it says `DONE` or `RELEASE`, or its
//! lease may have ended. A classic `DONE` names the key only: it ends whatever job the key is in, so one that was
//! repeated, or said while another worker had the key, makes the key *muddled*: any result of it may be the last.

use std::collections::{HashMap, HashSet};
use std::time::Instant;

use crate::ledger::{Ledger, Line};

/// A job, as its worker read it.
#[derive(Debug, Clone)]
pub struct Job {
    pub key: String,
    pub line: Line,
    /// `None`: by the classic protocol.
    pub attempt: Option<i64>,
    pub worker: usize,
    /// Until then its lease lasts, whatever happens.
    pub until: Instant,
}

/// A result that was acknowledged: its code, and between which moments it was recorded.
#[derive(Debug, Clone, Copy)]
struct Acknowledged {
    code: i64,
    said: Instant,
    heard: Instant,
}

/// All jobs of a run.
#[derive(Debug, Default)]
pub struct Claims {
    held: HashMap<String, Job>,
    last_attempts: HashMap<String, i64>,
    results: HashMap<String, Vec<Acknowledged>>,
    muddled: HashSet<String>,
    /// Their classic results were acknowledged when their leases may have ended: they may run again.
    late: HashSet<Line>,
    pub acknowledged: u64,
    pub stale: u64,
}

impl Claims {
    /// Notes that a worker read a job.
    ///
    /// # Errors
    /// Somebody else has the key, nobody wrote it, it is done, or its attempt is not a later one.
    pub fn read(&mut self, ledger: &mut Ledger, job: &Job, now: Instant) -> Result<(), String> {
        ledger.jobs += 1;
        let Job { key, line, attempt, .. } = job;
        let before = self.held.insert(key.clone(), job.clone());
        if let Some(other) = before.filter(|other| other.until > now) {
            let left = other.until - now;
            return Err(format!("out twice: {job:?} while {other:?}, whose lease lasts {left:?}"));
        }
        if ledger.is_noted(*line) && !self.late.contains(line) {
            return Err(format!("handed out after its result was acknowledged: {job:?}"));
        }
        if let Some(attempt) = *attempt
            && let Some(last) = self.last_attempts.insert(key.clone(), attempt)
            && last >= attempt
        {
            return Err(format!("attempt {attempt} after {last}: {job:?}"));
        }
        Ok(())
    }

    /// A `BEAT` was answered with OK.
    pub fn extend(&mut self, job: &Job) {
        if let Some(held) = self.held.get_mut(&job.key).filter(|held| held.worker == job.worker) {
            held.until = job.until;
        }
    }

    /// The worker gives the job back now, or may: `RELEASE` will be said.
    pub fn give_back(&mut self, job: &Job) {
        if self.held.get(&job.key).is_some_and(|held| held.worker == job.worker) {
            self.held.remove(&job.key);
        }
    }

    /// The worker says `DONE` now.
    pub fn report(&mut self, job: &Job, repeats: bool) {
        if job.attempt.is_some() {
            return self.give_back(job);
        }
        let held = self.held.remove(&job.key);
        if repeats || held.is_none_or(|held| held.worker != job.worker) {
            self.muddled.insert(job.key.clone());
        }
    }

    /// A result, said since `said`, was acknowledged.
    pub fn acknowledge(
        &mut self,
        ledger: &mut Ledger,
        job: &Job,
        code: i64,
        said: Instant,
        heard: Instant,
    ) {
        self.acknowledged += 1;
        let results = self.results.entry(job.key.clone()).or_default();
        results.push(Acknowledged { code, said, heard });
        if job.attempt.is_none() && heard > job.until {
            self.late.insert(job.line);
        }
        ledger.note(job.line);
    }

    /// A worker was told that the attempt is not its own any more.
    ///
    /// # Errors
    /// Its lease lasts.
    pub fn lose(&mut self, job: &Job, now: Instant, answer: &str) -> Result<(), String> {
        self.stale += 1;
        self.give_back(job);
        if job.until > now && !self.muddled.contains(&job.key) {
            let left = job.until - now;
            return Err(format!("{answer} though the lease lasts {left:?}: {job:?}"));
        }
        Ok(())
    }

    /// Looks whether the log's code of a key is that of the last result.
    ///
    /// # Errors
    /// When it is of none that may have been the last.
    pub fn look(&self, key: &str, logged: Option<i64>) -> Result<(), String> {
        let Some(results) = self.results.get(key) else { return Ok(()) };
        let is_last = |result: &&Acknowledged| {
            self.muddled.contains(key) || results.iter().all(|other| other.said <= result.heard)
        };
        if results.iter().filter(is_last).any(|result| Some(result.code) == logged) {
            return Ok(());
        }
        Err(format!("{key}: the log has code {logged:?}, acknowledged were {results:?}"))
    }

    /// Keys of which results were acknowledged.
    #[must_use]
    pub fn keys(&self) -> usize {
        self.results.len()
    }

    /// Whether any result of a key may be its last.
    #[must_use]
    pub fn is_muddled(&self, key: &str) -> bool {
        self.muddled.contains(key)
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::{Claims, Job};
    use crate::ledger::Ledger;

    const SECOND: Duration = Duration::from_secs(1);

    fn job(worker: usize, attempt: Option<i64>, until: Instant) -> Job {
        Job { key: "k/000001".to_owned(), line: ((0, 1), 1), attempt, worker, until }
    }

    fn new() -> (Claims, Ledger, Instant) {
        let mut ledger = Ledger::default();
        ledger.write((0, 1), 2);
        (Claims::default(), ledger, Instant::now())
    }

    #[test]
    fn a_key_is_out_once_while_its_lease_lasts() {
        let (mut claims, mut ledger, now) = new();
        let first = job(1, Some(7), now + SECOND);
        let second = job(2, Some(8), now + SECOND);
        assert_eq!(claims.read(&mut ledger, &first, now), Ok(()));
        assert!(claims.read(&mut ledger, &second, now).unwrap_err().starts_with("out twice"));
        let third = job(3, Some(9), now + 3 * SECOND);
        assert_eq!(claims.read(&mut ledger, &third, now + 2 * SECOND), Ok(()));
        assert!(claims.lose(&third, now + 2 * SECOND, "LOST").is_err());
        let again = job(3, Some(9), now);
        assert!(
            claims.read(&mut ledger, &again, now).unwrap_err().starts_with("attempt 9 after 9")
        );
    }

    #[test]
    fn a_result_is_the_logs() {
        let (mut claims, mut ledger, now) = new();
        let first = job(1, Some(7), now + 9 * SECOND);
        claims.read(&mut ledger, &first, now).unwrap();
        claims.report(&first, false);
        claims.acknowledge(&mut ledger, &first, 3, now, now + SECOND);
        assert!(claims.look(&first.key, None).is_err());
        assert!(claims.read(&mut ledger, &first, now).unwrap_err().contains("acknowledged"));
        claims.acknowledge(&mut ledger, &first, 4, now + 2 * SECOND, now + 3 * SECOND);
        assert!(claims.look(&first.key, Some(3)).is_err());
        assert_eq!(claims.look(&first.key, Some(4)), Ok(()));
    }

    /// Said twice, the second one may have come at any time.
    #[test]
    fn a_repeated_classic_result_ends_whatever_job_it_finds() {
        let (mut claims, mut ledger, now) = new();
        let classic = job(1, None, now + SECOND);
        let leased = job(2, Some(8), now + 9 * SECOND);
        claims.read(&mut ledger, &classic, now).unwrap();
        claims.report(&classic, false);
        claims.read(&mut ledger, &leased, now).unwrap();
        claims.report(&classic, true);
        assert_eq!(claims.lose(&leased, now, "LOST"), Ok(()));
        assert!(claims.is_muddled(&classic.key));
    }
}
