//! A job ends: what happens to its task and its key. A failed task is retried, or its key may be held ([`retries`],
//! [`holds`]).

use shiftboss_protocol::model::Attempt;

use super::{bumps, forget_task, holds, retries, singles};
use crate::attempt::{EndedAttempt, Outcome};
use crate::context::Context;
use crate::operation::Ack;
use crate::record::{LastRun, Record, SingleStatus, Task};

/// The job that is out has ended.
pub fn finish(record: &mut Record, exit_code: i64, context: &Context) -> Option<EndedAttempt> {
    let ended = end(record, Outcome::of(exit_code), exit_code, context)?;
    settle(record, ended.task, exit_code, context);
    Some(ended)
}

/// The attempt that is out has ended so. What follows for its task is the caller's.
pub(super) fn end(
    record: &mut Record,
    outcome: Outcome,
    exit_code: i64,
    context: &Context,
) -> Option<EndedAttempt> {
    let flight = record.flight.take()?;
    // The log may have been edited meanwhile: the end is written all the same.
    let started = record.last.map_or(flight.started.div_euclid(1_000), |last| last.started);
    let finished = Some(context.seconds());
    record.last = Some(LastRun { started, finished, exit_code: Some(exit_code) });
    let ended = flight.ended(record, outcome, Some(exit_code), context.now);
    record.last_attempt = flight.attempt;
    let has_failed = !matches!(outcome, Outcome::Success | Outcome::Cancelled);
    record.set_failed(flight.task.fetcher(), has_failed);
    Some(ended)
}

/// `DONE key code` (spec 3): by key alone, from any worker, counted twice if sent twice; the last code stands. A key
/// that never ran is left as it is.
pub fn finish_key(record: &mut Record, exit_code: i64, context: &Context) -> Option<EndedAttempt> {
    if record.flight.is_some() {
        return finish(record, exit_code, context);
    }
    if let Some(last) = &mut record.last {
        (last.finished, last.exit_code) = (Some(context.seconds()), Some(exit_code));
        record.set_last_failed(exit_code != 0);
    }
    None
}

/// Whether the result of an attempt whose lease expired still counts: if its task waits, and its key was not handed out
/// since.
pub fn counts_late(record: &Record, attempt: &EndedAttempt) -> bool {
    let is_last = record.flight.is_none() && record.last_attempt == attempt.attempt;
    let waits = match attempt.task {
        Task::Row { fetcher, .. } => record.served(fetcher) <= attempt.attempt,
        Task::Single { .. } => true,
    };
    attempt.outcome == Outcome::Expired && is_last && waits
}

/// The result of an attempt whose lease expired, and which [still counts](counts_late): it is handled as if it had been
/// out till now. `single`: the status of its single task since, if it was one.
pub fn finish_late(
    record: &mut Record,
    late: &mut EndedAttempt,
    single: Option<SingleStatus>,
    exit_code: i64,
    context: &Context,
) {
    let started = late.started.div_euclid(1_000);
    let finished = Some(context.seconds());
    record.set_last(LastRun { started, finished, exit_code: Some(exit_code) });
    record.served.insert(late.task.fetcher(), late.attempt);
    record.set_failed(late.task.fetcher(), exit_code != 0);
    match late.task {
        Task::Single { .. } => singles::leaves(record, single),
        // Rows of older runs were out with it.
        Task::Row { fetcher, run } => {
            record.disarm(late.attempt, |row| row.fetcher == fetcher && row.run <= run);
        }
    }
    (late.outcome, late.exit_code) = (Outcome::of(exit_code), Some(exit_code));
    late.ended = context.now;
    let is_gone = matches!(late.task, Task::Single { .. }) && single.is_none();
    if is_gone {
        // The task was cancelled, but its key has failed all the same.
        holds::count_end(record, exit_code, context);
    } else {
        settle(record, late.task, exit_code, context);
    }
}

/// What happens to a task that ended, and to its key.
fn settle(record: &mut Record, task: Task, exit_code: i64, context: &Context) {
    let retried = record.extras.retries.iter().find(|it| it.task == task).map_or(0, |it| it.number);
    forget_task(record, task);
    if let Task::Single { number } = task {
        singles::ends(record, number, exit_code);
    }
    let is_delayed = retries::delay(record, task, retried, exit_code, context);
    if !is_delayed {
        holds::count_end(record, exit_code, context);
    }
    // The key was bumped meanwhile: it runs once more.
    if record.extras.bump.is_some() {
        // Tasks that had ended earlier wait since the bump.
        let ended = match task {
            Task::Single { number } if exit_code != 0 => Some((number, SingleStatus::Failed)),
            _ => None,
        };
        bumps::arm(record, None, ended.as_slice());
    }
}

/// The answer to a repeated report about an attempt that ended, and that does not [count late](counts_late).
pub fn repeated(attempt: Option<&EndedAttempt>, said: Outcome) -> Ack {
    match attempt {
        None => Ack::Unknown,
        Some(it) if it.outcome.has_run() && said.has_run() => Ack::Recorded,
        Some(it) if it.outcome == said => Ack::Recorded,
        // Its worker gave it back because it was to stop.
        Some(it) if (it.outcome, said) == (Outcome::Cancelled, Outcome::Released) => Ack::Recorded,
        Some(_) => Ack::Stale,
    }
}

/// Whether this attempt is the one that is out.
pub fn is_out(record: &Record, attempt: Attempt) -> bool {
    matches!(&record.flight, Some(it) if it.attempt == attempt)
}

/// How many leases of a task expired since it was last done.
pub fn expired_leases(record: &Record, task: Task) -> u32 {
    record.extras.expired.iter().find(|it| it.0 == task).map_or(0, |it| it.1)
}
