//! Tasks that failed, and are not due by themselves: a part of the question of `tasks`.
//!
//! Rows of lists are found back from the last end of their keys, and then single tasks; of what is found the one that
//! ended last comes first. How they ended is known as long as their attempts are kept.

use std::cmp::Reverse;

use shiftboss_protocol::model::UnixSeconds;

use super::log::Ended;
use super::tasks::{Listing, failure};
use super::{Look, STEP, Steps, run_of};
use crate::listings::{Along, Listings};
use crate::record::{FetcherId, LastRun, ListRow, Record, SingleStatus, Task};
use crate::records::Stored;
use shiftboss_protocol::answers::RowState;

/// A task that failed, with which code, and when.
pub(super) type Failed = (Task, (Option<i64>, Option<UnixSeconds>));

impl<S: Listings> Look<'_, S> {
    pub(super) async fn failed(&mut self, listing: &mut Listing) -> Result<(), S::Error> {
        if listing.fetcher != Some(FetcherId::TASKS) {
            self.failed_rows(listing).await?;
        }
        if listing.wants_of(FetcherId::TASKS) {
            self.failed_singles(listing).await?;
        }
        listing.tasks.sort_by_key(|task| Reverse(task.since));
        Ok(())
    }

    async fn failed_rows(&mut self, listing: &mut Listing) -> Result<(), S::Error> {
        let mut steps = Steps::new(Along::Failed);
        let mut is_since = true;
        while is_since && !steps.is_all && listing.goes_on() {
            let step = steps.records(self, STEP).await?;
            // No row ended later than its key.
            is_since = steps.behind.is_some_and(|(at, _)| at >= listing.since);
            for Stored { record, .. } in step {
                for failed in self.failed_rows_of(&record).await? {
                    self.push_failed(listing, &record, failed);
                }
            }
        }
        Ok(())
    }

    async fn failed_singles(&mut self, listing: &mut Listing) -> Result<(), S::Error> {
        let mut behind = 0;
        while listing.goes_on() {
            let step = self.singles(listing, SingleStatus::Failed, behind).await?;
            let Some((_, last)) = step.last() else { break };
            behind = run_of(*last);
            for (Stored { record, .. }, task) in step {
                let failed = self.failed_single_of(&record, run_of(task)).await?;
                failed.into_iter().for_each(|it| self.push_failed(listing, &record, it));
            }
        }
        Ok(())
    }

    pub(super) async fn failed_rows_of(
        &mut self,
        record: &Record,
    ) -> Result<Vec<Failed>, S::Error> {
        let is_over = |row: &&ListRow| record.row_state(row, &self.context) == RowState::Failed;
        let rows: Vec<_> = record.newest_rows().filter(is_over).map(ListRow::task).collect();
        let mut failed = Vec::new();
        for task in rows {
            let end = self.end_of(record, record.served(task.fetcher()), task).await?;
            failed.push((task, ended(record, end)));
        }
        Ok(failed)
    }

    /// A single task that failed; `None`: it is tried again by itself.
    pub(super) async fn failed_single_of(
        &mut self,
        record: &Record,
        number: i64,
    ) -> Result<Option<Failed>, S::Error> {
        let task = Task::Single { number };
        if record.delay_of(task).is_some() {
            return Ok(None);
        }
        let end = self.ends_of_singles(record).await?.remove(&number);
        Ok(Some((task, ended(record, end))))
    }

    /// Lists a task that failed.
    fn push_failed(
        &self,
        listing: &mut Listing,
        record: &Record,
        (task, (exit_code, finished)): Failed,
    ) {
        if listing.wants(record, task) && finished.is_none_or(|it| it >= listing.since) {
            let shown = self.shown(listing, record, task, finished, failure(exit_code));
            listing.tasks.push(shown);
        }
    }
}

/// With which code a task ended, and when. If its attempt is no longer kept, it ended no later than its key did.
fn ended(record: &Record, end: Option<Ended>) -> (Option<i64>, Option<UnixSeconds>) {
    match (end, record.last) {
        (Some(Ended { exit_code, finished }), _) => (exit_code, Some(finished)),
        (None, Some(LastRun { started, finished, .. })) => (None, finished.or(Some(started))),
        (None, None) => (None, None),
    }
}
