//! Questions about a queue and their answers, the same for every store: its state (`status`), what is next (`queue`,
//! along the `order`), where a key is (`why`), which keys there are (`keys`), also of all lists (`listed`), what ended
//! (`log`), one by one and summed up (`sums`), which tasks have a status (`tasks`), which groups there are (`groups`),
//! and which keys an order to many is for (`select`).
//!
//! A store implements what it [finds](Listings), and [opens](Opens) a moment for each question; that makes it a
//! [`Reader`]. What may be handed out follows from records, by the queue's own rules. Nothing is written.

mod failed;
mod groups;
mod keys;
mod listed;
mod log;
mod members;
mod order;
mod queue;
mod select;
mod status;
mod sums;
mod tasks;
mod why;

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use shiftboss_protocol::model::{Key, TASKS_FETCHER, UnixSeconds};

use crate::context::{Context, Settings};
use crate::documents::Daemon;
use crate::groups::GroupId;
use crate::listings::{Along, Head, Listings, Spot};
use crate::reader::{
    Behind, EndedAttempts, ListedKey, ReadResult, Reader, Selected, Selection, StatsOf, TasksWith,
};
use crate::record::{FetcherId, Record, Task, seconds};
use crate::records::{KeyId, Payload, Stored};
use shiftboss_protocol::answers::{
    Ends, Found, GroupRow, Groups, HeldKeys, LastStarts, Log, MinuteJobs, Queue, QueueStatus,
    Stats, Tasks, Turn, Why,
};
pub use status::age;

/// The time of questions that do not depend on it.
const ANY_TIME: UnixSeconds = UnixSeconds::MAX;
/// Most keys in one step of a listing.
const STEP: usize = 256;
const QUEUE_MAX: usize = 10_000;
/// Most keys that a walk along the order visits.
const WALK_MAX: usize = 1_000_000;
/// A listing ends once its payloads have this many bytes, because it is held in memory.
const PAYLOADS_MAX_BYTES: usize = 16 * 1024 * 1024;

/// Opens a moment of a queue, and waits for what is found there.
pub trait Opens: Send + Sync {
    type Found: Listings;

    /// Answers one question, as of one moment.
    ///
    /// # Errors
    /// If the queue does not exist, is not available, or cannot be read.
    fn ask<T>(
        &self,
        now: UnixSeconds,
        question: impl AsyncFnOnce(&mut Look<'_, Self::Found>) -> Result<T, Error<Self::Found>>,
    ) -> ReadResult<T>;

    /// The status of a queue that another program keeps.
    fn status_of_others(&self, _now: UnixSeconds) -> ReadResult<Option<QueueStatus>> {
        Ok(None)
    }
}

pub type Error<S> = <S as Listings>::Error;

impl<O: Opens> Reader for O {
    fn status(&self, now: UnixSeconds) -> ReadResult<QueueStatus> {
        match self.status_of_others(now)? {
            Some(status) => Ok(status),
            None => self.ask(now, async |look| look.status().await),
        }
    }

    fn why(&self, now: UnixSeconds, key: &str, count_max: usize) -> ReadResult<Option<Why>> {
        self.ask(now, async |look| look.why(key, count_max).await)
    }

    fn next_jobs(&self, now: UnixSeconds, count: usize) -> ReadResult<Queue> {
        self.ask(now, async |look| look.next_jobs(count).await)
    }

    fn ended_attempts(&self, asked: &EndedAttempts) -> ReadResult<Log> {
        self.ask(ANY_TIME, async |look| look.ended_attempts(asked).await)
    }

    fn ends_after(&self, after: Option<i64>, count: usize) -> ReadResult<Ends> {
        self.ask(ANY_TIME, async |look| look.ends_after(after, count).await)
    }

    fn tasks(&self, now: UnixSeconds, asked: &TasksWith) -> ReadResult<Tasks> {
        self.ask(now, async |look| look.tasks(asked).await)
    }

    fn jobs_by_minute(&self, now: UnixSeconds) -> ReadResult<Vec<MinuteJobs>> {
        self.ask(now, async |look| Ok(look.last_hour().await?.0))
    }

    fn stats(&self, asked: &StatsOf) -> ReadResult<Stats> {
        self.ask(ANY_TIME, async |look| look.stats(asked).await)
    }

    fn search(&self, prefix: &str, count: usize) -> ReadResult<Found> {
        self.ask(ANY_TIME, async |look| look.search(prefix, count).await)
    }

    fn select(
        &self,
        now: UnixSeconds,
        asked: &Selection,
        behind: Option<&Behind>,
    ) -> ReadResult<Selected> {
        self.ask(now, async |look| look.select(asked, behind).await)
    }

    fn fetchers(&self) -> ReadResult<Vec<String>> {
        self.ask(ANY_TIME, async |look| Ok(look.fetchers_known()))
    }

    fn groups(&self, now: UnixSeconds, count: usize) -> ReadResult<Groups> {
        self.ask(now, async |look| look.groups(count).await)
    }

    fn has_group(&self, name: &str) -> ReadResult<bool> {
        self.ask(ANY_TIME, async |look| Ok(look.group_of(GroupId::of(name)).await?.is_some()))
    }

