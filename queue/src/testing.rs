//! What tests use: a store in memory, the port over maps. It is searched from end to end, and decides nothing. It is
//! not part of any program.

mod listings;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use shiftboss_protocol::model::{Attempt, Key};

use crate::attempt::EndedAttempt;
use crate::code;
use crate::groups::GroupId;
use crate::place::{Line, Place};
use crate::record::{FetcherId, Millis, Record, SingleEdit, SingleStatus, Task};
use crate::records::{
    Begun, Change, Changes, From, Header, InFlight, KeyId, Name, Opens, Outset, Payload, Records,
    StoreResult, Stored,
};
use crate::rules::groups::{Group, Opening};
use crate::sums::{OVER_STEP, Sums};

/// A single task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Single {
    pub key: Key,
    pub payload: String,
    pub status: SingleStatus,
    pub id: Option<Arc<str>>,
    /// The minute in which it was done or cancelled.
    pub over: Option<i64>,
}

/// All that is kept.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Kept {
    /// In the order of jitter, then of the keys' bytes.
    pub keys: BTreeMap<(i32, Key), (Record, Place)>,
    pub ids: BTreeMap<Key, i64>,
    pub payloads: BTreeMap<(Key, FetcherId, i64), String>,
    /// By number.
    pub singles: BTreeMap<i64, Single>,
    /// By the numbers of their ends.
    pub ended: BTreeMap<i64, EndedAttempt>,
    /// The last one of these numbers.
    pub ends: i64,
    pub header: Header,
    pub sums: Sums,
    pub documents: BTreeMap<String, String>,
    /// With whether they are open, and when to look at them.
    pub groups: BTreeMap<GroupId, (Group, Opening, Option<Millis>)>,
}

/// See the module.
#[derive(Debug, Clone, Default)]
pub struct Memory {
    kept: Kept,
    /// The state before the transaction.
    before: Option<Box<Kept>>,
    is_known: bool,
}

impl Memory {
    pub fn kept(&self) -> &Kept {
        &self.kept
    }

    /// For changes by another program, before an engine [begins](Self::reopened) with it.
    pub fn kept_mut(&mut self) -> &mut Kept {
        &mut self.kept
    }

    /// The same data for the next engine.
    #[must_use]
    pub fn reopened(self) -> Self {
        Self { kept: self.kept, ..Self::default() }
    }

    fn stored(&self, (record, place): &(Record, Place)) -> Stored {
        let mut record = record.clone();
        let waiting =
            |single: &&Single| single.key == record.key && single.status == SingleStatus::Waiting;
        let first = self.kept.singles.iter().find(|(_, single)| waiting(single));
        record.singles.first = first.map(|(number, _)| *number);
        let id = self.kept.ids.get(&record.key).copied().unwrap_or(i64::MAX);
        Stored { id: KeyId(id), record, place: place.clone(), payload: None }
    }

    fn named(&self, id: KeyId) -> Option<&Key> {
        self.kept.ids.iter().find(|(_, known)| **known == id.0).map(|(key, _)| key)
    }

    /// In the order of jitter.
    fn number(&mut self, key: &Key) {
        let before = self.kept.keys.range(..(key.jitter(), key.clone())).next_back();
        let before = before.and_then(|((_, key), _)| self.kept.ids.get(key)).copied();
        let jitter = i64::from(key.jitter()) - i64::from(i32::MIN);
        let id = before.map_or(0, |it| it + 1).max(jitter << 31);
        self.kept.ids.entry(key.clone()).or_insert(id);
    }

    /// Whether it is the first one of an open group.
    fn is_head(&self, (record, place): &(Record, Place), line: Line) -> bool {
        let Some(group) = place.group_in(line) else { return false };
        let at = |it: &(Record, Place)| {
            let at = stands(&it.1, line, Some(group))?;
            Some((at, it.0.key.jitter(), it.0.key.clone()))
        };
        let first = self.kept.keys.values().filter_map(at).min();
        let is_open = self.kept.groups.get(&group).is_some_and(|it| it.1 == Opening::Open);
        is_open
            && first.is_some_and(|first| first.2 == record.key)
            && stands(place, line, Some(group)).is_some()
    }

