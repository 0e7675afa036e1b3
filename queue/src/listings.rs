//! The port of a store for those who look: what it finds, each along an index, in one moment of the queue. It changes nothing,
//! locks nothing, and decides nothing: what questions are answered is in [`look`](crate::look).
//!
//! Memory, SQLite and PostgreSQL implement it. Its functions are async and statically dispatched, as those of
//! [`Records`](crate::records::Records) are.

use serde::de::DeserializeOwned;
use shiftboss_protocol::model::{Attempt, Key, UnixSeconds};

use crate::attempt::{EndedAttempt, Outcome};
use crate::documents::{Daemon, Gone, Kind};
use crate::header::Header;
use crate::record::{FetcherId, Millis, SingleStatus, Task};
use crate::records::{KeyId, Payload, Stored};
use crate::sums::Hour;
use shiftboss_protocol::answers::KnownKey;

/// Where keys are looked for, each by a number there, and by their ids where that is the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Along {
    /// The order of dispatch, without those that somebody has: by their [turns](crate::code::turn).
    Order,
    /// Only with `--classic`: those that somebody has, likewise.
    ClassicHeld,
    Lane,
    Out,
    /// Those that somebody else started, and of which nobody said that it ended: by their starts.
    Claimed,
    /// Those of which a task is tried again, by when the first one is due.
    Delayed,
    /// Those of which a row is a dead letter, by their ids.
    Dead,
    /// Those that operators hold, by since when: the last one first.
    Held,
    /// Those that are held for their failures, likewise.
    BackedOff,
    /// Those that have rows and nothing to be handed out, whose last attempt failed, and is kept as such no longer: by their ends,
    /// the last one first.
    EndedBadly,
}

impl Along {
    pub fn is_backward(self) -> bool {
        matches!(self, Self::Held | Self::BackedOff | Self::EndedBadly)
    }
}

/// Where a key was found: its number there.
pub type Spot = (i64, KeyId);

pub type Document = (String, String);

#[derive(Debug, Clone, Default)]
pub struct Head {
    pub header: Header,
    /// How the daemon was started that runs, or ran last; `None`: none was ever started.
    pub daemon: Option<Daemon>,
    pub schema_version: i64,
    /// The store's last known sign of life.
    pub last_write: Option<UnixSeconds>,
    /// The time of a store that has a clock for all daemons.
    pub now: Option<Millis>,
}

/// One of the daemons that share a queue on a server, as it joined last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Joined {
    pub name: String,
    /// Which one it is, the machine's name, and its input directory, each behind a space.
    pub process: String,
    pub pid: i64,
    /// On its machine; empty: no daemon of that name has run here.
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

/// Which ends are looked for, back from the last one.
#[derive(Debug, Clone, Copy)]
pub struct EndsOf<'a> {
    pub above: i64,
    pub before: i64,
    /// In their words; empty: all.
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
    /// So many hours together; 0: all.
    pub hours: i64,
    pub count: usize,
}

/// See the module. What is found is of one moment. Of all listings `count` is the most that is said.
#[allow(async_fn_in_trait)]
pub trait Listings {
    type Error;

    async fn head(&mut self) -> Result<Head, Self::Error>;

    /// Documents whose names begin with one of these, in turn, and by name.
    async fn documents(&mut self, prefixes: &[&str]) -> Result<Vec<Document>, Self::Error>;

    /// Those that share the queue; none has a queue in a file, which has one.
    async fn daemons(&mut self) -> Result<Vec<Joined>, Self::Error> {
        Ok(Vec::new())
    }

    /// Who [sees to](crate::record::Flight::owner) jobs, and to how many.
    async fn owners(&mut self) -> Result<Vec<(String, i64)>, Self::Error>;

    async fn keys(
        &mut self,
        along: Along,
        behind: Option<Spot>,
        count: usize,
    ) -> Result<Vec<Spot>, Self::Error>;

