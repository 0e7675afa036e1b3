//! An attempt that ended, as it is kept: how, and when. The rules make it from a [`Flight`]; stores append it.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use shiftboss_protocol::model::{Attempt, Key};

use crate::record::{Flight, Millis, Record, Task};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    Success,
    Timeout,
    Failure,
    /// Given back by its worker or an operator.
    Released,
    /// The hand-out never arrived.
    Undone,
    Expired,
    /// Its command was terminated on request.
    Cancelled,
}

/// Each outcome, and what it is called by users and in stores.
pub const OUTCOMES: [(Outcome, &str); 7] = [
    (Outcome::Success, "success"),
    (Outcome::Timeout, "timeout"),
    (Outcome::Failure, "failure"),
    (Outcome::Released, "released"),
    (Outcome::Undone, "undone"),
    (Outcome::Expired, "expired"),
    (Outcome::Cancelled, "cancelled"),
];

impl Outcome {
    pub fn of(exit_code: i64) -> Self {
        match exit_code {
            0 => Self::Success,
            TIMEOUT_CODE => Self::Timeout,
            _ => Self::Failure,
        }
    }

    /// Whether the job really ended, rather than being taken back.
    pub fn has_run(self) -> bool {
        matches!(self, Self::Success | Self::Failure | Self::Timeout)
    }

    pub fn word(self) -> &'static str {
        OUTCOMES.iter().find(|(outcome, _)| *outcome == self).map_or("", |(_, word)| word)
    }

    pub fn of_word(word: &str) -> Option<Self> {
        OUTCOMES.iter().find(|(_, known)| *known == word).map(|(outcome, _)| *outcome)
    }
}

/// The exit code of `timeout(1)`, and of `shiftboss work` for a time limit.
pub const TIMEOUT_CODE: i64 = 124;
/// The exit code of what was cancelled, as of a command that SIGTERM ended: each end in `log` has a code.
pub const CANCELLED_CODE: i64 = 143;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndedAttempt {
    pub attempt: Attempt,
    pub key: Key,
    pub task: Task,
    pub worker: Option<Arc<str>>,
    pub started: Millis,
    pub ended: Millis,
    pub outcome: Outcome,
    pub exit_code: Option<i64>,
    /// The key's [last attempt](Record::last_attempt) before it.
    pub previous: Attempt,
    /// From the key's previous start to its own, in seconds.
    pub revisit: Option<i64>,
}

impl EndedAttempt {
    /// How long it was out, in milliseconds; never negative, though wall clocks step. A hand-out that never arrived
    /// took no time.
    pub fn took_ms(&self) -> i64 {
        match self.outcome {
            Outcome::Undone => 0,
            _ => self.ended.saturating_sub(self.started).max(0),
        }
    }
}

impl Flight {
    /// The record of an attempt that ends now.
    pub(crate) fn ended(
        &self,
        record: &Record,
        outcome: Outcome,
        exit_code: Option<i64>,
        now: Millis,
    ) -> EndedAttempt {
        let started = self.started.div_euclid(1_000);
        let before = self.before.last.filter(|last| !last.is_over_by());
        EndedAttempt {
            attempt: self.attempt,
            key: record.key.clone(),
            task: self.task,
            worker: self.holder.as_ref().map(|holder| holder.worker.clone()),
            started: self.started,
            ended: now,
            outcome,
            exit_code,
            previous: record.last_attempt,
            revisit: before.map(|last| started.saturating_sub(last.started).max(0)),
        }
    }
}
