//! The port of a store: where records are kept. It finds, loads and saves them, in one transaction a batch, and decides nothing.
//!
//! Called by the [engine](crate::engine) alone. Memory, SQLite and PostgreSQL implement it. Its functions are async and statically
//! dispatched; a store that blocks has futures that are ready at once.

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use shiftboss_protocol::model::{Attempt, Key, Run, UnixSeconds};

use crate::attempt::EndedAttempt;
use crate::counts;
pub use crate::error::{StoreError, StoreResult};
use crate::groups::GroupId;
pub use crate::header::{Header, RunState, Stale};
use crate::place::{Line, Place, Turn};
use crate::record::{FetcherId, LastRun, Millis, Record, SingleStatus, Task};
use crate::rules::groups::{Group, Opening};
use crate::sums::{Oldest, Sums};

/// A key's number in a store: in the order of jitter, as far as the store can.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyId(pub i64);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    pub id: KeyId,
    pub record: Record,
    pub place: Place,
    /// The payload of its only row, if the store had it at hand.
    pub payload: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Name {
    Key(Key),
    /// The key of this attempt, out or ended.
    Attempt(Attempt),
    /// The key of the single task that was added with this ID.
    TaskId(Arc<str>),
}

/// What another program wrote into the four public tables (spec 6).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Edit {
    Log { key: Key, last: LastRun },
    Row { key: Key, run: Run, is_dequeued: bool },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum From {
    /// Keys of a line that have no group there, without those that are out.
    Line(Line),
    /// The first key of each open group.
    Heads(Line),
    /// Those of a group, open or not.
    Group(GroupId, Line),
    Due(Millis),
    /// All keys that have something due, by their ids.
    Dues,
    /// Turns in the future: from a clock that was ahead.
    Later(Turn),
    /// Only with `--classic`: keys that are out, the first start first.
    ClassicHeld,
    All,
}

/// A task's payload, as a store has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Payload {
    Text(String),
    Missing,
    /// It is no longer UTF-8.
    Damaged,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InFlight {
    pub attempt: Attempt,
    pub started: Millis,
    pub lease_seconds: Option<u32>,
    /// [Its owner](crate::record::Flight::owner).
    pub owner: Option<Arc<str>>,
}

#[derive(Debug)]
pub struct Changes<'a> {
    /// Records with their places; `None` instead of a record: delete everything known of the key. The record's edits of
    /// single tasks and payloads of rows must be carried out.
    pub records: Vec<Change>,
    pub ended: Vec<EndedAttempt>,
    pub groups: Vec<GroupChange>,
    pub header: &'a Header,
    /// Runs that changed or are gone, and those whose counts changed.
    pub runs: BTreeSet<counts::Run>,
    pub counts: BTreeSet<counts::Run>,
    pub sums: Sums,
    /// The present minute, from which single tasks that are over now are kept, if they have an ID.
    pub minute: i64,
    /// Delete what is older; set now and then.
    pub oldest: Option<Oldest>,
}

/// When time opens a group.
pub type Opens = (Millis, GroupId);

/// Before all groups that time opens.
pub const FIRST_OPENING: Opens = (Millis::MIN, GroupId(Millis::MIN));

/// A group that is new, or changed.
#[derive(Debug)]
pub struct GroupChange {
    pub id: GroupId,
    /// `None`: there is nothing to remember of it, and no task in it.
    pub group: Option<Group>,
    /// If it is open, its first keys are among the [heads](From::Heads).
    pub opening: Opening,
    /// When to look at it again, in steady time.
    pub opens: Option<Millis>,
}

#[derive(Debug)]
pub struct Change {
    /// The store's record. `None`: the key is new.
    pub before: Option<Box<Stored>>,
    pub key: Key,
    pub now: Option<(Box<Record>, Place)>,
}

impl Change {
    pub fn brings_work(&self) -> bool {
        let is_ready = |place: &Place| place.order.is_some();
        let was_ready = self.before.as_ref().is_some_and(|it| is_ready(&it.place));
        !was_ready && self.now.as_ref().is_some_and(|(_, place)| is_ready(place))
    }
}

/// What a batch will ask for. A store on a server finds and locks that at once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outset {
    pub names: Vec<Name>,
    /// How many of the next keys may be handed out.
    pub next: usize,
    /// It changes data that does not belong to a key, puts new keys into the queue, or says whether there is work: no
    /// other daemon's batch may run at the same time.
    pub is_alone: bool,
    /// It needs the sums of all daemons.
    pub counts: bool,
    /// It changes and saves nothing: no lock is needed.
    pub only_reads: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Begun {
    /// `None`: it is still what this engine saved last, and nothing was rolled back since.
    pub header: Option<Header>,
    /// The sums of an otherwise unchanged header, if others may have changed them.
    pub counts: Option<counts::Tally>,
    /// Data that does not belong to a key, documents included, may differ from what this engine saved last: another
    /// process wrote it, or the engine has just started.
    pub has_changed: bool,
    /// The time of a store that has a clock for all daemons, read when the keys were locked. `None`: the caller's counts.
    pub now: Option<Millis>,
    /// A batch that [only reads](Outset::only_reads) has found [edits](Records::edits): begin it again as one that
    /// writes.
    pub is_edited: bool,
}

