//! What is not the queue's business, and is kept beside it all the same: notes of a daemon and of relays, each as JSON under a name.
//! Their names and types are here, once: for stores, which write them in a batch's transaction, and for readers.
//!
//! It decides nothing, and knows no store.

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use shiftboss_protocol::model::UnixSeconds;

use crate::context::Settings;
use crate::error;
use crate::file_identity::DirectoryIdentity;
use crate::operation::Outcome;
use crate::policy::{Backoff, RetryRules};
use shiftboss_protocol::answers::FetcherRecord;

/// Documents of one type: one of this name, or one for each of those that are told apart behind it.
#[derive(Debug)]
pub struct Kind<T> {
    name: &'static str,
    of: PhantomData<fn() -> T>,
}

impl<T> Kind<T> {
    const fn new(name: &'static str) -> Self {
        Self { name, of: PhantomData }
    }

    /// What the names of all of them begin with; or the name of the only one.
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
        // None of them has what JSON has not, which is all that can fail.
        serde_json::to_string(document).unwrap_or_default()
    }
}

impl<T: DeserializeOwned> Kind<T> {
    /// Whose a document is, and what it says; one that somebody edited into nonsense is none.
    pub fn read(&self, name: &str, text: &str) -> Option<(String, T)> {
        Some((self.whose(name).to_owned(), serde_json::from_str(text).ok()?))
    }
}

pub const DAEMON: Kind<Daemon> = Kind::new("daemon");
/// What daemons that share a queue go by: those of the one that joined last.
pub const RULES: Kind<Rules> = Kind::new("rules");
/// By whose rules all keys have their places; missing while they get others.
pub const PLACES: Kind<Policy> = Kind::new("places");
pub const INPUT: Kind<Input> = Kind::new("input");
/// Which queue it is, for relays that come back: 16 hexadecimal digits, made when one asks first.
pub const INSTALLATION: Kind<String> = Kind::new("installation");
/// Which one it is among all queues in files, for moves: nothing of a file system is one, for numbers of files are used again.
pub const IDENTITY: Kind<String> = Kind::new("identity");
pub const MOVED: Kind<Move> = Kind::new("moved");
/// From where a queue is moved here, until all of it is.
pub const ARRIVING: Kind<Move> = Kind::new("arriving");
/// Files in the input directory that were rejected, by name.
pub const REJECTED: Kind<Rejected> = Kind::new("rejected/");
/// Managed fetchers, by name; behind a [`MEMBER`]'s own name on a queue that daemons share.
pub const FETCHER: Kind<FetcherRecord> = Kind::new("fetcher/");
/// Daemons that share the queue, by name.
pub const MEMBER: Kind<Member> = Kind::new("member/");
pub const RELAY: Kind<Member> = Kind::new("relay/");
/// What a relay asks is numbered in lanes: by its name, `/`, and the lane's number.
pub const RELAY_LANE: Kind<Lane> = Kind::new("relay-lane/");
/// What the last batch of a lane was answered, likewise named: its relay may ask again.
pub const RELAY_ANSWER: Kind<Vec<Result<Outcome, error::Rejected>>> = Kind::new("relay-answer/");

/// What is called so is a member's own, in its document's name; in a queue that has one daemon all is that one's.
pub fn own(member: Option<&str>, name: &str) -> String {
    member.map_or_else(|| name.to_owned(), |member| format!("{member}/{name}"))
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Daemon {
    /// `power` or `process`.
    pub durability: String,
    pub policy: Policy,
    /// Of classic jobs.
    pub lease_seconds: i64,
    /// What keys of the lane may have of the hand-outs, in thousandths.
    pub bump_share: u32,
    pub max_single_tasks: i64,
    /// `None`: it was stopped.
    pub running: Option<Running>,
}

impl Daemon {
    /// What of it rules go by where nothing is handed out.
    pub fn settings(&self) -> Settings {
        Settings {
            is_fair: self.policy == Policy::Fair,
            lease_seconds: self.lease_seconds,
            bump_share: self.bump_share,
            ..Settings::default()
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rules {
    bump_share: u32,
    backoff: Option<Backoff>,
    retries: RetryRules,
    /// Whose the rule of a fetcher is: that of its own daemon stays.
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
        let (bump_share, backoff) = (settings.bump_share, settings.backoff.clone());
        Self { bump_share, backoff, retries, whose }
    }

    pub fn settings(self, own: &Settings) -> Settings {
        let Self { bump_share, backoff, retries, .. } = self;
        Settings { bump_share, backoff, retries, ..own.clone() }
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Policy {
    #[default]
    Fair,
    /// The Python supervisor's.
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
    /// No other move has it.
    pub number: String,
    /// The other end.
    pub place: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rejected {
    pub reason: String,
    pub since: UnixSeconds,
}

/// Who acts on the queue: a relay ([`RELAY`]), or one of the daemons that share it ([`MEMBER`]). A queue in a file has one daemon, whose is
/// whatever no relay has. The [owner](crate::record::Flight::owner) of a job is called as its document is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Member {
    pub process: String,
    /// Of a relay: no other joining of any has the same.
    pub epoch: i64,
    pub joined: UnixSeconds,
    pub gone: Option<Gone>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gone_since: Option<UnixSeconds>,
    pub input: Input,
    pub fetchers: Vec<Arc<str>>,
    /// Those of which it has no list any more, and since when.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub left: BTreeMap<Arc<str>, UnixSeconds>,
    pub rejected: BTreeMap<String, Rejected>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drains_since: Option<UnixSeconds>,
    /// It found a state then that is older than what it had written.
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
    /// Of a range: the numbers whose rows were rejected, in order.
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
