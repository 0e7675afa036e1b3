//! The read-only port of a store: what it finds, each along an index, at one moment of the queue. It changes nothing,
//! locks nothing, and decides nothing: [`look`](crate::look) answers the questions.
//!
//! Memory, SQLite and PostgreSQL implement it. Its functions are async and statically dispatched, as those of
//! [`Records`](crate::records::Records) are.

use serde::de::DeserializeOwned;
use shiftboss_protocol::model::{Attempt, Key, UnixSeconds};

use crate::attempt::{EndedAttempt, Outcome};
use crate::documents::{Daemon, Gone, Kind};
use crate::groups::GroupId;
use crate::header::Header;
use crate::hold_rules::HoldRules;
use crate::record::{FetcherId, Millis, SingleStatus, Task};
use crate::records::{KeyId, Payload, Stored};
use crate::rules::groups::Group;
use crate::sums::Hour;
use shiftboss_protocol::answers::KnownKey;

/// The index along which keys are listed: by a number, and then by their ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Along {
    /// The order of dispatch, without keys that are out: by their [turns](crate::code::turn).
    Order,
    /// Those of them whose turn comes when this group is open, likewise.
    Group(GroupId),
    /// Only with `--classic`: keys that are out, likewise.
    ClassicHeld,
    Lane,
    Out,
    /// Keys that another program started, without a recorded end: by their starts.
    Claimed,
    /// Keys with a task that will be tried again, by when the first one is due.
    Delayed,
    /// Keys with a row that is a dead letter, by their ids.
    Dead,
    /// Keys that operators hold, the one held last first.
    Held,
    /// Keys that are held for their failures, likewise.
    BackedOff,
    /// Keys that a run lists, by their ids.
    Run(FetcherId, i64),
    /// Keys that have, or had, single tasks, by their ids.
    Singles,
    /// Keys with a row that failed, by their [ends](crate::record::Record::failed_at), the last one first.
    Failed,
}

impl Along {
    pub fn is_backward(self) -> bool {
        matches!(self, Self::Held | Self::BackedOff | Self::Failed)
    }
}

/// Where a key was found: its number along the index, and its id.
pub type Spot = (i64, KeyId);

pub type Document = (String, String);

#[derive(Debug, Clone, Default)]
pub struct Head {
    pub header: Header,
    /// The settings of the daemon that runs, or ran last; `None`: none was ever started.
    pub daemon: Option<Daemon>,
    pub schema_version: i64,
    /// What operators hold by a rule.
    pub holds: HoldRules,
    /// The store's last known sign of life.
    pub last_write: Option<UnixSeconds>,
    /// The time of a store that has a clock for all daemons.
    pub now: Option<Millis>,
}

/// One of the daemons that share a queue on a server, as of its last joining.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Joined {
    pub name: String,
    /// Its identity, the machine's name, and its input directory, separated by spaces.
    pub process: String,
    pub pid: i64,
    /// Its socket on its machine; empty: no daemon of that name has run since the queue came here.
    pub socket: String,
    pub version: String,
    pub started: UnixSeconds,
    pub beat_at: UnixSeconds,
    pub gone: Option<Gone>,
    pub gone_at: Option<UnixSeconds>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct End {
    pub number: i64,
    pub key: KeyId,
    pub attempt: EndedAttempt,
}

/// A group as it was left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupSeen {
    pub group: Group,
    /// Whether it was [open](crate::code::opening).
    pub kind: i64,
    /// When to look at it again, in steady time.
    pub opens: Option<Millis>,
}

/// Which ends to find, back from the last one.
#[derive(Debug, Clone, Copy)]
pub struct EndsOf<'a> {
    pub above: i64,
    pub before: i64,
    /// By their words; empty: all.
    pub outcomes: &'a [&'static str],
    pub fetcher: Option<FetcherId>,
    pub since: Millis,
    pub count: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Summed {
    pub fetcher: Option<FetcherId>,
    /// The first hour.
    pub since: Option<UnixSeconds>,
    pub outcome: Outcome,
    pub sums: Hour,
}

#[derive(Debug, Clone, Copy)]
pub struct SumsOf<'a> {
    /// In hours since 1970.
    pub since: i64,
    /// `None`: all.
    pub fetchers: Option<&'a [FetcherId]>,
    pub by_fetcher: bool,
    /// How many hours make a group; 0: all together.
    pub hours: i64,
    pub count: usize,
}

/// See the module. Everything is found as of one moment. In all listings `count` is the most that is returned.
#[allow(async_fn_in_trait)]
pub trait Listings {
    type Error;

    async fn head(&mut self) -> Result<Head, Self::Error>;

    /// Documents whose names begin with one of these prefixes, prefix after prefix, each by name.
    async fn documents(&mut self, prefixes: &[&str]) -> Result<Vec<Document>, Self::Error>;

    /// The daemons that share the queue; empty for a queue in a file, which has only one.
    async fn daemons(&mut self) -> Result<Vec<Joined>, Self::Error> {
        Ok(Vec::new())
    }

