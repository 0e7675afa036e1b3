//! What was written, who has which key for how long that is sure, and which results were acknowledged.
//!
//! The fetchers say what they write *before* they write it, the workers what they are told. It knows no file, no socket and no clock. A
//! worker has a key from the moment it *read* the job until it says `DONE` or `RELEASE`, or its lease may have ended. A classic `DONE`
//! names the key only: it ends whatever job the key is in, so one that was repeated, or said while another worker had the key, makes
//! the key *muddled*: any result of it may be the last. Lines of the fetcher that is edited by hand are counted, not checked.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Instant;

/// A fetcher by its number, and its run.
pub type RunId = (usize, u64);

/// A line of a run, by its number.
pub type Line = (RunId, usize);

/// What a payload of the fetcher that is edited by hand begins with.
pub const BY_HAND: &str = "hand";

/// The line `index` of a run as it stands in its file, with its end.
pub fn line(keys: &str, index: usize, run: RunId) -> String {
    format!("{} {}.{}\n", key(keys, index), run.0, run.1)
}

fn key(keys: &str, index: usize) -> String {
    format!("{keys}/{index:06}")
}

/// The lines of one run.
#[derive(Debug, Default)]
struct Lines {
    /// The first word of their keys.
    keys: &'static str,
    /// Of which of them a result was acknowledged; as many as were written.
    ended: Vec<bool>,
    left: usize,
    /// It was replaced before all ended, so that some may never be handed out.
    given_up: bool,
}

/// A job, as its worker read it.
#[derive(Debug, Clone)]
pub struct Job {
    pub key: String,
    /// `None`: of the fetcher that is edited by hand.
    pub line: Option<Line>,
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

/// All runs, and all their jobs.
#[derive(Debug, Default)]
pub struct Ledger {
    runs: BTreeMap<RunId, Lines>,
    held: HashMap<String, Job>,
    last_attempts: HashMap<String, i64>,
    /// Of each key those that may be the last.
    results: HashMap<String, Vec<Acknowledged>>,
    muddled: HashSet<String>,
    /// Their classic results were acknowledged when their leases may have ended: they may run again.
    late: HashSet<Line>,
    /// Jobs of the runs that are checked.
    pub jobs: u64,
    /// Jobs of the fetcher that is edited by hand.
    pub jobs_by_hand: u64,
    pub acknowledged: u64,
    pub stale: u64,
}

impl Ledger {
    /// `lines` more lines of a run will be written now.
    pub fn write(&mut self, run: RunId, keys: &'static str, lines: usize) {
        let known = self.runs.entry(run).or_default();
        known.keys = keys;
        known.ended.resize(known.ended.len() + lines, false);
        known.left += lines;
    }

    /// A run will be replaced: what was not handed out of it by then may never be.
    pub fn give_up(&mut self, run: RunId) {
        if let Some(lines) = self.runs.get_mut(&run) {
            lines.given_up = true;
        }
    }

    /// Lines of a run that did not end.
    pub fn left(&self, run: RunId) -> usize {
        self.runs.get(&run).map_or(0, |lines| lines.left)
    }

    /// Lines that did not end in runs that were not given up.
    pub fn all_left(&self) -> usize {
        self.runs.values().filter(|lines| !lines.given_up).map(|lines| lines.left).sum()
    }

    /// The same with their keys; a repeated classic `DONE` may have ended those of its key though nobody had them.
    pub fn missing(&self) -> impl Iterator<Item = (Line, String)> {
        let runs = self.runs.iter().filter(|(_, lines)| lines.left > 0 && !lines.given_up);
        let lines = runs.flat_map(|(run, lines)| {
            let left = (0..).zip(&lines.ended).filter(|(_, ended)| !**ended);
            left.map(|(index, _)| ((*run, index), key(lines.keys, index)))
        });
        lines.filter(|(_, key)| !self.muddled.contains(key))
    }

    /// The line that a job is of; `None`: it is edited by hand. That nobody wrote it is wrong.
    pub fn find(&self, key: &str, payload: &str) -> Result<Option<Line>, String> {
        if payload.starts_with(BY_HAND) {
            return Ok(None);
        }
        let parsed = || -> Option<Line> {
            let (fetcher, run) = payload.split_once('.')?;
            let (keys, index) = key.rsplit_once('/')?;
            let (run, index) = ((fetcher.parse().ok()?, run.parse().ok()?), index.parse().ok()?);
            let lines = self.runs.get(&run)?;
            (lines.keys == keys && index < lines.ended.len()).then_some((run, index))
        };
        parsed().map(Some).ok_or_else(|| format!("a job that nobody wrote: {key:?} {payload:?}"))
    }

