//! Tasks by status, or of all that are not done, with the reason: the question of `tasks`, and what `retry --failed` puts back.
//!
//! Waiting tasks are listed in their order, and then those that wait while their key is out or held; each other status
//! has an index of its few keys. The record decides about what is found there.

use shiftboss_protocol::model::UnixSeconds;

use super::{Look, QUEUE_MAX, STEP, Steps, run_of, seconds};
use crate::groups::GroupId;
use crate::listings::{Along, Listings};
use crate::outcome_words::{in_words, of_code};
use crate::reader::TasksWith;
use crate::record::{DeadBecause, FetcherId, Millis, Record, SingleStatus, Task};
use crate::records::{KeyId, Stored};
use crate::rules::completion::expired_leases;
use crate::rules::dispatch::{Scope, next_task};
use crate::waits;
use shiftboss_protocol::answers::{Retry, Task as Shown, TaskStatus, Tasks};

/// Most steps of a listing: at least the first number, and the second for each step's worth of tasks asked for. After
/// them there may be more.
const STEPS_MIN: usize = 20;
const STEPS_FOR_EACH: usize = 10;

/// Why a task waits whose key is ready.
const ITS_TURN: &str = "its turn comes";

/// The order in which tasks of all statuses are listed.
const IN_TURN: [TaskStatus; 5] = [
    TaskStatus::InFlight,
    TaskStatus::Failed,
    TaskStatus::DeadLetter,
    TaskStatus::Delayed,
    TaskStatus::Waiting,
];

/// What is asked for, and what was found.
pub(super) struct Listing {
    status: TaskStatus,
    pub(super) fetcher: Option<FetcherId>,
    group: Option<GroupId>,
    pub(super) since: UnixSeconds,
    /// One more than asked for: if it is reached, there are more.
    limit: usize,
    pub(super) tasks: Vec<Shown>,
    /// Steps that are still allowed.
    steps: usize,
}

impl Listing {
    pub(super) fn wants(&self, record: &Record, task: Task) -> bool {
        let out = record.flight.as_ref().filter(|flight| flight.task == task);
        let of_task = || out.map_or_else(|| record.group_of(task.fetcher()), |it| it.before.group);
        self.wants_of(task.fetcher()) && self.group.is_none_or(|only| of_task() == Some(only))
    }

    pub(super) fn wants_of(&self, fetcher: FetcherId) -> bool {
        self.fetcher.is_none_or(|only| only == fetcher)
    }

    /// Whether there is room for another step.
    pub(super) fn goes_on(&mut self) -> bool {
        self.steps = self.steps.saturating_sub(1);
        self.tasks.len() < self.limit && self.steps > 0
    }
}

