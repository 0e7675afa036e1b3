//! Tasks that failed, and are not due by themselves: the longest part of the question of `tasks`.
//!
//! First come those whose attempts are kept, back from the last end; then, for their ends are longer ago, keys of whose last attempt
//! only the record tells, and single tasks. What SQL leaves out is what cannot be; the record is asked about all else.

use std::collections::HashSet;

use rusqlite::{Result, Row};
use shiftboss_protocol::model::Attempt;
use shiftboss_queue::answers::RowState;
use shiftboss_queue::record::{FetcherId, LastRun, ListRow, Record, Task};
use shiftboss_queue::records::{KeyId, Stored};
use shiftboss_queue::views::failure;

use super::log::End;
use super::tasks::{Listing, STEP};
use super::{Look, limit, run_of};
use crate::ask::Ask;
use crate::code;

/// Attempts that failed before the end ?1 and since ?2, whose task did not wait since: the last one first.
const ATTEMPTS: &str = "SELECT ended, attempt, key, fetcher, run FROM attempts
    WHERE ended < ?1 AND ended_ms >= ?2 AND exit_code <> 0 AND iif(fetcher = 0,
        EXISTS (SELECT 1 FROM tasks WHERE number = attempts.run AND status = 'failed'),
        EXISTS (SELECT 1 FROM rows WHERE rows.key = attempts.key AND rows.fetcher = attempts.fetcher
            AND rows.run = attempts.run AND rows.armed < attempts.attempt))
    ORDER BY ended DESC LIMIT ?3";
/// Keys that ended badly since ?3, whose last attempt is not among those, back from one of them, the last one first.
const KEYS: &str = "SELECT finished, id FROM keys INDEXED BY ended_badly
    WHERE exit_code <> 0 AND turn IS NULL AND finished >= ?3 AND (finished, id) < (?1, ?2)
        AND EXISTS (SELECT 1 FROM rows WHERE rows.key = keys.id)
        AND NOT EXISTS (SELECT 1 FROM attempts WHERE attempts.attempt = last_attempt AND attempts.exit_code <> 0)
    ORDER BY finished DESC, id DESC LIMIT ?4";

impl Look<'_> {
    pub(super) fn failed(&mut self, listing: &mut Listing) -> Result<()> {
        let met = self.failed_attempts(listing)?;
        if listing.fetcher != Some(FetcherId::TASKS) {
            self.failed_keys(listing)?;
        }
        self.failed_singles(listing, &met)
    }

    /// Says which single tasks there were.
    fn failed_attempts(&mut self, listing: &mut Listing) -> Result<HashSet<i64>> {
        let (mut before, mut met) = (i64::MAX, HashSet::new());
        let since = listing.since.saturating_mul(1_000);
        let read = |row: &Row<'_>| {
            let task = code::task_of((row.get(3)?, row.get(4)?));
            Ok((row.get(0)?, Attempt(row.get(1)?), KeyId(row.get(2)?), task))
        };
        while listing.goes_on() {
            let step = self.connection.rows(ATTEMPTS, (before, since, limit(STEP)), read)?;
            for (end, attempt, key, task) in &step {
                before = *end;
                let Some(Stored { record, .. }) = self.loader.by_id(*key)? else { continue };
                let is_its_last = match *task {
                    Task::Single { number } => met.insert(number),
                    Task::Row { fetcher, run } => {
                        let row = record.row(fetcher, run).filter(|row| self.is_over(&record, row));
                        row.is_some() && record.served(fetcher) == *attempt
                    }
                };
                if is_its_last {
                    let end = self.end_of(&record, *attempt, *task)?;
                    self.push_failed(listing, &record, *task, end);
                }
            }
            if step.len() < STEP {
                break;
            }
        }
        Ok(met)
    }

    fn failed_keys(&mut self, listing: &mut Listing) -> Result<()> {
        let mut behind: (i64, i64) = (i64::MAX, i64::MAX);
        while listing.goes_on() {
            let values = (behind.0, behind.1, listing.since, limit(STEP));
            let step = self.connection.rows(KEYS, values, |row| Ok((row.get(0)?, row.get(1)?)))?;
            for (_, key) in &step {
                let Some(Stored { record, .. }) = self.loader.by_id(KeyId(*key))? else { continue };
                for row in record.newest_rows().filter(|row| self.is_over(&record, row)) {
                    let attempt = record.served(row.fetcher);
                    if record.last_attempt == Attempt(0) || record.last_attempt == attempt {
                        let end = self.end_of(&record, attempt, row.task())?;
                        self.push_failed(listing, &record, row.task(), end);
                    }
                }
            }
            match step.last() {
                Some(last) if step.len() == STEP => behind = *last,
                _ => break,
            }
        }
        Ok(())
    }

    /// How their keys ended last is all that is known of them.
    fn failed_singles(&mut self, listing: &mut Listing, met: &HashSet<i64>) -> Result<()> {
        let mut behind = 0;
        while listing.goes_on() {
            let step = self.singles(listing, "failed", behind)?;
            let Some((last, _)) = step.last() else { break };
            behind = run_of(*last);
            for (task, Stored { record, .. }) in
                step.iter().filter(|(task, _)| !met.contains(&run_of(*task)))
            {
                let end = record.last.map(|LastRun { started, finished, exit_code }| End {
                    exit_code,
                    finished: finished.unwrap_or(started),
                });
                self.push_failed(listing, record, *task, end);
            }
        }
        Ok(())
    }

    /// Whether a row ended, and is not due by itself.
    fn is_over(&self, record: &Record, row: &ListRow) -> bool {
        record.row_state(row, &self.context) == RowState::Dispatched
    }

    /// Lists a task that ended so, if it failed, is not due by itself, and is wanted. A single task may have failed though its key did
    /// not.
    fn push_failed(&self, listing: &mut Listing, record: &Record, task: Task, end: Option<End>) {
        let Some(End { exit_code, finished }) = end else { return };
        let has_failed = match task {
            Task::Single { .. } => record.delay_of(task).is_none(),
            Task::Row { .. } => exit_code.is_some_and(|code| code != 0),
        };
        if has_failed && listing.wants(task.fetcher()) && finished >= listing.since {
            listing.tasks.push(self.shown(record, task, Some(finished), failure(exit_code)));
        }
    }
}
