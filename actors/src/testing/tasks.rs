//! The mock store's part for single tasks: each that is added is a job, whose key can be cancelled.

use super::MockStore;
use crate::model::{Job, Key, Row, UnixSeconds};
use crate::store::{Added, Cancelled, EntryId, SpoolEntry, StoreResult, Tasks};

impl Tasks for MockStore {
    fn add_task(&mut self, task: &Row, _now: UnixSeconds) -> StoreResult<Added> {
        self.called("add task", &format!("{} {}", task.key, task.payload))?;
        let mut inside = self.inside();
        if inside.jobs.len() >= inside.tasks_max.unwrap_or(usize::MAX) {
            return Ok(Added::Full);
        }
        let job = Job { key: task.key.clone(), payload: task.payload.clone() };
        if inside.jobs.contains(&job) {
            return Ok(Added::Known);
        }
        inside.jobs.push_back(job);
        Ok(Added::Added)
    }

    fn cancel_tasks(&mut self, key: &Key, _now: UnixSeconds) -> StoreResult<Cancelled> {
        self.called("cancel", key.as_str())?;
        let mut inside = self.inside();
        let before = inside.jobs.len();
        inside.jobs.retain(|job| job.key != *key);
        let in_flight = inside.held.values().any(|(job, _)| job.key == *key);
        Ok(Cancelled { deleted: (before - inside.jobs.len()) as u64, more: false, in_flight })
    }

    fn accept(&mut self, entries: &[SpoolEntry], now: UnixSeconds) -> StoreResult<Vec<Added>> {
        assert!(!self.inside().open, "accepting has a transaction of its own");
        self.called("accept", &entries.len().to_string())?;
        let accept = |entry: &SpoolEntry| {
            if self.inside().accepted.contains(&entry.id) {
                return Ok(Added::Known);
            }
            let added = self.add_task(&entry.task, now)?;
            if added != Added::Full {
                self.inside().accepted.push(entry.id.clone());
            }
            Ok(added)
        };
        entries.iter().map(accept).collect()
    }

    fn accepted(&mut self) -> StoreResult<Vec<EntryId>> {
        self.called("accepted", "")?;
        Ok(self.inside().accepted.clone())
    }

    fn forget_accepted(&mut self, id: &EntryId) -> StoreResult<()> {
        self.called("forget accepted", &id.name)?;
        self.inside().accepted.retain(|known| known != id);
        Ok(())
    }
}
