//! What happens to a key: pure functions of its record, one file a subject. These rules are defined only here.
//!
//! A rule changes a record, or rejects a request and changes nothing. Called by the [engine](crate::engine), which
//! saves what changed; a rule sees no store, no clock and no other key.

pub mod bumps;
pub mod clocks;
pub mod completion;
pub mod dispatch;
pub mod edits;
pub mod groups;
pub mod holds;
pub mod leases;
pub mod lists;
pub mod retries;
pub mod singles;
pub mod stops;

use crate::record::{Record, Retry, SingleStatus, Task};

/// Removes data of tasks that no longer exist. Called after each rule, so that no rule has to do it.
pub fn tidy(record: &mut Record) {
    let mut extras = std::mem::take(&mut record.extras);
    let is_out = |task| matches!(&record.flight, Some(it) if it.task == task);
    let has = |task| record.has(task) || is_out(task);
    let goes_on = |it: &Retry| is_out(it.task) || it.due.is_some() || record.waits(it.task);
    extras.retries.retain(|it| has(it.task) && goes_on(it));
    extras.expired.retain(|it| has(it.0));
    let is_over = |task| matches!(task, Task::Row { .. }) && record.waits(task);
    extras.dead.retain(|it| record.has(it.0) && !is_over(it.0));
    if !record.is_listed() {
        extras.bump = None;
    }
    let out = record.flight.as_ref().map(|it| it.attempt);
    extras.stopping = extras.stopping.filter(|it| Some(*it) == out);
    extras.not_before = extras.not_before.filter(|it| Some(it.0) == out);
    record.extras = extras;
    if record.singles.group.is_some() && !record.has_singles() {
        record.singles.group = None;
    }
}

/// Forgets the data of one task: it ended, or begins anew.
fn forget_task(record: &mut Record, task: Task) {
    record.extras.retries.retain(|it| it.task != task);
    record.extras.expired.retain(|it| it.0 != task);
    record.extras.dead.retain(|it| it.0 != task);
}

/// Counts of single tasks follow their statuses.
fn count_single(record: &mut Record, status: SingleStatus) -> Option<&mut u64> {
    match status {
        SingleStatus::Waiting => Some(&mut record.singles.waiting),
        SingleStatus::Failed => Some(&mut record.singles.failed),
        SingleStatus::DeadLetter => Some(&mut record.singles.dead),
        SingleStatus::InFlight | SingleStatus::Done | SingleStatus::Cancelled => None,
    }
}
