//! Keys that are looked for, and how long keys wait: what a page shows beside `why` and `tasks --next`.

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
    /// Those that operators hold come first; of each kind the one that was held last.
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
    /// That its jobs failed so often in a row.
    Backoff,
}

/// Why a key is not handed out, whatever else is known of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hold {
    pub kind: HoldKind,
    pub since: UnixSeconds,
    /// Its last second; `None`: until somebody ends it.
    pub until: Option<UnixSeconds>,
    /// May be empty.
    pub reason: String,
    /// Who holds it, as he named himself; or `backoff`.
    pub by: String,
}

/// Who bumped a key that waits for its turn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bump {
    pub since: UnixSeconds,
    /// As he named himself.
    pub by: String,
}

/// A task that failed, and waits again by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retry {
    pub due: UnixSeconds,
    /// The how manyeth time it is tried again then.
    pub retries: u32,
}

/// When keys of the newest lists were last started; a key has one entry for each list that has it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LastStarts {
    /// `None`: never. Each stands for as many keys as any other.
    pub started: Vec<Option<UnixSeconds>>,
    /// They are all that there are.
    pub is_all: bool,
}
