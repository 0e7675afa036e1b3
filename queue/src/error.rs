//! Why something could not be done: one operation, or a whole batch.
//!
//! Returned by the [engine](crate::engine) and by stores; the actors act according to it.

use serde::{Deserialize, Serialize};
use thiserror::Error;

#[derive(Debug, Clone, PartialEq, Eq, Error, Serialize, Deserialize)]
#[error("{0}")]
pub struct Rejected(pub String);

/// Why a request could not be done. Sorted by consequence: the first three end one request, the others end
/// the process.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum StoreError {
    /// Another process held the database for longer than the busy timeout, or a server or broker does not answer. The
    /// text says which: a relay has no database.
    #[error("{0}")]
    Busy(String),
    #[error("no space left for the database: {0}")]
    Full(String),
    /// This one request cannot be done; the store is sound. Never the error of a whole batch.
    #[error("{0}")]
    Rejected(String),
    /// Another process has the name under which this one uses the queue, so this one gives way.
    #[error("{0}")]
    Displaced(String),
    #[error("the database is corrupt: {0}")]
    Corrupt(String),
    /// A server refuses its user: a login, a right. At a first start this is an error of settings; for a daemon that
    /// already had access it is an outage.
    #[error("{0}")]
    Denied(String),
    /// The store cannot go on: an I/O error, a vanished file. The text says what happened.
    #[error("{0}")]
    Fatal(String),
    /// A newer version has written the stored data, and this one must not use it.
    #[error("{0}")]
    Newer(String),
}

impl StoreError {
    /// True if only a new process can help.
    pub fn is_fatal(&self) -> bool {
        matches!(self, Self::Fatal(_) | Self::Corrupt(_) | Self::Displaced(_) | Self::Newer(_))
    }
}

pub type StoreResult<T> = Result<T, StoreError>;
