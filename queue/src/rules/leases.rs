//! The lease of a job expires: its task waits again, or is a dead letter after too many.

use shiftboss_protocol::model::UnixSeconds;

use super::{completion, dispatch, singles};
use crate::attempt::{EndedAttempt, Outcome};
use crate::context::Context;
use crate::record::{DeadBecause, ListRow, Record, SingleStatus, Task};

/// What an expired lease comes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expired {
    pub attempt: EndedAttempt,
    /// It was one too many.
    pub is_dead_letter: bool,
}

/// Under `--classic` the end of a classic job's lease is no event (spec 2).
pub fn may_expire(record: &Record, context: &Context) -> bool {
    let is_classic = record.flight.as_ref().is_some_and(|it| it.holder.is_none());
    context.settings.is_fair || !is_classic
}

/// From when on the lease of a classic job counts, in seconds since 1970: its start, or, if a clock that was ahead handed it out, when
/// that was seen first. There the key stands in the order from then on, too.
pub fn counts_from(record: &mut Record, context: &Context) -> Option<UnixSeconds> {
    let now = context.seconds();
    if record.stands_at()? > now {
        record.extras.ahead = Some(now);
    }
    record.stands_at()
}

/// Somebody wrote into the log that a classic job was started so long ago that its lease is over.
pub fn is_over(record: &Record, context: &Context) -> bool {
    let is_classic = record.flight.as_ref().is_some_and(|it| it.holder.is_none());
    let ended = record.last.filter(|_| record.is_unfinished() && is_classic).map(|last| {
        last.started.saturating_add(context.settings.lease_seconds) < context.seconds()
    });
    context.settings.is_fair && ended == Some(true)
}

/// The job that is out is taken from its worker. A leased one goes back to its old place; a classic one keeps its start, and
/// goes behind its key's other rows (spec 5).
pub fn expire(record: &mut Record, context: &Context) -> Option<Expired> {
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

/// What its worker would be given cannot be read: it is a dead letter, and nobody had it.
pub fn set_aside(record: &mut Record, task: Task) {
    bury(record, task, DeadBecause::Payload);
}

/// It waits no longer: for its fetcher's newer list, or an operator's `retry`. Its fetcher has the turn that it had.
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
            // The count of its leases says the other.
            if because == DeadBecause::Payload {
                record.extras.dead.push((task, because));
            }
        }
    }
}
