//! A record: everything known of one key. Plain data, the same in memory, in every store, and on its way from one store
//! to another. The [rules](crate::rules) change it, the [engine](crate::engine) loads and saves it; nothing here
//! decides anything but what can be read off a record.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use shiftboss_protocol::model::{Attempt, Key, LeaseHolder, UnixSeconds};

use crate::groups::GroupId;

pub type Millis = i64;

/// A time or duration in whole seconds, for people.
pub(crate) fn seconds(time: Millis) -> UnixSeconds {
    time.div_euclid(1_000)
}

/// A fetcher, by the permanent number of its name in this queue. [`FetcherId::TASKS`] is that of single tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct FetcherId(pub i64);

impl FetcherId {
    pub const TASKS: Self = Self(0);
}

/// A task of a key: a row of a list, or a single task by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Task {
    Row { fetcher: FetcherId, run: i64 },
    Single { number: i64 },
}

impl Task {
    pub fn fetcher(self) -> FetcherId {
        match self {
            Self::Row { fetcher, .. } => fetcher,
            Self::Single { .. } => FetcherId::TASKS,
        }
    }
}

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    pub key: Key,
    /// Since when it has waited for its first start, in microseconds since 1970: keys that never ran are ordered by it.
    /// Kept until the key is forgotten. `Some(0)`: from a database that was taken over, or the order of `--classic`;
    /// `None`: never listed.
    pub since: Option<i64>,
    /// The last start and how it ended; `None`: it never ran.
    pub last: Option<LastRun>,
    /// Another program started it, by the last run, and may still run it: from a database that was taken over, or an
    /// edit of `log`. Kept for as long as a classic lease lasts.
    pub is_claimed: bool,
    pub flight: Option<Flight>,
    pub rows: Vec<ListRow>,
    /// The attempt with which each fetcher was last served. Fetchers that were never served are missing.
    pub served: BTreeMap<FetcherId, Attempt>,
    /// Those of them, but for single tasks, whose attempt ended with another code than 0.
    pub failed: BTreeSet<FetcherId>,
    pub singles: Singles,
    pub extras: Extras,
    /// The last attempt that ended and was not [undone](crate::attempt::Outcome::Undone); 0: none.
    pub last_attempt: Attempt,
}

/// The start of an attempt that ran, or runs (a row of `log`, spec 6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastRun {
    pub started: UnixSeconds,
    /// `None`: it is in flight, or another program started it and never recorded its end.
    pub finished: Option<UnixSeconds>,
    pub exit_code: Option<i64>,
}

impl LastRun {
    /// What is known of a key before a job that was out when its database was taken over: only that by its start every
    /// earlier run was over.
    pub fn over_by(started: UnixSeconds) -> Self {
        Self { started, finished: Some(started), exit_code: None }
    }

