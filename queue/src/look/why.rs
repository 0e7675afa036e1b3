//! Where a key is, and why it is not the next one: the question of `why`.
//!
//! The record decides what may be handed out, as in the engine. The place in the order is counted, up to a bound;
//! everything else costs the same however long the queue is.

use std::collections::HashMap;

use shiftboss_protocol::model::Key;

use super::log::Ended;
use super::{Look, PAYLOADS_MAX_BYTES, run_of, seconds, text_of};
use crate::attempt::{CANCELLED_CODE, Outcome};
use crate::listings::Listings;
use crate::pace::Pace;
use crate::record::{FetcherId, LastRun, ListRow, Record, SingleStatus, Task};
use crate::records::{KeyId, Stored};
use crate::rules::completion::expired_leases;
use crate::rules::dispatch::{Scope, next_fetcher, next_task};
use crate::rules::stops;
use crate::sums::total;
use shiftboss_protocol::answers::{
    Bump, Delivery, KeyRow, KeyState, LastResult, Place, Retry, RowState, Why,
};

/// How many of the keys before it are named.
const FIRST_MAX: usize = 5;
/// Most rows that are shown.
const ROWS_MAX: usize = 1_000;
/// Keys that are counted at once.
const COUNT_STEP: usize = 8_192;
/// Payloads that are found at once.
const PAYLOADS_STEP: usize = 64;

