//! Single tasks: several of one key run first in, first out, one at a time with the key's rows (spec/tasks.md).

use std::sync::Arc;

use super::count_single;
use crate::operation::Cancelled;
use crate::record::{Record, SingleEdit, SingleStatus, Task};

/// A task is added behind those that wait, and its key waits since then if it is new.
pub fn add(record: &mut Record, number: i64, since: i64, payload: String, id: Option<Arc<str>>) {
    record.since.get_or_insert(since);
    record.singles.edits.push(SingleEdit::Add { number, payload, id });
    record.singles.waiting = record.singles.waiting.saturating_add(1);
    if record.singles.waiting == 1 {
        record.singles.first = Some(number);
    }
}

/// All single tasks of the key go, but for the one that is out.
pub fn cancel(record: &mut Record) -> Cancelled {
    let out = out(record);
    let singles = &mut record.singles;
    let deleted = singles.waiting.saturating_add(singles.failed).saturating_add(singles.dead);
    (singles.waiting, singles.failed, singles.dead, singles.first) = (0, 0, 0, None);
    if deleted > 0 {
        singles.edits.push(SingleEdit::CancelAll { but: out });
    }
    let is_gone = |task| matches!(task, Task::Single { number } if Some(number) != out);
    record.extras.retries.retain(|it| !is_gone(it.task));
    record.extras.expired.retain(|it| !is_gone(it.0));
    record.extras.dead.retain(|it| !is_gone(it.0));
    Cancelled { deleted, more: false, in_flight: out.is_some() }
}

/// Those that failed and the dead letters wait again; how many.
pub fn retry_all(record: &mut Record) -> u64 {
    let singles = &mut record.singles;
    let back = singles.failed.saturating_add(singles.dead);
    if back > 0 {
        singles.edits.push(SingleEdit::RetryAll);
        singles.waiting = singles.waiting.saturating_add(back);
        (singles.failed, singles.dead, singles.first) = (0, 0, None);
        let out = out(record);
        let is_back = |task| matches!(task, Task::Single { number } if Some(number) != out);
        record.extras.expired.retain(|it| !is_back(it.0));
        record.extras.dead.retain(|it| !is_back(it.0));
    }
    back
}

/// The number of the single task that is out.
fn out(record: &Record) -> Option<i64> {
    match record.flight.as_ref()?.task {
        Task::Single { number } => Some(number),
        Task::Row { .. } => None,
    }
}

/// The first one is handed out: which is the first of the others only the store knows.
pub(super) fn goes_out(record: &mut Record, number: i64) {
    record.singles.waiting = record.singles.waiting.saturating_sub(1);
    record.singles.first = None;
    record.singles.edits.push(SingleEdit::Set { number, status: SingleStatus::InFlight });
}

/// One that had this status is another's to say: an attempt of it ended late.
pub(super) fn leaves(record: &mut Record, status: Option<SingleStatus>) {
    if let Some(count) = status.and_then(|status| count_single(record, status)) {
        *count = count.saturating_sub(1);
    }
    record.singles.first = None;
}

/// It is back before all others: it was the first of them.
pub(super) fn comes_back(record: &mut Record, number: i64) {
    record.singles.waiting = record.singles.waiting.saturating_add(1);
    record.singles.first = Some(record.singles.first.map_or(number, |first| first.min(number)));
    record.singles.edits.push(SingleEdit::Set { number, status: SingleStatus::Waiting });
}

/// The one that was out ended so.
pub(super) fn ends(record: &mut Record, number: i64, exit_code: i64) {
    let status = if exit_code == 0 { SingleStatus::Done } else { SingleStatus::Failed };
    record.singles.edits.push(SingleEdit::Set { number, status });
    if let Some(count) = count_single(record, status) {
        *count = count.saturating_add(1);
    }
}

/// One that waits is something else from now on.
pub(super) fn set(record: &mut Record, number: i64, status: SingleStatus) {
    goes_out(record, number);
    record.singles.edits.push(SingleEdit::Set { number, status });
    if let Some(count) = count_single(record, status) {
        *count = count.saturating_add(1);
    }
}

/// One that failed waits again: its retry is due.
pub(super) fn retry(record: &mut Record, number: i64) {
    record.singles.failed = record.singles.failed.saturating_sub(1);
    comes_back(record, number);
    // Those that wait may have lower numbers.
    if record.singles.waiting > 1 {
        record.singles.first = None;
    }
}
