//! Attempts that ended: what `log` asks, and how the tasks of a key ended.
//!
//! All of them are read along their ends. Those of one key are a chain, which begins at its last one. So neither depends on how many
//! attempts are kept.

use std::collections::HashMap;

use rusqlite::{Result, Row};
use shiftboss_protocol::model::{Attempt, UnixSeconds};
use shiftboss_queue::answers::{Ended, Ends, Log};
use shiftboss_queue::reader::EndedAttempts;
use shiftboss_queue::record::{FetcherId, Record, Task};
use shiftboss_queue::records::Name;
use shiftboss_queue::views::LOG_MAX;

use super::{Look, limit, run_of, seconds};
use crate::ask::Ask;
use crate::code;

/// The columns of a [`Attempted`]: an attempt with its key.
macro_rules! attempts {
    ($rest:literal) => {
        concat!(
            "SELECT ended, attempts.attempt, keys.key, attempts.fetcher, attempts.run, attempts.worker, attempts.started_ms,
                ended_ms, outcome, attempts.exit_code, previous
             FROM attempts CROSS JOIN keys ON keys.id = attempts.key ",
            $rest
        )
    };
}

/// Those whose ends are behind ?1 and before ?2, with one of the outcomes ?3, of the fetcher ?4, ended since ?5: the last one first.
const BACK: &str = attempts!(
    "WHERE ended > ?1 AND ended < ?2 AND (?3 IS NULL OR outcome IN (SELECT value FROM json_each(?3)))
        AND (?4 IS NULL OR attempts.fetcher = ?4) AND ended_ms >= ?5 ORDER BY ended DESC LIMIT ?6"
);
const ONWARD: &str = attempts!("WHERE ended > ?1 ORDER BY ended LIMIT ?2");
const ONE: &str = attempts!("WHERE attempts.attempt = ?1");
/// The number of the end from which on there are ?2 before the number ?1, if there are so many.
const FLOOR: &str =
    "SELECT ended FROM attempts WHERE ended < ?1 ORDER BY ended DESC LIMIT 1 OFFSET ?2 - 1";

/// Attempts of a key that are looked at for how one of its tasks ended.
const CHAIN_MAX: usize = 1_000;

/// An attempt that ended, and the one of its key before.
struct Attempted {
    ended: Ended,
    task: Task,
    previous: i64,
}

/// How a task ended last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct End {
    pub(super) exit_code: Option<i64>,
    pub(super) finished: UnixSeconds,
}