    /// The records of keys, those that there are, in any order.
    async fn records(&mut self, ids: &[KeyId]) -> Result<Vec<Stored>, Self::Error>;

    /// The records of keys, each in its place.
    async fn named(&mut self, keys: &[Key]) -> Result<Vec<Option<Stored>>, Self::Error>;

    /// Keys from a text on and before another one, in the order of their bytes, that are listed or ran.
    async fn known(
        &mut self,
        from: &str,
        before: Option<&str>,
        count: usize,
    ) -> Result<Vec<KnownKey>, Self::Error>;

    /// All keys of lists and of single tasks; asked where they are few.
    async fn listed(&mut self) -> Result<Vec<KeyId>, Self::Error>;

    /// A key of each of so many equal parts of all ids, chosen by chance. Ids are by jitter: equal parts of them have about as many
    /// keys each.
    async fn sample(&mut self, parts: usize) -> Result<Vec<KeyId>, Self::Error>;

    /// What the workers of tasks are given, each in its place.
    async fn payloads(&mut self, tasks: &[(KeyId, Task)]) -> Result<Vec<Payload>, Self::Error>;

    async fn singles_of(
        &mut self,
        key: KeyId,
        status: SingleStatus,
        count: usize,
    ) -> Result<Vec<i64>, Self::Error>;

    /// Single tasks that failed, or are dead letters, behind a number.
    async fn singles(
        &mut self,
        status: SingleStatus,
        behind: i64,
        count: usize,
    ) -> Result<Vec<Spot>, Self::Error>;

    /// The last one first.
    async fn ends(&mut self, of: &EndsOf<'_>) -> Result<Vec<End>, Self::Error>;

    /// The last number of an end: all ends up to it are found from now on.
    async fn last_end(&mut self) -> Result<i64, Self::Error>;

    /// Behind a number and up to another one, in order.
    async fn ends_behind(
        &mut self,
        number: i64,
        upto: i64,
        count: usize,
    ) -> Result<Vec<End>, Self::Error>;

    /// Attempts that failed before the end of a number, and since then, whose task was not put back: the last one first.
    async fn failed(
        &mut self,
        before: i64,
        since: Millis,
        count: usize,
    ) -> Result<Vec<End>, Self::Error>;

    /// The number of the end from which on there are `count` before a number, if there are so many.
    async fn floor(&mut self, before: i64, count: usize) -> Result<Option<i64>, Self::Error>;

    /// An attempt and those of its key before, as far as they are kept: the last one first. Their numbers descend, whatever somebody wrote
    /// there.
    async fn chain(&mut self, last: Attempt, count: usize) -> Result<Vec<End>, Self::Error>;

    async fn hours(&mut self, of: &SumsOf<'_>) -> Result<Vec<Summed>, Self::Error>;

    /// Minutes behind one, exit codes, and how many jobs ended then so; where that is more than nothing.
    async fn minutes(&mut self, behind: i64) -> Result<Vec<(i64, i64, i64)>, Self::Error>;
}

/// The first text behind all that begin with `prefix`, in the order of their bytes; `None`: there is none.
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

/// What documents of a kind say, by whose they are; one that is not what it should be is none.
pub fn read<T: DeserializeOwned>(kind: &Kind<T>, documents: &[Document]) -> Vec<(String, T)> {
    let own = documents.iter().filter(|(name, _)| name.starts_with(kind.name()));
    own.filter_map(|(name, text)| kind.read(name, text)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What begins with a text is before the text behind it, and nothing else is.
    #[test]
    fn texts_behind_a_prefix() {
        assert_eq!(behind("ab").as_deref(), Some("ac"));
        assert_eq!(behind("a\u{10ffff}").as_deref(), Some("b"));
        assert_eq!(behind("\u{d7ff}").as_deref(), Some("\u{e000}"));
        assert_eq!((behind(""), behind("\u{10ffff}")), (None, None));
    }
}