/// The output of a future that is ready at once, as with a store that blocks; `None`: it is not ready.
pub fn at_once<T>(future: impl Future<Output = T>) -> Option<T> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(it) => Some(it),
        Poll::Pending => None,
    }
}

/// See the module. A batch reads in one transaction, which [`begin`](Self::begin) opens.
#[allow(async_fn_in_trait)]
pub trait Records {
    async fn begin(&mut self, outset: &Outset) -> StoreResult<Begun>;

    /// The number of the next attempt; `last` is the last one that this engine had. It is higher than all attempts of
    /// the batch's keys. `None`: there is none left.
    async fn number(&mut self, last: Attempt) -> StoreResult<Option<Attempt>> {
        Ok(last.0.checked_add(1).map(Attempt))
    }

    /// What other programs have written into the store since, up to `count` at a time, to be carried out in this
    /// transaction. Once that is committed, it does not come again.
    async fn edits(&mut self, _count: usize) -> StoreResult<Vec<Edit>> {
        Ok(Vec::new())
    }

    /// Likewise, what they wrote about these keys.
    async fn edits_of(&mut self, _keys: &[Key]) -> StoreResult<Vec<Edit>> {
        Ok(Vec::new())
    }

    /// The records of keys, in one step; `None`: it has none.
    async fn load(&mut self, names: &[Name]) -> StoreResult<Vec<Option<Stored>>>;

    /// The next keys, after one of them, at most `count`.
    async fn next(
        &mut self,
        from: From,
        behind: Option<&Stored>,
        count: usize,
    ) -> StoreResult<Vec<Stored>>;

    /// What is kept of groups.
    async fn groups(&mut self, ids: &[GroupId]) -> StoreResult<Vec<Option<Group>>>;

    /// Groups that time opens until then, the first one first, after this one, at most `count`.
    async fn opening(
        &mut self,
        behind: Opens,
        until: Millis,
        count: usize,
    ) -> StoreResult<Vec<(Opens, Group)>>;

    /// When time opens the first group, without a lock.
    async fn first_opening(&mut self) -> StoreResult<Option<Millis>>;

    /// How many groups are closed that have keys, at most `most`: those that time opens later, and those that are full.
    async fn closed(&mut self, until: Millis, most: u32) -> StoreResult<u32>;

    async fn flights(&mut self) -> StoreResult<Vec<InFlight>>;

    /// Attempts that are to [stop](crate::rules::stops), by number, at most `count`.
    async fn stops(&mut self, count: usize) -> StoreResult<Vec<Attempt>>;

    /// The last of the next keys in the order, after one of them, that have only rows of runs under deletion, or of
    /// `also`, which will be: up to the first key that has more, and at most `count`; and whether there may be more of
    /// them. `None`: there is none, or the store itself remembers it, and [`next`](Self::next) begins after it.
    async fn leaving(
        &mut self,
        _behind: Option<&Stored>,
        _also: Option<(FetcherId, i64)>,
        _count: usize,
    ) -> StoreResult<(Option<Stored>, bool)> {
        Ok((None, false))
    }

    /// Keys of a run, after a key, at most `count`.
    async fn of_run(
        &mut self,
        run: (FetcherId, i64),
        behind: Option<KeyId>,
        count: usize,
    ) -> StoreResult<Vec<Stored>>;

    async fn payload(&mut self, id: KeyId, task: Task) -> StoreResult<Payload>;

    /// The status of a single task, if it is kept.
    async fn single(&mut self, number: i64) -> StoreResult<Option<SingleStatus>>;

    /// Single tasks of a key with this status, by number, the newest first, at most `count`.
    async fn singles(
        &mut self,
        id: KeyId,
        status: SingleStatus,
        count: usize,
    ) -> StoreResult<Vec<i64>>;

    /// The number of a single task of the key that waits with this payload.
    async fn waiting_single(&mut self, id: KeyId, payload: &str) -> StoreResult<Option<i64>>;

    /// An attempt that ended, if it is still kept.
    async fn ended(&mut self, attempt: Attempt) -> StoreResult<Option<EndedAttempt>>;

    /// Where a shared queue is; a copy of it has another place. `None`: it has only one daemon.
    async fn place(&mut self) -> StoreResult<Option<Arc<str>>> {
        Ok(None)
    }

    /// One of several daemons has heard from a relay in this second. A single daemon remembers that by itself.
    fn heard(&mut self, _relay: &str, _second: UnixSeconds) {}

    /// How often relays were heard from, by their documents' names.
    async fn beats(&mut self) -> StoreResult<Vec<(String, i64)>> {
        Ok(Vec::new())
    }

    async fn document(&mut self, name: &str) -> StoreResult<Option<String>>;

    async fn documents(&mut self, prefix: &str) -> StoreResult<Vec<(String, String)>>;

    /// Writes a document; `None`: deletes it.
    async fn note(&mut self, name: String, text: Option<String>) -> StoreResult<()>;

    /// Writes what changed. May be called more than once in a transaction.
    async fn save(&mut self, changes: Changes<'_>) -> StoreResult<()>;

    /// What was saved is durable when this returns.
    async fn commit(&mut self) -> StoreResult<()>;

    async fn roll_back(&mut self);
}
