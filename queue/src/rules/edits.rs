//! Edits of other programs in the four public tables (spec 6), carried out on the record.

use std::ops::RangeInclusive;

use shiftboss_protocol::model::{Attempt, UnixSeconds};

use super::{completion, forget_task};
use crate::attempt::EndedAttempt;
use crate::context::Context;
use crate::error::Rejected;
use crate::record::{LastRun, Record, Task};

/// The first and last second of the years 0 to 9999: numbers outside are not times.
const TIMES: RangeInclusive<UnixSeconds> = -62_167_219_200..=253_402_300_799;

/// A row that was armed with this does not wait, whether its fetcher was served or not.
const NEVER: Attempt = Attempt(-1);

/// Whether the times of a row of `log` are valid.
pub fn is_time(last: LastRun) -> bool {
    TIMES.contains(&last.started) && last.finished.is_none_or(|it| TIMES.contains(&it))
}

/// The key's row of `log` was edited to this: if a job that is out was ended there, it is done.
///
/// # Errors
/// An invalid time; nothing is changed.
pub fn edit_log(
    record: &mut Record,
    last: LastRun,
    context: &Context,
) -> Result<Option<EndedAttempt>, Rejected> {
    if !is_time(last) {
        return Err(Rejected("a time outside the years 0 to 9999".to_owned()));
    }
    let ends = last.finished.is_some() && record.flight.is_some();
    let attempt =
        if ends { completion::finish(record, last.exit_code.unwrap_or(0), context) } else { None };
    record.set_last(last);
    if let Some(exit_code) = last.exit_code {
        record.set_last_failed(exit_code != 0);
    }
    record.is_claimed = last.finished.is_none() && record.flight.is_none();
    Ok(attempt)
}

/// A row's `queue.is_dequeued` was set to this. If it is so already, the row is left alone: a job that is out may be
/// given back.
pub fn edit_row(record: &mut Record, task: Task, is_dequeued: bool) {
    let at = record.rows.iter().position(|row| row.task() == task);
    let Some(at) = at.filter(|at| record.is_armed(&record.rows[*at]) == is_dequeued) else {
        return;
    };
    record.rows[at].armed = if is_dequeued { NEVER } else { record.highest() };
    if !is_dequeued {
        forget_task(record, task);
    }
}
