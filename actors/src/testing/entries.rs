//! The mock store's part for entries of a spool: they stay until they are forgotten.

use std::sync::Arc;

use super::MockStore;
use crate::model::UnixSeconds;
use crate::store::{Entered, Entries, Entry, EntryState, StoreResult};

impl Entries for MockStore {
    fn enter(&mut self, entry: &Entry, _now: UnixSeconds) -> StoreResult<Entered> {
        self.called("enter", &entry.name)?;
        self.inside().entries.push(entry.clone());
        Ok(Entered::Added)
    }

    fn entries(&mut self) -> StoreResult<Vec<EntryState>> {
        self.called("entries", "")?;
        let state = |entry: &Entry| EntryState {
            name: Arc::clone(&entry.name),
            key: entry.row.key.clone(),
            done: false,
        };
        Ok(self.inside().entries.iter().map(state).collect())
    }

    fn forget_entry(&mut self, name: &str) -> StoreResult<()> {
        self.called("forget", name)?;
        self.inside().entries.retain(|entry| &*entry.name != name);
        Ok(())
    }

    fn withdraw_entry(&mut self, name: &str) -> StoreResult<bool> {
        self.called("withdraw", name)?;
        self.inside().entries.retain(|entry| &*entry.name != name);
        Ok(true)
    }
}
