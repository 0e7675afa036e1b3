//! Runs of fetchers: registered, read, pruned, deleted. Their rows are their keys'.

use std::sync::Arc;

use shiftboss_protocol::model::{Run, TASKS_FETCHER};

use super::{Batch, Carried, used_up};
use crate::operation::{Answer, Reading, Rejected, Rows};
use crate::record::FetcherId;
use crate::records::{KeyId, Records, RunState, StoreResult, Stored};
use crate::rules::lists;

/// Lines that are appended to a list wait since the begin of the ten minutes in which they come, so that those of one time are
/// scrambled by jitter.
const APPENDED_TOGETHER: i64 = 600_000_000;

impl<S: Records> Batch<'_, S> {
    pub(super) fn register(&mut self, run: Run) -> Result<Answer, Rejected> {
        if run.started < 0 {
            return Err(Rejected(format!("{run} is no run: they are numbered from 0 on")));
        }
        let fetcher = match self.fetcher(&run.fetcher) {
            Some(FetcherId::TASKS) => {
                return Err(Rejected(format!("{run} is no run: {TASKS_FETCHER} is no fetcher")));
            }
            Some(known) => known,
            None => self.new_fetcher(&run.fetcher)?,
        };
        let since = self.context.now.saturating_mul(1_000);
        let new = RunState { since, ..RunState::default() };
        let state = self.header.runs.entry((fetcher, run.started)).or_insert(new);
        Ok(Answer::Run(state.clone()))
    }

    fn new_fetcher(&mut self, name: &Arc<str>) -> Result<FetcherId, Rejected> {
        let last = self.context.fetchers.keys().last().map_or(0, |id| id.0);
        let id = FetcherId(last.checked_add(1).ok_or_else(|| used_up("fetchers"))?);
        self.context.fetchers.insert(id, name.clone());
        self.header.fetchers.insert(id, name.clone());
        Ok(id)
    }

    fn known(&self, run: &Run) -> Option<(FetcherId, i64)> {
        let run = (self.fetcher(&run.fetcher)?, run.started);
        self.header.runs.contains_key(&run).then_some(run)
    }

    pub(super) async fn add_rows(&mut self, rows: Rows) -> Carried {
        let Some(run) = self.known(&rows.run).filter(|run| !self.context.going.contains(run))
        else {
            return Ok(Err(Rejected(format!("no such run: {}", rows.run))));
        };
        let (reading, since) = self.note_reading(run, &rows);
        for row in rows.rows {
            let slot = self.slot(row.key).await?;
            let record = self.desk.record_mut(slot);
            lists::add_row(record, run, reading, since, row.payload);
            self.changed(slot);
        }
        Ok(Ok(Answer::Done))
    }

    /// The reading of its rows, and since when they wait.
    fn note_reading(&mut self, run: (FetcherId, i64), rows: &Rows) -> (i64, i64) {
        let state = self.header.runs.entry(run).or_default();
        if rows.reading != Reading::Onward {
            state.reading = state.reading.saturating_add(1);
        }
        if rows.reading == Reading::Listing {
            state.listing = Some(state.reading);
        }
        (state.complete, state.position) = (rows.complete, rows.position.clone());
        state.skipped = state.skipped.saturating_add(rows.skipped).min(i64::MAX.unsigned_abs());
        let now = self.context.now.saturating_mul(1_000);
        let is_first = now.saturating_sub(state.since) < APPENDED_TOGETHER;
        let since = if is_first {
            state.since
        } else {
            now.saturating_sub(now.rem_euclid(APPENDED_TOGETHER))
        };
        (state.reading, if self.context.settings.is_fair { since } else { 0 })
    }

    pub(super) async fn prune(&mut self, run: &Run, limit: usize) -> Carried {
        let Some(run) = self.known(run) else {
            return Ok(Ok(Answer::Is(false)));
        };
        self.flush().await?;
        let Some(listing) = self.header.runs.get(&run).and_then(|state| state.listing) else {
            return Ok(Ok(Answer::Is(false)));
        };
        let known = self.memo.pruned.remove(&run).filter(|known| known.0 == listing);
        let limit = limit.max(1);
        let keys = self.store.of_run(run, known.map(|it| it.1), limit).await?;
        let (is_last, last) = (keys.len() < limit, keys.last().map(|it| it.id));
        let is_old =
            |it: &Stored| it.record.row(run.0, run.1).is_some_and(|row| row.reading < listing);
        for stored in keys.into_iter().filter(is_old) {
            let slot = self.desk.put(stored);
            lists::remove_row(self.desk.record_mut(slot), run);
            self.changed(slot);
        }
        if is_last {
            self.header.runs.entry(run).or_default().listing = None;
        } else {
            self.memo.pruned.extend(last.map(|last| (run, (listing, last))));
        }
        Ok(Ok(Answer::Is(!is_last)))
    }

    pub(super) fn begin_deletion(&mut self, run: &Run) -> Answer {
        if let Some(run) = self.known(run) {
            self.header.runs.entry(run).or_default().deleting = true;
            self.context.going.insert(run);
        }
        Answer::Done
    }

    pub(super) async fn delete_runs(&mut self, runs: &[Run], limit: usize) -> Carried {
        self.flush().await?;
        let (mut left, mut gone) = (limit, 0);
        for run in runs {
            let Some(run) = self.known(run) else {
                gone += 1;
                continue;
            };
            let deleted = self.delete_rows(run, left).await?;
            left = left.saturating_sub(deleted.saturating_add(1));
            if left == 0 {
                break;
            }
            self.header.runs.remove(&run);
            self.memo.pruned.remove(&run);
            self.context.going.remove(&run);
            gone += 1;
        }
        Ok(Ok(Answer::Count(gone)))
    }

    /// So many rows of the run were deleted.
    async fn delete_rows(&mut self, run: (FetcherId, i64), limit: usize) -> StoreResult<usize> {
        let keys = self.store.of_run(run, None::<KeyId>, limit).await?;
        let count = keys.len();
        for stored in keys {
            let slot = self.desk.put(stored);
            lists::remove_row(self.desk.record_mut(slot), run);
            self.changed(slot);
        }
        Ok(count)
    }
}
