//! Tasks that failed, and are not due by themselves: the longest part of the question of `tasks`.
//!
//! Attempts that are kept and failed are gone over, back from the last one; and, for what is longer ago than those, keys whose last
//! attempt failed and that do not wait, of which the record alone tells. Both go back in time, and so do the tasks.

use std::collections::HashSet;

use rusqlite::{Result, Row};
use shiftboss_protocol::model::Key;
use shiftboss_queue::answers::RowState;
use shiftboss_queue::record::{FetcherId, LastRun, ListRow, Record, Task};
use shiftboss_queue::records::{KeyId, Name, Stored};
use shiftboss_queue::views::failure;

use super::log::{End, Failed};
use super::tasks::{Listing, STEP};
use super::{Look, limit, run_of};
use crate::ask::Ask;

/// Keys and attempts that are looked at: at least so many, and so many for each task that is asked for.
const LOOKED_AT_MIN: usize = 10_000;
const LOOKED_AT_FOR_EACH: usize = 10;

const IS_FAILED: &str =
    "SELECT EXISTS (SELECT 1 FROM tasks WHERE number = ?1 AND status = 'failed')";
/// Keys that ended badly since ?1, back from one of them, the last one first.
const ENDED_BADLY: &str = "SELECT finished, id FROM keys INDEXED BY ended_badly
    WHERE exit_code <> 0 AND turn IS NULL AND finished >= ?1 AND (finished, id) < (?2, ?3)
    ORDER BY finished DESC, id DESC LIMIT ?4";

/// What is read in steps, back in time: the next one is at the end.
struct Back<T, B> {
    step: Vec<T>,
    /// The last one that was read.
    behind: B,
    is_all: bool,
}

impl<T, B> Back<T, B> {
    fn from(behind: B) -> Self {
        Self { step: Vec::new(), behind, is_all: false }
    }

    /// The next one, where there is one.
    fn next(
        &mut self,
        read: impl FnOnce(&B) -> Result<Vec<T>>,
        at: impl Fn(&T) -> B,
    ) -> Result<Option<&T>> {
        if self.step.is_empty() && !self.is_all {
            self.step = read(&self.behind)?;
            self.is_all = self.step.len() < STEP;
            if let Some(last) = self.step.last() {
                self.behind = at(last);
            }
            self.step.reverse();
        }
        Ok(self.step.last())
    }
}

impl Look<'_> {
    pub(super) fn failed(&mut self, listing: &mut Listing) -> Result<()> {
        let looked_at_max = LOOKED_AT_MIN.max(listing.limit.saturating_mul(LOOKED_AT_FOR_EACH));
        let mut attempts = Back::from(i64::MAX);
        let mut keys = Back::from((i64::MAX, i64::MAX));
        let mut singles = HashSet::new();
        for _ in 0..looked_at_max {
            let read = |before: &i64| self.failed_before(*before, listing.since, STEP);
            let attempt = attempts.next(read, |it: &Failed| it.end)?.map(|it| it.finished);
            let read = |behind: &(i64, i64)| self.ended_badly(listing, *behind);
            let key = keys.next(read, |it| *it)?.map(|(finished, _)| *finished);
            if listing.is_full() || attempt.max(key).is_none() {
                break;
            }
            if key > attempt {
                if let Some((_, key)) = keys.step.pop() {
                    self.failed_of_key(listing, KeyId(key))?;
                }
            } else if let Some(failed) = attempts.step.pop() {
                self.failed_with(listing, &mut singles, &failed)?;
            }
        }
        self.failed_singles(listing, &singles)
    }

    /// When they ended, and their ids.
    fn ended_badly(&self, listing: &Listing, behind: (i64, i64)) -> Result<Vec<(i64, i64)>> {
        if listing.fetcher == Some(FetcherId::TASKS) {
            return Ok(Vec::new());
        }
        let values = (listing.since, behind.0, behind.1, limit(STEP));
        let read = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?));
        self.connection.rows(ENDED_BADLY, values, read)
    }

    /// Whether a row ended, and is not due by itself.
    fn is_over(&self, record: &Record, row: &ListRow) -> bool {
        record.row_state(row, &self.context) == RowState::Dispatched
    }

    /// Rows of a key that failed, of whose attempts none is kept.
    fn failed_of_key(&mut self, listing: &mut Listing, key: KeyId) -> Result<()> {
        let Some(Stored { record, .. }) = self.loader.by_id(key)? else { return Ok(()) };
        for row in record.newest_rows().filter(|row| self.is_over(&record, row)) {
            if !self.is_kept(record.served(row.fetcher), row.task())? {
                let end = self.end_of_row(&record, row)?.filter(has_failed);
                self.push_failed(listing, &record, row.task(), end);
            }
        }
        Ok(())
    }

    /// The task of an attempt that failed, if that was its last one.
    fn failed_with(
        &mut self,
        listing: &mut Listing,
        singles: &mut HashSet<i64>,
        Failed { key, task, attempt, .. }: &Failed,
    ) -> Result<()> {
        let name = Name::Key(Key::stored(key));
        let Some(Stored { record, .. }) = self.loader.named(&name)? else { return Ok(()) };
        let end = self.end_of(&record, *attempt, *task)?;
        let end = match *task {
            Task::Row { fetcher, run } => {
                let row = record.row(fetcher, run).filter(|row| self.is_over(&record, row));
                let is_its = row.is_some() && record.served(fetcher) == *attempt;
                end.filter(|end| is_its && has_failed(end))
            }
            Task::Single { number } => {
                let is_failed = singles.insert(number)
                    && record.delay_of(*task).is_none()
                    && self.connection.value(IS_FAILED, [number])?;
                end.filter(|_| is_failed)
            }
        };
        self.push_failed(listing, &record, *task, end);
        Ok(())
    }

    /// Single tasks of which no attempt is kept: how their keys ended last is all that is known.
    fn failed_singles(&mut self, listing: &mut Listing, met: &HashSet<i64>) -> Result<()> {
        let mut behind = 0;
        loop {
            let step = self.singles(listing, "failed", behind)?;
            let Some((last, _)) = step.last() else { return Ok(()) };
            behind = run_of(*last);
            for (task, Stored { record, .. }) in &step {
                let end = record.last.map(|LastRun { started, finished, exit_code }| End {
                    exit_code,
                    finished: finished.unwrap_or(started),
                });
                if !met.contains(&run_of(*task)) && record.delay_of(*task).is_none() {
                    self.push_failed(listing, record, *task, end);
                }
            }
        }
    }

    /// Lists a task that failed and ended so, if it is wanted.
    fn push_failed(&self, listing: &mut Listing, record: &Record, task: Task, end: Option<End>) {
        let is_wanted = |end: &End| listing.wants(task.fetcher()) && end.finished >= listing.since;
        if let Some(End { exit_code, finished }) = end.filter(is_wanted) {
            listing.tasks.push(self.shown(record, task, Some(finished), failure(exit_code)));
        }
    }
}

fn has_failed(end: &End) -> bool {
    end.exit_code.is_some_and(|code| code != 0)
}
