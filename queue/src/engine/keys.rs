//! Operations on one key: find its record, apply a rule, and make the answer from the rule's effect.

use std::sync::Arc;

use shiftboss_protocol::model::{Attempt, Key, Row};

use super::{Batch, Carried, used_up};
use crate::attempt::{EndedAttempt, Outcome};
use crate::credit::BUMPS_MAX;
use crate::error::Rejected;
use crate::operation::{
    Ack, Added, Bump, Bumped, Cancelled, Complete, CompleteAttempt, ExpiredLease, Forgotten,
    HOLDS_MAX, Held, Hold, JobEnd, Requeued, Retried, Retry, Stopped, Undo,
};
use crate::place::Line;
use crate::record::{FetcherId, Flight, SingleStatus, Singles, Task};
use crate::records::{Edit, From, Name, Records, StoreResult, Stored};
use crate::rules::dispatch::Scope;
use crate::rules::{
    bumps, completion, dispatch, edits, holds, leases, lists, retries, singles, stops,
};

/// Most single tasks of one key that are cancelled or put back at once: a request waits for no more of them.
const SINGLES_AT_ONCE: usize = 10_000;
const ENDED: [SingleStatus; 2] = [SingleStatus::Failed, SingleStatus::DeadLetter];
const NOT_OUT: [SingleStatus; 3] =
    [SingleStatus::Waiting, SingleStatus::Failed, SingleStatus::DeadLetter];

