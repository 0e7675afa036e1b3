//! Single tasks: several of one key run first in, first out, one at a time with the key's rows (docs/protocol.md).

use std::collections::HashSet;
use std::sync::Arc;

use super::count_single;
use crate::groups::GroupId;
use crate::operation::Cancelled;
use crate::record::{FetcherId, Record, SingleEdit, SingleStatus, Singles, Task};

/// A task that is added.
#[derive(Debug)]
pub struct Added {
    pub payload: String,
    pub id: Option<Arc<str>>,
    pub group: Option<GroupId>,
}

/// Adds a task after those that wait; a new key waits since `since`.
pub fn add(record: &mut Record, number: i64, since: i64, task: Added) {
    let Added { payload, id, group } = task;
    record.since.get_or_insert(since);
    record.singles.group = group;
    record.singles.edits.push(SingleEdit::Add { number, payload, id });
    record.singles.waiting = record.singles.waiting.saturating_add(1);
    if record.singles.waiting == 1 {
        record.singles.first = Some(number);
    }
}

/// A task that waits was added again, now with an ID.
pub fn name(record: &mut Record, number: i64, id: Arc<str>) {
    record.singles.edits.push(SingleEdit::Name { number, id });
}

/// Single tasks of one key, by number, none of which is out.
pub type Numbered = (i64, SingleStatus);

/// Cancels these tasks.
pub fn cancel(record: &mut Record, those: &[Numbered]) -> Cancelled {
    become_each(record, those, SingleStatus::Cancelled);
    let Singles { waiting, failed, dead, .. } = &record.singles;
    let more = [waiting, failed, dead] != [&0; 3];
    let out = record.flight.as_ref().map(|it| it.task.fetcher());
    let in_flight = out == Some(FetcherId::TASKS);
    Cancelled { deleted: those.len() as u64, more, in_flight }
}

/// These tasks ended, and wait again; returns how many.
pub(super) fn retry_each(record: &mut Record, those: &[Numbered]) -> u64 {
    become_each(record, those, SingleStatus::Waiting);
    those.len() as u64
}

fn become_each(record: &mut Record, those: &[Numbered], status: SingleStatus) {
    for (number, before) in those {
        if let Some(count) = count_single(record, *before) {
            *count = count.saturating_sub(1);
        }
        if let Some(count) = count_single(record, status) {
            *count = count.saturating_add(1);
        }
        record.singles.edits.push(SingleEdit::Set { number: *number, status });
    }
    if those.is_empty() {
        return;
    }
    // Only the store knows which waiting task is the first now.
    record.singles.first = None;
    let numbers: HashSet<i64> = those.iter().map(|it| it.0).collect();
    let is_meant = |task| matches!(task, Task::Single { number } if numbers.contains(&number));
    record.extras.retries.retain(|it| !is_meant(it.task));
    record.extras.expired.retain(|it| !is_meant(it.0));
    record.extras.dead.retain(|it| !is_meant(it.0));
}

/// The first task is handed out; only the store knows which is the next.
pub(super) fn goes_out(record: &mut Record, number: i64) {
    record.singles.waiting = record.singles.waiting.saturating_sub(1);
    record.singles.first = None;
    record.singles.edits.push(SingleEdit::Set { number, status: SingleStatus::InFlight });
}

/// Removes a task with this status from the counts: its attempt has ended late, and the caller sets its new status.
pub(super) fn leaves(record: &mut Record, status: Option<SingleStatus>) {
    if let Some(count) = status.and_then(|status| count_single(record, status)) {
        *count = count.saturating_sub(1);
    }
    record.singles.first = None;
}

/// A task comes back before all others, because it was the first of them.
pub(super) fn comes_back(record: &mut Record, number: i64) {
    record.singles.waiting = record.singles.waiting.saturating_add(1);
    record.singles.first = Some(record.singles.first.map_or(number, |first| first.min(number)));
    record.singles.edits.push(SingleEdit::Set { number, status: SingleStatus::Waiting });
}

/// The task that was out ended with this code.
pub(super) fn ends(record: &mut Record, number: i64, exit_code: i64) {
    let status = if exit_code == 0 { SingleStatus::Done } else { SingleStatus::Failed };
    record.singles.edits.push(SingleEdit::Set { number, status });
    if let Some(count) = count_single(record, status) {
        *count = count.saturating_add(1);
    }
}

/// The task that was out was cancelled.
pub(super) fn is_cancelled(record: &mut Record, number: i64) {
    record.singles.edits.push(SingleEdit::Set { number, status: SingleStatus::Cancelled });
}

/// A waiting task gets another status.
pub(super) fn set(record: &mut Record, number: i64, status: SingleStatus) {
    goes_out(record, number);
    record.singles.edits.push(SingleEdit::Set { number, status });
    if let Some(count) = count_single(record, status) {
        *count = count.saturating_add(1);
    }
}

/// A failed task waits again: its retry is due.
pub(super) fn retry(record: &mut Record, number: i64) {
    record.singles.failed = record.singles.failed.saturating_sub(1);
    comes_back(record, number);
    // Other waiting tasks may have lower numbers.
    if record.singles.waiting > 1 {
        record.singles.first = None;
    }
}
