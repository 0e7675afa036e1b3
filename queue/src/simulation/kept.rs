//! What a simulation keeps: records in memory, found along indexes. It can be copied, and is never rolled back.
//!
//! Only what comes up in a [simulation](super): no payloads, single tasks, ended attempts or documents of others; no clock is set,
//! and no rules change.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::Arc;

use foldhash::fast::RandomState;
use shiftboss_protocol::model::{Attempt, Key};

use crate::attempt::EndedAttempt;
use crate::code;
use crate::groups::GroupId;
use crate::header::Header;
use crate::place::{Line, Place, Turn};
use crate::record::{
    Extras, FetcherId, Flight, LastRun, ListRow, Millis, Record, SingleStatus, Task,
};
use crate::records::{
    Begun, Change, Changes, From, GroupChange, InFlight, KeyId, Name, Opens, Outset, Payload,
    Records, StoreResult, Stored,
};
use crate::rules::groups::{Group, Opening};

/// Bits of a key's id below its jitter: which key it is.
const AT_BITS: u32 = 31;
/// No worker of a simulation takes the tasks of one fetcher alone.
const LINES: [Line; 2] = [Line::ORDER, Line::LANE];

type Map<K, V> = HashMap<K, V, RandomState>;
/// Where a key stands: its number along the line, and its id.
type Spot = (i64, KeyId);

/// See the module.
#[derive(Debug, Clone, Default)]
pub(super) struct Kept {
    keys: Vec<Arc<Small>>,
    by_key: Map<Key, KeyId>,
    by_attempt: Map<Attempt, KeyId>,
    stands: Map<(Line, Option<GroupId>), BTreeSet<Spot>>,
    /// The first key of each open group.
    heads: Map<Line, BTreeSet<Spot>>,
    head_of: Map<(Line, GroupId), Spot>,
    dues: BTreeSet<(Millis, KeyId)>,
    groups: Map<GroupId, (Group, Opening, Option<Millis>)>,
    opens: BTreeSet<Opens>,
    header: Header,
    documents: BTreeMap<String, String>,
    is_known: bool,
}

/// A record and its place, without what a simulation does not have, in a third of the memory.
#[derive(Debug)]
struct Small {
    key: Key,
    since: Option<i64>,
    last: Option<LastRun>,
    last_attempt: Attempt,
    flight: Option<Box<Flight>>,
    rows: Box<[ListRow]>,
    served: Box<[(FetcherId, Attempt)]>,
    failed: Box<[FetcherId]>,
    extras: Option<Box<Extras>>,
    place: (Option<Turn>, Option<i64>, Option<Millis>, Option<GroupId>),
}

impl Small {
    fn of(record: Record, place: &Place) -> Self {
        Self {
            key: record.key,
            since: record.since,
            last: record.last,
            last_attempt: record.last_attempt,
            flight: record.flight.map(Box::new),
            rows: record.rows.into(),
            served: record.served.into_iter().collect(),
            failed: record.failed.into_iter().collect(),
            extras: (!record.extras.is_empty()).then(|| Box::new(record.extras)),
            place: (place.order, place.lane, place.due, place.group),
        }
    }

    fn stored(&self, id: KeyId) -> Stored {
        let record = Record {
            since: self.since,
            last: self.last,
            last_attempt: self.last_attempt,
            flight: self.flight.as_deref().cloned(),
            rows: self.rows.to_vec(),
            served: self.served.iter().copied().collect(),
            failed: self.failed.iter().copied().collect(),
            extras: self.extras.as_deref().cloned().unwrap_or_default(),
            ..Record::new(self.key.clone())
        };
        let (order, lane, due, group) = self.place;
        let place = Place { order, lane, due, group, ..Place::default() };
        Stored { id, record, place, payload: None }
    }
}

/// All places where a key stands.
fn standings(place: &Place) -> impl Iterator<Item = (Line, Option<GroupId>, i64)> {
    let is_free = place.group.is_none() && !place.classic_held;
    let turn = place.order.filter(|_| is_free).map(code::turn);
    let lane = place.lane.filter(|_| turn.is_some());
    let free = [turn.map(|at| (Line::ORDER, None, at)), lane.map(|at| (Line::LANE, None, at))];
    let others = place.standings().into_iter().map(|it| (it.line, it.group, it.at));
    free.into_iter().flatten().chain(others)
}

/// Where a key stands in a line.
fn at_in(line: Line, it: &Stored) -> Spot {
    let turn = it.place.order.map(code::turn);
    let at = if line.is_lane { it.place.lane } else { turn };
    (at.unwrap_or(i64::MIN), it.id)
}

impl Kept {
    /// The same for the next engine.
    pub(super) fn copied(&self) -> Self {
        Self { is_known: false, ..self.clone() }
    }