    /// It is not known how it ended, or whether it ran at all.
    pub fn is_over_by(&self) -> bool {
        *self == Self::over_by(self.started)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flight {
    pub attempt: Attempt,
    pub task: Task,
    /// `None`: a classic worker, which has no name and does not renew its lease.
    pub holder: Option<LeaseHolder>,
    pub started: Millis,
    /// The [member](crate::documents::Member) that keeps its lease, by its document's name; `None`: the daemon of a
    /// queue that has only one.
    pub owner: Option<Arc<str>>,
    /// The state that is restored if the hand-out is taken back.
    pub before: Before,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Short", into = "Short")]
pub struct Before {
    pub last: Option<LastRun>,
    pub served: Option<Attempt>,
    pub bump: Option<Bump>,
    pub ahead: Option<UnixSeconds>,
    /// The group that it counts in; this is not restored.
    pub group: Option<GroupId>,
    /// With a group, by how much the clock had been [set](crate::context::Context::clock) at its start.
    pub clock: Millis,
}

/// The written form, without names to save space: each hand-out writes one.
type Short = (
    Option<(UnixSeconds, Option<UnixSeconds>, Option<i64>)>,
    Option<Attempt>,
    Option<Bump>,
    Option<UnixSeconds>,
    Option<(GroupId, Millis)>,
);

impl From<Before> for Short {
    fn from(Before { last, served, bump, ahead, group, clock }: Before) -> Self {
        let last = last.map(|it| (it.started, it.finished, it.exit_code));
        (last, served, bump, ahead, group.map(|group| (group, clock)))
    }
}

impl From<Short> for Before {
    fn from((last, served, bump, ahead, group): Short) -> Self {
        let last =
            last.map(|(started, finished, exit_code)| LastRun { started, finished, exit_code });
        let (group, clock) = group.map_or((None, 0), |(group, clock)| (Some(group), clock));
        Self { last, served, bump, ahead, group, clock }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListRow {
    pub fetcher: FetcherId,
    pub run: i64,
    /// The key's [highest attempt](Record::highest) when the row was added, or put back: it waits if its fetcher was
    /// not served later.
    pub armed: Attempt,
    /// The last reading of its file that had it.
    pub reading: i64,
    pub group: Option<GroupId>,
    /// Only set for a row that must be written; otherwise it stays in the store until a dispatch needs it.
    pub payload: Option<String>,
}

impl ListRow {
    pub fn task(&self) -> Task {
        Task::Row { fetcher: self.fetcher, run: self.run }
    }
}

/// The single tasks of a key, counted: they themselves stay in the store.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Singles {
    /// Those that wait, without the one that is out.
    pub waiting: u64,
    pub failed: u64,
    pub dead: u64,
    /// The lowest number that waits. If `None` though some wait, it must be [loaded](Record::is_whole).
    pub first: Option<i64>,
    /// The group of the last one that was added: all have it.
    pub group: Option<GroupId>,
    /// Changes to the tasks in the store, in order.
    pub edits: Vec<SingleEdit>,
}

impl Singles {
    /// The payload of a task that is not added yet.
    pub fn added(&self, wanted: i64) -> Option<&String> {
        self.edits.iter().find_map(|edit| match edit {
            SingleEdit::Add { number, payload, .. } if *number == wanted => Some(payload),
            _ => None,
        })
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum SingleEdit {
    Add {
        number: i64,
        payload: String,
        id: Option<Arc<str>>,
    },
    Set {
        number: i64,
        status: SingleStatus,
    },
    /// It was added again, with an ID; it keeps the one that it may have.
    Name {
        number: i64,
        id: Arc<str>,
    },
}

/// Data that only few keys have: holds, delays, bumps, dead letters.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extras {
    pub hold: Option<Hold>,
    pub backoff: Option<Backoff>,
    pub bump: Option<Bump>,
    /// Tasks that failed and are tried again, one entry each.
    pub retries: Vec<Retry>,
    /// How many leases of tasks expired since they were last done.
    pub expired: Vec<(Task, u32)>,
    /// Rows that are dead letters, and single tasks that are dead letters for a reason other than their leases.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dead: Vec<(Task, DeadBecause)>,
    /// The worker of the attempt that is out asked that its task is not tried again before so many seconds after its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<(Attempt, u32)>,
    /// The attempt that is out, if it is to [stop](crate::rules::stops).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopping: Option<Attempt>,
    /// Its last start is from a clock that was ahead: it stands here in the order instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ahead: Option<UnixSeconds>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeadBecause {
    Leases,
    /// Its payload cannot be read.
    Payload,
}

impl Extras {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// When something is due, and its delay from when it was set: however clocks step, it takes no longer than that.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Due {
    pub at: Millis,
    pub delay: Millis,
    /// By how much the clock had been [set](crate::records::Header::clock) in all at that time.
    #[serde(default)]
    pub clock: Millis,
}

impl Due {
    pub fn is_over(self, now: Millis) -> bool {
        self.at <= now
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hold {
    pub since: UnixSeconds,
    /// `None`: until it is ended.
    pub until: Option<Due>,
    pub reason: String,
    pub by: Arc<str>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Backoff {
    pub failures: u32,
    pub until: Option<Due>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bump {
    pub number: i64,
    pub since: UnixSeconds,
    pub by: Arc<str>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retry {
    pub task: Task,
    /// Number of this retry, from 1 on.
    pub number: u32,
    /// `None`: its time has come, and it waits.
    pub due: Option<Due>,
    /// Its place in the lane when it waits.
    pub lane: i64,
}

/// The status of a single task. One that succeeded, or was cancelled, is only kept for its ID, and then deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum SingleStatus {
    Waiting,
    InFlight,
    Done,
    Failed,
    DeadLetter,
    Cancelled,
}

pub const STATUSES: [(SingleStatus, &str); 6] = [
    (SingleStatus::Waiting, "waiting"),
    (SingleStatus::InFlight, "in_flight"),
    (SingleStatus::Done, "done"),
    (SingleStatus::Failed, "failed"),
    (SingleStatus::DeadLetter, "dead_letter"),
    (SingleStatus::Cancelled, "cancelled"),
];

impl SingleStatus {
    /// Whether it is only kept for its ID.
    pub fn is_over(self) -> bool {
        matches!(self, Self::Done | Self::Cancelled)
    }

    pub fn word(self) -> &'static str {
        STATUSES.iter().find(|(status, _)| *status == self).map_or("", |(_, word)| word)
    }

    pub fn of_word(word: &str) -> Option<Self> {
        STATUSES.iter().find(|(_, known)| *known == word).map(|(status, _)| *status)
    }
}

impl Record {
    /// The form that a store keeps: payloads and single tasks are written separately.
    #[must_use]
    pub fn as_kept(mut self) -> Self {
        self.rows.iter_mut().for_each(|row| row.payload = None);
        self.singles.edits = Vec::new();
        self
    }

    pub fn new(key: Key) -> Self {
        Self {
            key,
            since: None,
            last: None,
            is_claimed: false,
            flight: None,
            rows: Vec::new(),
            served: BTreeMap::new(),
            failed: BTreeSet::new(),
            singles: Singles::default(),
            extras: Extras::default(),
            last_attempt: Attempt(0),
        }
    }

    /// The time of its last start that counts in the order.
    pub fn stands_at(&self) -> Option<UnixSeconds> {
        self.last.map(|last| self.extras.ahead.unwrap_or(last.started))
    }

    pub(crate) fn set_last(&mut self, last: LastRun) {
        (self.last, self.extras.ahead) = (Some(last), None);
    }

    pub fn is_new(&self) -> bool {
        self.since.is_none() && self.last.is_none() && *self == Self::new(self.key.clone())
    }

    /// The attempt with which a fetcher was last served; 0: never.
    pub fn served(&self, fetcher: FetcherId) -> Attempt {
        self.served.get(&fetcher).copied().unwrap_or(Attempt(0))
    }

    /// How the attempt ended with which this fetcher was served last.
    pub(crate) fn set_failed(&mut self, fetcher: FetcherId, has_failed: bool) {
        match has_failed && fetcher != FetcherId::TASKS {
            true => self.failed.insert(fetcher),
            false => self.failed.remove(&fetcher),
        };
    }

    /// The end of the last attempt was corrected.
    pub fn set_last_failed(&mut self, has_failed: bool) {
        let last = self.last_attempt;
        // Of a database that was taken over no attempt is known: what was served ended as the log says.
        let is_last = |it: Attempt| it == last || last == Attempt(0);
        let served = self.served.iter().filter(|(_, attempt)| is_last(**attempt));
        let fetchers: Vec<FetcherId> = served.map(|(fetcher, _)| *fetcher).collect();
        fetchers.into_iter().for_each(|fetcher| self.set_failed(fetcher, has_failed));
    }

    /// The row of each fetcher's newest run; no other row counts.
    pub fn newest_rows(&self) -> impl Iterator<Item = &ListRow> {
        self.rows.chunk_by(|one, other| one.fetcher == other.fetcher).filter_map(<[_]>::last)
    }

    pub fn row(&self, fetcher: FetcherId, run: i64) -> Option<&ListRow> {
        self.rows.iter().find(|row| (row.fetcher, row.run) == (fetcher, run))
    }

    /// Whether a row was put into the queue since its fetcher was last served. A row of an older run may be armed, too,
    /// but is hidden.
    pub fn is_armed(&self, row: &ListRow) -> bool {
        row.armed >= self.served(row.fetcher)
    }

    /// The highest attempt of the key that has served a fetcher, or still may by a late result; 0: none. What is armed
    /// with it waits for the key's next attempt. It is the key's own number, not the queue's: daemons that share a
    /// queue do not know the last attempt of the whole queue.
    pub fn highest(&self) -> Attempt {
        self.served.values().copied().max().unwrap_or(Attempt(0)).max(self.last_attempt)
    }

    /// Makes a row wait from the key's last attempt on.
    pub(crate) fn arm(&mut self, task: Task) {
        let last = self.highest();
        if let Some(row) = self.rows.iter_mut().find(|row| row.task() == task) {
            row.armed = last;
        }
    }

    /// Rows for which `is_meant` is true no longer wait: their fetcher was served with this attempt.
    pub(crate) fn disarm(&mut self, served: Attempt, is_meant: impl Fn(&ListRow) -> bool) {
        for row in self.rows.iter_mut().filter(|row| is_meant(row)) {
            row.armed = row.armed.min(Attempt(served.0.saturating_sub(1)));
        }
    }

    /// The rows and the first single task that wait, whether their key is free or not. If the record is not
    /// [whole](Self::is_whole), the single task is missing.
    pub fn waiting(&self) -> impl Iterator<Item = Task> {
        let rows = self.newest_rows().filter(|row| self.is_armed(row)).map(ListRow::task);
        rows.chain(self.singles.first.map(|number| Task::Single { number }))
    }

    pub fn waiting_fetchers(&self) -> impl Iterator<Item = FetcherId> {
        let rows = self.newest_rows().filter(|row| self.is_armed(row)).map(|row| row.fetcher);
        rows.chain((self.singles.waiting > 0).then_some(FetcherId::TASKS))
    }

    pub fn waits(&self, task: Task) -> bool {
        match task {
            Task::Row { .. } => self.waiting().any(|waiting| waiting == task),
            // The first of them is not always known.
            Task::Single { .. } => self.singles.waiting > 0,
        }
    }

    /// A list or a single task has it.
    pub fn is_listed(&self) -> bool {
        !self.rows.is_empty() || self.has_singles()
    }

    /// It has single tasks that are not over.
    pub fn has_singles(&self) -> bool {
        let Singles { waiting, failed, dead, .. } = &self.singles;
        let is_out = matches!(&self.flight, Some(it) if it.task.fetcher() == FetcherId::TASKS);
        [waiting, failed, dead] != [&0; 3] || is_out
    }

    /// No list and no single task has it, no worker, and no hold: it stays only for its last run.
    pub fn is_unlisted(&self) -> bool {
        !self.is_listed() && self.flight.is_none() && !self.is_on_hold()
    }

    /// Whether its first single task is known; if not, save and load it again before another rule sees it.
    pub fn is_whole(&self) -> bool {
        self.singles.waiting == 0 || self.singles.first.is_some()
    }

    /// Whether a task still exists: the row of a newest run, or a single task, which is always removed together with
    /// its extras.
    pub fn has(&self, task: Task) -> bool {
        match task {
            Task::Single { .. } => true,
            Task::Row { .. } => self.newest_rows().any(|row| row.task() == task),
        }
    }
}
