//! Tasks by status, with the reason: the question of `tasks`, and what `retry --failed` puts back.
//!
//! What waits is walked in its order, and behind it those that wait while their key is out or held; all else has an index of
//! those few keys. What is found there is asked of the record.

use rusqlite::Result;
use shiftboss_protocol::model::{Attempt, UnixSeconds};
use shiftboss_queue::answers::{Retry, Task as Shown, TaskStatus, Tasks};
use shiftboss_queue::reader::TasksWith;
use shiftboss_queue::record::{DeadBecause, FetcherId, Millis, Record, Task};
use shiftboss_queue::records::{KeyId, Stored};
use shiftboss_queue::rules::completion::expired_leases;
use shiftboss_queue::rules::dispatch::{Scope, next_task};
use shiftboss_queue::views::{QUEUE_MAX, cut, delayed};

use super::{Look, limit, run_of, seconds};
use crate::ask::Ask;

/// Keys that are looked at in one step of a listing.
pub(super) const STEP: usize = 256;
/// Steps of a listing: at least so many, and so many for each step that is asked for. Behind them, as far as it can tell, may be more.
const STEPS_MIN: usize = 20;
const STEPS_FOR_EACH: usize = 10;

const HAS_SINGLES: &str = "SELECT waiting > 0 FROM keys WHERE id = ?1";
const HAS_ROWS: &str = "SELECT EXISTS (SELECT 1 FROM rows WHERE key = ?1 AND fetcher = ?2)";
const WAITING_OF: &str =
    "SELECT number FROM tasks WHERE key = ?1 AND status = 'waiting' ORDER BY number LIMIT ?2";
const HELD: &str = "SELECT key FROM extras WHERE held IS NOT NULL ORDER BY held, key LIMIT ?1";
const BACKED_OFF: &str =
    "SELECT key FROM extras WHERE backed_off IS NOT NULL ORDER BY backed_off, key LIMIT ?1";
const DELAYED: &str = "SELECT key FROM extras
    WHERE delayed IS NOT NULL AND (delayed, key) > (?1, ?2) ORDER BY delayed, key LIMIT ?3";
const DEAD: &str = "SELECT key FROM extras WHERE dead = 1 ORDER BY key LIMIT ?1";
const ENDED_SINGLES: &str = "SELECT number, key FROM tasks
    WHERE status = ?1 AND status IN ('failed', 'dead_letter') AND number > ?2 ORDER BY number LIMIT ?3";

/// What is asked for, and what is found of it.
pub(super) struct Listing {
    pub(super) fetcher: Option<FetcherId>,
    pub(super) since: UnixSeconds,
    /// One more than is asked for tells that there are more.
    limit: usize,
    pub(super) tasks: Vec<Shown>,
    /// That may be looked at still.
    steps: usize,
}

impl Listing {
    pub(super) fn wants(&self, fetcher: FetcherId) -> bool {
        self.fetcher.is_none_or(|only| only == fetcher)
    }

    /// Whether there is room for another step.
    pub(super) fn goes_on(&mut self) -> bool {
        self.steps = self.steps.saturating_sub(1);
        self.tasks.len() < self.limit && self.steps > 0
    }
}

