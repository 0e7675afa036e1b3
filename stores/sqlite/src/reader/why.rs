//! Where a key is, and why it is not the next one: the question of `why`.
//!
//! What may be handed out is asked of its record, as the engine asks. The place in the order is counted, up to a bound; all else
//! costs the same however long the queue is.

use rusqlite::Result;
use shiftboss_protocol::model::Key;
use shiftboss_queue::answers::{Bump, Delivery, KeyRow, LastResult, Place, Retry, RowState, Why};
use shiftboss_queue::pace::Pace;
use shiftboss_queue::record::{FetcherId, LastRun, ListRow, Record, SingleStatus, Task};
use shiftboss_queue::records::{KeyId, Name, Stored};
use shiftboss_queue::rules::completion::expired_leases;
use shiftboss_queue::rules::dispatch::{Scope, next_task};
use shiftboss_queue::views::{FIRST_MAX, PAYLOADS_MAX_BYTES, ROWS_MAX, key_state};

use super::{Look, run_of, seconds};
use crate::ask::Ask;

const SINGLES: &str = "SELECT number, status FROM tasks
    WHERE key = ?1 AND status IN ('waiting', 'in_flight', 'failed', 'dead_letter')
    ORDER BY status, number LIMIT ?2";

impl Look<'_> {
    /// `None`: nobody ever heard of it.
    pub(super) fn why(&mut self, key: &str, count_max: usize) -> Result<Option<Why>> {
        let stored = self.loader.named(&Name::Key(Key::stored(key)))?;
        let is_known = |it: &Stored| {
            let record = &it.record;
            record.is_listed()
                || record.last.is_some()
                || record.flight.is_some()
                || record.hold(&self.context).is_some()
        };
        stored.filter(is_known).map(|stored| self.why_it(stored, count_max)).transpose()
    }

    fn why_it(&mut self, stored: Stored, count_max: usize) -> Result<Why> {
        let Stored { id, record, .. } = stored;
        let is_in_flight = record.is_in_flight(&self.context);
        let hold = record.hold(&self.context);
        let is_free = !is_in_flight && next_task(&record, &Scope::All, &self.context).is_some();
        let is_ready = is_free && hold.is_none();
        let place = if is_ready { self.place(id, count_max)? } else { None };
        let pace = self.pace()?;
        let jobs_last_hour = pace.minutes.iter().map(|minute| minute.jobs).sum();
        let paused = self.kept.header.paused;
        let (rows, truncated) = self.rows_of(id, &record, is_in_flight)?;
        let expected = Pace::new(jobs_last_hour, pace.busy_seconds);
        let expected = place.as_ref().filter(|_| !paused).and_then(|it| expected.expected(it));
        let retries = record.extras.retries.iter().filter(|it| it.due.is_some());
        let delayed_singles = retries.filter(|it| it.task.fetcher() == FetcherId::TASKS).count();
        let failed = i64::try_from(record.singles.failed).unwrap_or(i64::MAX);
        Ok(Why {
            key: record.key.to_string(),
            state: key_state(&rows, is_in_flight, is_free, hold.is_some()),
            paused,
            expected_in_seconds: expected,
            place,
            jobs_last_hour,
            jobs_since: pace.minutes.first().map(|minute| minute.since),
            busy_seconds: pace.busy_seconds,
            hold,
            bump: bump(&record),
            retry: self.first_retry(&record),
            in_flight: self.delivery(&record),
            last_result: last_result(&record),
            failed_single_tasks: failed.saturating_sub_unsigned(delayed_singles as u64),
            truncated,
            rows,
        })
    }

    fn place(&mut self, wanted: KeyId, count_max: usize) -> Result<Option<Place>> {
        let (mut before, mut first, mut found) = (0, Vec::new(), false);
        let is_all = self.walk(count_max.saturating_add(1), |_, key| {
            found = key == wanted;
            if found || before == count_max {
                return Ok(false);
            }
            before += 1;
            if first.len() < FIRST_MAX {
                first.push(key.0);
            }
            Ok(true)
        })?;
        let first = self.loader.of_ids_in(first)?.into_iter();
        let first = first.map(|it| it.record.key.to_string()).collect();
        Ok((found || !is_all).then_some(Place { keys_before: before, exact: found, first }))
    }

    /// The task that is tried again first.
    fn first_retry(&self, record: &Record) -> Option<Retry> {
        let retries = record.extras.retries.iter();
        let due = retries.filter_map(|it| Some((self.context.followed(it.due?).at, it.number)));
        due.min().map(|(due, retries)| Retry { due: seconds(due), retries })
    }

    /// The job that is out; also one whose time is over, for it may come back.
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
        })
    }

    /// Its rows by fetcher, newer runs first, and its single tasks by status and number, up to a bound; and whether there are more.
    fn rows_of(
        &self,
        id: KeyId,
        record: &Record,
        is_in_flight: bool,
    ) -> Result<(Vec<KeyRow>, bool)> {
        let state = |row: &ListRow| match record.row_state(row, &self.context) {
            // Its lease is over, and it is handed out again.
            RowState::InFlight if !is_in_flight => RowState::Waiting,
            state => state,
        };
        let rows = record.rows.iter().rev().map(|row| (row.task(), state(row)));
        let mut tasks: Vec<(Task, RowState)> = rows.chain(self.singles_of(id, record)?).collect();
        // Those of one fetcher stay in their order.
        tasks.sort_by_cached_key(|(task, _)| self.name(task.fetcher()));
        let (ends, mut rows, mut bytes) = (self.ends_of_singles(record)?, Vec::new(), 0);
        for (task, state) in tasks.iter().copied().take(ROWS_MAX.unsigned_abs() as usize) {
            if bytes >= PAYLOADS_MAX_BYTES {
                break;
            }
            let complete = match task {
                Task::Row { fetcher, run } => {
                    self.kept.header.runs.get(&(fetcher, run)).is_some_and(|run| run.complete)
                }
                Task::Single { .. } => true,
            };
            let end = match task {
                _ if !matches!(state, RowState::Dispatched | RowState::Delayed) => None,
                Task::Row { fetcher, .. } => self.end_of(record, record.served(fetcher), task)?,
                Task::Single { number } => ends.get(&number).copied(),
            };
            let payload = self.payload(id, task)?;
            bytes += payload.len();
            rows.push(KeyRow {
                fetcher: self.name(task.fetcher()),
                run: run_of(task),
                complete,
                state,
                expired_leases: expired_leases(record, task).into(),
                exit_code: end.and_then(|end| end.exit_code),
                payload,
            });
        }
        let truncated = rows.len() < tasks.len();
        Ok((rows, truncated))
    }

    /// Single tasks that are not done, one more than are shown.
    fn singles_of(&self, id: KeyId, record: &Record) -> Result<Vec<(Task, RowState)>> {
        self.connection.rows(SINGLES, (id.0, ROWS_MAX + 1), |row| {
            let (number, word): (i64, String) = (row.get(0)?, row.get(1)?);
            let task = Task::Single { number };
            let state = match SingleStatus::of_word(&word) {
                Some(SingleStatus::InFlight) => RowState::InFlight,
                Some(SingleStatus::Failed) if record.delay_of(task).is_some() => RowState::Delayed,
                Some(SingleStatus::Failed) => RowState::Dispatched,
                Some(SingleStatus::DeadLetter) => RowState::DeadLetter,
                _ => RowState::Waiting,
            };
            Ok((task, state))
        })
    }
}

/// Who has it go before others: an operator, or the rule by which a task of it is tried again.
fn bump(record: &Record) -> Option<Bump> {
    let by_operator = record.extras.bump.as_ref();
    by_operator.map(|it| Bump { since: it.since, by: it.by.to_string() }).or_else(|| {
        let is_due = record.extras.retries.iter().any(|it| it.due.is_none());
        let since = record.last.and_then(|last| last.finished).unwrap_or_default();
        is_due.then(|| Bump { since, by: "job_retry".to_owned() })
    })
}

/// How a job of the key ended last: what its record says, or, while a job is out, said before it.
fn last_result(record: &Record) -> Option<LastResult> {
    let before = record.flight.as_ref().and_then(|it| it.before.last);
    let last = if record.flight.is_some() { before } else { record.last }?;
    let LastRun { started, finished, exit_code } = last;
    Some(LastResult { started, finished: finished?, exit_code })
}
