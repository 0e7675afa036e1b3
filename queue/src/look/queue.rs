//! What would be handed out next, in order, and when single tasks are expected to be handed out.
//!
//! A listing costs as much as the same number of dispatches, however long the queue is. The keys before a single task's
//! key are counted up to a bound that keeps this cheap; `why` counts further.

use std::collections::HashMap;

use shiftboss_protocol::model::Key;

use super::{Look, PAYLOADS_MAX_BYTES, QUEUE_MAX, STEP, run_of, text_of};
use crate::listings::Listings;
use crate::record::{FetcherId, Task};
use crate::records::{KeyId, Stored};
use crate::rules::completion::expired_leases;
use crate::rules::dispatch::{Scope, next_task};
use shiftboss_protocol::answers::{Next, Queue, Turn};

/// Most keys before a single task's key that are counted, and most other single tasks of its key.
const COUNTED_MAX: u64 = 1_000;

impl<S: Listings> Look<'_, S> {
    pub(super) async fn next_jobs(&mut self, count: usize) -> Result<Queue, S::Error> {
        let count = count.clamp(1, QUEUE_MAX);
        let mut walk = self.walk(count).await?;
        let (mut keys, mut bytes) = (Vec::new(), 0);
        let mut is_all = false;
        while !is_all && keys.len() < count && bytes < PAYLOADS_MAX_BYTES {
            let step = STEP.min(count - keys.len());
            let ids = walk.take(self, step).await?;
            is_all = ids.len() < step;
            for next in self.jobs_of(&ids).await? {
                if bytes >= PAYLOADS_MAX_BYTES {
                    is_all = false;
                    break;
                }
                bytes += next.payload.len();
                keys.push(next);
            }
        }
        let truncated = keys.len() < count && !(is_all && walk.is_all);
        Ok(Queue { paused: self.head.header.paused, keys, truncated })
    }

    /// The jobs that would be handed out for these keys.
    async fn jobs_of(&mut self, ids: &[KeyId]) -> Result<Vec<Next>, S::Error> {
        let records = self.records(ids).await?.into_iter();
        let next = |it: Stored| Some((next_task(&it.record, &Scope::All, &self.context)?, it));
        let jobs: Vec<_> = records.filter_map(next).collect();
        let tasks: Vec<_> = jobs.iter().map(|(task, stored)| (stored.id, *task)).collect();
        let payloads = self.store.payloads(&tasks).await?;
        let mut groups = Vec::with_capacity(jobs.len());
        for (task, stored) in &jobs {
            groups.push(match stored.record.group_of(task.fetcher()) {
                Some(group) => self.group_of(group).await?,
                None => None,
            });
        }
        let job = |(((task, stored), payload), group): (((_, Stored), _), _)| Next {
            group,
            key: stored.record.key.to_string(),
            fetcher: self.name(Task::fetcher(task)),
            run: run_of(task),
            last_started: self.last_start(&stored.record),
            again: expired_leases(&stored.record, task) > 0,
            bumped: stored.place.lane.is_some() && self.has_lane(),
            payload: text_of(payload),
        };
        Ok(jobs.into_iter().zip(payloads).zip(groups).map(job).collect())
    }

    pub(super) async fn turns(&mut self, keys: &[Key]) -> Result<Vec<Turn>, S::Error> {
        let known = self.store.named(keys).await?;
        let (places, is_all) = self.places().await?;
        let turn_of = |stored: &Option<Stored>| {
            let record = stored.as_ref().map(|it| &it.record);
            let out = record.and_then(|it| it.flight.as_ref());
            let is_out = out.is_some_and(|flight| flight.task.fetcher() == FetcherId::TASKS);
            let tasks = record.map_or(0, |it| it.singles.waiting).saturating_add(u64::from(is_out));
            let before = stored.as_ref().and_then(|it| places.get(&it.id).copied());
            let is_behind = !is_all && stored.is_some();
            Turn {
                keys_before: before.or(is_behind.then_some(COUNTED_MAX)),
                exact: before.is_some(),
                tasks_before: tasks.min(COUNTED_MAX).saturating_sub(1),
            }
        };
        Ok(known.iter().map(turn_of).collect())
    }

    /// How many keys come before each of the first ones; and whether there are no more keys.
    async fn places(&mut self) -> Result<(HashMap<KeyId, u64>, bool), S::Error> {
        let at_most = usize::try_from(COUNTED_MAX).unwrap_or(usize::MAX).saturating_add(1);
        let mut walk = self.walk(at_most).await?;
        let first = walk.take(self, at_most).await?;
        let is_all = first.len() < at_most && walk.is_all;
        Ok((first.into_iter().zip(0..).collect(), is_all))
    }
}
