//! What only few keys have: holds, delays, bumps, dead letters. Part of a [`Record`](crate::record::Record), as plain as that.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use shiftboss_protocol::model::UnixSeconds;

use crate::task::{Millis, Task};

/// What only few keys have.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extras {
    pub hold: Option<Hold>,
    pub backoff: Option<Backoff>,
    pub bump: Option<Bump>,
    /// Tasks that failed and are tried again, one entry each.
    pub retries: Vec<Retry>,
    /// Expired leases of tasks since they were last done.
    pub expired: Vec<(Task, u32)>,
    /// Rows that are dead letters, and single tasks that are for another reason than their leases.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dead: Vec<(Task, DeadBecause)>,
    /// Its last start was that of a clock that was ahead: it stands here in the order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ahead: Option<UnixSeconds>,
}

/// Why a task is a dead letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeadBecause {
    /// Too many of its leases expired.
    Leases,
    /// What its worker is to be given cannot be read.
    Payload,
}

impl Extras {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// When something is due, and how long it was to take from when it was said: however clocks step, it takes no longer than that.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Due {
    pub at: Millis,
    pub delay: Millis,
    /// By how much the clock had been [set](crate::records::Header::clock) when that was said.
    #[serde(default)]
    pub clock: Millis,
}

impl Due {
    pub fn is_over(self, now: Millis) -> bool {
        self.at <= now
    }
}

/// An operator keeps the key from being handed out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hold {
    pub since: UnixSeconds,
    /// `None`: until it is ended.
    pub until: Option<Due>,
    pub reason: String,
    pub by: Arc<str>,
}

/// Its jobs failed again and again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Backoff {
    /// In a row.
    pub failures: u32,
    /// It is held so long.
    pub until: Option<Due>,
}

/// An operator has it run soon.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bump {
    /// Its place in the lane.
    pub number: i64,
    pub since: UnixSeconds,
    pub by: Arc<str>,
}

/// A task that failed, and is tried again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retry {
    pub task: Task,
    /// Number of this retry, from 1 on.
    pub number: u32,
    /// `None`: its time has come, and it waits.
    pub due: Option<Due>,
    /// Its place in the lane, then.
    pub lane: i64,
}
