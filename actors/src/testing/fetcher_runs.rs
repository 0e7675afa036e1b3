//! The mock store's part for the daemon's own fetchers: what is noted stays.

use super::MockStore;
use crate::store::{FetcherRecord, FetcherRuns, StoreResult};

impl FetcherRuns for MockStore {
    fn note_fetcher(&mut self, record: &FetcherRecord) -> StoreResult<()> {
        self.called("note_fetcher", &record.name)?;
        self.inside().fetchers.insert(record.name.to_string(), record.clone());
        Ok(())
    }

    fn fetcher_records(&mut self) -> StoreResult<Vec<FetcherRecord>> {
        self.called("fetcher_records", "")?;
        Ok(self.inside().fetchers.values().cloned().collect())
    }

    fn forget_fetcher(&mut self, name: &str) -> StoreResult<()> {
        self.called("forget_fetcher", name)?;
        self.inside().fetchers.remove(name);
        Ok(())
    }
}
