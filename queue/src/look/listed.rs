//! All keys of the newest lists, one after the other: what a simulation begins with.

use std::ops::ControlFlow;

use super::{Look, STEP, text_of};
use crate::listings::Listings;
use crate::reader::ListedKey;
use crate::record::{Millis, Record, Task};
use crate::records::{KeyId, Stored};

impl<S: Listings> Look<'_, S> {
    pub(super) async fn listed(
        &mut self,
        take: &mut dyn FnMut(ListedKey) -> ControlFlow<()>,
    ) -> Result<(), S::Error> {
        let ids = self.store.listed().await?;
        for step in ids.chunks(STEP) {
            let found = self.records(step).await?;
            let rows: Vec<Vec<Task>> = found.iter().map(|it| self.newest_of(&it.record)).collect();
            let of = |(it, rows): (&Stored, &Vec<Task>)| -> Vec<(KeyId, Task)> {
                rows.iter().map(|task| (it.id, *task)).collect()
            };
            let asked: Vec<_> = found.iter().zip(&rows).flat_map(of).collect();
            let mut payloads = self.store.payloads(&asked).await?.into_iter().map(text_of);
            for (Stored { record, .. }, rows) in found.into_iter().zip(rows) {
                let fetchers = rows.iter().map(|task| self.context.fetcher(task.fetcher()));
                let rows: Vec<_> = fetchers.zip(payloads.by_ref()).collect();
                let (last_started, held) = (self.last_start(&record), self.held_for(&record));
                let listed = ListedKey { key: record.key, last_started, held, rows };
                if !listed.rows.is_empty() && take(listed).is_break() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn newest_of(&self, record: &Record) -> Vec<Task> {
        let rows = record.newest_rows().map(|row| row.task());
        rows.filter(|task| !self.context.is_going(*task)).collect()
    }

    /// By an operator, or for its failures.
    fn held_for(&self, record: &Record) -> Option<Option<u32>> {
        let left = |at: Millis| {
            let seconds = at.saturating_sub(self.context.now).max(0).cast_unsigned();
            u32::try_from(seconds.div_ceil(1_000)).unwrap_or(u32::MAX)
        };
        let due = |due| left(self.context.followed(due).at);
        if let Some(hold) = &record.extras.hold {
            return Some(hold.until.map(due));
        }
        let backoff = record.extras.backoff.and_then(|it| it.until);
        backoff.map(|until| Some(due(until)))
    }
}
