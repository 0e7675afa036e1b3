//! What only the memory of a running daemon knows of how it is, for `status` and `health`.
//!
//! Storage and the connections fill it in; [`Reports`](crate::reports::Reports) adds the spool, and puts it into
//! the answer to `STATUS`. Plain values.

use serde::{Deserialize, Serialize};

use shiftboss_protocol::model::UnixSeconds;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Health {
    /// Jobs that are out; a drain waits for them.
    pub in_flight: u64,
    /// Nothing is handed out, and the daemon stops when no job is out.
    pub draining: bool,
    /// Nothing can be written at present.
    pub outage: Option<Outage>,
}

/// A time in which nothing can be written: the disk is full, or the database locked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outage {
    /// When the first request failed, in seconds since 1970.
    pub since: UnixSeconds,
    /// How the last one failed.
    pub error: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Live {
    #[serde(flatten)]
    pub health: Health,
    /// Workers that are connected with protocol 2, by name.
    pub workers: Vec<ConnectedWorker>,
    /// The spool that it takes tasks from, if there is one.
    #[serde(default)]
    pub spool: Option<SpoolLive>,
}

/// The spool that a daemon takes tasks from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpoolLive {
    pub path: String,
    /// It is not at its path any more: no task comes from it.
    #[serde(default)]
    pub lost: bool,
    /// Entries in its dead-letter queue: those that were rejected, and those that died too often.
    pub dead_letters: usize,
}

/// Connections of workers of one name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectedWorker {
    pub name: String,
    pub connections: u64,
    /// Seconds since the last request of any of them.
    pub silent_seconds: u64,
}
