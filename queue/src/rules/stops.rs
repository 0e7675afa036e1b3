//! A job that is out is to stop: its worker learns that from its next heartbeat, or from one that waits, ends the
//! command and gives the job back. It is cancelled then: its start stands, and nothing is tried again or counted as a
//! failure. A single task is cancelled, too; a list's task is done until its next list.
//!
//! If the worker is gone, the job is cancelled when its lease ends. A classic worker cannot be reached.

use super::{bumps, completion, forget_task, singles};
use crate::attempt::{CANCELLED_CODE, EndedAttempt, Outcome};
use crate::context::Context;
use crate::record::{Record, Task};

/// The job that is out is to stop. False: none is out, or a classic worker has it.
pub fn ask(record: &mut Record) -> bool {
    let leased = record.flight.as_ref().filter(|flight| flight.holder.is_some());
    let attempt = leased.map(|flight| flight.attempt);
    record.extras.stopping = attempt;
    attempt.is_some()
}

/// Whether the job that is out is to stop.
pub fn is_asked(record: &Record) -> bool {
    let attempt = record.flight.as_ref().map(|flight| flight.attempt);
    attempt.is_some() && attempt == record.extras.stopping
}

/// The job that is out is cancelled.
pub fn cancel(record: &mut Record, context: &Context) -> Option<EndedAttempt> {
    let ended = completion::end(record, Outcome::Cancelled, CANCELLED_CODE, context)?;
    forget_task(record, ended.task);
    if let Task::Single { number } = ended.task {
        singles::is_cancelled(record, number);
    }
    // The key was bumped meanwhile: it runs once more.
    if record.extras.bump.is_some() {
        bumps::arm(record, None, &[]);
    }
    Some(ended)
}
