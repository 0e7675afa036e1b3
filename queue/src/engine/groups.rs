//! The groups of a batch: which jobs start and end, which groups are open by now, and how new names become known.
//!
//! [Rules](crate::rules::groups) decide when a group is open. Nothing here looks at keys; [hand_out](super::hand_out) does.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Batch;
use crate::groups::{GroupId, Limits, Named};
use crate::operation::{Ack, AskFor, HeldGroup, HoldGroup};
use crate::place::{Line, Place};
use crate::record::{Flight, Millis, Record};
use crate::records::{FIRST_OPENING, GroupChange, Name, Opens, Records, StoreResult, Stored};
use crate::rules::groups::{Group, Hold, Opening};
use shiftboss_protocol::model::{Attempt, IDLE_COUNT_MAX};
use shiftboss_protocol::verbs::{ASKED_SECONDS_MAX, Asks};

/// Most groups that one operation opens, or looks at: each is a row and its heads, and a worker waits meanwhile.
const GROUPS_STEP: usize = 100;

/// A job that is out and counts in a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Job {
    attempt: Attempt,
    group: GroupId,
    /// In steady time.
    started: Millis,
}

/// What groups know of a key.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Footprint {
    job: Option<Job>,
    /// The group in which it waits for its turn.
    waits: Option<GroupId>,
    /// Of each of its rows, and of all its single tasks.
    tasks: Vec<GroupId>,
}

impl Footprint {
    pub(super) fn of(record: &Record, place: &Place) -> Self {
        let job = record.flight.as_ref().and_then(|flight| {
            let Flight { attempt, started, before, .. } = flight;
            let started = started.saturating_sub(before.clock);
            Some(Job { attempt: *attempt, group: before.group?, started })
        });
        let rows = record.rows.iter().filter_map(|row| row.group);
        let tasks = rows.chain(record.singles.group).collect();
        Self { job, waits: place.group, tasks }
    }

    fn groups(&self) -> impl Iterator<Item = GroupId> {
        let job = self.job.map(|job| job.group);
        self.tasks.iter().copied().chain(job).chain(self.waits)
    }
}

/// How a key's footprint has changed.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) before: Footprint,
    pub(super) now: Footprint,
}

#[derive(Debug)]
struct Loaded {
    group: Group,
    limits: Limits,
    /// When it was loaded, and now.
    was: Opening,
    opening: Opening,
    is_changed: bool,
}

