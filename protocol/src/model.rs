//! The words of the queue: keys, payloads, runs, jobs. Checked values without behaviour.
//!
//! All parts exchange these types: the file reader makes them, the store keeps them, the wire sends them. A value that
//! exists is valid. Nothing here does I/O.

use std::fmt;
use std::sync::Arc;

use md5::{Digest, Md5};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Longest key in bytes; a fetcher line with a longer one is skipped (spec 4).
pub const KEY_MAX_BYTES: usize = 4 * 1024;

/// The fetcher whose runs are single tasks. No file of the input directory may belong to it.
pub const TASKS_FETCHER: &str = "@tasks";

/// Wall-clock time in whole seconds since 1970 (spec 2). Any value from 0 on is valid.
pub type UnixSeconds = i64;

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum KeyError {
    #[error("the key is empty")]
    Empty,
    #[error("the key has {0} bytes; the limit is {KEY_MAX_BYTES}")]
    TooLong(usize),
    /// A space or a line end, which the line formats use as separators.
    #[error("the key contains a space or a line end")]
    Separator,
}

/// What a job is about: the first word of a fetcher line (column `attr_path`).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Key(Arc<str>);

impl Key {
    /// Checks `text` and makes it a key.
    ///
    /// # Errors
    /// When it is empty, longer than [`KEY_MAX_BYTES`], or contains a space or line end.
    pub fn new(text: &str) -> Result<Self, KeyError> {
        if text.is_empty() {
            return Err(KeyError::Empty);
        }
        if text.len() > KEY_MAX_BYTES {
            return Err(KeyError::TooLong(text.len()));
        }
        if text.contains([' ', '\n', '\r']) {
            return Err(KeyError::Separator);
        }
        Ok(Self(text.into()))
    }

    /// A key that is already in the queue: whatever put it there, it is handed out as it is.
    pub fn stored(text: &str) -> Self {
        Self(text.into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The place of a key among those that have waited equally long (spec 2).
    pub fn jitter(&self) -> i32 {
        jitter(&self.0)
    }
}

/// The first four bytes of the MD5 of `key`, little-endian and signed (spec 2).
pub fn jitter(key: &str) -> i32 {
    let digest = Md5::digest(key.as_bytes());
    i32::from_le_bytes([digest[0], digest[1], digest[2], digest[3]])
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &*self.0)
    }
}

/// One line of a fetcher file, and what a worker is given: a key and the opaque rest, kept byte for byte.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    pub key: Key,
    /// Everything after the first space. May begin with a space; never contains a line end.
    pub payload: String,
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.key, self.payload)
    }
}

/// One run of a fetcher: the file `FETCHER.STARTED.txt`, growing or complete.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Run {
    /// The fetcher's name: not empty, without a dot.
    pub fetcher: Arc<str>,
    /// The number in the file name; a larger one is a newer run.
    pub started: i64,
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.fetcher, self.started)
    }
}

/// What a worker gets with a job, besides its task.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct About {
    pub fetcher: Arc<str>,
    /// How often the task was tried again before, and how often it may be in all.
    pub retry: u32,
    pub retries: u32,
}

impl About {
    /// Which try this is, and of how many.
    pub fn tries(&self) -> (u32, u32) {
        let first = self.retry.saturating_add(1);
        (first, self.retries.saturating_add(1).max(first))
    }
}

/// Why there is no job for a worker that asks, as far as it is known; counted up to [`IDLE_COUNT_MAX`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Idle {
    /// The queue is paused, and this many jobs wait.
    pub paused: Option<u32>,
    /// Jobs that are in flight, with any workers.
    pub busy: u32,
    /// Tasks that failed, and are tried again when their time comes.
    pub delayed: u32,
    /// Keys that are held, by operators or for their failures.
    pub held: u32,
    /// Groups that are closed, with keys that wait for that.
    pub groups: u32,
    /// Tasks that wait for workers of other fetchers.
    pub others: u32,
    /// In how many seconds the first of those that are delayed or held comes back by itself; `None`: none does.
    pub due: Option<u32>,
}

/// How far [`Idle`] counts: it is sent with every `NOJOBS`.
pub const IDLE_COUNT_MAX: u32 = 1_000;

/// The number of one dispatch: it grows with each and is never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Attempt(pub i64);

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A worker that speaks protocol 2, to whom a job is leased.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseHolder {
    pub worker: Arc<str>,
    /// How long it may be silent before its job is taken away.
    pub lease_seconds: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jitter_is_the_reference_s() {
        let known = [
            ("alpha", -1_555_884_244),
            ("bravo", 515_152_637),
            ("charlie", 161_380_287),
            ("delta", -122_962_845),
            ("echo", -669_077_045),
            ("zulu", 826_913_402),
            ("python3Packages.requests", -1_993_033_843),
            ("é", -1_748_116_122),
            ("", -645_128_748),
        ];
        for (key, value) in known {
            assert_eq!(jitter(key), value, "{key}");
        }
    }

    #[test]
    fn a_key_is_one_word_within_its_limit() {
        assert!(Key::new("#").is_ok());
        assert!(Key::new("tab\tinside").is_ok());
        assert_eq!(Key::new(""), Err(KeyError::Empty));
        assert_eq!(Key::new("a b"), Err(KeyError::Separator));
        assert_eq!(Key::new("a\nb"), Err(KeyError::Separator));
        assert!(Key::new(&"k".repeat(KEY_MAX_BYTES)).is_ok());
        assert_eq!(
            Key::new(&"k".repeat(KEY_MAX_BYTES + 1)),
            Err(KeyError::TooLong(KEY_MAX_BYTES + 1))
        );
    }
}