impl<S: Listings> Look<'_, S> {
    pub(super) async fn tasks(&mut self, asked: &TasksWith) -> Result<Tasks, S::Error> {
        let (mut tasks, mut truncated) = (Vec::new(), false);
        for status in asked.status.map_or(IN_TURN.to_vec(), |status| vec![status]) {
            let count = asked.count.saturating_sub(tasks.len());
            let (more, is_cut) = self.tasks_with(status, asked, count).await?;
            tasks.extend(more);
            truncated |= is_cut;
        }
        Ok(Tasks { status: asked.status, tasks, truncated })
    }

    /// Tasks with a status, and whether there are more.
    async fn tasks_with(
        &mut self,
        status: TaskStatus,
        asked: &TasksWith,
        count: usize,
    ) -> Result<(Vec<Shown>, bool), S::Error> {
        // An unknown fetcher has no tasks.
        let fetcher = asked.fetcher.as_ref().map(|name| self.fetcher(name));
        let mut listing = Listing {
            status,
            fetcher: fetcher.flatten(),
            group: asked.group.as_deref().map(GroupId::of),
            since: asked.since.unwrap_or(i64::MIN),
            limit: count.saturating_add(1),
            tasks: Vec::new(),
            steps: STEPS_MIN.max(count / STEP * STEPS_FOR_EACH),
        };
        if fetcher != Some(None) {
            match status {
                TaskStatus::Waiting => self.waiting(&mut listing).await?,
                TaskStatus::InFlight => self.in_flight(&mut listing).await?,
                TaskStatus::Delayed => self.delayed(&mut listing).await?,
                TaskStatus::Failed => self.failed(&mut listing).await?,
                TaskStatus::DeadLetter => self.dead_letters(&mut listing).await?,
            }
        }
        let Listing { mut tasks, steps, .. } = listing;
        let is_cut = tasks.len() > count || steps == 0;
        tasks.truncate(count);
        Ok((tasks, is_cut))
    }

    pub(super) fn shown(
        &self,
        listing: &Listing,
        record: &Record,
        task: Task,
        since: Option<i64>,
        reason: String,
    ) -> Shown {
        let key = record.key.to_string();
        let (fetcher, run) = (self.name(task.fetcher()), run_of(task));
        Shown { key, status: listing.status, fetcher, run, since, reason, due: None }
    }

    /// Tasks of keys that are ready, in the order of their turns; then those of keys that are out, or held.
    async fn waiting(&mut self, listing: &mut Listing) -> Result<(), S::Error> {
        // For one fetcher, only its tasks among the next jobs.
        let mut left = if listing.fetcher.is_some() { QUEUE_MAX } else { listing.limit };
        let mut walk = match listing.group {
            Some(group) => self.walk_in(group, left),
            None => self.walk(left).await?,
        };
        while left > 0 && listing.tasks.len() < listing.limit {
            let count = STEP.min(left);
            let step = walk.take(self, count).await?;
            for stored in self.records(&step).await? {
                self.waiting_of(listing, &stored, ITS_TURN).await?;
            }
            left = if step.len() < count { 0 } else { left - count };
        }
        for mut steps in [Steps::new(Along::Out), Steps::claimed(&self.context)] {
            while !steps.is_all && listing.goes_on() {
                for stored in steps.records(self, STEP).await? {
                    if stored.record.is_in_flight(&self.context) {
                        self.waiting_of(listing, &stored, "its key is in flight").await?;
                    }
                }
            }
        }
        for along in [Along::Held, Along::BackedOff] {
            let left = listing.limit.saturating_sub(listing.tasks.len());
            for stored in Steps::new(along).records(self, left).await? {
                let is_met = along == Along::BackedOff && stored.record.extras.hold.is_some();
                if !is_met && !stored.record.is_in_flight(&self.context) {
                    self.waiting_of(listing, &stored, "its key is held").await?;
                }
            }
        }
        Ok(())
    }

    /// The tasks of a key that wait, the next one first.
    async fn waiting_of(
        &mut self,
        listing: &mut Listing,
        stored: &Stored,
        why: &str,
    ) -> Result<(), S::Error> {
        let record = &stored.record;
        let next = next_task(record, &Scope::All, &self.context);
        let rows = record.waiting().filter(|task| matches!(task, Task::Row { .. }));
        let rows = rows.filter(|task| !self.context.is_going(*task));
        let mut tasks: Vec<Task> =
            next.into_iter().chain(rows.filter(|it| Some(*it) != next)).collect();
        if record.singles.waiting > 0 && listing.wants_of(FetcherId::TASKS) {
            let numbers = match record.singles {
                ref it if it.waiting == 1 => it.first.into_iter().collect(),
                _ => {
                    let waiting = SingleStatus::Waiting;
                    self.store.singles_of(stored.id, waiting, listing.limit).await?
                }
            };
            let singles = numbers.into_iter().map(|number| Task::Single { number });
            tasks.extend(singles.filter(|it| Some(*it) != next));
        }
        let since = self.last_start(record);
        tasks.retain(|task| listing.wants(record, *task));
        for task in tasks {
            let closed = match record.group_of(task.fetcher()).filter(|_| why == ITS_TURN) {
                Some(group) => self.closed(group).await?,
                None => None,
            };
            let lost = expired_leases(record, task) > 0 && why == ITS_TURN;
            let lost = lost.then(|| "its lease expired".to_owned());
            let reason = closed.or(lost).unwrap_or_else(|| why.to_owned());
            let shown = self.shown(listing, record, task, since, reason);
            listing.tasks.push(shown);
        }
        Ok(())
    }

    /// The one that has been out longest first.
    async fn in_flight(&mut self, listing: &mut Listing) -> Result<(), S::Error> {
        let mut steps = Steps::new(Along::Out);
        while !steps.is_all && listing.goes_on() {
            for Stored { record, .. } in steps.records(self, STEP).await? {
                let Some(flight) = &record.flight else { continue };
                let started = seconds(flight.started);
                let is_wanted = listing.wants(&record, flight.task) && started >= listing.since;
                if is_wanted && record.is_in_flight(&self.context) {
                    let worker =
                        flight.holder.as_ref().map_or("a classic worker", |it| &*it.worker);
                    let reason = format!("{worker}, attempt {}", flight.attempt.0);
                    let shown = self.shown(listing, &record, flight.task, Some(started), reason);
                    listing.tasks.push(shown);
                }
            }
        }
        Ok(())
    }

    /// The one that is due first comes first. A key may have several, and they are not listed together.
    async fn delayed(&mut self, listing: &mut Listing) -> Result<(), S::Error> {
        let (mut found, mut steps) = (Vec::new(), Steps::new(Along::Delayed));
        while !steps.is_all && listing.goes_on() {
            for Stored { record, .. } in steps.records(self, STEP).await? {
                self.delayed_of(listing, &mut found, &record).await?;
            }
            let last = steps.behind.map_or(i64::MAX, |(due, _)| due);
            if found.iter().filter(|(due, _)| *due <= last).count() >= listing.limit {
                break;
            }
        }
        found.sort_by(|one, other| (one.0, &one.1.key).cmp(&(other.0, &other.1.key)));
        listing.tasks = found.into_iter().map(|(_, task)| task).collect();
        Ok(())
    }

    async fn delayed_of(
        &mut self,
        listing: &Listing,
        found: &mut Vec<(Millis, Shown)>,
        record: &Record,
    ) -> Result<(), S::Error> {
        for it in &record.extras.retries {
            let is_wanted = listing.wants(record, it.task) && !self.context.is_going(it.task);
            let Some(due) = it.due.filter(|_| is_wanted) else { continue };
            let due = self.context.followed(due);
            let since = seconds(due.begun());
            if since < listing.since {
                continue;
            }
            let end = match it.task {
                Task::Row { fetcher, .. } => {
                    self.end_of(record, record.served(fetcher), it.task).await?
                }
                Task::Single { number } => self.ends_of_singles(record).await?.remove(&number),
            };
            let retry = Retry { due: seconds(due.at), retries: it.number };
            let code = end.and_then(|end| end.exit_code);
            let reason = delayed(code, retry, self.context.seconds());
            let shown = self.shown(listing, record, it.task, Some(since), reason);
            found.push((due.at, Shown { due: Some(retry.due), ..shown }));
        }
        Ok(())
    }

    /// Rows first, then single tasks.
    async fn dead_letters(&mut self, listing: &mut Listing) -> Result<(), S::Error> {
        let mut dead = Vec::new();
        for stored in Steps::new(Along::Dead).records(self, listing.limit).await? {
            let tasks: Vec<Task> = stored.record.extras.dead.iter().map(|it| it.0).collect();
            let rows = tasks.into_iter().filter(|task| matches!(task, Task::Row { .. }));
            dead.extend(rows.map(|task| (stored.clone(), task)));
        }
        dead.extend(self.singles(listing, SingleStatus::DeadLetter, 0).await?);
        for (Stored { record, .. }, task) in dead {
            if listing.wants(&record, task) && !self.context.is_going(task) {
                let why = match record.dead_because(task) {
                    Some(DeadBecause::Payload) => "what it is cannot be read".to_owned(),
                    _ => format!("{} leases expired", expired_leases(&record, task)),
                };
                let shown = self.shown(listing, &record, task, None, why);
                listing.tasks.push(shown);
            }
        }
        Ok(())
    }

    /// One step of single tasks that ended with this status, after a number, with the records of their keys.
    pub(super) async fn singles(
        &mut self,
        listing: &Listing,
        status: SingleStatus,
        behind: i64,
    ) -> Result<Vec<(Stored, Task)>, S::Error> {
        if !listing.wants_of(FetcherId::TASKS) {
            return Ok(Vec::new());
        }
        let found = self.store.singles(status, behind, STEP.max(listing.limit)).await?;
        let of = |(number, key): (i64, KeyId)| (key, Task::Single { number });
        self.records_of(found.into_iter().map(of).collect()).await
    }
}

/// Why a task counts as failed. After a single task, another one of its key may have run since.
pub(super) fn failure(exit_code: Option<i64>) -> String {
    match of_code(exit_code.unwrap_or(0)) {
        "success" => "failure".to_owned(),
        end => in_words(end, exit_code),
    }
}

/// Why a task is delayed, and for how long.
fn delayed(exit_code: Option<i64>, retry: Retry, now: UnixSeconds) -> String {
    let (why, retries) = (failure(exit_code), retry.retries);
    match retry.due > now {
        true => format!("{why}; retry {retries} {}", waits::until(retry.due, now)),
        false => format!("{why}; retry {retries} is due"),
    }
}