impl Look<'_> {
    pub(super) fn tasks(&mut self, asked: &TasksWith) -> Result<Tasks> {
        // Nobody has a name that is not known.
        let fetcher = asked.fetcher.as_ref().map(|name| self.fetcher(name));
        let mut listing = Listing {
            fetcher: fetcher.flatten(),
            since: asked.since.unwrap_or(i64::MIN),
            limit: asked.count.saturating_add(1),
            tasks: Vec::new(),
            steps: STEPS_MIN.max(asked.count / STEP * STEPS_FOR_EACH),
        };
        if fetcher != Some(None) {
            match asked.status {
                TaskStatus::Waiting => self.waiting(&mut listing)?,
                TaskStatus::InFlight => self.in_flight(&mut listing)?,
                TaskStatus::Delayed => self.delayed(&mut listing)?,
                TaskStatus::Failed => self.failed(&mut listing)?,
                TaskStatus::DeadLetter => self.dead_letters(&mut listing)?,
            }
        }
        let mut tasks = cut(asked.status, listing.tasks, asked.count);
        tasks.truncated |= listing.steps == 0;
        Ok(tasks)
    }

    pub(super) fn shown(
        &self,
        record: &Record,
        task: Task,
        since: Option<i64>,
        reason: String,
    ) -> Shown {
        let key = record.key.to_string();
        let (fetcher, run) = (self.name(task.fetcher()), run_of(task));
        Shown { key, fetcher, run, since, reason, due: None }
    }

    /// Those of keys that are ready, in the order of their turns; then those of keys that are out, or held.
    fn waiting(&mut self, listing: &mut Listing) -> Result<()> {
        // Of one fetcher those among the next jobs.
        let keys_max = if listing.fetcher.is_some() { QUEUE_MAX } else { listing.limit };
        let mut keys = 0;
        self.walk(keys_max, |look, key| {
            if look.may_have(key, listing.fetcher)?
                && let Some(stored) = look.loader.by_id(key)?
            {
                look.waiting_of(listing, &stored, "its turn comes")?;
            }
            keys += 1;
            Ok(listing.tasks.len() < listing.limit && keys < keys_max)
        })?;
        let mut behind: Option<Stored> = None;
        while listing.goes_on() {
            let step = self.with_somebody(behind.as_ref())?;
            for stored in step.iter().filter(|it| it.record.is_in_flight(&self.context)) {
                self.waiting_of(listing, stored, "its key is in flight")?;
            }
            let Some(last) = step.into_iter().next_back() else { break };
            behind = Some(last);
        }
        for sql in [HELD, BACKED_OFF] {
            let left = listing.limit.saturating_sub(listing.tasks.len());
            for stored in self.loader.of_ids(sql, [limit(left)])? {
                let is_met = sql == BACKED_OFF && stored.record.extras.hold.is_some();
                if !is_met && !stored.record.is_in_flight(&self.context) {
                    self.waiting_of(listing, &stored, "its key is held")?;
                }
            }
        }
        Ok(())
    }

    /// Whether a key may have a task of a fetcher: asked of many that have none, it is cheaper than their records.
    fn may_have(&self, KeyId(key): KeyId, fetcher: Option<FetcherId>) -> Result<bool> {
        match fetcher {
            None => Ok(true),
            Some(FetcherId::TASKS) => self.connection.value(HAS_SINGLES, [key]),
            Some(FetcherId(fetcher)) => self.connection.value(HAS_ROWS, (key, fetcher)),
        }
    }

    /// Keys that somebody has, behind one of them: those that are out, and then those that somebody else started.
    fn with_somebody(&mut self, behind: Option<&Stored>) -> Result<Vec<Stored>> {
        let out = behind.map(|it| it.record.flight.as_ref().map(|flight| flight.attempt));
        if let None | Some(Some(_)) = out {
            let step = self.loader.in_flight(out.flatten().unwrap_or(Attempt(0)), STEP)?;
            if !step.is_empty() {
                return Ok(step);
            }
        }
        let behind = behind.filter(|it| it.record.flight.is_none());
        self.loader.claimed(behind, STEP)
    }

    /// The tasks of a key that wait, the next one first.
    fn waiting_of(&self, listing: &mut Listing, stored: &Stored, why: &str) -> Result<()> {
        let record = &stored.record;
        let next = next_task(record, &Scope::All, &self.context);
        let rows = record.waiting().filter(|task| matches!(task, Task::Row { .. }));
        let rows = rows.filter(|task| !self.context.is_going(*task));
        let mut tasks: Vec<Task> =
            next.into_iter().chain(rows.filter(|it| Some(*it) != next)).collect();
        if record.singles.waiting > 0 && listing.wants(FetcherId::TASKS) {
            let values = (stored.id.0, limit(listing.limit));
            let numbers: Vec<i64> = self.connection.values(WAITING_OF, values)?;
            let singles = numbers.into_iter().map(|number| Task::Single { number });
            tasks.extend(singles.filter(|it| Some(*it) != next));
        }
        let since = self.last_start(record);
        tasks.retain(|task| listing.wants(task.fetcher()));
        for task in tasks {
            let again = expired_leases(record, task) > 0 && why == "its turn comes";
            let reason = if again { "its lease expired" } else { why };
            listing.tasks.push(self.shown(record, task, since, reason.to_owned()));
        }
        Ok(())
    }

    /// The one that is out for longest first.
    fn in_flight(&mut self, listing: &mut Listing) -> Result<()> {
        let mut behind = Attempt(0);
        while listing.goes_on() {
            let out = self.loader.in_flight(behind, STEP)?;
            for stored in &out {
                let record = &stored.record;
                let Some(flight) = &record.flight else { continue };
                behind = flight.attempt;
                let started = seconds(flight.started);
                let is_wanted = listing.wants(flight.task.fetcher()) && started >= listing.since;
                if is_wanted && record.is_in_flight(&self.context) {
                    let worker =
                        flight.holder.as_ref().map_or("a classic worker", |it| &*it.worker);
                    let reason = format!("{worker}, attempt {}", flight.attempt.0);
                    listing.tasks.push(self.shown(record, flight.task, Some(started), reason));
                }
            }
            if out.len() < STEP {
                break;
            }
        }
        Ok(())
    }

    /// The one that is due first comes first. Of a key there may be several, which are not beside each other.
    fn delayed(&mut self, listing: &mut Listing) -> Result<()> {
        let (mut found, mut behind) = (Vec::new(), (Millis::MIN, i64::MIN));
        while listing.goes_on() {
            let step = self.loader.of_ids(DELAYED, (behind.0, behind.1, limit(STEP)))?;
            for stored in &step {
                self.delayed_of(listing, &mut found, &stored.record)?;
            }
            let last = step.last().and_then(|it| Some((it.record.first_delay()?.at, it.id.0)));
            let Some(last) = last.filter(|_| step.len() == STEP) else { break };
            behind = last;
            if found.iter().filter(|(due, _)| *due <= last.0).count() >= listing.limit {
                break;
            }
        }
        found.sort_by(|one, other| (one.0, &one.1.key).cmp(&(other.0, &other.1.key)));
        listing.tasks = found.into_iter().map(|(_, task)| task).collect();
        Ok(())
    }

    fn delayed_of(
        &self,
        listing: &Listing,
        found: &mut Vec<(Millis, Shown)>,
        record: &Record,
    ) -> Result<()> {
        let is_wanted = |task: Task| listing.wants(task.fetcher()) && !self.context.is_going(task);
        for it in record.extras.retries.iter().filter(|it| is_wanted(it.task)) {
            let Some(due) = it.due else { continue };
            let due = self.context.followed(due);
            let since = seconds(due.begun());
            if since < listing.since {
                continue;
            }
            let end = match it.task {
                Task::Row { fetcher, .. } => {
                    self.end_of(record, record.served(fetcher), it.task)?
                }
                Task::Single { number } => self.ends_of_singles(record)?.remove(&number),
            };
            let retry = Retry { due: seconds(due.at), retries: it.number };
            let code = end.and_then(|end| end.exit_code);
            let reason = delayed(code, retry, self.context.seconds());
            let shown = self.shown(record, it.task, Some(since), reason);
            found.push((due.at, Shown { due: Some(retry.due), ..shown }));
        }
        Ok(())
    }

    /// Rows first, then single tasks.
    fn dead_letters(&mut self, listing: &mut Listing) -> Result<()> {
        let mut dead = Vec::new();
        for stored in self.loader.of_ids(DEAD, [limit(listing.limit)])? {
            let tasks: Vec<Task> = stored.record.extras.dead.iter().map(|it| it.0).collect();
            let rows = tasks.into_iter().filter(|task| matches!(task, Task::Row { .. }));
            dead.extend(rows.map(|task| (task, stored.clone())));
        }
        dead.extend(self.singles(listing, "dead_letter", 0)?);
        for (task, Stored { record, .. }) in dead {
            if listing.wants(task.fetcher()) && !self.context.is_going(task) {
                let why = match record.dead_because(task) {
                    Some(DeadBecause::Payload) => "what it is cannot be read".to_owned(),
                    _ => format!("{} leases expired", expired_leases(&record, task)),
                };
                listing.tasks.push(self.shown(&record, task, None, why));
            }
        }
        Ok(())
    }

    /// Single tasks that ended so, behind a number, with the records of their keys; a step of them.
    pub(super) fn singles(
        &mut self,
        listing: &Listing,
        status: &str,
        behind: i64,
    ) -> Result<Vec<(Task, Stored)>> {
        if !listing.wants(FetcherId::TASKS) {
            return Ok(Vec::new());
        }
        let values = (status, behind, limit(STEP.max(listing.limit)));
        let read = |row: &rusqlite::Row<'_>| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?));
        let mut singles = Vec::new();
        for (number, key) in self.connection.rows(ENDED_SINGLES, values, read)? {
            let stored = self.loader.by_id(KeyId(key))?;
            singles.extend(stored.map(|stored| (Task::Single { number }, stored)));
        }
        Ok(singles)
    }
}