    /// Notes that a worker read a job. It is wrong if somebody else has the key, it is done, or its attempt is not a later one.
    pub fn read(&mut self, job: &Job, now: Instant) -> Result<(), String> {
        let Job { key, line, attempt, .. } = job;
        let Some(line) = line else {
            self.jobs_by_hand += 1;
            return Ok(());
        };
        self.jobs += 1;
        let before = self.held.insert(key.clone(), job.clone());
        if let Some(other) = before.filter(|other| other.until > now) {
            let left = other.until - now;
            return Err(format!("out twice: {job:?} while {other:?}, whose lease lasts {left:?}"));
        }
        let is_ended = self.runs.get(&line.0).is_some_and(|lines| lines.ended[line.1]);
        if is_ended && !self.late.contains(line) {
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
        if job.attempt.is_some() || job.line.is_none() {
            return self.give_back(job);
        }
        let held = self.held.remove(&job.key);
        if repeats || held.is_none_or(|held| held.worker != job.worker) {
            self.muddled.insert(job.key.clone());
        }
    }

    /// A result, said since `said`, was acknowledged.
    pub fn acknowledge(&mut self, job: &Job, code: i64, said: Instant, heard: Instant) {
        let Some(line) = job.line else { return };
        self.acknowledged += 1;
        if job.attempt.is_none() && heard > job.until {
            self.late.insert(line);
        }
        if let Some(lines) = self.runs.get_mut(&line.0)
            && !std::mem::replace(&mut lines.ended[line.1], true)
        {
            lines.left -= 1;
        }
        let results = self.results.entry(job.key.clone()).or_default();
        if !self.muddled.contains(&job.key) {
            results.retain(|other| other.heard >= said);
        }
        results.push(Acknowledged { code, said, heard });
    }

    /// A worker was told that the attempt is not its own any more: wrong if its lease lasts.
    pub fn lose(&mut self, job: &Job, now: Instant, answer: &str) -> Result<(), String> {
        self.stale += 1;
        self.give_back(job);
        if job.until > now && !self.muddled.contains(&job.key) {
            let left = job.until - now;
            return Err(format!("{answer} though the lease lasts {left:?}: {job:?}"));
        }
        Ok(())
    }

    /// Looks whether the log's code of a key is that of a result which may have been the last.
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

    /// How many runs there were, and keys of which results were acknowledged.
    pub fn size(&self) -> (usize, usize) {
        (self.runs.len(), self.results.len())
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::{Job, Ledger};

    const SECOND: Duration = Duration::from_secs(1);
    const RUN: super::RunId = (0, 1);

    fn job(worker: usize, attempt: Option<i64>, until: Instant) -> Job {
        Job { key: "k/000001".to_owned(), line: Some((RUN, 1)), attempt, worker, until }
    }

    fn new() -> (Ledger, Instant) {
        let mut ledger = Ledger::default();
        ledger.write(RUN, "k", 2);
        (ledger, Instant::now())
    }

    #[test]
    fn lines_are_those_that_were_written() {
        let (mut ledger, now) = new();
        assert_eq!(ledger.find("k/000001", "0.1"), Ok(Some((RUN, 1))));
        assert_eq!(ledger.find("hand/000009", "hand"), Ok(None));
        for (key, payload) in [("k/000002", "0.1"), ("k/000001", "0.2"), ("l/000001", "0.1")] {
            assert!(ledger.find(key, payload).unwrap_err().contains("nobody wrote"));
        }
        ledger.acknowledge(&job(1, None, now + SECOND), 0, now, now);
        assert_eq!(ledger.missing().collect::<Vec<_>>(), [((RUN, 0), "k/000000".to_owned())]);
        assert_eq!((ledger.left(RUN), ledger.all_left()), (1, 1));
        ledger.give_up(RUN);
        assert_eq!((ledger.missing().count(), ledger.all_left()), (0, 0));
    }

    #[test]
    fn a_key_is_out_once_while_its_lease_lasts() {
        let (mut ledger, now) = new();
        let [first, second] = [(1, 7), (2, 8)].map(|(it, at)| job(it, Some(at), now + SECOND));
        assert_eq!(ledger.read(&first, now), Ok(()));
        assert!(ledger.read(&second, now).unwrap_err().starts_with("out twice"));
        let third = job(3, Some(9), now + 3 * SECOND);
        assert_eq!(ledger.read(&third, now + 2 * SECOND), Ok(()));
        assert!(ledger.lose(&third, now + 2 * SECOND, "LOST").is_err());
        let again = job(3, Some(9), now);
        assert!(ledger.read(&again, now).unwrap_err().starts_with("attempt 9 after 9"));
    }

    #[test]
    fn a_result_is_the_logs() {
        let (mut ledger, now) = new();
        let first = job(1, Some(7), now + 9 * SECOND);
        ledger.read(&first, now).unwrap();
        ledger.report(&first, false);
        ledger.acknowledge(&first, 3, now, now + SECOND);
        assert!(ledger.look(&first.key, None).is_err());
        assert!(ledger.read(&first, now).unwrap_err().contains("acknowledged"));
        ledger.acknowledge(&first, 4, now + 2 * SECOND, now + 3 * SECOND);
        assert!(ledger.look(&first.key, Some(3)).is_err());
        assert_eq!(ledger.look(&first.key, Some(4)), Ok(()));
    }

    /// Said twice, the second one may have come at any time.
    #[test]
    fn a_repeated_classic_result_ends_whatever_job_it_finds() {
        let (mut ledger, now) = new();
        let classic = job(1, None, now + SECOND);
        let leased = job(2, Some(8), now + 9 * SECOND);
        ledger.read(&classic, now).unwrap();
        ledger.report(&classic, false);
        ledger.read(&leased, now).unwrap();
        ledger.report(&classic, true);
        assert_eq!(ledger.lose(&leased, now, "LOST"), Ok(()));
        assert!(ledger.missing().all(|(_, key)| key != classic.key));
    }
}