impl<S: Records> Batch<'_, S> {
    /// The slot of a key's record, which is whole.
    pub(super) async fn slot(&mut self, key: Key) -> StoreResult<usize> {
        if let Some(slot) = self.desk.slot_of(&key) {
            return self.whole(slot).await;
        }
        self.bring(&[Name::Key(key.clone())]).await?;
        Ok(self.desk.slot_of(&key).unwrap_or_else(|| self.desk.put_new(key)))
    }

    /// The slot of a whole record: if it is not whole, it is written and loaded again.
    pub(super) async fn whole(&mut self, slot: usize) -> StoreResult<usize> {
        if self.desk.record(slot).is_whole() {
            return Ok(slot);
        }
        let key = self.desk.record(slot).key.clone();
        self.flush().await?;
        self.bring(&[Name::Key(key.clone())]).await?;
        let slot = self.desk.slot_of(&key).unwrap_or_else(|| self.desk.put_new(key));
        if !self.desk.record(slot).is_whole() {
            // The count is higher than the number of tasks in a damaged store: the key's other tasks go on.
            self.change(slot, |record, _| record.singles.waiting = 0);
        }
        Ok(slot)
    }

    async fn slot_of_attempt(&mut self, attempt: Attempt) -> StoreResult<Option<usize>> {
        if let Some(slot) = self.desk.slot_of_attempt(attempt)
            && self.desk.record(slot).is_whole()
        {
            return Ok(Some(slot));
        }
        self.flush().await?;
        self.bring(&[Name::Attempt(attempt)]).await?;
        Ok(self.desk.slot_of_attempt(attempt))
    }

    pub(super) async fn slot_of_flight(&mut self, attempt: Attempt) -> StoreResult<Option<usize>> {
        let slot = self.slot_of_attempt(attempt).await?;
        Ok(slot.filter(|slot| completion::is_out(self.desk.record(*slot), attempt)))
    }

    /// An attempt of the key ended, or none did.
    pub(super) fn end(&mut self, slot: usize, ended: Option<EndedAttempt>) {
        if let Some(ended) = ended {
            self.sums.end(&ended);
            self.ends.push(JobEnd {
                attempt: ended.attempt,
                fetcher: self.context.fetcher(ended.task.fetcher()),
                worker: ended.worker.clone(),
                outcome: ended.outcome,
                took_ms: ended.took_ms().unsigned_abs(),
                revisit_seconds: ended.revisit.and_then(|seconds| u64::try_from(seconds).ok()),
            });
            self.ended.push(ended);
        }
        self.changed(slot);
    }

    /// Gives back the attempt of the key that is out; returns which one, if any.
    pub(super) fn take_back(&mut self, slot: usize, outcome: Outcome) -> Option<Attempt> {
        let record = self.desk.record_mut(slot);
        let ended = dispatch::take_back(record, outcome, &self.context);
        let attempt = ended.as_ref().map(|it| it.attempt);
        self.end(slot, ended);
        attempt
    }

    pub(super) async fn complete(&mut self, it: Complete) -> StoreResult<()> {
        let slot = self.slot(it.key).await?;
        if let Some(late) = self.classic_late(slot).await? {
            return self.complete_late(late, it.exit_code).await.map(drop);
        }
        let record = self.desk.record_mut(slot);
        let before = record.last;
        let ended = completion::finish_key(record, it.exit_code, &self.context);
        if ended.is_none() {
            self.sums.by_hand(before, record.last);
        }
        self.end(slot, ended);
        Ok(())
    }

    pub(super) async fn complete_attempt(&mut self, it: CompleteAttempt) -> StoreResult<Ack> {
        let CompleteAttempt { attempt, exit_code } = it;
        let Some(slot) = self.slot_of_attempt(attempt).await? else {
            return Ok(Ack::Unknown);
        };
        let record = self.desk.record_mut(slot);
        if completion::is_out(record, attempt) {
            let ended = completion::finish(record, exit_code, &self.context);
            self.end(slot, ended);
            return Ok(Ack::Recorded);
        }
        match self.ended(attempt).await? {
            Some(late) if completion::counts_late(self.desk.record(slot), &late) => {
                self.complete_late(late, exit_code).await
            }
            ended => Ok(completion::repeated(ended.as_ref(), Outcome::of(exit_code))),
        }
    }

    /// The last attempt of a free key, if it was a classic one and its result still counts.
    async fn classic_late(&mut self, slot: usize) -> StoreResult<Option<EndedAttempt>> {
        let record = self.desk.record(slot);
        if record.flight.is_some() || record.last_attempt == Attempt(0) {
            return Ok(None);
        }
        let ended = self.ended(record.last_attempt).await?.filter(|it| it.worker.is_none());
        Ok(ended.filter(|it| completion::counts_late(self.desk.record(slot), it)))
    }

    async fn complete_late(&mut self, mut late: EndedAttempt, exit_code: i64) -> StoreResult<Ack> {
        self.flush().await?;
        let single = match late.task {
            Task::Row { .. } => None,
            Task::Single { number } => self.store.single(number).await?,
        };
        let is_left = |it: &SingleStatus| {
            matches!(it, SingleStatus::Waiting | SingleStatus::Failed | SingleStatus::DeadLetter)
        };
        let single = single.filter(is_left);
        let slot = self.slot(late.key.clone()).await?;
        self.sums.takes_back(&late);
        let record = self.desk.record_mut(slot);
        completion::finish_late(record, &mut late, single, exit_code, &self.context);
        self.end(slot, Some(late));
        Ok(Ack::Recorded)
    }

    pub(super) async fn release(&mut self, attempt: Attempt) -> StoreResult<Ack> {
        let Some(slot) = self.slot_of_attempt(attempt).await? else {
            return Ok(Ack::Unknown);
        };
        if completion::is_out(self.desk.record(slot), attempt) {
            if stops::is_asked(self.desk.record(slot)) {
                let ended = self.change(slot, |record, context| stops::cancel(record, context));
                self.end(slot, ended);
            } else {
                self.take_back(slot, Outcome::Released);
            }
            return Ok(Ack::Recorded);
        }
        let ended = self.ended(attempt).await?;
        Ok(completion::repeated(ended.as_ref(), Outcome::Released))
    }

    pub(super) async fn heartbeat(&mut self, attempt: Attempt) -> StoreResult<Ack> {
        let Some(slot) = self.slot_of_flight(attempt).await? else {
            return Ok(Ack::Stale);
        };
        if !self.sees_to(slot) {
            self.see_to(slot);
            self.changed(slot);
            self.news.has_lease = true;
            self.memo.must_write = self.only_reads;
        }
        Ok(if stops::is_asked(self.desk.record(slot)) { Ack::Stopping } else { Ack::Recorded })
    }

    pub(super) async fn undo(&mut self, it: Undo) -> StoreResult<bool> {
        let slot = self.slot_of_flight(it.attempt).await?;
        // Under the reference's rules a hand-out is one that arrived.
        let is_fair = self.context.settings.is_fair;
        let is_its = |slot: &usize| {
            let record = self.desk.record(*slot);
            is_fair && record.key == it.key && dispatch::is_its_start(record)
        };
        let slot = slot.filter(is_its);
        Ok(slot.is_some_and(|slot| self.take_back(slot, Outcome::Undone).is_some()))
    }

    pub(super) async fn expire(&mut self, attempt: Attempt) -> StoreResult<Option<ExpiredLease>> {
        // Whoever keeps the lease by now knows when it ends.
        let slot = self.slot_of_flight(attempt).await?;
        let Some(slot) = slot.filter(|slot| self.sees_to(*slot)) else {
            return Ok(None);
        };
        let record = self.desk.record_mut(slot);
        let may = leases::may_expire(record, &self.context);
        let Some(expired) = may.then(|| leases::expire(record, &self.context)).flatten() else {
            return Ok(None);
        };
        let leases::Expired { attempt, is_dead_letter } = expired;
        let lease = ExpiredLease {
            key: attempt.key.clone(),
            worker: attempt.worker.clone().unwrap_or_default(),
            dead_letter: is_dead_letter,
            cancelled: attempt.outcome == Outcome::Cancelled,
            single: attempt.task.fetcher() == FetcherId::TASKS,
        };
        self.end(slot, Some(attempt));
        Ok(Some(lease))
    }

    pub(super) async fn requeue(&mut self, key: Key) -> StoreResult<Requeued> {
        let slot = self.slot(key).await?;
        Ok(match self.take_back(slot, Outcome::Released) {
            Some(attempt) => Requeued::Back(attempt),
            None if self.desk.record(slot).is_listed() => Requeued::NotInFlight,
            None => Requeued::Unknown,
        })
    }

    pub(super) async fn stop(&mut self, key: Key) -> StoreResult<Stopped> {
        let slot = self.slot(key).await?;
        let is_asked = self.change(slot, |record, _| stops::ask(record));
        self.news.has_stop |= is_asked;
        let record = self.desk.record(slot);
        let holder =
            |flight: &Flight| Some((flight.attempt, flight.holder.as_ref()?.worker.clone()));
        Ok(match record.flight.as_ref().and_then(holder) {
            Some((attempt, worker)) if is_asked => Stopped::Asked { attempt, worker },
            _ if record.is_in_flight(&self.context) => Stopped::Classic,
            _ if record.is_listed() => Stopped::NotInFlight,
            _ => Stopped::Unknown,
        })
    }

    pub(super) async fn retry(&mut self, it: Retry) -> StoreResult<Retried> {
        let slot = self.slot(it.key).await?;
        // An unknown fetcher has no tasks.
        let fetcher = it.fetcher.map(|name| self.fetcher(&name).unwrap_or(FetcherId(i64::MIN)));
        let (slot, ended) = self.singles_of(slot, &ENDED).await?;
        Ok(self.change(slot, |record, _| retries::retry(record, fetcher, &ended)))
    }

    pub(super) async fn hold(&mut self, it: Hold) -> StoreResult<Held> {
        let slot = self.slot(it.key).await?;
        let before = self.desk.record(slot);
        let replaced = before.extras.hold.as_ref().and(before.hold(&self.context));
        let is_known = before.last.is_some() || before.is_listed();
        if replaced.is_none() && self.count_held() >= HOLDS_MAX {
            return Ok(Held::Full);
        }
        let until = self.change(slot, |record, context| {
            holds::hold(record, it.seconds, it.reason, it.by, context);
            record.hold(context).and_then(|hold| hold.until)
        });
        Ok(Held::Held { until, is_known, replaced: replaced.map(Box::new) })
    }

    pub(super) async fn unhold(&mut self, key: Key) -> StoreResult<bool> {
        let slot = self.slot(key).await?;
        Ok(self.change(slot, |record, _| holds::unhold(record)))
    }

    pub(super) async fn bump(&mut self, it: Bump) -> StoreResult<Bumped> {
        let slot = self.slot(it.key).await?;
        let record = self.desk.record(slot);
        if let Some(refused) = bumps::refuses(record) {
            return Ok(refused);
        }
        let was_bumped = record.extras.bump.is_some();
        if !was_bumped && self.count_bumped() >= BUMPS_MAX {
            return Ok(Bumped::Full);
        }
        let (slot, ended) = self.singles_of(slot, &ENDED).await?;
        let number =
            self.change(slot, |record, context| bumps::bump(record, &ended, it.by, context));
        let before = match was_bumped {
            false => self.count_bumped().saturating_sub(1),
            true => {
                self.flush().await?;
                let lane = self.store.next(From::Line(Line::LANE), None, BUMPS_MAX).await?;
                let goes = |it: &Stored| {
                    let is_before = it.place.lane.is_some_and(|lane| lane < number);
                    is_before
                        && dispatch::next_task(&it.record, &Scope::All, &self.context).is_some()
                };
                lane.iter().filter(|it| goes(it)).count()
            }
        };
        Ok(Bumped::Behind(before as u64))
    }

    pub(super) async fn forget(&mut self, key: Key) -> StoreResult<Forgotten> {
        let slot = self.slot(key).await?;
        if !self.desk.is_known(slot) {
            return Ok(Forgotten::Unknown);
        }
        let forgotten = lists::forget(self.desk.record(slot));
        if forgotten == Forgotten::Forgotten {
            let step = self.desk.forget(slot);
            self.groups.steps.push(step);
        }
        Ok(forgotten)
    }

    pub(super) async fn cancel(&mut self, key: Key) -> StoreResult<Cancelled> {
        let slot = self.slot(key).await?;
        let (slot, those) = self.singles_of(slot, &NOT_OUT).await?;
        Ok(self.change(slot, |record, _| singles::cancel(record, &those)))
    }

    /// Single tasks of a key with one of these statuses, the newest first, up to the number changed at once; and its
    /// slot.
    async fn singles_of(
        &mut self,
        slot: usize,
        statuses: &[SingleStatus],
    ) -> StoreResult<(usize, Vec<singles::Numbered>)> {
        let Singles { waiting, failed, dead, .. } = &self.desk.record(slot).singles;
        let mut found = Vec::new();
        if [waiting, failed, dead] == [&0; 3] {
            return Ok((slot, found));
        }
        let key = self.desk.record(slot).key.clone();
        self.flush().await?;
        let slot = self.slot(key).await?;
        if let Some(key) = self.desk.id(slot) {
            for status in statuses {
                let left = SINGLES_AT_ONCE - found.len();
                let numbers = self.store.singles(key, *status, left).await?;
                found.extend(numbers.into_iter().map(|number| (number, *status)));
            }
        }
        Ok((slot, found))
    }

    /// An attempt that ended, in this batch or before.
    async fn ended(&mut self, attempt: Attempt) -> StoreResult<Option<EndedAttempt>> {
        let of_batch = self.ended.iter().rev().find(|it| it.attempt == attempt).cloned();
        match of_batch {
            None => self.store.ended(attempt).await,
            ended => Ok(ended),
        }
    }

    pub(super) async fn add_task(&mut self, task: Row, id: Option<Arc<str>>) -> Carried<Added> {
        let Row { key, payload } = task;
        if let Some(id) = &id {
            self.flush().await?;
            if self.store.load(&[Name::TaskId(id.clone())]).await?[0].is_some() {
                return Ok(Ok(Added::Known));
            }
        }
        let mut slot = self.slot(key.clone()).await?;
        if self.desk.record(slot).singles.waiting > 0 {
            self.flush().await?;
            slot = self.slot(key.clone()).await?;
            if let Some(key) = self.desk.id(slot)
                && let Some(number) = self.store.waiting_single(key, &payload).await?
            {
                // It is known by that ID from now on, as if it had been added with it.
                if let Some(id) = id {
                    self.change(slot, |record, _| singles::name(record, number, id));
                }
                return Ok(Ok(Added::Known));
            }
        }
        let singles = self.singles.unwrap_or_else(|| self.count_singles());
        if singles >= self.context.settings.max_single_tasks {
            return Ok(Ok(Added::Full));
        }
        let Some(number) = self.header.last_single.checked_add(1) else {
            return Ok(Err(used_up("single tasks")));
        };
        self.header.last_single = number;
        self.header.last_since = self.context.next_since(self.header.last_since);
        let since = if self.context.settings.is_fair { self.header.last_since } else { 0 };
        let group = self.name_group(key.as_str(), &payload);
        let task = singles::Added { payload, id, group };
        self.change(slot, |record, _| singles::add(record, number, since, task));
        self.singles = Some(singles.saturating_add(1));
        Ok(Ok(Added::Added(number)))
    }

    fn count_singles(&self) -> u64 {
        let counts = self.counts();
        let singles = counts.0.get(&crate::counts::OF_SINGLES);
        singles.map_or(0, |it| u64::try_from(it.rows).unwrap_or(0))
    }

    pub(super) async fn edit(
        &mut self,
        edits: Vec<Edit>,
    ) -> StoreResult<Vec<Result<(), Rejected>>> {
        let key = |edit: &Edit| match edit {
            Edit::Log { key, .. } | Edit::Row { key, .. } => Name::Key(key.clone()),
        };
        self.bring(&edits.iter().map(key).collect::<Vec<_>>()).await?;
        let mut answers = Vec::with_capacity(edits.len());
        for edit in edits {
            answers.push(match edit {
                Edit::Log { key, last } => {
                    let slot = self.slot(key).await?;
                    let record = self.desk.record_mut(slot);
                    let before = record.last;
                    let edited = edits::edit_log(record, last, &self.context);
                    if let Ok(ended) = &edited {
                        self.ended.extend(ended.clone());
                        self.sums.by_hand(before, record.last);
                    }
                    self.changed(slot);
                    let record = self.desk.record_mut(slot);
                    if leases::is_over(record, &self.context) {
                        let expired = leases::expire(record, &self.context);
                        self.end(slot, expired.map(|it| it.attempt));
                    }
                    edited.map(drop)
                }
                Edit::Row { key, run, is_dequeued } => {
                    let slot = self.slot(key).await?;
                    if let Some(fetcher) = self.fetcher(&run.fetcher) {
                        let row = Task::Row { fetcher, run: run.started };
                        self.change(slot, |record, _| edits::edit_row(record, row, is_dequeued));
                    }
                    Ok(())
                }
            });
        }
        Ok(answers)
    }
}
