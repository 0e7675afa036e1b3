//! Data that is not part of the queue, but is kept beside it: notes of daemons and relays, each as JSON under a name.
//! Their names and types are defined here, for stores, which write them in a batch's transaction, and for readers.
//!
//! It decides nothing, and does not know any store.

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use shiftboss_protocol::model::UnixSeconds;

use crate::context::Settings;
use crate::error;
use crate::file_identity::DirectoryIdentity;
use crate::groups::GroupRules;
use crate::hold_rules::HoldRules;
use crate::operation::Outcome;
use crate::policy::{Backoff, RetryRules};
use crate::record::FetcherId;
use shiftboss_protocol::answers::FetcherRecord;

/// Documents of one type: a single one of this name, or several, whose names add what they belong to.
#[derive(Debug)]
pub struct Kind<T> {
    name: &'static str,
    of: PhantomData<fn() -> T>,
}

impl<T> Kind<T> {
    const fn new(name: &'static str) -> Self {
        Self { name, of: PhantomData }
    }

    /// The common prefix of their names, or the name of the only one.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    pub fn of(&self, whom: &str) -> String {
        format!("{}{whom}", self.name)
    }

    pub fn whose<'a>(&self, name: &'a str) -> &'a str {
        name.strip_prefix(self.name).unwrap_or(name)
    }
}

impl<T: Serialize> Kind<T> {
    pub fn text(&self, document: &T) -> String {
        // It fails only for values that JSON cannot express, and there are none.
        serde_json::to_string(document).unwrap_or_default()
    }
}

impl<T: DeserializeOwned> Kind<T> {
    /// What a document belongs to, and its content; `None` if it cannot be parsed, because it was edited by hand.
    pub fn read(&self, name: &str, text: &str) -> Option<(String, T)> {
        Some((self.whose(name).to_owned(), serde_json::from_str(text).ok()?))
    }
}

pub const DAEMON: Kind<Daemon> = Kind::new("daemon");
/// The rules of daemons that share a queue: those of the one that joined last.
pub const RULES: Kind<Rules> = Kind::new("rules");
/// The policy by which all keys have their places; missing while they are derived anew.
pub const PLACES: Kind<Policy> = Kind::new("places");
/// Fetchers whose tasks some workers take alone, and whether all keys have their [routes](crate::place::Route) by now.
pub const ROUTED: Kind<BTreeMap<FetcherId, bool>> = Kind::new("routed");
/// By which rules tasks are sorted into groups, and whether all of them are by now.
pub const SORTED: Kind<Sorted> = Kind::new("sorted");
/// How many keys that nothing listed were forgotten by themselves so far.
pub const FORGOTTEN: Kind<u64> = Kind::new("forgotten");
/// What operators hold by a rule.
pub const HOLDS: Kind<HoldRules> = Kind::new("holds");
pub const INPUT: Kind<Input> = Kind::new("input");
/// Identifies the queue to relays that come back: 16 hexadecimal digits, made when one first asks.
pub const INSTALLATION: Kind<String> = Kind::new("installation");
/// Identifies a queue in a file, for moves. The file system has no such identity, because it reuses the numbers of
/// files.
pub const IDENTITY: Kind<String> = Kind::new("identity");
pub const MOVED: Kind<Move> = Kind::new("moved");
/// Where a queue is being moved here from, until the move is complete.
pub const ARRIVING: Kind<Move> = Kind::new("arriving");
/// Files in the input directory that were rejected, by name.
pub const REJECTED: Kind<Rejected> = Kind::new("rejected/");
/// Managed fetchers, by name; on a queue that daemons share, with the [`MEMBER`]'s name in front.
pub const FETCHER: Kind<FetcherRecord> = Kind::new("fetcher/");
/// Daemons that share the queue, by name.
pub const MEMBER: Kind<Member> = Kind::new("member/");
pub const RELAY: Kind<Member> = Kind::new("relay/");
/// A relay's requests are numbered in lanes: these are named by the relay, `/`, and the lane's number.
pub const RELAY_LANE: Kind<Lane> = Kind::new("relay-lane/");
/// The answer to the last batch of a lane, named likewise: its relay may ask again.
pub const RELAY_ANSWER: Kind<Vec<Result<Outcome, error::Rejected>>> = Kind::new("relay-answer/");

