//! What tests use: a store in memory, the port over maps. It is searched from end to end, and decides nothing. It is
//! not part of any program.

mod listings;

use std::collections::BTreeMap;
use std::sync::Arc;

use shiftboss_protocol::model::{Attempt, Key};

use crate::attempt::EndedAttempt;
use crate::place::Place;
use crate::record::{FetcherId, Record, SingleEdit, SingleStatus, Task};
use crate::records::{
    Begun, Change, Changes, From, Header, InFlight, KeyId, Name, Outset, Payload, Records,
    StoreResult, Stored,
};
use crate::rules::dispatch::Scope;
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
        Stored { id: KeyId(id), record, place: *place, payload: None }
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
                if let Some(single) = singles.get_mut(number) {
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
        scope: &Scope,
        count: usize,
    ) -> StoreResult<Vec<Stored>> {
        let in_scope = |record: &Record| record.waiting_fetchers().any(|it| scope.has(it));
        let is_meant = |(record, place): &&(Record, Place)| match from {
            From::Order => place.order.is_some() && !place.classic_held && in_scope(record),
            From::ClassicHeld => place.classic_held && in_scope(record),
            From::Lane => place.order.is_some() && place.lane.is_some() && in_scope(record),
            From::Later(now) => place.order.is_some_and(|turn| turn > now),
            From::Due(now) => place.due.is_some_and(|due| due <= now),
            From::Dues => place.due.is_some(),
            From::All => true,
        };
        let mut next: Vec<_> = self.kept.keys.values().filter(is_meant).collect();
        match from {
            From::Lane => next.sort_by_key(|it| it.1.lane),
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

    async fn of_run(
        &mut self,
        (fetcher, run): (FetcherId, i64),
        behind: Option<KeyId>,
        count: usize,
    ) -> StoreResult<Vec<Stored>> {
        let stored = self.kept.keys.values().map(|it| self.stored(it));
        let is_meant = |it: &Stored| {
            behind.is_none_or(|behind| it.id > behind) && it.record.row(fetcher, run).is_some()
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
