//! Tasks that failed, and are not due by themselves: the longest part of the question of `tasks`.
//!
//! First come those whose attempts are kept, back from the last end; then those that ended longer ago: keys whose last
//! attempt is known only from the record, and single tasks. A store leaves out only what cannot be failed; the record
//! decides the rest.

use std::collections::HashSet;

use shiftboss_protocol::model::Attempt;

use super::log::{Ended, end_in};
use super::tasks::{Listing, failure};
use super::{Look, STEP, Steps, run_of};
use crate::listings::{Along, Listings};
use crate::record::{FetcherId, LastRun, ListRow, Record, SingleStatus, Task};
use crate::records::Stored;
use shiftboss_protocol::answers::RowState;

impl<S: Listings> Look<'_, S> {
    pub(super) async fn failed(&mut self, listing: &mut Listing) -> Result<(), S::Error> {
        let met = self.failed_attempts(listing).await?;
        if listing.fetcher != Some(FetcherId::TASKS) {
            self.failed_keys(listing).await?;
        }
        self.failed_singles(listing, &met).await
    }

    /// Returns which single tasks it met.
    async fn failed_attempts(&mut self, listing: &mut Listing) -> Result<HashSet<i64>, S::Error> {
        let (mut before, mut met) = (i64::MAX, HashSet::new());
        let since = listing.since.saturating_mul(1_000);
        while listing.goes_on() {
            let step = self.store.failed(before, since, STEP).await?;
            let is_last = step.len() < STEP;
            before = step.last().map_or(before, |last| last.number);
            let ends = step.into_iter().map(|end| (end.key, end)).collect();
            for (Stored { record, .. }, end) in self.records_of(ends).await? {
                let task = end.attempt.task;
                let task = match task {
                    Task::Single { number } => met.insert(number).then_some(task),
                    // It served the rows of all runs of its fetcher.
                    Task::Row { fetcher, .. } => record
                        .newest_rows()
                        .find(|row| row.fetcher == fetcher && self.is_over(&record, row))
                        .filter(|_| record.served(fetcher) == end.attempt.attempt)
                        .map(ListRow::task),
                };
                if let Some(task) = task {
                    self.push_failed(listing, &record, task, end_in(&record, &end));
                }
            }
            if is_last {
                break;
            }
        }
        Ok(met)
    }

    async fn failed_keys(&mut self, listing: &mut Listing) -> Result<(), S::Error> {
        let mut steps = Steps::new(Along::EndedBadly);
        let mut is_since = true;
        while is_since && !steps.is_all && listing.goes_on() {
            let step = steps.records(self, STEP).await?;
            is_since = steps.behind.is_some_and(|(finished, _)| finished >= listing.since);
            for Stored { record, .. } in step {
                for row in record.newest_rows().filter(|row| self.is_over(&record, row)) {
                    let attempt = record.served(row.fetcher);
                    if record.last_attempt == Attempt(0) || record.last_attempt == attempt {
                        self.push_failed(listing, &record, row.task(), last_of(&record));
                    }
                }
            }
        }
        Ok(())
    }

    /// All that is known of them is how their keys ended last.
    async fn failed_singles(
        &mut self,
        listing: &mut Listing,
        met: &HashSet<i64>,
    ) -> Result<(), S::Error> {
        let mut behind = 0;
        while listing.goes_on() {
            let step = self.singles(listing, SingleStatus::Failed, behind).await?;
            let Some((_, last)) = step.last() else { break };
            behind = run_of(*last);
            for (Stored { record, .. }, task) in
                step.iter().filter(|(_, task)| !met.contains(&run_of(*task)))
            {
                self.push_failed(listing, record, *task, last_of(record));
            }
        }
        Ok(())
    }

    /// Whether a row ended, and is not due by itself.
    fn is_over(&self, record: &Record, row: &ListRow) -> bool {
        record.row_state(row, &self.context) == RowState::Dispatched
    }

    /// Lists a task with this end, if it failed, is not due again by itself, and is asked for. A single task may have
    /// failed even if its key did not.
    fn push_failed(&self, listing: &mut Listing, record: &Record, task: Task, end: Option<Ended>) {
        let Some(Ended { exit_code, finished }) = end else { return };
        let has_failed = match task {
            Task::Single { .. } => record.delay_of(task).is_none(),
            Task::Row { .. } => exit_code.is_some_and(|code| code != 0),
        };
        if has_failed && listing.wants(task.fetcher()) && finished >= listing.since {
            let shown = self.shown(listing, record, task, Some(finished), failure(exit_code));
            listing.tasks.push(shown);
        }
    }
}

/// How its key ended last.
fn last_of(record: &Record) -> Option<Ended> {
    let LastRun { started, finished, exit_code } = record.last?;
    Some(Ended { exit_code, finished: finished.unwrap_or(started) })
}
