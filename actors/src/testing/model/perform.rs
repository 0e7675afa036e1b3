//! The operations of a store, carried out by the model.

use crate::store::answers::{Hold, Next, Queue};
use crate::store::{
    Ack, AddRows, Dispatched, ExpiredLease, Operation, Outcome, RegisterRun, Registered, StoredRun,
};
use shiftboss_protocol::model::{Attempt, IDLE_COUNT_MAX, Idle, Key, Row};

use super::Model;

impl Model {
    /// What `operation` comes to at `now`; runs are as if they had only just been registered.
    ///
    /// # Panics
    /// On what is no operation on the queue.
    pub fn perform(&mut self, now: i64, operation: &Operation) -> Outcome {
        let outcome = self.carry_out(now, operation);
        self.forget_bumps();
        outcome
    }

    fn carry_out(&mut self, now: i64, operation: &Operation) -> Outcome {
        use {Operation as Op, Outcome as Out};
        match operation {
            Op::Dispatch(it) => {
                let job = self.dispatch_to(now, it.holder.is_some());
                if let (Some(holder), Some(_), Some(last)) =
                    (&it.holder, &job, self.deliveries.last_mut())
                {
                    last.worker = holder.worker.clone();
                }
                Out::Dispatch(job.map_or(Dispatched::Nothing, |(attempt, job)| {
                    let (key, payload) = job.split_once(' ').unwrap();
                    let job = Row { key: Key::stored(key), payload: payload.to_owned() };
                    Dispatched::Job(Attempt(attempt), job)
                }))
            }
            Op::Complete(it) => {
                self.finish(it.key.as_str(), it.exit_code, now);
                Out::Complete(())
            }
            Op::CompleteAttempt(it) => {
                Out::CompleteAttempt(self.finish_attempt(it.attempt.0, it.exit_code, now))
            }
            Op::Release(it) => Out::Release(self.release(it.0.0)),
            Op::Heartbeat(it) => {
                Out::Heartbeat(if self.is_leased(it.0.0) { Ack::Recorded } else { Ack::Stale })
            }
            Op::Expire(it) => Out::Expire(self.expire_lease(it.0.0)),
            Op::Undo(it) => {
                let is_its = self.key_of(it.attempt.0).as_ref() == Some(&it.key);
                Out::Undo(is_its && self.undo(it.attempt.0))
            }
            Op::Retry(it) => Out::Retry(self.retry(it.key.as_str(), it.fetcher.as_deref())),
            Op::Requeue(it) => Out::Requeue(self.requeue(it.0.as_str(), now)),
            Op::SetPaused(it) => {
                self.pause(it.0);
                Out::SetPaused(self.in_flight(now))
            }
            Op::Drain(_) => {
                self.pause(true);
                Out::Drain(self.in_flight(now))
            }
            Op::RegisterRun(RegisterRun(run)) => {
                self.register(&run.fetcher, run.started);
                let (position, rows) = (None, self.rows_of(&run.fetcher, run.started));
                let (complete, deleting, stale) = (false, false, false);
                let run = run.clone();
                let stored = StoredRun { run, complete, position, rows, deleting, stale };
                Out::RegisterRun(Registered::Run(stored))
            }
            Op::AddRows(AddRows(batch)) => {
                let rows = batch.rows.iter().map(|row| (row.key.to_string(), row.payload.clone()));
                let rows: Vec<_> = rows.collect();
                self.add(&batch.run.fetcher, batch.run.started, &rows, batch.complete);
                Out::AddRows(())
            }
            Op::DeleteRuns(it) => {
                it.runs.iter().for_each(|run| self.delete(&run.fetcher, run.started));
                Out::DeleteRuns(it.runs.len())
            }
            Op::AddTask(it) => {
                Out::AddTask(self.add_task(it.task.key.as_str(), &it.task.payload, now))
            }
            Op::CancelTasks(it) => Out::CancelTasks(self.cancel_tasks(it.0.as_str(), now)),
            Op::HasWork(_) => Out::HasWork(self.clone().dispatch(now).is_some()),
            Op::WhyIdle(_) => Out::WhyIdle(self.why_idle(now)),
            Op::CountInFlight(_) => Out::CountInFlight(self.in_flight(now)),
            other => self.perform_on_key(now, other),
        }
    }

    fn perform_on_key(&mut self, now: i64, operation: &Operation) -> Outcome {
        use {Operation as Op, Outcome as Out};
        match operation {
            Op::Hold(it) => Out::Hold(
                self.hold(it.key.as_str(), Hold::of_operator(it.seconds, &it.reason, &it.by, now)),
            ),
            Op::Bump(it) => Out::Bump(self.bump(it.key.as_str())),
            Op::Unhold(it) => Out::Unhold(self.unhold(it.0.as_str())),
            Op::Forget(it) => Out::Forget(self.forget(it.0.as_str(), now)),
            Op::EndHolds(_) => {
                self.end_holds(now);
                Out::EndHolds(())
            }
            Op::NextHoldEnd(_) => Out::NextHoldEnd(self.next_hold_end(now)),
            other => panic!("the model knows nothing of {other:?}"),
        }
    }

    fn expire_lease(&mut self, attempt: i64) -> Option<ExpiredLease> {
        let delivery =
            self.deliveries.iter().find(|delivery| delivery.attempt == attempt).cloned()?;
        let (key, dead_letter) = self.expire(attempt)?;
        let (worker, single) = (delivery.worker, delivery.fetcher == 0);
        Some(ExpiredLease { key: Key::stored(&key), worker, dead_letter, single })
    }

    /// Rows that a run has.
    pub fn rows_of(&self, fetcher: &str, run: i64) -> u64 {
        let id = self.id(fetcher);
        self.queue.iter().filter(|row| (Some(row.fetcher), row.run) == (id, run)).count() as u64
    }

    fn why_idle(&self, now: i64) -> Idle {
        let jobs = u32::try_from(self.in_flight(now)).unwrap_or(u32::MAX);
        match jobs {
            _ if self.leases.paused => {
                let waiting = self.preview(now, IDLE_COUNT_MAX as usize).keys.len();
                Idle::Paused(u32::try_from(waiting).unwrap())
            }
            0 => Idle::Nothing,
            jobs => Idle::Busy(jobs),
        }
    }

    /// What so many requests would be handed out one after the other; paused or not.
    pub fn preview(&self, now: i64, count: usize) -> Queue {
        let mut model = self.clone();
        model.pause(false);
        let mut next = || {
            let (row, _) = model.next_row(now)?;
            let bumped = model.is_in_lane(&row.key) && model.has_lane();
            let last_started = model.log.get(&row.key).map(|log| log.0);
            model.dispatch(now);
            Some(Next {
                fetcher: model.name(row.fetcher),
                run: row.run,
                last_started,
                again: row.dispatched,
                bumped,
                key: row.key,
                payload: row.payload,
            })
        };
        let keys = (0..count).map_while(|_| next()).collect();
        Queue { paused: self.leases.paused, keys, truncated: false }
    }

    /// The key of an attempt that is in flight.
    pub fn key_of(&self, attempt: i64) -> Option<Key> {
        let delivery = self.deliveries.iter().find(|delivery| delivery.attempt == attempt)?;
        Some(Key::stored(&delivery.key))
    }
}