impl Look<'_> {
    fn attempted(&self, row: &Row<'_>) -> Result<Attempted> {
        let (fetcher, started, ended_ms): (i64, i64, i64) = (row.get(3)?, row.get(6)?, row.get(7)?);
        let took_ms = ended_ms.saturating_sub(started).max(0);
        let ended = Ended {
            ended: row.get(0)?,
            attempt: row.get(1)?,
            key: row.get(2)?,
            fetcher: Some(self.name(FetcherId(fetcher))),
            run: row.get(4)?,
            worker: row.get(5)?,
            started: seconds(started),
            finished: seconds(ended_ms),
            duration_seconds: seconds(ended_ms).saturating_sub(seconds(started)).max(0),
            took_ms: Some(took_ms),
            outcome: row.get(8)?,
            exit_code: row.get(9)?,
            output: None,
        };
        let task = code::task_of((fetcher, ended.run));
        Ok(Attempted { ended, task, previous: row.get(10)? })
    }

    pub(super) fn ended_attempts(&mut self, asked: &EndedAttempts) -> Result<Log> {
        if let Some(key) = &asked.key {
            return Ok(Log { attempts: self.of_key(key, asked)?, looked_to: None });
        }
        let fetcher = asked.fetcher.as_ref().map(|name| self.fetcher(name));
        let before = asked.before.unwrap_or(i64::MAX);
        let looked_to: Option<i64> = match asked.among {
            Some(among) => {
                self.connection.first(FLOOR, (before, limit(among)), |row| row.get(0))?
            }
            None => None,
        };
        // Nobody has a name that is not known.
        if fetcher == Some(None) {
            return Ok(Log { attempts: Vec::new(), looked_to });
        }
        let values = (
            looked_to.map_or(i64::MIN, |first| first - 1),
            before,
            (!asked.outcomes.is_empty()).then(|| code::json(&asked.outcomes)).transpose()?,
            fetcher.flatten().map(|id| id.0),
            asked.since.map_or(i64::MIN, |since| since.saturating_mul(1_000)),
            limit(asked.count.min(LOG_MAX)),
        );
        let attempts = self.connection.rows(BACK, values, |row| Ok(self.attempted(row)?.ended))?;
        Ok(Log { attempts, looked_to })
    }

    /// The attempt that was handed out last first, without those that never arrived: they are not in the chain.
    fn of_key(&mut self, key: &str, asked: &EndedAttempts) -> Result<Vec<Ended>> {
        let key = shiftboss_protocol::model::Key::stored(key);
        let stored = self.loader.named(&Name::Key(key))?;
        let count = asked.count.min(LOG_MAX);
        let is_wanted = |it: &Ended| {
            (asked.outcomes.is_empty() || asked.outcomes.contains(&&*it.outcome))
                && asked.before.is_none_or(|before| it.ended < before)
                && asked.since.is_none_or(|since| it.finished >= since)
                && asked.fetcher.as_ref().is_none_or(|name| it.fetcher.as_ref() == Some(name))
        };
        let (mut found, mut next) = (Vec::new(), stored.map_or(0, |it| it.record.last_attempt.0));
        while let Some(it) = self.attempt(next)? {
            if found.len() >= count {
                break;
            }
            next = it.previous;
            found.extend(Some(it.ended).filter(is_wanted));
        }
        Ok(found)
    }

    /// An attempt that ended, if it is kept.
    fn attempt(&self, attempt: i64) -> Result<Option<Attempted>> {
        self.connection.first(ONE, [attempt], |row| self.attempted(row))
    }

    pub(super) fn ends_after(&self, after: Option<i64>, count: usize) -> Result<Ends> {
        let Some(after) = after else {
            return Ok(Ends { attempts: Vec::new(), upto: self.kept.ends, is_kept: true });
        };
        let values = (after, limit(count.min(LOG_MAX)));
        let attempts =
            self.connection.rows(ONWARD, values, |row| Ok(self.attempted(row)?.ended))?;
        let is_kept = "SELECT EXISTS (SELECT 1 FROM attempts WHERE ended = ?1)";
        Ok(Ends {
            upto: attempts.last().map_or(after, |last| last.ended),
            attempts,
            is_kept: self.connection.value(is_kept, [after])?,
        })
    }

    /// How a task ended with its last attempt. The record has the last word on the last of all, and the only one on a key of which
    /// no attempt is known.
    pub(super) fn end_of(
        &self,
        record: &Record,
        attempt: Attempt,
        task: Task,
    ) -> Result<Option<End>> {
        let is_last = record.last_attempt.0 == 0 || attempt == record.last_attempt;
        let last = record.last.filter(|_| is_last);
        if let Some((last, finished)) = last.and_then(|last| Some((last, last.finished?))) {
            return Ok(Some(End { exit_code: last.exit_code, finished }));
        }
        let kept = self.attempt(attempt.0)?.filter(|it| it.task == task);
        let done = kept.filter(|it| it.ended.exit_code.is_some());
        Ok(done.map(|it| End { exit_code: it.ended.exit_code, finished: it.ended.finished }))
    }

    /// How single tasks of the key ended, by number, as far as its last attempts tell.
    pub(super) fn ends_of_singles(&self, record: &Record) -> Result<HashMap<i64, End>> {
        let (mut ends, mut next) = (HashMap::new(), record.last_attempt);
        for _ in 0..CHAIN_MAX {
            let Some(it) = self.attempt(next.0)? else { break };
            if let (Task::Single { number }, false) = (it.task, ends.contains_key(&run_of(it.task)))
            {
                ends.extend(self.end_of(record, next, it.task)?.map(|end| (number, end)));
            }
            next = Attempt(it.previous);
        }
        Ok(ends)
    }
}
