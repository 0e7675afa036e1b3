//! What other programs write into the four public tables (spec 6), carried out on the record.

use shiftboss_protocol::model::{Attempt, UnixSeconds};

use super::completion;
use crate::attempt::EndedAttempt;
use crate::context::Context;
use crate::record::{LastRun, Record};

/// The first and last second of the years 0 to 9999: what lies outside is no time.
pub const TIMES: std::ops::RangeInclusive<UnixSeconds> = -62_167_219_200..=253_402_300_799;

/// Why an edit is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadEdit {
    #[error("a time outside the years 0 to 9999")]
    Time,
}

/// `log` says so of the key: a job that is out and was ended there is done.
///
/// # Errors
/// A time that is none; nothing is changed.
pub fn edit_log(
    record: &mut Record,
    last: LastRun,
    context: &Context,
) -> Result<Option<EndedAttempt>, BadEdit> {
    if !TIMES.contains(&last.started) || last.finished.is_some_and(|it| !TIMES.contains(&it)) {
        return Err(BadEdit::Time);
    }
    let ends = last.finished.is_some() && record.flight.is_some();
    let attempt =
        if ends { completion::finish(record, last.exit_code.unwrap_or(0), context) } else { None };
    record.set_last(last);
    record.is_claimed = last.finished.is_none() && record.flight.is_none();
    Ok(attempt)
}

/// `queue.is_dequeued` says so of the key's rows.
pub fn edit_rows(record: &mut Record, is_dequeued: bool, context: &Context) {
    for at in 0..record.rows.len() {
        let served = record.served(record.rows[at].fetcher);
        record.rows[at].armed = match is_dequeued {
            // Of a fetcher that was never served the row has no number before: it is served by nobody.
            true => {
                record.served.entry(record.rows[at].fetcher).or_insert(context.last_attempt);
                Attempt(served.0.saturating_sub(1))
            }
            false => context.last_attempt,
        };
    }
}
