//! Tasks that failed, and are not due by themselves: a part of the question of `tasks`.
//!
//! Rows of lists are found back from the last end of their keys, and then single tasks; of what is found the one that
//! ended last comes first. How they ended is known as long as their attempts are kept.

use std::cmp::Reverse;

use super::log::Ended;
use super::tasks::{Listing, failure};
use super::{Look, STEP, Steps, run_of};
use crate::listings::{Along, Listings};
use crate::record::{FetcherId, LastRun, ListRow, Record, SingleStatus, Task};
use crate::records::Stored;
use shiftboss_protocol::answers::RowState;

impl<S: Listings> Look<'_, S> {
    pub(super) async fn failed(&mut self, listing: &mut Listing) -> Result<(), S::Error> {
        if listing.fetcher != Some(FetcherId::TASKS) {
            self.failed_rows(listing).await?;
        }
        if listing.wants(FetcherId::TASKS) {
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
                let is_over =
                    |row: &&ListRow| record.row_state(row, &self.context) == RowState::Failed;
                let rows: Vec<_> =
                    record.newest_rows().filter(is_over).map(ListRow::task).collect();
                for task in rows {
                    let attempt = record.served(task.fetcher());
                    let end = self.end_of(&record, attempt, task).await?;
                    self.push_failed(listing, &record, task, end);
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
                if record.delay_of(task).is_none() {
                    let end = self.ends_of_singles(&record).await?.remove(&run_of(task));
                    self.push_failed(listing, &record, task, end);
                }
            }
        }
        Ok(())
    }

    /// Lists a task that failed. If its attempt is no longer kept, it ended no later than its key did.
    fn push_failed(&self, listing: &mut Listing, record: &Record, task: Task, end: Option<Ended>) {
        let (exit_code, finished) = match (end, record.last) {
            (Some(Ended { exit_code, finished }), _) => (exit_code, Some(finished)),
            (None, Some(LastRun { started, finished, .. })) => (None, finished.or(Some(started))),
            (None, None) => (None, None),
        };
        if listing.wants(task.fetcher()) && finished.is_none_or(|it| it >= listing.since) {
            let shown = self.shown(listing, record, task, finished, failure(exit_code));
            listing.tasks.push(shown);
        }
    }
}
