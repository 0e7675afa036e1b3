//! Which key is handed out: the first among the store's next keys and those that became ready in this batch; or, while
//! its credit lasts, the first of the lane.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use foldhash::fast::RandomState;
use shiftboss_protocol::model::{About, Row};

use super::{Batch, Carried, STEP_KEYS, used_up};
use crate::credit::Credit;
use crate::groups::GroupId;
use crate::operation::{Dispatch, Dispatched};
use crate::place::Line;
use crate::record::{FetcherId, Record, Task};
use crate::records::{From, Outset, Payload, Records, StoreResult};
use crate::rules::dispatch::{self, Scope};
use crate::rules::leases;

/// Most keys that one batch steps over: a request waits for no more.
pub(super) const LEAVING_MAX: usize = 4_096;

/// What there is for a worker.
enum Choice {
    Task {
        slot: usize,
        task: Task,
        is_of_lane: bool,
    },
    Nothing,
    /// Too many keys turned out to have nothing.
    Later,
}

impl<S: Records> Batch<'_, S> {
    pub(super) async fn dispatch(&mut self, it: Dispatch) -> Carried<Dispatched> {
        let Dispatch { holder, fetchers } = it;
        let scope = self.scope(fetchers);
        match self.is_routed(&scope).await? {
            Ok(true) => {}
            Ok(false) => return Ok(Ok(Dispatched::Later)),
            Err(rejected) => return Ok(Err(rejected)),
        }
        loop {
            let (slot, task, is_of_lane) = match self.choose(&scope).await? {
                Choice::Task { slot, task, is_of_lane } => (slot, task, is_of_lane),
                Choice::Nothing => return Ok(Ok(Dispatched::Nothing)),
                Choice::Later => return Ok(Ok(Dispatched::Later)),
            };
            let Some(payload) = self.payload(slot, task).await? else {
                leases::set_aside(self.desk.record_mut(slot), task);
                self.pass(slot);
                continue;
            };
            let Some(attempt) = self.store.number(self.context.last_attempt).await? else {
                return Ok(Err(used_up("attempts")));
            };
            let record = self.desk.record_mut(slot);
            dispatch::dispatch(record, task, attempt, holder, &self.context);
            self.context.last_attempt = attempt;
            if self.context.settings.is_fair {
                let credit = Credit::new(self.context.settings.bump_share, self.header.credit);
                let credit = if is_of_lane { credit.spent() } else { credit.passed() };
                self.header.credit = credit.thousandths();
            }
            self.see_to(slot);
            self.changed(slot);
            self.desk.note_attempt(attempt, slot);
            let key = self.desk.record(slot).key.clone();
            return Ok(Ok(Dispatched::Job(attempt, Row { key, payload }, self.about(slot, task))));
        }
    }

    fn about(&self, slot: usize, task: Task) -> About {
        let fetcher = self.context.fetcher(task.fetcher());
        let retries = self.context.settings.retries.of(&fetcher).map_or(0, |rule| rule.most);
        let retried = self.desk.record(slot).extras.retries.iter();
        let retry = retried.filter(|it| it.task == task).map(|it| it.number).next();
        About { fetcher, retry: retry.unwrap_or(0), retries }
    }

    pub(super) async fn has_work(&mut self) -> StoreResult<bool> {
        Ok(!matches!(self.choose(&Scope::All).await?, Choice::Nothing))
    }

    /// A key turned out to have nothing; its new state is saved.
    fn pass(&mut self, slot: usize) {
        self.in_vain += 1;
        self.changed(slot);
    }

    /// The payload of a task; `None`: it cannot be read.
    async fn payload(&mut self, slot: usize, task: Task) -> StoreResult<Option<String>> {
        let known = known_payload(self.desk.record(slot), task);
        let known = known.or_else(|| self.desk.payload_at_hand(slot, task));
        let payload = match (known, self.desk.id(slot)) {
            (Some(payload), _) => Payload::Text(payload),
            (None, Some(id)) => self.store.payload(id, task).await?,
            (None, None) => Payload::Missing,
        };
        Ok(match payload {
            Payload::Text(payload) => Some(payload),
            Payload::Missing => Some(String::new()),
            Payload::Damaged => None,
        })
    }

    pub(super) fn scope(&self, fetchers: Option<Vec<Arc<str>>>) -> Scope {
        match fetchers {
            None => Scope::All,
            Some(names) => {
                Scope::Fetchers(names.iter().filter_map(|name| self.fetcher(name)).collect())
            }
        }
    }

    async fn choose(&mut self, scope: &Scope) -> StoreResult<Choice> {
        if self.header.paused || self.is_draining() {
            return Ok(Choice::Nothing);
        }
        self.step_over_leaving().await?;
        self.open_groups().await?;
        while self.in_vain < STEP_KEYS && !self.is_edited {
            let Some((slot, is_of_lane)) = self.first(scope).await? else {
                // More groups may be open by now than one batch opens, or looks at.
                let has_more = self.groups.has_more || self.in_vain >= STEP_KEYS;
                return Ok(if has_more { Choice::Later } else { Choice::Nothing });
            };
            // Not all heads were seen: another key may come before this one.
            if self.in_vain >= STEP_KEYS {
                break;
            }
            let slot = self.whole(slot).await?;
            // A key whose run is being deleted, or whose start was set by a clock that was ahead, is saved at its new
            // place; so is one whose next task has another group since.
            let open = self.open_part(slot, scope);
            match dispatch::next_task(self.desk.record(slot), &open, &self.context) {
                Some(task) if self.may_go(slot, &open) => {
                    return Ok(Choice::Task { slot, task, is_of_lane });
                }
                _ => self.pass(slot),
            }
        }
        Ok(Choice::Later)
    }

    /// The first key, and whether it is from the lane.
    async fn first(&mut self, scope: &Scope) -> StoreResult<Option<(usize, bool)>> {
        self.settle_groups().await?;
        self.load_changed_groups().await?;
        let is_fair = self.context.settings.is_fair;
        let credit = Credit::new(self.context.settings.bump_share, self.header.credit);
        if is_fair
            && credit.pays()
            && let Some(slot) = self.first_of_lane(scope).await?
        {
            return Ok(Some((slot, true)));
        }
        let first = self.first_of_order(scope).await?;
        let held = if is_fair { None } else { self.first_held().await? };
        Ok(self.desk.first_of(first, held).map(|slot| (slot, false)))
    }

    /// Steps over keys at the front that have only rows of runs under deletion, once a batch: looking at each such key,
    /// and saving that it has nothing, would keep workers waiting for the length of the list.
    async fn step_over_leaving(&mut self) -> StoreResult<()> {
        if std::mem::replace(&mut self.ahead.has_stepped, true) {
            return Ok(());
        }
        if self.context.going.is_empty() {
            self.memo.leaving = None;
            return Ok(());
        }
        // Keys that this batch made ready may be among those that are stepped over.
        if !self.only_reads {
            self.flush().await?;
        }
        let behind = self.memo.leaving.as_ref();
        let (last, is_more) = self.store.leaving(behind, None, LEAVING_MAX).await?;
        self.memo.leaving = last.or(self.memo.leaving.take());
        if is_more {
            self.in_vain = STEP_KEYS;
        }
        Ok(())
    }

    async fn first_of_lane(&mut self, scope: &Scope) -> StoreResult<Option<usize>> {
        let mut first: Option<(i64, usize)> = None;
        for line in Line::for_scope(scope, true) {
            for slot in self.firsts_of_line(line).await? {
                let stored = self.desk.place(slot).lane.map(|lane| (lane, slot));
                first = first.into_iter().chain(stored).min();
            }
        }
        let changed = self.desk.lane().find(|(_, slot)| self.may_go(*slot, scope));
        Ok(first.into_iter().chain(changed).min().map(|(_, slot)| slot))
    }

    async fn first_of_order(&mut self, scope: &Scope) -> StoreResult<Option<usize>> {
        let mut first = None;
        for line in Line::for_scope(scope, false) {
            for slot in self.firsts_of_line(line).await? {
                first = self.desk.first_of(first, Some(slot));
            }
        }
        let changed = self.desk.ready().find(|slot| self.may_go(*slot, scope));
        Ok(self.desk.first_of(first, changed))
    }

    /// The first of a line's keys without a group that this batch has not changed, and the first ones of open groups.
    async fn firsts_of_line(&mut self, line: Line) -> StoreResult<Vec<usize>> {
        let mut firsts: Vec<usize> =
            self.first_stored(From::Line(line)).await?.into_iter().collect();
        if !self.has_groups() {
            return Ok(firsts);
        }
        while let Some(slot) = self.first_stored(From::Heads(line)).await? {
            let group = self.desk.place(slot).group_in(line);
            let Some(group) = group.filter(|it| !self.groups.is_passed(line, *it)) else {
                self.ahead.step_over(From::Heads(line));
                continue;
            };
            self.load_groups(&[group]).await?;
            if self.groups.is_open(group) {
                firsts.push(slot);
                break;
            }
            // It is closed by other limits than when it was saved.
            self.change_group(group, |_, _| ());
            self.groups.pass(line, group);
            self.in_vain += 1;
            if self.in_vain >= STEP_KEYS {
                break;
            }
        }
        let passed = self.groups.passed(line);
        self.load_groups(&passed).await?;
        for group in passed {
            if self.groups.is_open(group) {
                firsts.extend(self.first_stored(From::Group(group, line)).await?);
            }
        }
        Ok(firsts)
    }

    /// Whether the key has a task for these workers, of no group or of one that is open.
    fn may_go(&self, slot: usize, scope: &Scope) -> bool {
        let open = self.open_part(slot, scope);
        let fetcher = dispatch::next_fetcher(self.desk.record(slot), &open, &self.context);
        fetcher.is_some_and(|it| self.is_open_for(slot, it))
    }

    fn is_open_for(&self, slot: usize, fetcher: FetcherId) -> bool {
        let group = self.desk.record(slot).group_of(fetcher).filter(|_| self.has_groups());
        group.is_none_or(|group| self.groups.is_open(group))
    }

    /// Of the fetchers that workers named, those whose tasks of the key may start now. Anybody gets the task whose turn it
    /// is, or none of the key.
    fn open_part(&self, slot: usize, scope: &Scope) -> Scope {
        match scope {
            Scope::Fetchers(fetchers) if self.has_groups() => {
                let open = fetchers.iter().filter(|it| self.is_open_for(slot, **it));
                Scope::Fetchers(open.copied().collect())
            }
            scope => scope.clone(),
        }
    }

    /// Loads the groups of keys that changed and are ready.
    async fn load_changed_groups(&mut self) -> StoreResult<()> {
        if !self.has_groups() {
            return Ok(());
        }
        let groups = self.desk.ready().flat_map(|slot| {
            let place = self.desk.place(slot);
            place.group.into_iter().chain(place.routes.iter().filter_map(|it| it.group))
        });
        let groups: Vec<GroupId> = groups.collect();
        self.load_groups(&groups).await
    }

    /// With `--classic`: the first key that has been out for more than 12 hours.
    async fn first_held(&mut self) -> StoreResult<Option<usize>> {
        let stored = self.first_stored(From::ClassicHeld).await?;
        let first = self.desk.first_of(stored, self.desk.held().next());
        let (lease, now) = (self.context.settings.lease_seconds, self.context.seconds());
        let started =
            |slot: usize| self.desk.record(slot).last.map_or(i64::MIN, |last| last.started);
        Ok(first.filter(|slot| started(*slot).saturating_add(lease) < now))
    }

    /// The first of those keys that this batch has not changed.
    async fn first_stored(&mut self, from: From) -> StoreResult<Option<usize>> {
        let count = self.ahead.count_of(from);
        loop {
            let look = self.ahead.looks.entry(from).or_insert_with(|| Look::new(count));
            // A changed key has its place among the changed ones, and is not looked at here again.
            while let Some(slot) = look.next.front().filter(|slot| self.desk.is_changed(**slot)) {
                if let From::Heads(line) = from {
                    let stored = self.desk.stored(*slot);
                    let group = stored.and_then(|it| it.place.group_in(line));
                    group.into_iter().for_each(|group| self.groups.pass(line, group));
                }
                look.next.pop_front();
            }
            if !look.next.is_empty() || look.is_all {
                return Ok(look.next.front().copied());
            }
            let front = self.memo.leaving.as_ref().filter(|_| from == From::Line(Line::ORDER));
            let behind = look.last.and_then(|slot| self.desk.stored(slot)).or(front);
            let next = self.store.next(from, behind, look.count).await?;
            look.is_all = next.len() < look.count;
            // Some had nothing: load more at once.
            look.count = look.count.max(look.count.saturating_mul(2).min(STEP_KEYS));
            look.next.extend(next.into_iter().map(|stored| self.desk.put(stored)));
            look.last = look.next.back().copied().or(look.last);
        }
    }
}