impl<S: Listings> Look<'_, S> {
    /// `None`: the key is unknown.
    pub(super) async fn why(
        &mut self,
        key: &str,
        count_max: usize,
    ) -> Result<Option<Why>, S::Error> {
        let stored = self.store.named(&[Key::stored(key)]).await?.into_iter().flatten().next();
        let is_known = |it: &Stored| {
            let record = &it.record;
            record.is_listed()
                || record.last.is_some()
                || record.flight.is_some()
                || record.hold(&self.context).is_some()
        };
        match stored.filter(is_known) {
            Some(stored) => self.why_it(stored, count_max).await.map(Some),
            None => Ok(None),
        }
    }

    async fn why_it(&mut self, stored: Stored, count_max: usize) -> Result<Why, S::Error> {
        let Stored { id, record, .. } = stored;
        let is_in_flight = record.is_in_flight(&self.context);
        let hold = record.hold(&self.context);
        let next = next_task(&record, &Scope::All, &self.context.without_rules());
        let is_free = !is_in_flight && next.is_some();
        // Tasks of other fetchers may go on.
        let has_next = next_task(&record, &Scope::All, &self.context).is_some();
        let rule = next.filter(|_| !has_next && hold.is_none());
        let rule = rule.and_then(|it| self.context.hold_rule(&record.key, it.fetcher()));
        let hold_rule = rule.map(|rule| rule.shown(&self.context));
        let is_held = hold.is_some() || hold_rule.is_some();
        let is_ready = is_free && !is_held;
        let place = if is_ready { self.place(id, count_max).await? } else { None };
        let group = next_fetcher(&record, &Scope::All, &self.context);
        let group = match group.and_then(|it| record.group_of(it)) {
            Some(id) => self.group_of(id).await?,
            None => None,
        };
        let pace = self.pace().await?;
        let jobs_last_hour = total(pace.minutes.iter().map(|minute| minute.jobs));
        let paused = self.head.header.paused;
        let (rows, truncated) = self.rows_of(id, &record, is_in_flight).await?;
        let expected = Pace::new(jobs_last_hour, pace.busy_seconds);
        let expected = place.as_ref().filter(|_| !paused).and_then(|it| expected.expected(it));
        let retries = record.extras.retries.iter().filter(|it| it.due.is_some());
        let delayed_singles = retries.filter(|it| it.task.fetcher() == FetcherId::TASKS).count();
        let failed = i64::try_from(record.singles.failed).unwrap_or(i64::MAX);
        Ok(Why {
            key: record.key.to_string(),
            state: key_state(&rows, is_in_flight, is_free, is_held),
            paused,
            expected_in_seconds: expected,
            place,
            jobs_last_hour,
            jobs_since: pace.minutes.first().map(|minute| minute.since),
            busy_seconds: pace.busy_seconds,
            hold,
            hold_rule,
            group,
            bump: bump(&record),
            retry: self.first_retry(&record),
            in_flight: self.delivery(&record),
            last_result: self.last_result(&record).await?,
            failed_single_tasks: failed.saturating_sub_unsigned(delayed_singles as u64),
            truncated,
            rows,
        })
    }

    async fn place(&mut self, wanted: KeyId, count_max: usize) -> Result<Option<Place>, S::Error> {
        let mut walk = self.walk(count_max.saturating_add(1)).await?;
        let (mut keys_before, mut first, mut exact) = (0, Vec::new(), false);
        let mut is_over = false;
        while !is_over && !exact && keys_before <= count_max {
            let step = COUNT_STEP.min(count_max - keys_before + 1);
            let keys = walk.take(self, step).await?;
            is_over = keys.len() < step;
            let found = keys.iter().position(|key| *key == wanted);
            let before = &keys[..found.unwrap_or(keys.len())];
            first.extend(before.iter().take(FIRST_MAX.saturating_sub(first.len())));
            (keys_before, exact) = (keys_before + before.len(), found.is_some());
        }
        let first = self.records(&first).await?.into_iter();
        let first = first.map(|it| it.record.key.to_string()).collect();
        let keys_before = keys_before.min(count_max);
        let is_all = is_over && walk.is_all;
        Ok((exact || !is_all).then_some(Place { keys_before, exact, first }))
    }

    /// The task that is tried again first.
    fn first_retry(&self, record: &Record) -> Option<Retry> {
        let retries = record.extras.retries.iter();
        let due = retries.filter_map(|it| Some((self.context.followed(it.due?).at, it.number)));
        due.min().map(|(due, retries)| Retry { due: seconds(due), retries })
    }

    /// The job that is out, even if its time is over, because its result may still come.
    fn delivery(&self, record: &Record) -> Option<Delivery> {
        let flight = record.flight.as_ref();
        let held_until = record.classic_until(&self.context);
        if flight.is_none() && held_until.is_none() {
            return None;
        }
        let holder = flight.and_then(|it| it.holder.as_ref());
        Some(Delivery {
            worker: holder.map(|it| it.worker.to_string()),
            attempt: flight.map(|it| it.attempt.0),
            since: record.out_since().unwrap_or_default(),
            lease_seconds: holder.map(|it| it.lease_seconds.into()),
            held_until,
            delivery_count: flight.map(|it| i64::from(expired_leases(record, it.task)) + 1),
            stopping: stops::is_asked(record),
        })
    }

    /// How a job of the key ended last: by its record, or, while a job is out, by the record before that.
    async fn last_result(&mut self, record: &Record) -> Result<Option<LastResult>, S::Error> {
        let before = record.flight.as_ref().and_then(|it| it.before.last);
        let last = if record.flight.is_some() { before } else { record.last };
        let Some(last) = last.filter(|last| !last.is_over_by()) else { return Ok(None) };
        let LastRun { started, finished, exit_code } = last;
        // A command that SIGTERM ended has that code, too: only its attempt tells them apart.
        let cancelled = exit_code == Some(CANCELLED_CODE)
            && self.last_end_of(record).await? == Some(Outcome::Cancelled);
        Ok(finished.map(|finished| LastResult { started, finished, exit_code, cancelled }))
    }

    /// Its rows by fetcher, newer runs first, and its single tasks by status and number, up to a bound; and whether there are more.
    async fn rows_of(
        &mut self,
        id: KeyId,
        record: &Record,
        is_in_flight: bool,
    ) -> Result<(Vec<KeyRow>, bool), S::Error> {
        let singles = self.singles_of(id, record).await?;
        let state = |row: &ListRow| match record.row_state(row, &self.context) {
            // Its lease is over, and it is handed out again.
            RowState::InFlight if !is_in_flight => RowState::Waiting,
            state => state,
        };
        let rows = record.rows.iter().rev().map(|row| (row.task(), state(row)));
        let mut tasks: Vec<(Task, RowState)> = rows.chain(singles).collect();
        // Those of one fetcher stay in their order.
        tasks.sort_by_cached_key(|(task, _)| self.name(task.fetcher()));
        let (all, has_ended) = (tasks.len(), |it: &(Task, RowState)| {
            it.0.fetcher() == FetcherId::TASKS && is_over(it.1)
        });
        let ends = match tasks.iter().any(has_ended) {
            true => self.ends_of_singles(record).await?,
            false => HashMap::new(),
        };
        tasks.truncate(ROWS_MAX);
        let (mut shown, mut bytes) = (Vec::new(), 0);
        for step in tasks.chunks(PAYLOADS_STEP) {
            let asked: Vec<_> = step.iter().map(|(task, _)| (id, *task)).collect();
            for ((task, state), payload) in step.iter().zip(self.store.payloads(&asked).await?) {
                if bytes < PAYLOADS_MAX_BYTES {
                    let row = self.key_row(record, *task, *state, &ends, text_of(payload)).await?;
                    bytes += row.payload.len();
                    shown.push(row);
                }
            }
        }
        let truncated = shown.len() < all;
        Ok((shown, truncated))
    }

    async fn key_row(
        &mut self,
        record: &Record,
        task: Task,
        state: RowState,
        ends: &HashMap<i64, Ended>,
        payload: String,
    ) -> Result<KeyRow, S::Error> {
        let complete = match task {
            Task::Row { fetcher, run } => {
                self.head.header.runs.get(&(fetcher, run)).is_some_and(|run| run.complete)
            }
            Task::Single { .. } => true,
        };
        let end = match task {
            _ if !is_over(state) => None,
            Task::Row { fetcher, .. } => self.end_of(record, record.served(fetcher), task).await?,
            Task::Single { number } => ends.get(&number).copied(),
        };
        Ok(KeyRow {
            fetcher: self.name(task.fetcher()),
            run: run_of(task),
            complete,
            state,
            expired_leases: expired_leases(record, task).into(),
            exit_code: end.and_then(|end| end.exit_code),
            payload,
        })
    }

    /// Single tasks that are not done, one more than are shown.
    async fn singles_of(
        &mut self,
        id: KeyId,
        record: &Record,
    ) -> Result<Vec<(Task, RowState)>, S::Error> {
        let mut singles = Vec::new();
        if !record.is_listed() {
            return Ok(singles);
        }
        for (status, state) in [
            (SingleStatus::DeadLetter, RowState::DeadLetter),
            (SingleStatus::Failed, RowState::Failed),
            (SingleStatus::InFlight, RowState::InFlight),
            (SingleStatus::Waiting, RowState::Waiting),
        ] {
            let left = ROWS_MAX + 1 - singles.len().min(ROWS_MAX);
            let numbers = self.store.singles_of(id, status, left).await?.into_iter();
            singles.extend(numbers.map(|number| {
                let task = Task::Single { number };
                let is_delayed = status == SingleStatus::Failed && record.delay_of(task).is_some();
                (task, if is_delayed { RowState::Delayed } else { state })
            }));
        }
        Ok(singles)
    }
}

