//! The results of a search for keys, and how long keys wait: what the web page shows besides `why` and `tasks --next`.

use serde::{Deserialize, Serialize};

use crate::model::UnixSeconds;

/// The JSON object of `api/v1/search` (docs/json.md).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Found {
    /// In the order of their bytes.
    pub keys: Vec<KnownKey>,
    pub truncated: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownKey {
    pub key: String,
    /// `None`: it never ran.
    pub last_started: Option<UnixSeconds>,
    /// `None`: it never ran, or is in flight.
    pub exit_code: Option<i64>,
}

/// The JSON object of `tasks --held` (docs/json.md).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldKeys {
    /// Those that operators hold come first; within each kind, the one held last.
    pub keys: Vec<HeldKey>,
    pub truncated: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldKey {
    pub key: String,
    #[serde(flatten)]
    pub hold: Hold,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HoldKind {
    /// An operator.
    Hold,
    /// Its jobs failed too often in a row.
    Backoff,
}

/// Why a key is not handed out, whatever else is known of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hold {
    pub kind: HoldKind,
    pub since: UnixSeconds,
    /// Its last second; `None`: until an operator ends it.
    pub until: Option<UnixSeconds>,
    /// May be empty.
    pub reason: String,
    /// The name that the holder gave; or `backoff`.
    pub by: String,
}

/// What a rule holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HeldBy {
    Prefix,
    Fetcher,
}

/// A rule by which an operator holds many keys, also those that come later.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HoldRule {
    pub rule: HeldBy,
    /// How keys begin, or the fetcher's name.
    pub of: String,
    pub since: UnixSeconds,
    /// Its last second; `None`: until an operator ends it.
    pub until: Option<UnixSeconds>,
    /// May be empty.
    pub reason: String,
    pub by: String,
}

/// Why a key that waits for its turn goes before others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bump {
    pub since: UnixSeconds,
    /// The name that the operator gave, or [`Self::BY_RETRY`].
    pub by: String,
}

impl Bump {
    /// Nobody bumped it: its task failed, and is due again.
    pub const BY_RETRY: &str = "job_retry";
}

/// A task that failed, and waits again by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retry {
    pub due: UnixSeconds,
    /// Number of this retry.
    pub retries: u32,
}

/// When keys of the newest lists were last started; a key has one entry for each list that has it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LastStarts {
    /// `None`: never. Each stands for the same number of keys.
    pub started: Vec<Option<UnixSeconds>>,
    /// True: these are all keys; false: a sample.
    pub is_all: bool,
}