    fn at(&self, id: KeyId) -> usize {
        usize::try_from(id.0 & ((1 << AT_BITS) - 1)).unwrap_or(usize::MAX)
    }

    fn stored(&self, id: KeyId) -> Option<Stored> {
        self.keys.get(self.at(id)).map(|it| it.stored(id))
    }

    fn stored_of(&self, ids: impl Iterator<Item = KeyId>, count: usize) -> Vec<Stored> {
        ids.filter_map(|id| self.stored(id)).take(count).collect()
    }

    fn standing(
        &self,
        of: (Line, Option<GroupId>),
        behind: Option<&Stored>,
        count: usize,
    ) -> Vec<Stored> {
        let Some(all) = self.stands.get(&of) else { return Vec::new() };
        let behind = behind.map_or(Unbounded, |it| Excluded(at_in(of.0, it)));
        self.stored_of(all.range((behind, Unbounded)).map(|it| it.1), count)
    }

    fn new_id(&self, key: &Key) -> KeyId {
        let jitter = i64::from(key.jitter()) - i64::from(i32::MIN);
        KeyId(jitter << AT_BITS | i64::try_from(self.keys.len()).unwrap_or(i64::MAX))
    }

    fn change(&mut self, change: Change, stale: &mut BTreeSet<(Line, GroupId)>) {
        let id = change.before.as_ref().map(|it| it.id);
        if let Some(before) = &change.before {
            self.leave(before, stale);
        }
        let Some((record, place)) = change.now else {
            self.by_key.remove(&change.key);
            return;
        };
        let id = id.unwrap_or_else(|| self.new_id(&change.key));
        let stored = Stored { id, record: record.as_kept(), place, payload: None };
        self.enter(&stored, stale);
        let (at, small) = (self.at(id), Arc::new(Small::of(stored.record, &stored.place)));
        match self.keys.get_mut(at) {
            Some(known) => *known = small,
            None => {
                self.by_key.insert(change.key, id);
                self.keys.push(small);
            }
        }
    }

    fn leave(&mut self, it: &Stored, stale: &mut BTreeSet<(Line, GroupId)>) {
        for (line, group, at) in standings(&it.place) {
            if let Some(all) = self.stands.get_mut(&(line, group)) {
                all.remove(&(at, it.id));
            }
            stale.extend(group.map(|group| (line, group)));
        }
        if let Some(due) = it.place.due {
            self.dues.remove(&(due, it.id));
        }
        if let Some(flight) = &it.record.flight {
            self.by_attempt.remove(&flight.attempt);
        }
    }

    fn enter(&mut self, it: &Stored, stale: &mut BTreeSet<(Line, GroupId)>) {
        for (line, group, at) in standings(&it.place) {
            self.stands.entry((line, group)).or_default().insert((at, it.id));
            stale.extend(group.map(|group| (line, group)));
        }
        self.dues.extend(it.place.due.map(|due| (due, it.id)));
        if let Some(flight) = &it.record.flight {
            self.by_attempt.insert(flight.attempt, it.id);
        }
    }

    fn change_group(&mut self, it: GroupChange, stale: &mut BTreeSet<(Line, GroupId)>) {
        let before = self.groups.remove(&it.id);
        if let Some(opens) = before.as_ref().and_then(|it| it.2) {
            self.opens.remove(&(opens, it.id));
        }
        let was_open = before.is_none_or(|it| it.1 == Opening::Open);
        if was_open != (it.opening == Opening::Open) {
            stale.extend(LINES.map(|line| (line, it.id)));
        }
        if let Some(group) = it.group {
            self.opens.extend(it.opens.map(|opens| (opens, it.id)));
            self.groups.insert(it.id, (group, it.opening, it.opens));
        }
    }

    /// Finds the first key of a group anew.
    fn find_head(&mut self, (line, group): (Line, GroupId)) {
        let heads = self.heads.entry(line).or_default();
        if let Some(head) = self.head_of.remove(&(line, group)) {
            heads.remove(&head);
        }
        let is_open = self.groups.get(&group).is_none_or(|it| it.1 == Opening::Open);
        let first = self.stands.get(&(line, Some(group))).and_then(BTreeSet::first);
        if let Some(head) = first.copied().filter(|_| is_open) {
            heads.insert(head);
            self.head_of.insert((line, group), head);
        }
    }
}

impl Records for Kept {
    async fn begin(&mut self, _: &Outset) -> StoreResult<Begun> {
        let is_known = std::mem::replace(&mut self.is_known, true);
        let header = (!is_known).then(|| self.header.clone());
        Ok(Begun { has_changed: !is_known, header, ..Begun::default() })
    }

