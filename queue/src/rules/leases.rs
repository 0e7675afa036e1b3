//! The lease of a job expires: its task waits again or, after too many, becomes a dead letter.

use shiftboss_protocol::model::UnixSeconds;

use super::{completion, dispatch, singles, stops};
use crate::attempt::{EndedAttempt, Outcome};
use crate::context::Context;
use crate::record::{DeadBecause, ListRow, Record, SingleStatus, Task};

/// The effect of an expired lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expired {
    pub attempt: EndedAttempt,
    /// It was one expired lease too many.
    pub is_dead_letter: bool,
}

/// Under `--classic` the end of a classic job's lease is no event (spec 2).
pub fn may_expire(record: &Record, context: &Context) -> bool {
    let is_classic = record.flight.as_ref().is_some_and(|it| it.holder.is_none());
    context.settings.is_fair || !is_classic
}

/// When the lease of a classic job begins, in seconds since 1970: at its start or, if it was handed out by a clock that
/// was ahead, when that was first noticed. From then on the key also has that place in the order.
pub fn counts_from(record: &mut Record, context: &Context) -> Option<UnixSeconds> {
    let now = context.seconds();
    if record.stands_at()? > now {
        record.extras.ahead = Some(now);
    }
    record.stands_at()
}

/// Whether the log was edited so that a classic job was started too long ago for its lease.
pub fn is_over(record: &Record, context: &Context) -> bool {
    let is_classic = record.flight.as_ref().is_some_and(|it| it.holder.is_none());
    let ended = record.last.filter(|_| record.is_unfinished() && is_classic).map(|last| {
        last.started.saturating_add(context.settings.lease_seconds) < context.seconds()
    });
    context.settings.is_fair && ended == Some(true)
}

/// Takes the job that is out from its worker. One that is to stop is cancelled; another leased one returns to its old
/// place; a classic one keeps its start, and goes after its key's other rows (spec 5).
pub fn expire(record: &mut Record, context: &Context) -> Option<Expired> {
    if stops::is_asked(record) {
        let attempt = stops::cancel(record, context)?;
        return Some(Expired { attempt, is_dead_letter: false });
    }
    let flight = record.flight.take()?;
    let task = flight.task;
    let attempt = flight.ended(record, Outcome::Expired, None, context.now);
    let count = completion::expired_leases(record, task).saturating_add(1);
    let is_gone = matches!(task, Task::Row { fetcher, run } if record.row(fetcher, run).is_none());
    let is_dead_letter = count >= context.settings.max_expired_leases && !is_gone;
    let last = record.last;
    dispatch::restore(record, &flight);
    if flight.holder.is_none() {
        (record.last, record.extras.ahead) = (last, None);
        let is_back = |row: &&ListRow| row.fetcher == task.fetcher() && record.is_armed(row);
        let back: Vec<Task> = record.rows.iter().filter(is_back).map(ListRow::task).collect();
        record.served.insert(task.fetcher(), flight.attempt);
        record.set_failed(task.fetcher(), false);
        back.into_iter().for_each(|task| record.arm(task));
    }
    record.last_attempt = flight.attempt;
    if record.has(task) {
        record.extras.expired.retain(|it| it.0 != task);
        record.extras.expired.push((task, count));
    }
    if is_dead_letter {
        bury(record, task, DeadBecause::Leases);
    }
    Some(Expired { attempt, is_dead_letter })
}

/// Its payload cannot be read: it becomes a dead letter without having been handed out.
pub fn set_aside(record: &mut Record, task: Task) {
    bury(record, task, DeadBecause::Payload);
}

/// Makes it a dead letter until its fetcher's next list, or an operator's `retry`. Its fetcher keeps its turn.
fn bury(record: &mut Record, task: Task, because: DeadBecause) {
    record.extras.retries.retain(|it| it.task != task);
    match task {
        Task::Row { fetcher, .. } => {
            record.disarm(record.served(fetcher), |row| row.task() == task);
            if record.has(task) {
                record.extras.dead.push((task, because));
            }
        }
        Task::Single { number } => {
            singles::set(record, number, SingleStatus::DeadLetter);
            // The other reason is in the count of its leases.
            if because == DeadBecause::Payload {
                record.extras.dead.push((task, because));
            }
        }
    }
}