    /// The [owners](crate::record::Flight::owner) of jobs, and how many each has.
    async fn owners(&mut self) -> Result<Vec<(String, i64)>, Self::Error>;

    async fn keys(
        &mut self,
        along: Along,
        behind: Option<Spot>,
        count: usize,
    ) -> Result<Vec<Spot>, Self::Error>;

    /// The records of those of the keys that exist, in any order.
    async fn records(&mut self, ids: &[KeyId]) -> Result<Vec<Stored>, Self::Error>;

    /// The records of keys, in their order.
    async fn named(&mut self, keys: &[Key]) -> Result<Vec<Option<Stored>>, Self::Error>;

    /// Keys that are listed or ran, from one text up to another, in the order of their bytes.
    async fn known(
        &mut self,
        from: &str,
        before: Option<&str>,
        count: usize,
    ) -> Result<Vec<KnownKey>, Self::Error>;

    /// All keys with a record, from one text up to another, in the order of their bytes.
    async fn between(
        &mut self,
        from: &str,
        before: Option<&str>,
        count: usize,
    ) -> Result<Vec<KeyId>, Self::Error>;

    /// All keys of lists and of single tasks; only called if they are few.
    async fn listed(&mut self) -> Result<Vec<KeyId>, Self::Error>;

    /// A random key from each of `parts` equal ranges of ids. Ids are by jitter, so equal ranges have about the same
    /// number of keys.
    async fn sample(&mut self, parts: usize) -> Result<Vec<KeyId>, Self::Error>;

    /// Groups of one [kind](crate::code::opening), those for which most keys wait first.
    async fn groups(&mut self, kind: i64, count: usize) -> Result<Vec<GroupSeen>, Self::Error>;

    async fn group(&mut self, id: GroupId) -> Result<Option<GroupSeen>, Self::Error>;

    /// How many groups have each kind, and how many keys wait for those.
    async fn group_counts(&mut self) -> Result<Vec<(i64, i64, i64)>, Self::Error>;

    /// The payloads of tasks, in their order.
    async fn payloads(&mut self, tasks: &[(KeyId, Task)]) -> Result<Vec<Payload>, Self::Error>;

    async fn singles_of(
        &mut self,
        key: KeyId,
        status: SingleStatus,
        count: usize,
    ) -> Result<Vec<i64>, Self::Error>;

    /// Single tasks that failed, or are dead letters, after a number.
    async fn singles(
        &mut self,
        status: SingleStatus,
        behind: i64,
        count: usize,
    ) -> Result<Vec<Spot>, Self::Error>;

    /// The last one first.
    async fn ends(&mut self, of: &EndsOf<'_>) -> Result<Vec<End>, Self::Error>;

    /// The last number of an end: all ends up to it can be found by now.
    async fn last_end(&mut self) -> Result<i64, Self::Error>;

    /// Ends after one number and up to another, in order.
    async fn ends_behind(
        &mut self,
        number: i64,
        upto: i64,
        count: usize,
    ) -> Result<Vec<End>, Self::Error>;

    /// The number of the end that is the `count`th before `before`, if there are that many.
    async fn floor(&mut self, before: i64, count: usize) -> Result<Option<i64>, Self::Error>;

    /// An attempt and the earlier ones of its key, as far as they are kept: the last one first. Their numbers descend,
    /// even if the store was edited.
    async fn chain(&mut self, last: Attempt, count: usize) -> Result<Vec<End>, Self::Error>;

    async fn hours(&mut self, of: &SumsOf<'_>) -> Result<Vec<Summed>, Self::Error>;

    /// Minutes after `behind`, with exit codes and the number of jobs that ended so, if it is not 0.
    async fn minutes(&mut self, behind: i64) -> Result<Vec<(i64, i64, i64)>, Self::Error>;
}

/// The first text after all those that begin with `prefix`, in the order of bytes; `None`: there is none.
pub fn behind(prefix: &str) -> Option<String> {
    let mut chars: Vec<char> = prefix.chars().collect();
    while let Some(last) = chars.pop() {
        let next = (u32::from(last) + 1..=u32::from(char::MAX)).find_map(char::from_u32);
        if let Some(next) = next {
            chars.push(next);
            return Some(chars.into_iter().collect());
        }
    }
    None
}

/// The contents of documents of a kind, by what they belong to; invalid ones are left out.
pub fn read<T: DeserializeOwned>(kind: &Kind<T>, documents: &[Document]) -> Vec<(String, T)> {
    let own = documents.iter().filter(|(name, _)| name.starts_with(kind.name()));
    own.filter_map(|(name, text)| kind.read(name, text)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Exactly the texts with a prefix lie between the prefix and the text after it.
    #[test]
    fn texts_behind_a_prefix() {
        assert_eq!(behind("ab").as_deref(), Some("ac"));
        assert_eq!(behind("a\u{10ffff}").as_deref(), Some("b"));
        assert_eq!(behind("\u{d7ff}").as_deref(), Some("\u{e000}"));
        assert_eq!((behind(""), behind("\u{10ffff}")), (None, None));
    }
}