    fn find(&self, name: &Name) -> Option<Stored> {
        let key = match name {
            Name::Key(key) => key.clone(),
            Name::TaskId(id) => {
                self.kept.singles.values().find(|it| it.id.as_ref() == Some(id))?.key.clone()
            }
            Name::Attempt(attempt) => {
                let is_out = |it: &&(Record, Place)| {
                    it.0.flight.as_ref().is_some_and(|flight| flight.attempt == *attempt)
                };
                let out = self.kept.keys.values().find(is_out).map(|it| it.0.key.clone());
                out.or_else(|| self.ended_as(*attempt).map(|it| it.key.clone()))?
            }
        };
        self.kept.keys.get(&(key.jitter(), key)).map(|it| self.stored(it))
    }

    fn ended_as(&self, attempt: Attempt) -> Option<&EndedAttempt> {
        self.kept.ended.values().find(|it| it.attempt == attempt)
    }

    fn payload_of(&self, id: KeyId, task: Task) -> Payload {
        let Some(key) = self.named(id) else {
            return Payload::Missing;
        };
        let known = match task {
            Task::Single { number } => self.kept.singles.get(&number).map(|it| it.payload.clone()),
            Task::Row { fetcher, run } => {
                self.kept.payloads.get(&(key.clone(), fetcher, run)).cloned()
            }
        };
        known.map_or(Payload::Missing, Payload::Text)
    }

    fn documents_of(&self, prefix: &str) -> Vec<(String, String)> {
        let behind = self.kept.documents.range(prefix.to_owned()..);
        let begin_so = behind.take_while(|(name, _)| name.starts_with(prefix));
        begin_so.map(|(name, text)| (name.clone(), text.clone())).collect()
    }

    fn change(&mut self, change: Change, minute: i64) {
        let at = (change.key.jitter(), change.key.clone());
        let Some((record, place)) = change.now else {
            self.kept.keys.remove(&at);
            self.kept.ids.remove(&change.key);
            self.kept.payloads.retain(|(key, ..), _| *key != change.key);
            self.kept.ended.retain(|_, it| it.key != change.key);
            return;
        };
        for row in &record.rows {
            if let Some(payload) = &row.payload {
                let task = (record.key.clone(), row.fetcher, row.run);
                self.kept.payloads.insert(task, payload.clone());
            }
        }
        for edit in &record.singles.edits {
            self.edit(&record.key, edit, minute);
        }
        self.number(&record.key);
        self.kept.keys.insert(at, (record.as_kept(), place));
    }

    fn edit(&mut self, key: &Key, edit: &SingleEdit, minute: i64) {
        let singles = &mut self.kept.singles;
        match edit {
            SingleEdit::Add { number, payload, id } => {
                let status = SingleStatus::Waiting;
                let (key, payload, id) = (key.clone(), payload.clone(), id.clone());
                singles.insert(*number, Single { key, payload, status, id, over: None });
            }
            SingleEdit::Set { number, status } => {
                let has_id = |single: &Single| single.id.is_some();
                if status.is_over() && !singles.get(number).is_some_and(has_id) {
                    singles.remove(number);
                } else if let Some(single) = singles.get_mut(number) {
                    (single.status, single.over) = (*status, status.is_over().then_some(minute));
                }
            }
            SingleEdit::Name { number, id } => {
                if let Some(single) = singles.get_mut(number) {
                    single.id.get_or_insert(id.clone());
                }
            }
        }
    }
}

/// Where a key stands in a line, among those of a group or of none.
fn stands(place: &Place, line: Line, group: Option<GroupId>) -> Option<i64> {
    let turn = place.order.filter(|_| !place.classic_held)?;
    if line.of.is_some() || group.is_some() {
        let standings = place.standings();
        return standings.iter().find(|it| (it.line, it.group) == (line, group)).map(|it| it.at);
    }
    let order = Some(code::turn(turn)).filter(|_| !line.is_lane);
    order.or(place.lane.filter(|_| line.is_lane)).filter(|_| place.group.is_none())
}