    fn held(&self, count: usize) -> ReadResult<HeldKeys> {
        self.ask(ANY_TIME, async |look| look.held(count).await)
    }

    fn last_starts(&self) -> ReadResult<LastStarts> {
        self.ask(ANY_TIME, async |look| look.last_starts().await)
    }

    fn turns(&self, now: UnixSeconds, keys: &[Key]) -> ReadResult<Vec<Turn>> {
        self.ask(now, async |look| look.turns(keys).await)
    }

    fn listed(
        &self,
        now: UnixSeconds,
        take: &mut dyn FnMut(ListedKey) -> ControlFlow<()>,
    ) -> ReadResult<()> {
        self.ask(now, async |look| look.listed(take).await)
    }
}

/// A look at one moment of a queue, by the rules of the daemon that runs, or ran last.
pub struct Look<'s, S> {
    store: &'s mut S,
    head: Head,
    context: Context,
    /// What was found of groups.
    groups: HashMap<GroupId, Option<GroupRow>>,
}

impl<'s, S: Listings> Look<'s, S> {
    pub async fn at(store: &'s mut S, now: UnixSeconds) -> Result<Self, S::Error> {
        let head = store.head().await?;
        let settings = head.daemon.as_ref().map_or_else(Settings::default, Daemon::settings);
        let now = head.now.unwrap_or(now.saturating_mul(1_000));
        let mut context = head.header.context(&Arc::new(settings), now);
        context.holds = Arc::new(head.holds.clone());
        Ok(Self { store, head, context, groups: HashMap::new() })
    }

    fn name(&self, fetcher: FetcherId) -> String {
        self.context.fetcher(fetcher).to_string()
    }

    /// When a key was last started, for the order: a start that a clock ahead of time recorded counts as just now.
    fn last_start(&self, record: &Record) -> Option<UnixSeconds> {
        record.stands_at().map(|at| at.min(self.context.seconds()))
    }

    fn fetcher(&self, name: &str) -> Option<FetcherId> {
        if name == TASKS_FETCHER {
            return Some(FetcherId::TASKS);
        }
        let mut known = self.context.fetchers.iter().rev();
        known.find(|(_, known)| &***known == name).map(|(id, _)| *id)
    }

    async fn records(&mut self, ids: &[KeyId]) -> Result<Vec<Stored>, S::Error> {
        let found = self.records_of(ids.iter().map(|id| (*id, ())).collect()).await?;
        Ok(found.into_iter().map(|(stored, ())| stored).collect())
    }

    /// The records of keys, each with its companion value.
    async fn records_of<T>(&mut self, of: Vec<(KeyId, T)>) -> Result<Vec<(Stored, T)>, S::Error> {
        let ids: Vec<KeyId> = of.iter().map(|(id, _)| *id).collect();
        let found = self.store.records(&ids).await?.into_iter();
        let found: HashMap<KeyId, Stored> = found.map(|stored| (stored.id, stored)).collect();
        let with = |(id, it): (KeyId, T)| Some((found.get(&id)?.clone(), it));
        Ok(of.into_iter().filter_map(with).collect())
    }
}

struct Steps {
    along: Along,
    behind: Option<Spot>,
    is_all: bool,
}

impl Steps {
    fn new(along: Along) -> Self {
        Self { along, behind: None, is_all: false }
    }

    /// Keys that another program started so recently that it may still run them.
    fn claimed(context: &Context) -> Self {
        let over = context.seconds().saturating_sub(context.settings.lease_seconds);
        let behind = Some((over.saturating_sub(1), KeyId(i64::MAX)));
        Self { behind, ..Self::new(Along::Claimed) }
    }

    /// Keys after those of the last step; if fewer than `count`, there are no more.
    async fn next<S: Listings>(
        &mut self,
        look: &mut Look<'_, S>,
        count: usize,
    ) -> Result<Vec<KeyId>, S::Error> {
        let found = self.spots(look, count).await?;
        Ok(found.into_iter().map(|(_, id)| id).collect())
    }

    async fn records<S: Listings>(
        &mut self,
        look: &mut Look<'_, S>,
        count: usize,
    ) -> Result<Vec<Stored>, S::Error> {
        let step = self.next(look, count).await?;
        look.records(&step).await
    }

    async fn spots<S: Listings>(
        &mut self,
        look: &mut Look<'_, S>,
        count: usize,
    ) -> Result<Vec<Spot>, S::Error> {
        if self.is_all {
            return Ok(Vec::new());
        }
        let found = look.store.keys(self.along, self.behind, count).await?;
        self.is_all = found.len() < count;
        self.behind = found.last().copied().or(self.behind);
        Ok(found)
    }
}

/// Fetcher's run, or number, as it is shown.
fn run_of(task: Task) -> i64 {
    match task {
        Task::Row { run, .. } => run,
        Task::Single { number } => number,
    }
}

/// A task's payload; empty if it cannot be read.
fn text_of(payload: Payload) -> String {
    match payload {
        Payload::Text(text) => text,
        Payload::Missing | Payload::Damaged => String::new(),
    }
}

fn count_of(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
