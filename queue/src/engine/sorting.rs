//! Sorting tasks into groups anew, in steps, when the configuration sorts them otherwise than the last one did: new tasks
//! are sorted as they come. Until all are, others still stand in their former groups.

use super::Batch;
use crate::documents::{SORTED, Sorted};
use crate::groups::GroupId;
use crate::record::{SingleStatus, Task};
use crate::records::{From, Payload, Records, StoreResult, Stored};

/// How many keys are looked at in one batch.
const STEP: usize = 1_000;

/// Single tasks that are not over: the first of these that a key has decides.
const KEPT: [SingleStatus; 4] =
    [SingleStatus::Waiting, SingleStatus::InFlight, SingleStatus::Failed, SingleStatus::DeadLetter];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sorting {
    Done,
    /// It is noted by which rules.
    Begun,
    New,
}

impl<S: Records> Batch<'_, S> {
    pub(super) async fn read_sorting(&mut self) -> StoreResult<()> {
        if self.memo.sorting.is_none() {
            let noted = self.document(&SORTED, SORTED.name()).await?;
            let rules = &self.context.settings.groups;
            self.memo.sorting = Some(match noted {
                None if rules.is_empty() => Sorting::Done,
                Some(it) if it.rules.sorts_like(rules) && it.is_done => Sorting::Done,
                Some(it) if it.rules.sorts_like(rules) => Sorting::Begun,
                _ => Sorting::New,
            });
        }
        Ok(())
    }

    pub(super) fn is_sorting(&self) -> bool {
        self.memo.sorting.is_some_and(|it| it != Sorting::Done)
    }

    /// Sorts the tasks of some more keys.
    pub(super) async fn sort_some(&mut self) -> StoreResult<()> {
        if !self.is_sorting() {
            return Ok(());
        }
        self.flush().await?;
        if self.memo.sorting == Some(Sorting::New) {
            self.memo.sorted = None;
            self.note_sorting(Sorting::Begun).await?;
        }
        let behind = self.memo.sorted.take();
        let next = self.store.next(From::All, behind.as_ref(), STEP).await?;
        let last = next.last().cloned();
        for stored in next {
            self.sort(stored).await?;
        }
        self.memo.sorted = last;
        if self.memo.sorted.is_none() {
            self.note_sorting(Sorting::Done).await?;
        }
        Ok(())
    }

    async fn note_sorting(&mut self, sorting: Sorting) -> StoreResult<()> {
        let rules = self.context.settings.groups.clone();
        self.memo.sorting = Some(sorting);
        let noted = Sorted { rules, is_done: sorting == Sorting::Done };
        self.note(&SORTED, SORTED.of(""), &noted).await
    }

    async fn sort(&mut self, stored: Stored) -> StoreResult<()> {
        let (id, mut record) = (stored.id, stored.record.clone());
        for row in &mut record.rows {
            let payload = self.store.payload(id, row.task()).await?;
            row.group = self.sorted_into(record.key.as_str(), &payload);
        }
        if record.has_singles() {
            record.singles.group = None;
            for status in KEPT {
                let newest = self.store.singles(id, status, 1).await?.pop();
                let Some(number) = newest else { continue };
                let payload = self.store.payload(id, Task::Single { number }).await?;
                record.singles.group = self.sorted_into(record.key.as_str(), &payload);
                break;
            }
        }
        if record != stored.record {
            let slot = self.desk.put(stored);
            *self.desk.record_mut(slot) = record;
            self.changed(slot);
        }
        Ok(())
    }

    fn sorted_into(&mut self, key: &str, payload: &Payload) -> Option<GroupId> {
        match payload {
            Payload::Text(text) => self.name_group(key, text),
            Payload::Missing | Payload::Damaged => self.name_group(key, ""),
        }
    }
}