impl Records for Memory {
    async fn begin(&mut self, _: &Outset) -> StoreResult<Begun> {
        self.before = Some(Box::new(self.kept.clone()));
        let is_known = std::mem::replace(&mut self.is_known, true);
        let header = (!is_known).then(|| self.kept.header.clone());
        Ok(Begun { has_changed: !is_known, header, ..Begun::default() })
    }

    async fn load(&mut self, names: &[Name]) -> StoreResult<Vec<Option<Stored>>> {
        Ok(names.iter().map(|name| self.find(name)).collect())
    }

    async fn next(
        &mut self,
        from: From,
        behind: Option<&Stored>,
        count: usize,
    ) -> StoreResult<Vec<Stored>> {
        let is_meant = |it: &&(Record, Place)| match (from, &it.1) {
            (From::Line(line), place) => stands(place, line, None).is_some(),
            (From::Heads(line), _) => self.is_head(it, line),
            (From::Group(group, line), place) => stands(place, line, Some(group)).is_some(),
            (From::ClassicHeld, place) => place.classic_held,
            (From::Later(now), place) => place.order.is_some_and(|turn| turn > now),
            (From::Due(now), place) => place.due.is_some_and(|due| due <= now),
            (From::Dues, place) => place.due.is_some(),
            (From::All, _) => true,
        };
        let mut next: Vec<_> = self.kept.keys.values().filter(is_meant).collect();
        match from {
            From::Line(Line { is_lane: true, .. })
            | From::Heads(Line { is_lane: true, .. })
            | From::Group(_, Line { is_lane: true, .. }) => next.sort_by_key(|it| it.1.lane),
            From::Due(_) => next.sort_by_key(|it| it.1.due),
            // These are in the order of ids.
            From::Dues | From::All => {}
            _ => next.sort_by_key(|it| it.1.order),
        }
        let key = behind.map(|it| &it.record.key);
        let at = next.iter().position(|it| Some(&it.0.key) == key);
        let behind = next.into_iter().skip(at.map_or(0, |at| at + 1));
        Ok(behind.take(count).map(|it| self.stored(it)).collect())
    }

    async fn groups(&mut self, ids: &[GroupId]) -> StoreResult<Vec<Option<Group>>> {
        Ok(ids.iter().map(|id| self.kept.groups.get(id).map(|it| it.0.clone())).collect())
    }

    async fn opening(
        &mut self,
        behind: Opens,
        until: Millis,
        count: usize,
    ) -> StoreResult<Vec<(Opens, Group)>> {
        let all = self.kept.groups.iter();
        let due = all.filter_map(|(id, (it, _, opens))| Some((((*opens)?, *id), it.clone())));
        let mut due: Vec<_> = due.filter(|it| it.0 > behind && it.0.0 <= until).collect();
        due.sort_by_key(|it| it.0);
        due.truncate(count);
        Ok(due)
    }

    async fn first_opening(&mut self) -> StoreResult<Option<Millis>> {
        Ok(self.kept.groups.values().filter_map(|it| it.2).min())
    }

    async fn closed(&mut self, until: Millis, most: u32) -> StoreResult<u32> {
        let is_closed = |it: &&(Group, Opening, Option<Millis>)| {
            let opens = it.2.map_or(it.1 == Opening::Full, |opens| opens > until);
            it.1 != Opening::Open && it.0.waiting > 0 && opens
        };
        let closed = self.kept.groups.values().filter(is_closed).count();
        Ok(u32::try_from(closed).unwrap_or(u32::MAX).min(most))
    }

    async fn flights(&mut self) -> StoreResult<Vec<InFlight>> {
        let flights = self.kept.keys.values().filter_map(|(record, _)| record.flight.as_ref());
        let mut flights: Vec<InFlight> = flights
            .map(|it| InFlight {
                attempt: it.attempt,
                started: it.started,
                lease_seconds: it.holder.as_ref().map(|holder| holder.lease_seconds),
                owner: it.owner.clone(),
            })
            .collect();
        flights.sort_by_key(|it| it.attempt);
        Ok(flights)
    }

