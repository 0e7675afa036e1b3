//! Single tasks: several of one key run first in, first out, one at a time with the key's rows (docs/protocol.md).

use std::collections::HashSet;
use std::sync::Arc;

use super::count_single;
use crate::operation::Cancelled;
use crate::record::{FetcherId, Record, SingleEdit, SingleStatus, Singles, Task};

/// A task is added behind those that wait, and its key waits since then if it is new.
pub fn add(record: &mut Record, number: i64, since: i64, payload: String, id: Option<Arc<str>>) {
    record.since.get_or_insert(since);
    record.singles.edits.push(SingleEdit::Add { number, payload, id });
    record.singles.waiting = record.singles.waiting.saturating_add(1);
    if record.singles.waiting == 1 {
        record.singles.first = Some(number);
    }
}

/// Single tasks of one key, by number, none of which is out.
pub type Numbered = (i64, SingleStatus);

/// These go.
pub fn cancel(record: &mut Record, those: &[Numbered]) -> Cancelled {
    become_each(record, those, SingleStatus::Cancelled);
    let Singles { waiting, failed, dead, .. } = &record.singles;
    let more = [waiting, failed, dead] != [&0; 3];
    let out = record.flight.as_ref().map(|it| it.task.fetcher());
    let in_flight = out == Some(FetcherId::TASKS);
    Cancelled { deleted: those.len() as u64, more, in_flight }
}

/// These ended, and wait again; how many.
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
    // Which is the first of those that wait only the store knows.
    record.singles.first = None;
    let numbers: HashSet<i64> = those.iter().map(|it| it.0).collect();
    let is_meant = |task| matches!(task, Task::Single { number } if numbers.contains(&number));
    record.extras.retries.retain(|it| !is_meant(it.task));
    record.extras.expired.retain(|it| !is_meant(it.0));
    record.extras.dead.retain(|it| !is_meant(it.0));
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
