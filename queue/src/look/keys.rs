//! Keys by prefix, held keys, and how long keys wait: questions besides `why` and `queue`.

use std::ops::Bound::{Excluded, Included};

use super::{Look, Steps, count_of};
use crate::context::Context;
use crate::listings::{Along, Listings, behind};
use crate::reader::SAMPLE_MAX;
use crate::record::{FetcherId, Record, Singles};
use crate::sums::total;
use shiftboss_protocol::answers::{Found, HeldKey, HeldKeys, Hold, LastStarts};

/// Most held keys that one question returns.
const HELD_MAX: usize = 10_000;

/// The part of a record that holds its key.
type Holds = fn(&Record, &Context) -> Option<Hold>;

impl<S: Listings> Look<'_, S> {
    pub(super) async fn search(&mut self, prefix: &str, count: usize) -> Result<Found, S::Error> {
        let before = behind(prefix);
        let mut keys = self.store.known(prefix, before.as_deref(), count + 1).await?;
        let truncated = keys.len() > count;
        keys.truncate(count);
        Ok(Found { keys, truncated })
    }

    pub(super) async fn held(&mut self, count: usize) -> Result<HeldKeys, S::Error> {
        let count = count.min(HELD_MAX);
        let mut keys = Vec::new();
        let kinds = [(Along::Held, Record::hold as Holds), (Along::BackedOff, Record::backoff)];
        for (along, hold) in kinds {
            for stored in Steps::new(along).records(self, count + 1 - keys.len()).await? {
                let key = stored.record.key.to_string();
                keys.extend(hold(&stored.record, &self.context).map(|hold| HeldKey { key, hold }));
            }
        }
        let truncated = keys.len() > count;
        keys.truncate(count);
        Ok(HeldKeys { keys, truncated })
    }

    /// The random choice of keys does not depend on when they ran, whatever the order of the lists.
    pub(super) async fn last_starts(&mut self) -> Result<LastStarts, S::Error> {
        let runs = self.head.header.counts.0.iter();
        let runs = runs.filter(|(run, _)| !self.context.going.contains(run));
        let rows = total(runs.map(|(_, counts)| counts.rows));
        let is_all = rows <= count_of(SAMPLE_MAX);
        let ids = match is_all {
            true => self.store.listed().await?,
            false => self.store.sample(SAMPLE_MAX).await?,
        };
        let mut started = Vec::new();
        for stored in self.records(&ids).await? {
            let lists = self.lists_of(&stored.record);
            started.extend(std::iter::repeat_n(self.last_start(&stored.record), lists));
        }
        Ok(LastStarts { started, is_all })
    }

    /// How many of the newest lists have it; single tasks count as one list.
    fn lists_of(&self, record: &Record) -> usize {
        let runs = &self.head.header.runs;
        let is_newest = |fetcher: FetcherId, run: i64| {
            let mut newer = runs.range((Excluded((fetcher, run)), Included((fetcher, i64::MAX))));
            !self.context.going.contains(&(fetcher, run)) && newer.all(|(_, it)| it.deleting)
        };
        let lists = record.newest_rows().filter(|row| is_newest(row.fetcher, row.run)).count();
        let out = record.flight.as_ref().map(|flight| flight.task.fetcher());
        let Singles { waiting, failed, dead, .. } = record.singles;
        let has_singles = waiting > 0 || failed > 0 || dead > 0;
        lists + usize::from(has_singles || out == Some(FetcherId::TASKS))
    }
}