/// The next keys of the store, as far as they were looked up, by kind.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    looks: HashMap<From, Look, RandomState>,
    /// The front was [stepped over](Batch::step_over_leaving) in this batch.
    has_stepped: bool,
    pub(super) count: usize,
}

#[derive(Debug)]
struct Look {
    /// Their slots on the desk.
    next: VecDeque<usize>,
    last: Option<usize>,
    is_all: bool,
    count: usize,
}

impl Look {
    fn new(count: usize) -> Self {
        Self { next: VecDeque::new(), last: None, is_all: false, count }
    }
}

impl Ahead {
    pub(super) fn of(outset: &Outset) -> Self {
        Self { looks: HashMap::default(), has_stepped: false, count: outset.next.max(1) }
    }

    /// How many are looked up at first: all dispatches of a batch may take from one line for everybody, but a batch has
    /// many groups, and fetchers of its own workers, with a job or two of each.
    fn count_of(&self, from: From) -> usize {
        match from {
            From::Group(..) => 1,
            From::Line(Line { of: Some(_), .. }) | From::Heads(Line { of: Some(_), .. }) => 1,
            _ => self.count,
        }
    }

    pub(super) fn clear(&mut self) {
        self.looks.clear();
    }

    /// The first of these keys is not looked at again.
    fn step_over(&mut self, from: From) {
        if let Some(look) = self.looks.get_mut(&from) {
            look.next.pop_front();
        }
    }
}

/// The payload of a task that is not written yet.
fn known_payload(record: &Record, task: Task) -> Option<String> {
    match task {
        Task::Row { fetcher, run } => record.row(fetcher, run)?.payload.clone(),
        Task::Single { number } => record.singles.added(number).cloned(),
    }
}
