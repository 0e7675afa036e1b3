//! What was written and what was handed out: each line of each run at most once, and at the end once.
//!
//! The fetchers say what they write *before* they write it, the workers what they were handed. It
//! knows no file and no socket. Lines of the fetcher that is edited by hand are counted, not checked.

use std::collections::BTreeMap;

/// A fetcher by its number, and its run.
pub type RunId = (usize, u64);

/// A line of a run, by its number.
pub type Line = (RunId, usize);

/// What a payload of the fetcher that is edited by hand begins with.
pub const BY_HAND: &str = "hand";

/// The line `index` of a run as it stands in its file, with its end.
#[must_use]
pub fn line(keys: &str, index: usize, run: RunId) -> String {
    format!("{} {}.{}\n", key(keys, index), run.0, run.1)
}

/// Its key.
#[must_use]
pub fn key(keys: &str, index: usize) -> String {
    format!("{keys}/{index:06}")
}

/// The lines of one run.
#[derive(Debug, Default)]
struct Lines {
    /// Which of them were handed out; as many as were written.
    handed: Vec<bool>,
    left: usize,
    /// It was replaced before all were handed out, so that some may never be.
    given_up: bool,
}

/// All runs, and the count of jobs.
#[derive(Debug, Default)]
pub struct Ledger {
    runs: BTreeMap<RunId, Lines>,
    /// Jobs of the runs that are checked.
    pub jobs: u64,
    /// Jobs of the fetcher that is edited by hand.
    pub jobs_by_hand: u64,
}

impl Ledger {
    /// `lines` more lines of a run will be written now.
    pub fn write(&mut self, run: RunId, lines: usize) {
        let known = self.runs.entry(run).or_default();
        known.handed.resize(known.handed.len() + lines, false);
        known.left += lines;
    }

    /// A run will be replaced: what was not handed out of it by then may never be.
    pub fn give_up(&mut self, run: RunId) {
        if let Some(lines) = self.runs.get_mut(&run) {
            lines.given_up = true;
        }
    }

    /// Lines of a run that were not handed out.
    #[must_use]
    pub fn left(&self, run: RunId) -> usize {
        self.runs.get(&run).map_or(0, |lines| lines.left)
    }

    /// Notes a `JOB` answer.
    ///
    /// # Errors
    /// Nobody wrote such a line, or it was handed out before.
    pub fn hand_out(&mut self, answer: &str) -> Result<(), String> {
        let job = answer.trim_end().strip_prefix("JOB ").and_then(|job| job.split_once(' '));
        if job.is_some_and(|(_, payload)| payload.starts_with(BY_HAND)) {
            self.jobs_by_hand += 1;
            return Ok(());
        }
        self.jobs += 1;
        match job.and_then(|(key, payload)| self.find(key, payload)) {
            None => Err(format!("a job that nobody wrote: {answer:?}")),
            Some(line) if self.is_noted(line) => {
                Err(format!("handed out twice in a run: {answer:?}"))
            }
            Some(line) => {
                self.note(line);
                Ok(())
            }
        }
    }

    /// The line that a job is of; `None`: nobody wrote it.
    #[must_use]
    pub fn find(&self, key: &str, payload: &str) -> Option<Line> {
        let (run, index) = parsed(key, payload)?;
        (index < self.runs.get(&run)?.handed.len()).then_some((run, index))
    }

    /// Whether a line was noted before.
    #[must_use]
    pub fn is_noted(&self, (run, index): Line) -> bool {
        self.runs.get(&run).is_some_and(|lines| lines.handed[index])
    }

    /// A line that was written is not left any more.
    pub fn note(&mut self, (run, index): Line) {
        if let Some(lines) = self.runs.get_mut(&run)
            && !std::mem::replace(&mut lines.handed[index], true)
        {
            lines.left -= 1;
        }
    }

    /// Runs of which lines are left, with their number, unless they were given up.
    #[must_use]
    pub fn missing(&self) -> Vec<(RunId, usize)> {
        let missing = self.runs.iter().filter(|(_, lines)| lines.left > 0 && !lines.given_up);
        missing.map(|(run, lines)| (*run, lines.left)).collect()
    }

    /// The lines of those.
    #[must_use]
    pub fn missing_lines(&self) -> Vec<Line> {
        let lines = |run: RunId| {
            let handed = self.runs.get(&run).into_iter().flat_map(|lines| lines.handed.iter());
            let left = handed.enumerate().filter(|(_, handed)| !**handed);
            left.map(move |(index, _)| (run, index)).collect::<Vec<_>>()
        };
        self.missing().into_iter().flat_map(|(run, _)| lines(run)).collect()
    }

    /// All jobs that were handed out.
    #[must_use]
    pub fn all_jobs(&self) -> u64 {
        self.jobs + self.jobs_by_hand
    }

    /// How many runs there were.
    #[must_use]
    pub fn runs(&self) -> usize {
        self.runs.len()
    }
}

fn parsed(key: &str, payload: &str) -> Option<Line> {
    let (fetcher, run) = payload.split_once('.')?;
    let (_, index) = key.rsplit_once('/')?;
    Some(((fetcher.parse().ok()?, run.parse().ok()?), index.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::{Ledger, line};

    #[test]
    fn each_line_of_a_run_is_handed_out_once() {
        let mut ledger = Ledger::default();
        let job = |index, run| format!("JOB {}", line("keys", index, run));
        ledger.write((1, 7), 2);
        assert_eq!(ledger.hand_out(&job(0, (1, 7))), Ok(()));
        assert!(ledger.hand_out(&job(0, (1, 7))).is_err_and(|text| text.contains("twice")));
        assert!(ledger.hand_out(&job(2, (1, 7))).is_err_and(|text| text.contains("nobody")));
        assert!(ledger.hand_out(&job(0, (1, 8))).is_err());
        assert_eq!(ledger.missing(), [((1, 7), 1)]);
        ledger.write((1, 8), 1);
        assert_eq!(ledger.hand_out(&job(0, (1, 8))), Ok(()));
        ledger.give_up((1, 7));
        assert_eq!(ledger.missing(), []);
        assert_eq!(ledger.hand_out("JOB hand/1 hand\n"), Ok(()));
        assert_eq!((ledger.jobs, ledger.jobs_by_hand), (5, 1));
    }
}