/// The document's name for a member's own `name`; in a queue with one daemon, all documents belong to that daemon.
pub fn own(member: Option<&str>, name: &str) -> String {
    member.map_or_else(|| name.to_owned(), |member| format!("{member}/{name}"))
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Sorted {
    pub rules: GroupRules,
    /// All tasks that came before them are, too.
    pub is_sorted: bool,
    /// How many keys are sorted by now.
    pub keys: i64,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Daemon {
    /// `power` or `process`.
    pub durability: String,
    pub policy: Policy,
    /// The lease of classic jobs.
    pub lease_seconds: i64,
    /// What keys of the lane may have of the hand-outs, in thousandths.
    pub bump_share: u32,
    pub max_single_tasks: i64,
    /// `None`: it was stopped.
    pub running: Option<Running>,
}

impl Daemon {
    /// The settings that rules need where nothing is handed out.
    pub fn settings(&self) -> Settings {
        Settings {
            is_fair: self.policy == Policy::Fair,
            lease_seconds: self.lease_seconds,
            bump_share: self.bump_share,
            ..Settings::default()
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Rules {
    bump_share: u32,
    backoff: Option<Backoff>,
    retries: RetryRules,
    groups: GroupRules,
    /// Which daemon's rule each fetcher has: only that daemon replaces it.
    whose: BTreeMap<String, Arc<str>>,
}

impl Rules {
    #[must_use]
    pub fn joined(self, daemon: &Arc<str>, settings: &Settings) -> Self {
        let mut retries = settings.retries.clone();
        let own = retries.of_fetcher.keys().map(|fetcher| (fetcher.clone(), daemon.clone()));
        let mut whose: BTreeMap<_, _> = own.collect();
        let mut others = self.retries.of_fetcher;
        for (fetcher, owner) in self.whose.into_iter().filter(|(_, owner)| owner != daemon) {
            if let Some(rule) = others.remove(&fetcher) {
                retries.of_fetcher.entry(fetcher.clone()).or_insert(rule);
                whose.entry(fetcher).or_insert(owner);
            }
        }
        let Settings { bump_share, backoff, groups, .. } = settings.clone();
        Self { bump_share, backoff, retries, groups, whose }
    }

    /// The same with other groups.
    #[must_use]
    pub fn with(self, groups: GroupRules) -> Self {
        Self { groups, ..self }
    }

    pub fn settings(self, own: &Settings) -> Settings {
        let Self { bump_share, backoff, retries, groups, .. } = self;
        Settings { bump_share, backoff, retries, groups, ..own.clone() }
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Policy {
    #[default]
    Fair,
    /// The rules of the Python supervisor.
    Classic,
}

impl Policy {
    pub fn word(self) -> &'static str {
        match self {
            Self::Fair => "fair",
            Self::Classic => "classic",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Running {
    pub pid: u32,
    pub started: UnixSeconds,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Input {
    pub identity: Option<DirectoryIdentity>,
    pub lost: Option<Lost>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lost {
    pub since: UnixSeconds,
    pub reason: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Move {
    /// Unique among moves.
    pub number: String,
    /// The other end.
    pub place: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rejected {
    pub reason: String,
    pub since: UnixSeconds,
}

/// Who acts on the queue: a relay ([`RELAY`]), or one of the daemons that share it ([`MEMBER`]). A queue in a file has
/// one daemon, which owns whatever no relay has. The [owner](crate::record::Flight::owner) of a job has the name of
/// this document.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Member {
    pub process: String,
    /// For a relay: unique among the joinings of all relays.
    pub epoch: i64,
    pub joined: UnixSeconds,
    pub gone: Option<Gone>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gone_since: Option<UnixSeconds>,
    pub input: Input,
    pub fetchers: Vec<Arc<str>>,
    /// Fetchers of which it no longer has a list, and since when.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub left: BTreeMap<Arc<str>, UnixSeconds>,
    pub rejected: BTreeMap<String, Rejected>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drains_since: Option<UnixSeconds>,
    /// When it found the queue in a state older than what it had written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub went_back: Option<UnixSeconds>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Gone {
    Silent,
    Stopped,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Lane {
    pub number: i64,
    /// For a range: the numbers whose rows were rejected, in order.
    pub rejected: Vec<i64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_are_known_by_their_names() {
        assert_eq!(REJECTED.of("a b.txt"), "rejected/a b.txt");
        assert_eq!(REJECTED.whose("rejected/a b.txt"), "a b.txt");
        assert_eq!((DAEMON.of(""), Policy::Classic.word()), ("daemon".to_owned(), "classic"));
    }
}
