//! Sorting tasks into groups anew, in steps, when the configuration sorts them otherwise than the last one did: new tasks
//! are sorted as they come. Until all are, others still stand in their former groups. Before that, and after each start, groups
//! that wait are looked at, because their limits may be other ones.

use std::sync::Arc;

use super::Batch;
use crate::context::Settings;
use crate::documents::{RULES, SORTED, Sorted};
use crate::groups::{GroupId, GroupRules};
use crate::operation::SetGroups;
use crate::record::{SingleStatus, Task};
use crate::records::{From, Opens, Payload, Records, StoreResult, Stored};

/// How many keys are looked at in one batch.
const STEP: usize = 1_000;

/// Single tasks that are not over: the first of these that a key has decides.
const KEPT: [SingleStatus; 4] =
    [SingleStatus::Waiting, SingleStatus::InFlight, SingleStatus::Failed, SingleStatus::DeadLetter];

/// What is still to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sorting {
    Done,
    /// Groups are to be looked at.
    Groups,
    /// Keys are to be sorted.
    Keys,
}

/// How far groups and keys have followed these rules.
#[derive(Debug, Default)]
pub(super) struct Sorter {
    rules: GroupRules,
    /// The document names them.
    is_noted: bool,
    /// All keys are sorted by them.
    is_sorted: bool,
    /// The last group that was [looked at](Batch::follow_groups).
    pub(super) opening: Option<Opens>,
    /// The last key that was sorted, and how many were.
    behind: Option<Stored>,
    keys: i64,
}

impl<S: Records> Batch<'_, S> {
    /// The daemon goes on with other groups, and so do all that share its queue.
    pub(super) async fn set_groups(&mut self, SetGroups(groups): SetGroups) -> StoreResult<()> {
        // What was changed before is by the rules before.
        self.flush().await?;
        let with = |settings: &Settings| Settings { groups: groups.clone(), ..settings.clone() };
        *self.settings = Arc::new(with(self.settings));
        if self.own.is_some() {
            let rules = self.document(&RULES, RULES.name()).await?.unwrap_or_default();
            self.note(&RULES, RULES.of(""), &rules.with(groups.clone())).await?;
        }
        self.use_settings(with(&self.context.settings)).await
    }

    /// From now on tasks are sorted by these.
    pub(super) async fn use_settings(&mut self, settings: Settings) -> StoreResult<()> {
        self.context.settings = Arc::new(settings);
        if self.own.is_some() {
            self.memo.settings = Some(self.context.settings.clone());
        }
        self.memo.sorting = None;
        self.read_sorting().await
    }

    pub(super) async fn read_sorting(&mut self) -> StoreResult<()> {
        if self.memo.sorting.is_some() {
            return Ok(());
        }
        let noted = self.document(&SORTED, SORTED.name()).await?;
        let rules = &self.context.settings.groups;
        let sorter = &mut self.memo.sorter;
        if sorter.rules != *rules {
            *sorter = Sorter { rules: rules.clone(), ..Sorter::default() };
        }
        // Nobody ever had groups.
        let is_unused = noted.is_none() && rules.is_empty();
        let noted = noted.unwrap_or_else(|| Sorted { is_sorted: true, ..Sorted::default() });
        sorter.is_noted = is_unused || noted.rules == *rules;
        sorter.is_sorted = noted.is_sorted && noted.rules.sorts_like(rules);
        self.memo.sorting = Some(match self.looked_at.as_ref() {
            _ if is_unused => Sorting::Done,
            Some(by) if by == rules => self.memo.sorter.next(),
            _ => Sorting::Groups,
        });
        Ok(())
    }

    pub(super) fn is_sorting(&self) -> bool {
        self.memo.sorting.is_some_and(|it| it != Sorting::Done)
    }

    /// Looks at some more groups, or sorts the tasks of some more keys.
    pub(super) async fn sort_some(&mut self) -> StoreResult<()> {
        match self.memo.sorting {
            Some(Sorting::Groups) => self.follow_limits().await,
            Some(Sorting::Keys) => self.sort_keys().await,
            Some(Sorting::Done) | None => Ok(()),
        }
    }

    async fn follow_limits(&mut self) -> StoreResult<()> {
        if !self.follow_groups().await? {
            *self.looked_at = Some(self.context.settings.groups.clone());
            self.memo.sorting = Some(self.memo.sorter.next());
        }
        Ok(())
    }

    async fn sort_keys(&mut self) -> StoreResult<()> {
        self.flush().await?;
        let behind = self.memo.sorter.behind.take();
        let next = self.store.next(From::All, behind.as_ref(), STEP).await?;
        let sorter = &mut self.memo.sorter;
        let done = if behind.is_none() { 0 } else { sorter.keys };
        (sorter.keys, sorter.behind) = (done.saturating_add(count_of(&next)), next.last().cloned());
        sorter.is_sorted = next.is_empty();
        self.memo.sorting = Some(sorter.next());
        for stored in next {
            self.sort(stored).await?;
        }
        self.note_sorting().await
    }

    /// Other rules are noted before the first task is sorted by them: whoever comes back to the former ones then knows that
    /// not all tasks are sorted by those.
    pub(super) async fn note_rules(&mut self) -> StoreResult<()> {
        match self.memo.sorter.is_noted || self.memo.sorting.is_none() {
            true => Ok(()),
            false => self.note_sorting().await,
        }
    }

    async fn note_sorting(&mut self) -> StoreResult<()> {
        let Sorter { rules, is_sorted, keys, .. } = &self.memo.sorter;
        let noted = Sorted { rules: rules.clone(), is_sorted: *is_sorted, keys: *keys };
        self.memo.sorter.is_noted = true;
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

impl Sorter {
    /// What is to be done when all groups are looked at.
    fn next(&self) -> Sorting {
        if self.is_sorted { Sorting::Done } else { Sorting::Keys }
    }
}

fn count_of(keys: &[Stored]) -> i64 {
    keys.len().try_into().unwrap_or(i64::MAX)
}