/// Whether its end may be shown.
fn is_over(state: RowState) -> bool {
    matches!(state, RowState::Dispatched | RowState::Failed | RowState::Delayed)
}

/// What makes it go ahead of others: an operator, or the rule by which one of its tasks is tried again.
fn bump(record: &Record) -> Option<Bump> {
    let by_operator = record.extras.bump.as_ref();
    by_operator.map(|it| Bump { since: it.since, by: it.by.to_string() }).or_else(|| {
        let is_due = record.extras.retries.iter().any(|it| it.due.is_none());
        let since = record.last.and_then(|last| last.finished).unwrap_or_default();
        is_due.then(|| Bump { since, by: Bump::BY_RETRY.to_owned() })
    })
}

/// What stands between a key with these rows and its next dispatch.
///
/// is_free: it has a row that may be handed out; is_on_hold: only a hold prevents that.
fn key_state(rows: &[KeyRow], is_in_flight: bool, is_free: bool, is_on_hold: bool) -> KeyState {
    let has = |state| rows.iter().any(|row| row.state == state);
    match (is_in_flight, is_free) {
        (true, _) => KeyState::InFlight,
        (_, true) if is_on_hold => KeyState::Held,
        (_, true) => KeyState::Waiting,
        _ if has(RowState::Delayed) => KeyState::Delayed,
        _ if has(RowState::DeadLetter) => KeyState::DeadLetter,
        _ if has(RowState::Failed) => KeyState::Failed,
        _ if has(RowState::Dispatched) => KeyState::Dispatched,
        _ if !rows.is_empty() => KeyState::Leaving,
        _ => KeyState::Unlisted,
    }
}