    async fn load(&mut self, names: &[Name]) -> StoreResult<Vec<Option<Stored>>> {
        let id = |name: &Name| match name {
            Name::Key(key) => self.by_key.get(key),
            Name::Attempt(attempt) => self.by_attempt.get(attempt),
            Name::TaskId(_) => None,
        };
        Ok(names.iter().map(|name| self.stored(*id(name)?)).collect())
    }

    async fn next(
        &mut self,
        from: From,
        behind: Option<&Stored>,
        count: usize,
    ) -> StoreResult<Vec<Stored>> {
        Ok(match from {
            From::Line(line) => self.standing((line, None), behind, count),
            From::Group(group, line) => self.standing((line, Some(group)), behind, count),
            From::Heads(line) => {
                let behind = behind.map_or(Unbounded, |it| Excluded(at_in(line, it)));
                let heads = self.heads.get(&line).map(|it| it.range((behind, Unbounded)));
                self.stored_of(heads.into_iter().flatten().map(|it| it.1), count)
            }
            From::Due(until) => {
                let at = |it: &Stored| (it.place.due.unwrap_or(Millis::MIN), it.id);
                let behind = behind.map_or(Unbounded, |it| Excluded(at(it)));
                let due = self.dues.range((behind, Unbounded)).take_while(|it| it.0 <= until);
                self.stored_of(due.map(|it| it.1), count)
            }
            From::Dues | From::Later(_) | From::ClassicHeld | From::All => Vec::new(),
        })
    }

    async fn groups(&mut self, ids: &[GroupId]) -> StoreResult<Vec<Option<Group>>> {
        Ok(ids.iter().map(|id| self.groups.get(id).map(|it| it.0.clone())).collect())
    }

    async fn opening(
        &mut self,
        behind: Opens,
        until: Millis,
        count: usize,
    ) -> StoreResult<Vec<(Opens, Group)>> {
        let due = self.opens.range((Excluded(behind), Unbounded)).take_while(|it| it.0 <= until);
        let with = |it: &Opens| Some((*it, self.groups.get(&it.1)?.0.clone()));
        Ok(due.take(count).filter_map(with).collect())
    }

    async fn first_opening(&mut self) -> StoreResult<Option<Millis>> {
        Ok(self.opens.first().map(|it| it.0))
    }

    async fn closed(&mut self, _: Millis, _: u32) -> StoreResult<u32> {
        Ok(0)
    }

    async fn flights(&mut self) -> StoreResult<Vec<InFlight>> {
        Ok(Vec::new())
    }

    async fn stops(&mut self, _: usize) -> StoreResult<Vec<Attempt>> {
        Ok(Vec::new())
    }

    async fn of_run(
        &mut self,
        _: (FetcherId, i64),
        _: Option<KeyId>,
        _: usize,
    ) -> StoreResult<Vec<Stored>> {
        Ok(Vec::new())
    }

    async fn payload(&mut self, _: KeyId, _: Task) -> StoreResult<Payload> {
        Ok(Payload::Missing)
    }

    async fn single(&mut self, _: i64) -> StoreResult<Option<SingleStatus>> {
        Ok(None)
    }

    async fn singles(&mut self, _: KeyId, _: SingleStatus, _: usize) -> StoreResult<Vec<i64>> {
        Ok(Vec::new())
    }

    async fn waiting_single(&mut self, _: KeyId, _: &str) -> StoreResult<Option<i64>> {
        Ok(None)
    }

    async fn ended(&mut self, _: Attempt) -> StoreResult<Option<EndedAttempt>> {
        Ok(None)
    }

    async fn document(&mut self, name: &str) -> StoreResult<Option<String>> {
        Ok(self.documents.get(name).cloned())
    }

    async fn documents(&mut self, _: &str) -> StoreResult<Vec<(String, String)>> {
        Ok(Vec::new())
    }

    async fn note(&mut self, name: String, text: Option<String>) -> StoreResult<()> {
        match text {
            Some(text) => drop(self.documents.insert(name, text)),
            None => drop(self.documents.remove(&name)),
        }
        Ok(())
    }

    async fn save(&mut self, changes: Changes<'_>) -> StoreResult<()> {
        let mut stale = BTreeSet::new();
        changes.records.into_iter().for_each(|change| self.change(change, &mut stale));
        changes.groups.into_iter().for_each(|change| self.change_group(change, &mut stale));
        stale.into_iter().for_each(|it| self.find_head(it));
        self.header.clone_from(changes.header);
        Ok(())
    }

    async fn commit(&mut self) -> StoreResult<()> {
        Ok(())
    }

    /// Nothing fails, so nothing was saved.
    async fn roll_back(&mut self) {}
}
