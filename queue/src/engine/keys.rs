//! Operations on one key: its record is found, a rule is applied, and the answer is made of what it says.

use std::sync::Arc;

use shiftboss_protocol::model::{Attempt, Key};

use super::{Batch, Carried, used_up};
use crate::attempt::{EndedAttempt, Outcome};
use crate::operation::{Added, Answer, Operation, Rejected};
use crate::record::{SingleStatus, Task};
use crate::records::{Name, Records, StoreResult};
use crate::rules::completion::{self, Ack};
use crate::rules::lists::Forgotten;
use crate::rules::{bumps, dispatch, edits, holds, leases, lists, retries, singles};

impl<S: Records> Batch<'_, S> {
    pub(super) async fn on_attempt(&mut self, attempt: Attempt, operation: Operation) -> Carried {
        use Operation as Op;
        match operation {
            Op::CompleteAttempt { exit_code, .. } => self.complete(attempt, exit_code).await,
            Op::Release(_) => self.release(attempt).await,
            Op::Expire(_) => self.expire(attempt).await,
            Op::Undo(_) => self.undo(attempt).await,
            _ => self.heartbeat(attempt).await,
        }
    }

    pub(super) async fn on_key(&mut self, key: Key, operation: Operation) -> Carried {
        use Operation as Op;
        let slot = self.slot(key).await?;
        let record = self.desk.record_mut(slot);
        match operation {
            Op::AddTask { task, id } => self.add_task(slot, task.payload, id).await,
            Op::Complete { exit_code, .. } => {
                let before = record.last;
                let ended = completion::finish_key(record, exit_code, &self.context);
                if ended.is_none() {
                    self.sums.by_hand(before, record.last);
                }
                self.end(slot, ended);
                Ok(Ok(Answer::Done))
            }
            Op::Requeue(_) => {
                let ended = dispatch::take_back(record, Outcome::Released, &self.context);
                let attempt = ended.as_ref().map(|it| it.attempt);
                self.end(slot, ended);
                Ok(Ok(Answer::Requeued(attempt)))
            }
            on_lever => Ok(self.on_lever(slot, on_lever)),
        }
    }

    /// What operators, and other programs, want of a key.
    fn on_lever(&mut self, slot: usize, operation: Operation) -> Result<Answer, Rejected> {
        use Operation as Op;
        let record = self.desk.record_mut(slot);
        let answer = match operation {
            Op::Retry { fetcher: None, .. } => Answer::Retried(retries::retry(record, None)),
            Op::Retry { fetcher: Some(name), .. } => {
                let id = self.fetcher(&name);
                let record = self.desk.record_mut(slot);
                // A fetcher that is not known has no task.
                let id = id.unwrap_or(crate::record::FetcherId(i64::MIN));
                Answer::Retried(retries::retry(record, Some(id)))
            }
            Op::Hold { seconds, reason, by, .. } => {
                Answer::Held(holds::hold(record, seconds, reason, by, &self.context))
            }
            Op::Unhold(_) => Answer::Is(holds::unhold(record)),
            Op::Bump { by, .. } => Answer::Bumped(bumps::bump(record, by, &mut self.context)),
            Op::CancelTasks(_) => Answer::Cancelled(singles::cancel(record)),
            Op::EditRow { run, is_dequeued, .. } => {
                let fetcher = self.fetcher(&run.fetcher);
                let record = self.desk.record_mut(slot);
                if let Some(fetcher) = fetcher {
                    let row = Task::Row { fetcher, run: run.started };
                    edits::edit_row(record, row, is_dequeued);
                }
                Answer::Done
            }
            Op::EditLog { last, .. } => {
                let before = record.last;
                match edits::edit_log(record, last, &self.context) {
                    Ok(ended) => self.ended.extend(ended),
                    Err(error) => return Err(Rejected(error.to_string())),
                }
                self.sums.by_hand(before, record.last);
                Answer::Done
            }
            _ => return Ok(Answer::Forgotten(self.forget(slot))),
        };
        self.changed(slot);
        Ok(answer)
    }

    fn forget(&mut self, slot: usize) -> Forgotten {
        if !self.desk.is_known(slot) {
            return Forgotten::Unknown;
        }
        let forgotten = lists::forget(self.desk.record(slot));
        if forgotten == Forgotten::Forgotten {
            self.desk.forget(slot);
        }
        forgotten
    }

    /// The record of a key, whole, before the batch.
    pub(super) async fn slot(&mut self, key: Key) -> StoreResult<usize> {
        if let Some(slot) = self.desk.slot_of(&key) {
            return self.whole(slot).await;
        }
        self.bring(&[Name::Key(key.clone())]).await?;
        Ok(self.desk.slot_of(&key).unwrap_or_else(|| self.desk.put_new(key)))
    }

    /// The slot of a record that is whole: one that is not is written, and loaded again.
    pub(super) async fn whole(&mut self, slot: usize) -> StoreResult<usize> {
        if self.desk.record(slot).is_whole() {
            return Ok(slot);
        }
        let key = self.desk.record(slot).key.clone();
        self.flush().await?;
        self.bring(&[Name::Key(key.clone())]).await?;
        Ok(self.desk.slot_of(&key).unwrap_or_else(|| self.desk.put_new(key)))
    }

    /// The record of an attempt's key.
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

    /// An attempt of the key ended, or none did.
    fn end(&mut self, slot: usize, ended: Option<EndedAttempt>) {
        if let Some(ended) = ended {
            self.sums.end(&ended);
            self.ended.push(ended);
        }
        self.changed(slot);
    }

    async fn complete(&mut self, attempt: Attempt, exit_code: i64) -> Carried {
        let Some(slot) = self.slot_of_attempt(attempt).await? else {
            return Ok(Ok(Answer::Ack(Ack::Unknown)));
        };
        let record = self.desk.record_mut(slot);
        if completion::is_out(record, attempt) {
            let ended = completion::finish(record, exit_code, &self.context);
            self.end(slot, ended);
            return Ok(Ok(Answer::Ack(Ack::Recorded)));
        }
        let ended = self.ended(attempt).await?;
        match ended {
            Some(late) if completion::counts_late(self.desk.record(slot), &late) => {
                self.complete_late(late, exit_code).await
            }
            ended => {
                let ack = completion::repeated(ended.as_ref(), Outcome::of(exit_code));
                Ok(Ok(Answer::Ack(ack)))
            }
        }
    }

    async fn complete_late(&mut self, mut late: EndedAttempt, exit_code: i64) -> Carried {
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
        Ok(Ok(Answer::Ack(Ack::Recorded)))
    }

    async fn release(&mut self, attempt: Attempt) -> Carried {
        let Some(slot) = self.slot_of_attempt(attempt).await? else {
            return Ok(Ok(Answer::Ack(Ack::Unknown)));
        };
        let record = self.desk.record_mut(slot);
        if completion::is_out(record, attempt) {
            let ended = dispatch::take_back(record, Outcome::Released, &self.context);
            self.end(slot, ended);
            return Ok(Ok(Answer::Ack(Ack::Recorded)));
        }
        let ended = self.ended(attempt).await?;
        Ok(Ok(Answer::Ack(completion::repeated(ended.as_ref(), Outcome::Released))))
    }

    async fn heartbeat(&mut self, attempt: Attempt) -> Carried {
        let slot = self.slot_of_attempt(attempt).await?;
        let is_out = slot.is_some_and(|slot| completion::is_out(self.desk.record(slot), attempt));
        Ok(Ok(Answer::Ack(if is_out { Ack::Recorded } else { Ack::Stale })))
    }

    async fn undo(&mut self, attempt: Attempt) -> Carried {
        let slot = self.slot_of_attempt(attempt).await?;
        let out = slot.filter(|slot| completion::is_out(self.desk.record(*slot), attempt));
        let Some(slot) = out.filter(|_| self.context.settings.is_fair) else {
            return Ok(Ok(Answer::Is(false)));
        };
        let record = self.desk.record_mut(slot);
        let ended = dispatch::take_back(record, Outcome::Undone, &self.context);
        self.end(slot, ended);
        Ok(Ok(Answer::Is(true)))
    }

    async fn expire(&mut self, attempt: Attempt) -> Carried {
        let slot = self.slot_of_attempt(attempt).await?;
        let out = slot.filter(|slot| completion::is_out(self.desk.record(*slot), attempt));
        let Some(slot) =
            out.filter(|slot| leases::may_expire(self.desk.record(*slot), &self.context))
        else {
            return Ok(Ok(Answer::Nothing));
        };
        let Some(expired) = leases::expire(self.desk.record_mut(slot), &self.context) else {
            return Ok(Ok(Answer::Nothing));
        };
        let leases::Expired { attempt, is_dead_letter } = expired;
        let (key, task) = (attempt.key.clone(), attempt.task);
        self.end(slot, Some(attempt));
        Ok(Ok(Answer::Expired { key, task, is_dead_letter }))
    }

    /// An attempt that ended, in this batch or before.
    async fn ended(&mut self, attempt: Attempt) -> StoreResult<Option<EndedAttempt>> {
        let of_batch = self.ended.iter().rev().find(|it| it.attempt == attempt).cloned();
        match of_batch {
            None => self.store.ended(attempt).await,
            ended => Ok(ended),
        }
    }

    async fn add_task(
        &mut self,
        mut slot: usize,
        payload: String,
        id: Option<Arc<str>>,
    ) -> Carried {
        let key = self.desk.record(slot).key.clone();
        if let Some(id) = &id {
            self.flush().await?;
            if self.store.load(&[Name::TaskId(id.clone())]).await?[0].is_some() {
                return Ok(Ok(Answer::Added(Added::Known)));
            }
            slot = self.slot(key.clone()).await?;
        }
        if self.desk.record(slot).singles.waiting > 0 {
            self.flush().await?;
            slot = self.slot(key).await?;
            if let Some(key) = self.desk.id(slot)
                && self.store.has_single(key, &payload).await?
            {
                return Ok(Ok(Answer::Added(Added::Known)));
            }
        }
        let singles = self.singles.unwrap_or_else(|| self.count_singles());
        if singles >= self.context.settings.max_single_tasks {
            return Ok(Ok(Answer::Added(Added::Full)));
        }
        let Some(number) = self.header.last_single.checked_add(1) else {
            return Ok(Err(used_up("single tasks")));
        };
        self.header.last_single = number;
        let micros = self.context.now.saturating_mul(1_000);
        self.header.last_since = micros.max(self.header.last_since.saturating_add(1));
        let since = if self.context.settings.is_fair { self.header.last_since } else { 0 };
        singles::add(self.desk.record_mut(slot), number, since, payload, id);
        self.changed(slot);
        self.singles = Some(singles.saturating_add(1));
        Ok(Ok(Answer::Added(Added::Added(number))))
    }

    /// So many single tasks there are.
    fn count_singles(&self) -> u64 {
        let mut counts = self.header.counts.clone();
        counts.merge(&self.desk.tally());
        let singles = counts.0.get(&(crate::record::FetcherId::TASKS, 0));
        singles.map_or(0, |it| u64::try_from(it.rows).unwrap_or(0))
    }
}
