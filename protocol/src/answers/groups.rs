//! Groups of keys, and which of them are open.

use serde::{Deserialize, Serialize};

use crate::model::UnixSeconds;

/// Whether a group's next job may start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GroupState {
    Open,
    /// Time opens it.
    Delayed,
    /// When one of its jobs ends.
    Full,
    /// By an operator.
    Held,
}

impl GroupState {
    /// In the order in which groups are listed.
    pub const ALL: [Self; 4] = [Self::Held, Self::Full, Self::Delayed, Self::Open];

    pub fn word(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Delayed => "delayed",
            Self::Full => "full",
            Self::Held => "held",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupRow {
    /// Its table's name, a colon, and what its keys have in common.
    pub group: String,
    pub state: GroupState,
    /// Keys whose turn comes when it is open.
    pub waiting: i64,
    pub in_flight: i64,
    /// Only of one that time opens.
    pub opens: Option<UnixSeconds>,
    /// Who holds it, and why; or that a worker asked for a pause.
    pub reason: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupCount {
    pub state: GroupState,
    pub groups: i64,
    pub waiting: i64,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Groups {
    pub counts: Vec<GroupCount>,
    /// By state, those for which most keys wait first.
    pub groups: Vec<GroupRow>,
    pub truncated: bool,
}