impl Loaded {
    /// Keys that wait for it may go now, or know by now when they may.
    fn brings_work(&self) -> bool {
        let comes = self.opening == Opening::Open || self.opening.due().is_some();
        self.is_changed && self.group.waiting > 0 && comes && self.opening != self.was
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Groups {
    loaded: BTreeMap<GroupId, Loaded>,
    /// Steps of keys that their groups do not know yet.
    pub(super) steps: Vec<Step>,
    /// Names of groups of tasks that came.
    names: BTreeMap<GroupId, Arc<str>>,
    /// Groups whose first keys are not among the store's heads of open groups, because they opened in this batch.
    opened: BTreeSet<GroupId>,
    /// Groups whose first key in a line is another one than the store's head, or which are closed.
    passed: BTreeSet<(Line, GroupId)>,
    /// Groups whose time has come were opened.
    has_opened: bool,
    /// There may be more of them.
    pub(super) has_more: bool,
}

impl Groups {
    /// The store's head of the group in this line is no longer the first one.
    pub(super) fn pass(&mut self, line: Line, id: GroupId) {
        self.passed.insert((line, id));
    }

    pub(super) fn is_passed(&self, line: Line, id: GroupId) -> bool {
        self.opened.contains(&id) || self.passed.contains(&(line, id))
    }

    /// Groups whose first key in a line is to be looked up.
    pub(super) fn passed(&self, line: Line) -> Vec<GroupId> {
        let (first, last) = ((line, GroupId(i64::MIN)), (line, GroupId(i64::MAX)));
        let passed = self.passed.range(first..=last).map(|it| it.1);
        passed.filter(|id| !self.opened.contains(id)).chain(self.opened.iter().copied()).collect()
    }

    /// One that is not loaded is closed.
    pub(super) fn is_open(&self, id: GroupId) -> bool {
        self.loaded.get(&id).is_some_and(|it| it.opening == Opening::Open)
    }
}

impl<S: Records> Batch<'_, S> {
    pub(super) fn has_groups(&self) -> bool {
        !self.context.settings.groups.is_empty() || self.is_sorting()
    }

    /// Groups learn what their keys did: which jobs started and ended, how many wait.
    pub(super) async fn settle_groups(&mut self) -> StoreResult<()> {
        let steps = std::mem::take(&mut self.groups.steps);
        if steps.is_empty() {
            return Ok(());
        }
        let ids = steps.iter().flat_map(|it| it.before.groups().chain(it.now.groups()));
        self.load_groups(&ids.collect::<Vec<_>>()).await?;
        steps.into_iter().for_each(|step| self.settle(step));
        Ok(())
    }

    fn settle(&mut self, Step { before, now }: Step) {
        let steady = self.context.steady();
        let is_same = before.job == now.job;
        if let Some(Job { group, started, .. }) = before.job.filter(|_| !is_same) {
            let took = steady.saturating_sub(started);
            self.change_group(group, |it, limits| it.ends(limits, took, steady));
        }
        if let Some(Job { group, .. }) = now.job.filter(|_| !is_same) {
            self.change_group(group, |it, limits| it.starts(limits, steady));
        }
        let waits = before.waits.map(|it| (it, -1)).into_iter().chain(now.waits.map(|it| (it, 1)));
        for (group, more) in waits {
            self.change_group(group, |it, _| it.waiting = it.waiting.saturating_add(more));
        }
        let tasks = before.tasks.into_iter().map(|it| (it, -1));
        for (group, more) in tasks.chain(now.tasks.into_iter().map(|it| (it, 1))) {
            self.change_group(group, |it, _| it.tasks = it.tasks.saturating_add(more));
        }
    }

    /// Loads those that are not loaded yet.
    pub(super) async fn load_groups(&mut self, ids: &[GroupId]) -> StoreResult<()> {
        let missing = ids.iter().filter(|id| !self.groups.loaded.contains_key(id));
        let missing: Vec<GroupId> = missing.copied().collect::<BTreeSet<_>>().into_iter().collect();
        if missing.is_empty() {
            return Ok(());
        }
        let found = self.store.groups(&missing).await?;
        for (id, group) in missing.into_iter().zip(found) {
            let name = || self.groups.names.get(&id).cloned().unwrap_or_default();
            let group = group.unwrap_or_else(|| Group::new(name()));
            self.take_in(id, group);
        }
        Ok(())
    }

    fn take_in(&mut self, id: GroupId, group: Group) {
        let limits = self.context.settings.groups.limits(&group.name);
        let opening = group.opening(&limits, self.context.steady());
        let loaded = Loaded { group, limits, was: opening, opening, is_changed: false };
        self.groups.loaded.entry(id).or_insert(loaded);
    }

    /// Changes a group that is loaded.
    pub(super) fn change_group<T>(
        &mut self,
        id: GroupId,
        rule: impl FnOnce(&mut Group, &Limits) -> T,
    ) -> Option<T> {
        let it = self.groups.loaded.get_mut(&id)?;
        let came_to = rule(&mut it.group, &it.limits);
        let now = self.context.steady();
        it.opening = it.group.opening(&it.limits, now);
        it.is_changed = true;
        if it.opening == Opening::Open && it.was != Opening::Open {
            self.groups.opened.insert(id);
        }
        Some(came_to)
    }

    /// Opens groups whose time has come, a bounded number, once a batch.
    pub(super) async fn open_groups(&mut self) -> StoreResult<()> {
        if !self.has_groups() || std::mem::replace(&mut self.groups.has_opened, true) {
            return Ok(());
        }
        let steady = self.context.steady();
        let due = self.store.opening(FIRST_OPENING, steady, GROUPS_STEP).await?;
        self.groups.has_more = due.len() == GROUPS_STEP;
        due.into_iter().for_each(|(at, group)| self.look_at(at, group));
        Ok(())
    }

    /// Whether it is open, by the present time and limits.
    fn look_at(&mut self, (_, id): Opens, group: Group) {
        self.take_in(id, group);
        self.see(id);
        self.groups.opened.insert(id);
    }

    /// After a start or a reload, some more of the groups that wait are looked at: their limits may be others, and a clock
    /// that was set while no daemon ran closes none for longer than these. Returns whether there are more.
    pub(super) async fn follow_groups(&mut self) -> StoreResult<bool> {
        if !self.has_groups() {
            return Ok(false);
        }
        self.flush().await?;
        let behind = self.memo.sorter.opening.take();
        if behind.is_none() {
            self.look_at_full_ones().await?;
        }
        let behind = behind.unwrap_or(FIRST_OPENING);
        let next = self.store.opening(behind, Millis::MAX, GROUPS_STEP).await?;
        let is_more = next.len() == GROUPS_STEP;
        self.memo.sorter.opening = next.last().map(|it| it.0).filter(|_| is_more);
        next.into_iter().for_each(|(at, group)| self.look_at(at, group));
        Ok(is_more)
    }

    /// No time opens a group that is full, but it has jobs that are out.
    async fn look_at_full_ones(&mut self) -> StoreResult<()> {
        let out = self.store.flights().await?;
        let names: Vec<Name> = out.into_iter().map(|it| Name::Attempt(it.attempt)).collect();
        let jobs = self.store.load(&names).await?;
        let group = |it: Stored| it.record.flight?.before.group;
        let groups: Vec<GroupId> = jobs.into_iter().flatten().filter_map(group).collect();
        self.load_groups(&groups).await?;
        groups.into_iter().for_each(|id| self.see(id));
        Ok(())
    }

    fn see(&mut self, id: GroupId) {
        let now = self.context.steady();
        self.change_group(id, |it, limits| it.see(limits, now));
    }

    /// In how many milliseconds time opens a group.
    pub(super) async fn next_opening(&mut self) -> StoreResult<Option<u64>> {
        if !self.has_groups() || self.header.paused || self.is_draining() {
            return Ok(None);
        }
        let (first, steady) = (self.store.first_opening().await?, self.context.steady());
        Ok(first.map(|opens| opens.saturating_sub(steady).max(0).cast_unsigned()))
    }

    pub(super) async fn ask_for(&mut self, AskFor { attempt, asks }: AskFor) -> StoreResult<Ack> {
        let Some(slot) = self.slot_of_flight(attempt).await? else { return Ok(Ack::Stale) };
        let Asks { group_wait, group_delay, not_before, forget_group } = asks;
        let flight = self.desk.record(slot).flight.as_ref();
        let mut most = ASKED_SECONDS_MAX;
        if let Some(group) = flight.and_then(|flight| flight.before.group) {
            self.load_groups(&[group]).await?;
            most = self.groups.loaded.get(&group).map_or(most, |it| it.limits.asked_seconds());
            let now = self.context.steady();
            self.change_group(group, |it, limits| {
                if forget_group {
                    (it.pause, it.delay) = (None, None);
                }
                it.asks(limits, group_wait, group_delay, now);
            });
        }
        if let Some(seconds) = not_before {
            let seconds = seconds.min(most);
            self.change(slot, |record, _| record.extras.not_before = Some((attempt, seconds)));
        }
        Ok(Ack::Recorded)
    }

    pub(super) async fn hold_group(&mut self, it: HoldGroup) -> StoreResult<HeldGroup> {
        let HoldGroup { group: name, seconds, reason, by } = it;
        let id = GroupId::of(&name);
        self.groups.names.insert(id, name.clone());
        self.load_groups(&[id]).await?;
        let (now, since) = (self.context.steady(), self.context.seconds());
        let is_known = self.context.settings.groups.has(&name);
        let lasts = seconds.map(|seconds| (now, i64::from(seconds).saturating_mul(1_000)));
        let replaced = self.change_group(id, |it, _| {
            (is_known || it.tasks > 0)
                .then(|| (it.hold.replace(Hold { since, lasts, reason, by }).is_some(), it.tasks))
        });
        Ok(match replaced.flatten() {
            Some((replaced, tasks)) => {
                let until = seconds.map(|seconds| since.saturating_add(seconds.into()));
                HeldGroup::Held { until, replaced, tasks }
            }
            None => HeldGroup::Unknown,
        })
    }

    pub(super) async fn unhold_group(&mut self, name: &str) -> StoreResult<bool> {
        let id = GroupId::of(name);
        self.groups.names.insert(id, name.into());
        self.load_groups(&[id]).await?;
        let unheld = self.change_group(id, |it, _| {
            let asked = (it.pause.take(), it.delay.take());
            it.hold.take().is_some() || asked != (None, None)
        });
        Ok(unheld.unwrap_or(false))
    }

    /// How many groups are closed that have keys, counted up to the most that an answer names.
    pub(super) async fn closed_groups(&mut self) -> StoreResult<u32> {
        if !self.has_groups() {
            return Ok(0);
        }
        self.flush().await?;
        self.store.closed(self.context.steady(), IDLE_COUNT_MAX).await
    }

    /// The group of a task that comes.
    pub(super) fn name_group(&mut self, key: &str, payload: &str) -> Option<GroupId> {
        let Named { id, name } = self.context.settings.groups.of(key, payload)?;
        self.groups.names.insert(id, name);
        Some(id)
    }

    /// The changes to save; forgets all that is loaded.
    pub(super) fn take_groups(&mut self) -> Vec<GroupChange> {
        let Groups { loaded, has_opened, has_more, .. } = std::mem::take(&mut self.groups);
        (self.groups.has_opened, self.groups.has_more) = (has_opened, has_more);
        let now = self.context.steady();
        self.news.has_work |= loaded.values().any(Loaded::brings_work);
        let changed = loaded.into_iter().filter(|(_, it)| it.is_changed);
        let change = |(id, it): (GroupId, Loaded)| {
            let Loaded { mut group, limits, opening, .. } = it;
            if group.tasks <= 0 && group.in_flight <= 0 {
                group.tidy(&limits, now);
            }
            let is_to_see = opening == Opening::Open && group.is_to_see(&limits, now);
            let unseen = is_to_see.then_some(now);
            let opens = opening.due().or(unseen).or_else(|| group.is_over_at(&limits, now));
            let group = (!group.is_over(&limits, now)).then_some(group);
            GroupChange { id, group, opening, opens }
        };
        changed.map(change).collect()
    }
}
