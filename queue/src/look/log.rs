//! Attempts that ended: the answer to `log`, and how the tasks of a key ended.
//!
//! A listing of all is read along their ends. The attempts of one key form a chain that begins at its last one. So the
//! cost of neither depends on how many attempts are kept.

use std::collections::HashMap;

use shiftboss_protocol::model::{Attempt, Key, UnixSeconds};

use super::{Look, run_of, seconds};
use crate::attempt::Outcome;
use crate::listings::{End, EndsOf, Listings};
use crate::reader::EndedAttempts;
use crate::record::{Record, Task};
use shiftboss_protocol::answers::{self, Ends, Log};

/// Most attempts that one question returns.
const LOG_MAX: usize = 10_000;
/// Most attempts of a key that are searched for the end of one of its tasks.
const CHAIN_MAX: usize = 1_000;

/// How a task ended last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ended {
    pub(super) exit_code: Option<i64>,
    pub(super) finished: UnixSeconds,
}

impl<S: Listings> Look<'_, S> {
    /// As it is shown.
    fn shown_end(&self, End { number, attempt: it, .. }: End) -> answers::Ended {
        let (started, finished) = (seconds(it.started), seconds(it.ended));
        answers::Ended {
            ended: number,
            attempt: it.attempt.0,
            key: it.key.to_string(),
            fetcher: Some(self.name(it.task.fetcher())),
            run: run_of(it.task),
            worker: it.worker.map(|worker| worker.to_string()),
            started,
            finished,
            duration_seconds: finished.saturating_sub(started).max(0),
            took_ms: Some(it.ended.saturating_sub(it.started).max(0)),
            outcome: it.outcome.word().to_owned(),
            exit_code: it.exit_code,
            output: None,
        }
    }

    fn shown_ends(&self, ends: Vec<End>) -> Vec<answers::Ended> {
        ends.into_iter().map(|end| self.shown_end(end)).collect()
    }

    pub(super) async fn ended_attempts(&mut self, asked: &EndedAttempts) -> Result<Log, S::Error> {
        if let Some(key) = &asked.key {
            return Ok(Log { attempts: self.of_key(key, asked).await?, looked_to: None });
        }
        let fetcher = asked.fetcher.as_ref().map(|name| self.fetcher(name));
        let before = asked.before.unwrap_or(i64::MAX);
        let looked_to = match asked.among {
            Some(among) => self.store.floor(before, among).await?,
            None => None,
        };
        // An unknown fetcher has no attempts.
        if fetcher == Some(None) {
            return Ok(Log { attempts: Vec::new(), looked_to });
        }
        let of = EndsOf {
            above: looked_to.map_or(i64::MIN, |first| first.saturating_sub(1)),
            before,
            outcomes: &asked.outcomes,
            fetcher: fetcher.flatten(),
            since: asked.since.map_or(i64::MIN, |since| since.saturating_mul(1_000)),
            count: asked.count.min(LOG_MAX),
        };
        let ends = self.store.ends(&of).await?;
        Ok(Log { attempts: self.shown_ends(ends), looked_to })
    }

    /// The attempt that was handed out last first, without those that never arrived: they are not in the chain.
    async fn of_key(
        &mut self,
        key: &str,
        asked: &EndedAttempts,
    ) -> Result<Vec<answers::Ended>, S::Error> {
        let stored = self.store.named(&[Key::stored(key)]).await?.into_iter().flatten().next();
        let count = asked.count.min(LOG_MAX);
        let is_wanted = |it: &answers::Ended| {
            (asked.outcomes.is_empty() || asked.outcomes.contains(&&*it.outcome))
                && asked.before.is_none_or(|before| it.ended < before)
                && asked.since.is_none_or(|since| it.finished >= since)
                && asked.fetcher.as_ref().is_none_or(|name| it.fetcher.as_ref() == Some(name))
        };
        let (mut found, mut next) =
            (Vec::new(), stored.map_or(Attempt(0), |it| it.record.last_attempt));
        while found.len() < count {
            let step = self.store.chain(next, count).await?;
            let Some(last) = step.last() else { break };
            let (this, before) = (last.attempt.attempt, last.attempt.previous);
            found.extend(self.shown_ends(step).into_iter().filter(is_wanted));
            if before >= this {
                break;
            }
            next = before;
        }
        found.truncate(count);
        Ok(found)
    }

    pub(super) async fn ends_after(
        &mut self,
        after: Option<i64>,
        count: usize,
    ) -> Result<Ends, S::Error> {
        let upto = self.store.last_end().await?;
        let Some(after) = after else {
            return Ok(Ends { attempts: Vec::new(), upto, is_kept: true });
        };
        let ends =
            self.store.ends_behind(after.saturating_sub(1), upto, count.min(LOG_MAX) + 1).await?;
        let is_kept = ends.first().is_some_and(|end| end.number == after);
        let behind = ends.into_iter().filter(|end| end.number > after).take(count.min(LOG_MAX));
        let attempts = self.shown_ends(behind.collect());
        Ok(Ends { upto: attempts.last().map_or(after, |last| last.ended), attempts, is_kept })
    }

    /// How a task ended with its last attempt. For the key's last attempt the record decides; for a key without known
    /// attempts it is the only source. An attempt serves the rows of all runs of its fetcher.
    pub(super) async fn end_of(
        &mut self,
        record: &Record,
        attempt: Attempt,
        task: Task,
    ) -> Result<Option<Ended>, S::Error> {
        if let Some(end) = last_end(record, attempt) {
            return Ok(Some(end));
        }
        let kept = self.store.chain(attempt, 1).await?.pop();
        Ok(kept.filter(|it| it.attempt.task.fetcher() == task.fetcher()).and_then(|it| done(&it)))
    }

    /// The outcome of an attempt, if it is kept.
    pub(super) async fn last_end_of(
        &mut self,
        record: &Record,
    ) -> Result<Option<Outcome>, S::Error> {
        let kept = self.store.chain(record.last_attempt, CHAIN_MAX).await?;
        let mut outcomes = kept.iter().map(|it| it.attempt.outcome);
        Ok(outcomes.find(|it| it.has_run() || *it == Outcome::Cancelled))
    }

    /// How single tasks of the key ended, by number, as far as its last attempts show.
    pub(super) async fn ends_of_singles(
        &mut self,
        record: &Record,
    ) -> Result<HashMap<i64, Ended>, S::Error> {
        let mut ends: HashMap<i64, Option<Ended>> = HashMap::new();
        for it in self.store.chain(record.last_attempt, CHAIN_MAX).await? {
            if let Task::Single { number } = it.attempt.task {
                ends.entry(number).or_insert_with(|| end_in(record, &it));
            }
        }
        Ok(ends.into_iter().filter_map(|(number, end)| Some((number, end?))).collect())
    }
}

/// How a task ended, by an attempt that is kept.
pub(super) fn end_in(record: &Record, end: &End) -> Option<Ended> {
    last_end(record, end.attempt.attempt).or_else(|| done(end))
}

/// How the record's last attempt ended.
fn last_end(record: &Record, attempt: Attempt) -> Option<Ended> {
    let is_last = record.last_attempt.0 == 0 || attempt == record.last_attempt;
    let last = record.last.filter(|_| is_last)?;
    Some(Ended { exit_code: last.exit_code, finished: last.finished? })
}

fn done(end: &End) -> Option<Ended> {
    let exit_code = Some(end.attempt.exit_code?);
    Some(Ended { exit_code, finished: seconds(end.attempt.ended) })
}
