//! What would be handed out next, in order; and when single tasks are expected to be.
//!
//! A listing costs as much as so many dispatches, however long the queue is. The keys before a single task's are
//! counted up to a bound that keeps it cheap; `why` counts further.

use std::collections::HashMap;

use rusqlite::Result;
use shiftboss_protocol::model::Key;
use shiftboss_queue::answers::{Next, Queue, Turn};
use shiftboss_queue::record::FetcherId;
use shiftboss_queue::records::{KeyId, Name};
use shiftboss_queue::rules::completion::expired_leases;
use shiftboss_queue::rules::dispatch::{Scope, next_task};
use shiftboss_queue::views::{COUNTED_MAX, PAYLOADS_MAX_BYTES, QUEUE_MAX, turn};

use super::{Look, run_of};

impl Look<'_> {
    pub(super) fn next_jobs(&mut self, count: usize) -> Result<Queue> {
        let count = count.clamp(1, QUEUE_MAX);
        let (mut keys, mut bytes) = (Vec::new(), 0);
        let is_all = self.walk(count, |look, key| {
            if let Some(next) = look.next_job(key)? {
                bytes += next.payload.len();
                keys.push(next);
            }
            Ok(keys.len() < count && bytes < PAYLOADS_MAX_BYTES)
        })?;
        let truncated = !is_all && keys.len() < count;
        Ok(Queue { paused: self.kept.header.paused, keys, truncated })
    }

    /// The job that a key would be handed out as.
    fn next_job(&mut self, key: KeyId) -> Result<Option<Next>> {
        let Some(stored) = self.loader.by_id(key)? else {
            return Ok(None);
        };
        let record = &stored.record;
        let Some(task) = next_task(record, &Scope::All, &self.context) else {
            return Ok(None);
        };
        Ok(Some(Next {
            key: record.key.to_string(),
            fetcher: self.name(task.fetcher()),
            run: run_of(task),
            last_started: self.last_start(record),
            again: expired_leases(record, task) > 0,
            bumped: stored.place.lane.is_some() && self.has_lane(),
            payload: self.payload(key, task)?,
        }))
    }

    pub(super) fn turns(&mut self, keys: &[Key]) -> Result<Vec<Turn>> {
        let mut known = Vec::with_capacity(keys.len());
        for key in keys {
            known.push(self.loader.named(&Name::Key(key.clone()))?);
        }
        let wanted = known.iter().flatten().map(|stored| stored.id);
        let (places, is_all) = self.places(wanted)?;
        let turn_of = |stored: &Option<shiftboss_queue::records::Stored>| {
            let record = stored.as_ref().map(|it| &it.record);
            let out = record.and_then(|it| it.flight.as_ref());
            let is_out = out.is_some_and(|flight| flight.task.fetcher() == FetcherId::TASKS);
            let tasks = record.map_or(0, |it| it.singles.waiting) + u64::from(is_out);
            let before = stored.as_ref().and_then(|it| places.get(&it.id).copied().flatten());
            turn(before, is_all || stored.is_none(), tasks.min(COUNTED_MAX))
        };
        Ok(known.iter().map(turn_of).collect())
    }

    /// How many keys come before each of these, where that was counted; and whether there are no more keys.
    fn places(
        &mut self,
        keys: impl Iterator<Item = KeyId>,
    ) -> Result<(HashMap<KeyId, Option<u64>>, bool)> {
        let mut places: HashMap<KeyId, Option<u64>> = keys.map(|key| (key, None)).collect();
        let (mut before, mut missing) = (0, places.len());
        let at_most = usize::try_from(COUNTED_MAX).unwrap_or(usize::MAX);
        let is_all = self.walk(at_most + 1, |_, key| {
            if let Some(place) = places.get_mut(&key) {
                *place = Some(before);
                missing -= 1;
            }
            before += 1;
            Ok(missing > 0 && before <= COUNTED_MAX)
        })?;
        Ok((places, is_all))
    }
}
