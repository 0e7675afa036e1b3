//! What workers and operators are answered about jobs: those that are handed out, end, or are put back.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use shiftboss_protocol::model::{Attempt, Key, Row};

/// The answer to a request for work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Dispatched {
    /// This job, under this attempt; undo it by the attempt.
    Job(Attempt, Row),
    Nothing,
    /// A deletion in progress must get on before this can be answered.
    Later,
}

/// The answer to what a worker says about an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ack {
    /// It is recorded, now or before.
    Recorded,
    /// The job is somebody else's by now, or was given back.
    Stale,
    /// No such attempt, or one that is forgotten.
    Unknown,
}

/// What came of putting back a job that is in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Requeued {
    /// It waits again; this attempt at it is over.
    Back(Attempt),
    /// The key is known, but nobody has a job of it.
    NotInFlight,
    Unknown,
}

/// An attempt whose lease expired.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExpiredLease {
    pub key: Key,
    /// Who held it, as it named itself.
    pub worker: Arc<str>,
    /// It was one too many: the task is dead-lettered.
    pub dead_letter: bool,
    /// It is a single task, not a line of a list.
    pub single: bool,
}

/// An attempt whose end was recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobEnd {
    pub attempt: Attempt,
    /// Its fetcher's name; empty: it was gone.
    pub fetcher: Arc<str>,
    /// `success`, `timeout`, `failure`, `released`, `undone` or `expired`.
    pub outcome: &'static str,
    /// How long it was out, in milliseconds.
    pub took_ms: u64,
    /// From its key's start before to its own; `None`: the key never ran before, or that is not known.
    pub revisit_seconds: Option<u64>,
}