    async fn stops(&mut self, count: usize) -> StoreResult<Vec<Attempt>> {
        let stops = self.kept.keys.values().filter_map(|(record, _)| record.extras.stopping);
        Ok(stops.collect::<BTreeSet<_>>().into_iter().take(count).collect())
    }

    async fn of_run(
        &mut self,
        (fetcher, run): (FetcherId, i64),
        behind: Option<KeyId>,
        count: usize,
    ) -> StoreResult<Vec<Stored>> {
        let stored = self.kept.keys.values().map(|it| self.stored(it));
        let is_meant = |it: &Stored| {
            let has_row = it.record.row(fetcher, run).is_some();
            let has_single = fetcher == FetcherId::TASKS && it.record.singles.waiting > 0;
            behind.is_none_or(|behind| it.id > behind) && (has_row || has_single)
        };
        Ok(stored.filter(is_meant).take(count).collect())
    }

    async fn payload(&mut self, id: KeyId, task: Task) -> StoreResult<Payload> {
        Ok(self.payload_of(id, task))
    }

    async fn single(&mut self, number: i64) -> StoreResult<Option<SingleStatus>> {
        Ok(self.kept.singles.get(&number).map(|it| it.status))
    }

    async fn singles(
        &mut self,
        id: KeyId,
        status: SingleStatus,
        count: usize,
    ) -> StoreResult<Vec<i64>> {
        let key = self.named(id);
        let is_meant = |it: &Single| Some(&it.key) == key && it.status == status;
        let newest = self.kept.singles.iter().rev().filter(|(_, it)| is_meant(it));
        Ok(newest.map(|(number, _)| *number).take(count).collect())
    }

    async fn waiting_single(&mut self, id: KeyId, payload: &str) -> StoreResult<Option<i64>> {
        let key = self.named(id);
        let waits = |it: &Single| {
            Some(&it.key) == key && it.payload == payload && it.status == SingleStatus::Waiting
        };
        let mut singles = self.kept.singles.iter();
        Ok(singles.find(|(_, it)| waits(it)).map(|(number, _)| *number))
    }

    async fn ended(&mut self, attempt: Attempt) -> StoreResult<Option<EndedAttempt>> {
        Ok(self.ended_as(attempt).cloned())
    }

    async fn document(&mut self, name: &str) -> StoreResult<Option<String>> {
        Ok(self.kept.documents.get(name).cloned())
    }

    async fn documents(&mut self, prefix: &str) -> StoreResult<Vec<(String, String)>> {
        Ok(self.documents_of(prefix))
    }

    async fn note(&mut self, name: String, text: Option<String>) -> StoreResult<()> {
        match text {
            Some(text) => drop(self.kept.documents.insert(name, text)),
            None => drop(self.kept.documents.remove(&name)),
        }
        Ok(())
    }

    async fn save(&mut self, changes: Changes<'_>) -> StoreResult<()> {
        changes.records.into_iter().for_each(|change| self.change(change, changes.minute));
        for it in changes.groups {
            match it.group {
                Some(group) => self.kept.groups.insert(it.id, (group, it.opening, it.opens)),
                None => self.kept.groups.remove(&it.id),
            };
        }
        for it in changes.ended {
            // A late result replaces what was known of its attempt.
            self.kept.ended.retain(|_, known| known.attempt != it.attempt);
            self.kept.ends += 1;
            self.kept.ended.insert(self.kept.ends, it);
        }
        self.kept.header = changes.header.clone();
        self.kept.sums.merge(&changes.sums);
        if let Some(oldest) = changes.oldest {
            self.kept.sums.drop_older(oldest);
            let is_old = |it: &Single| it.over.is_some_and(|minute| minute < oldest.over);
            let old = self.kept.singles.extract_if(.., |_, it| is_old(it));
            old.take(usize::try_from(OVER_STEP).unwrap_or(0)).for_each(drop);
        }
        Ok(())
    }

    async fn commit(&mut self) -> StoreResult<()> {
        self.before = None;
        Ok(())
    }

    async fn roll_back(&mut self) {
        self.is_known = false;
        if let Some(before) = self.before.take() {
            self.kept = *before;
        }
    }
}
