//! Tasks that failed and are tried again: automatically after a delay, or by an operator's order
//! (docs/decisions/holds-retries-bumps.md).

use super::singles::Numbered;
use super::{bumps, singles};
use crate::context::Context;
use crate::operation::Retried;
use crate::record::{FetcherId, Record, Retry, Task};

/// An operator's order to retry the task of one fetcher, or all tasks. `singles`: the key's single tasks that ended.
pub fn retry(record: &mut Record, fetcher: Option<FetcherId>, singles: &[Numbered]) -> Retried {
    if !record.is_listed() {
        return Retried::Unknown;
    }
    if record.is_on_hold() {
        return Retried::Held;
    }
    Retried::Back(bumps::arm(record, fetcher, singles))
}

/// A task ended with this code after this many retries: returns whether it is retried automatically, or because its worker
/// asked for that, and so is delayed.
pub(super) fn delay(
    record: &mut Record,
    task: Task,
    retried: u32,
    exit_code: i64,
    context: &Context,
) -> bool {
    let rules = &context.settings.retries;
    let rule = rules.of(&context.fetcher(task.fetcher())).filter(|_| context.settings.is_fair);
    let by_rule = rule.and_then(|it| it.delay(record.key.as_str(), exit_code, retried));
    let asked = record.extras.not_before.filter(|it| it.0 == record.last_attempt && exit_code != 0);
    let asked = asked.filter(|_| context.settings.is_fair).map(|(_, seconds)| seconds.into());
    let Some(seconds) = by_rule.max(asked).filter(|_| has_failed(record, task)) else {
        return false;
    };
    let due = Some(context.due_in(seconds));
    // What its worker asked for uses up no retry.
    let number = retried.saturating_add(u32::from(by_rule.is_some()));
    record.extras.retries.push(Retry { task, number, due, lane: 0 });
    true
}

/// Whether it ended, and no newer list has replaced it.
fn has_failed(record: &Record, task: Task) -> bool {
    match task {
        Task::Single { .. } => true,
        Task::Row { fetcher, run } => record
            .newest_rows()
            .any(|row| (row.fetcher, row.run) == (fetcher, run) && !record.is_armed(row)),
    }
}

/// Delayed tasks that are due wait again, in the lane.
pub(super) fn wake(record: &mut Record, context: &mut Context) {
    if !context.settings.is_fair {
        return;
    }
    let (mut retries, now) = (std::mem::take(&mut record.extras.retries), context.now);
    retries.sort_by_key(|it| (it.due.map(|due| due.at), it.task));
    for it in retries.iter_mut().filter(|it| it.due.is_some_and(|due| due.is_over(now))) {
        (it.due, it.lane) = (None, context.next_bump());
        match it.task {
            Task::Row { .. } => record.arm(it.task),
            Task::Single { number } => singles::retry(record, number),
        }
    }
    record.extras.retries = retries;
}
