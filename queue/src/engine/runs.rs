//! Runs of fetchers: registered, read, pruned, deleted. Their rows are in the records of keys.

use std::sync::Arc;

use shiftboss_protocol::model::{Row, Run, TASKS_FETCHER};

use super::hand_out::LEAVING_MAX;
use super::{Batch, Carried, used_up};
use crate::error::Rejected;
use crate::file_identity::Position;
use crate::operation::{DeleteRuns, Prune, Reading, Registered, RowBatch};
use crate::record::FetcherId;
use crate::records::{KeyId, Records, RunState, Stale, StoreResult, Stored};
use crate::rules::lists;

/// Lines appended to a list wait since the start of the ten-minute period in which they come, so that jitter scrambles
/// lines of the same period.
const APPENDED_TOGETHER: i64 = 600_000_000;

/// How far the front of the order was searched for a run that will be deleted.
#[derive(Debug)]
pub(super) struct Walk {
    run: (FetcherId, i64),
    /// The last key that, like all before it, has only rows of this run, or of others under deletion.
    pub(super) last: Option<Stored>,
    /// Another key has come before that one. Starting over each time might never end, so the requests step over the
    /// rest.
    pub(super) is_lost: bool,
}

impl<S: Records> Batch<'_, S> {
    pub(super) fn register(&mut self, run: Run) -> Result<Registered, Rejected> {
        if run.started < 0 {
            return Err(Rejected(format!("{run} is no run: they are numbered from 0 on")));
        }
        let fetcher = match self.fetcher(&run.fetcher) {
            Some(FetcherId::TASKS) => {
                return Err(Rejected(format!("{run} is no run: {TASKS_FETCHER} is no fetcher")));
            }
            Some(known) if self.is_its_number(known) => known,
            _ => self.new_fetcher(&run.fetcher)?,
        };
        if let Some(whose) = self.take_fetcher(&run.fetcher) {
            return Ok(Registered::Elsewhere(whose));
        }
        let since = self.context.now.saturating_mul(1_000);
        let new = RunState { since, ..RunState::default() };
        let id = (fetcher, run.started);
        let is_new = !self.header.runs.contains_key(&id);
        let state = self.header.runs.change(id);
        if is_new {
            *state = new;
        }
        if state.deleting {
            return Err(Rejected(format!("run {run} is being deleted")));
        }
        // The requester reads on from the position.
        state.stale = state.stale.for_the_next();
        let state = state.clone();
        Ok(Registered::Run(self.stored_run(id, &state, &self.desk.tally())))
    }

    /// A fetcher keeps its number for ever; under `--classic` as long as it has a list (spec 2).
    fn is_its_number(&self, id: FetcherId) -> bool {
        let mut runs = self.header.runs.range((id, i64::MIN)..=(id, i64::MAX));
        self.context.settings.is_fair || runs.next().is_some()
    }

    fn new_fetcher(&mut self, name: &Arc<str>) -> Result<FetcherId, Rejected> {
        let last = self.header.fetchers.keys().last().map_or(0, |id| id.0);
        let id = FetcherId(last.checked_add(1).ok_or_else(|| used_up("fetchers"))?);
        self.memo.names.insert(name.clone(), id);
        // Then this is the only reference to the map, so that it need not be copied.
        self.context.fetchers = Arc::default();
        self.header.name_fetcher(id, name.clone());
        self.context.fetchers = self.header.fetchers.clone();
        Ok(id)
    }

    /// A known run of the requester's own.
    fn known(&self, run: &Run) -> Option<(FetcherId, i64)> {
        let id = (self.fetcher(&run.fetcher)?, run.started);
        (self.header.runs.contains_key(&id) && self.is_own(&run.fetcher)).then_some(id)
    }

    /// Likewise, and not under deletion.
    pub(super) fn growing(&self, run: &Run) -> Option<(FetcherId, i64)> {
        self.known(run).filter(|run| !self.context.going.contains(run))
    }

    pub(super) async fn add_rows(&mut self, batch: RowBatch) -> Carried<()> {
        let run = self.growing(&batch.run);
        let Some(run) = run.filter(|run| read_on(self.header.runs.change(*run), &batch)) else {
            return Ok(Err(Rejected(batch.unexpected())));
        };
        self.add_lines(run, batch.rows).await?;
        Ok(Ok(()))
    }

    /// Adds lines of a run to the present reading.
    pub(super) async fn add_lines(
        &mut self,
        run: (FetcherId, i64),
        rows: Vec<Row>,
    ) -> StoreResult<()> {
        let (reading, since) = self.reading(run);
        for Row { key, payload } in rows {
            let group = self.name_group(key.as_str(), &payload);
            let slot = self.slot(key).await?;
            self.change(slot, |it, _| lists::add_row(it, run, (reading, since), payload, group));
        }
        Ok(())
    }

    /// The reading of a run's rows, and since when they wait.
    fn reading(&mut self, run: (FetcherId, i64)) -> (i64, i64) {
        let unknown = RunState::default();
        let state = self.header.runs.get(&run).unwrap_or(&unknown);
        let now = self.context.now.saturating_mul(1_000);
        let is_first = now.saturating_sub(state.since) < APPENDED_TOGETHER;
        let since = if is_first {
            state.since
        } else {
            now.saturating_sub(now.rem_euclid(APPENDED_TOGETHER))
        };
        (state.reading, if self.context.settings.is_fair { since } else { 0 })
    }

    pub(super) async fn prune(&mut self, it: Prune) -> StoreResult<bool> {
        let Some(run) = self.known(&it.run) else {
            return Ok(false);
        };
        self.flush().await?;
        let Some(listing) = self.header.runs.get(&run).and_then(|state| state.listing) else {
            return Ok(false);
        };
        let known = self.memo.pruned.remove(&run).filter(|known| known.0 == listing);
        let limit = it.limit.max(1);
        let keys = self.store.of_run(run, known.map(|it| it.1), limit).await?;
        let (is_last, last) = (keys.len() < limit, keys.last().map(|it| it.id));
        let is_old =
            |it: &Stored| it.record.row(run.0, run.1).is_some_and(|row| row.reading < listing);
        self.remove_rows(run, keys.into_iter().filter(is_old));
        if is_last {
            let state = self.header.runs.change(run);
            (state.listing, state.stale) = (None, Stale::No);
        } else {
            self.memo.pruned.extend(last.map(|last| (run, (listing, last))));
        }
        Ok(!is_last)
    }

    /// Whether the run is marked; if not, ask again. Until then its rows are still handed out, while steps find where
    /// the order begins without them: so no request waits while a million of them are searched.
    pub(super) async fn begin_deletion(&mut self, run: &Run) -> StoreResult<bool> {
        let Some(run) = self.known(run) else { return Ok(true) };
        // Few rows are simply stepped over by the next request.
        let rows = self.header.counts.0.get(&run).map_or(0, |it| it.rows);
        let is_small = usize::try_from(rows).unwrap_or(0) <= LEAVING_MAX;
        let is_known = is_small || self.context.going.contains(&run) || !self.walk(run).await?;
        if is_known {
            self.mark(run);
        }
        Ok(is_known)
    }

    fn mark(&mut self, run: (FetcherId, i64)) {
        // Then this is the only reference to the set, so that it need not be copied.
        self.context.going = Arc::default();
        self.header.runs.begin_deletion(run);
        self.context.going = self.header.runs.going();
    }

    /// Continues the search over the front keys that have only rows of this run, or of others under deletion; returns
    /// whether there may be more.
    async fn walk(&mut self, run: (FetcherId, i64)) -> StoreResult<bool> {
        self.flush().await?;
        let known = self.memo.walk.take().filter(|it| it.run == run);
        let mut walk =
            known.unwrap_or_else(|| Walk { run, last: self.memo.leaving.clone(), is_lost: false });
        if walk.is_lost {
            return Ok(false);
        }
        let (last, is_more) =
            self.store.leaving(walk.last.as_ref(), Some(run), LEAVING_MAX).await?;
        walk.last = last.or(walk.last);
        if is_more {
            self.memo.walk = Some(walk);
        } else {
            self.memo.leaving = walk.last;
        }
        Ok(is_more)
    }

    pub(super) async fn delete_runs(&mut self, it: DeleteRuns) -> StoreResult<usize> {
        self.flush().await?;
        let (mut left, mut gone) = (it.limit, 0);
        for run in &it.runs {
            let Some(run) = self.known(run) else {
                gone += 1;
                continue;
            };
            self.mark(run);
            let deleted = self.delete_rows(run, left).await?;
            left = left.saturating_sub(deleted.saturating_add(1));
            if left == 0 {
                break;
            }
            self.remove_run(run);
            gone += 1;
        }
        Ok(gone)
    }

    /// Removes a run that has no rows.
    pub(super) fn remove_run(&mut self, run: (FetcherId, i64)) {
        self.context.going = Arc::default();
        self.header.runs.remove(run);
        self.context.going = self.header.runs.going();
        self.memo.pruned.remove(&run);
        self.leave_fetcher(run.0);
    }

    /// Deletes rows of the run; returns how many.
    pub(super) async fn delete_rows(
        &mut self,
        run: (FetcherId, i64),
        limit: usize,
    ) -> StoreResult<usize> {
        let keys = self.store.of_run(run, None::<KeyId>, limit).await?;
        let count = keys.len();
        self.remove_rows(run, keys);
        Ok(count)
    }

    fn remove_rows(&mut self, run: (FetcherId, i64), of: impl IntoIterator<Item = Stored>) {
        for stored in of {
            let slot = self.desk.put(stored);
            self.change(slot, |record, _| lists::remove_row(record, run));
        }
    }
}

/// Notes how far a run's file was read. False: nothing is noted, because the rows do not follow what was read before.
fn read_on(state: &mut RunState, batch: &RowBatch) -> bool {
    let position = state.position.as_deref().and_then(Position::parse);
    let (at, to) = (position.map_or(0, |it| it.offset), batch.position.offset);
    let is_onward = batch.reading == Reading::Onward;
    let follows = !is_onward || batch.from.is_none_or(|from| [from, to].contains(&at));
    let has_rows = !batch.by_range || state.stale != Stale::No || at == to;
    if !(follows && has_rows) {
        return false;
    }
    // If a file is read from the start again, its faulty lines are counted anew.
    let before = if is_onward && at <= to { state.skipped } else { 0 };
    state.skipped = before.saturating_add(batch.skipped).min(i64::MAX.unsigned_abs());
    (state.complete, state.position) = (batch.complete, Some(batch.position.text()));
    if !is_onward {
        (state.reading, state.stale) = (state.reading.saturating_add(1), Stale::Yes);
        state.listing = (batch.reading == Reading::Listing).then_some(state.reading);
    } else if state.stale == Stale::Ahead {
        state.stale = Stale::No;
    }
    true
}
