//! Which key is handed out: the first among the store's next keys and those that became ready in this batch; or, while
//! its credit lasts, the first of the lane.

use std::collections::VecDeque;
use std::sync::Arc;

use shiftboss_protocol::model::Row;

use super::{Batch, Carried, STEP_KEYS, used_up};
use crate::credit::Credit;
use crate::operation::{Dispatch, Dispatched};
use crate::record::{Record, Task};
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
            return Ok(Ok(Dispatched::Job(attempt, Row { key, payload })));
        }
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

    fn scope(&self, fetchers: Option<Vec<Arc<str>>>) -> Scope {
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
        while self.in_vain < STEP_KEYS && !self.is_edited {
            let Some((slot, is_of_lane)) = self.first(scope).await? else {
                return Ok(Choice::Nothing);
            };
            let slot = self.whole(slot).await?;
            // A key whose run is being deleted, or whose start was set by a clock that was ahead, is saved at its new
            // place.
            match dispatch::next_task(self.desk.record(slot), scope, &self.context) {
                Some(task) => return Ok(Choice::Task { slot, task, is_of_lane }),
                None => self.pass(slot),
            }
        }
        Ok(Choice::Later)
    }

    /// The first key, and whether it is from the lane.
    async fn first(&mut self, scope: &Scope) -> StoreResult<Option<(usize, bool)>> {
        let is_fair = self.context.settings.is_fair;
        let credit = Credit::new(self.context.settings.bump_share, self.header.credit);
        if is_fair
            && credit.pays()
            && let Some(slot) = self.first_of_lane(scope).await?
        {
            return Ok(Some((slot, true)));
        }
        let first = self.first_of_order(scope).await?;
        let held = if is_fair { None } else { self.first_held(scope).await? };
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
        let stored = self.first_stored(From::Lane, scope).await?;
        let stored = stored.and_then(|slot| Some((self.desk.place(slot).lane?, slot)));
        let mut changed = self.desk.lane();
        let changed =
            changed.find(|(_, slot)| self.desk.record(*slot).has_work(scope, &self.context));
        Ok(stored.into_iter().chain(changed).min().map(|(_, slot)| slot))
    }

    async fn first_of_order(&mut self, scope: &Scope) -> StoreResult<Option<usize>> {
        let stored = self.first_stored(From::Order, scope).await?;
        let has_work = |slot: &usize| self.desk.record(*slot).has_work(scope, &self.context);
        let changed = self.desk.ready().find(has_work);
        Ok(self.desk.first_of(stored, changed))
    }

    /// With `--classic`: the first key that has been out for more than 12 hours.
    async fn first_held(&mut self, scope: &Scope) -> StoreResult<Option<usize>> {
        let stored = self.first_stored(From::ClassicHeld, scope).await?;
        let first = self.desk.first_of(stored, self.desk.held().next());
        let (lease, now) = (self.context.settings.lease_seconds, self.context.seconds());
        let started =
            |slot: usize| self.desk.record(slot).last.map_or(i64::MIN, |last| last.started);
        Ok(first.filter(|slot| started(*slot).saturating_add(lease) < now))
    }

    /// The first of those keys that this batch has not changed.
    async fn first_stored(&mut self, from: From, scope: &Scope) -> StoreResult<Option<usize>> {
        let count = self.ahead.count;
        let looks = &mut self.ahead.looks;
        let at = match looks.iter().position(|look| look.from == from && look.scope == *scope) {
            Some(at) => at,
            None => {
                looks.push(Look {
                    from,
                    scope: scope.clone(),
                    next: VecDeque::new(),
                    last: None,
                    is_all: false,
                    count,
                });
                looks.len() - 1
            }
        };
        let look = &mut looks[at];
        loop {
            // A changed key has its place among the changed ones, and is not looked at here again.
            while look.next.front().is_some_and(|slot| self.desk.is_changed(*slot)) {
                look.next.pop_front();
            }
            if !look.next.is_empty() || look.is_all {
                return Ok(look.next.front().copied());
            }
            let front = self.memo.leaving.as_ref().filter(|_| from == From::Order);
            let behind = look.last.and_then(|slot| self.desk.stored(slot)).or(front);
            let next = self.store.next(from, behind, scope, look.count).await?;
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
    looks: Vec<Look>,
    /// The front was [stepped over](Batch::step_over_leaving) in this batch.
    has_stepped: bool,
    pub(super) count: usize,
}

#[derive(Debug)]
struct Look {
    from: From,
    scope: Scope,
    /// Their slots on the desk.
    next: VecDeque<usize>,
    last: Option<usize>,
    is_all: bool,
    count: usize,
}

impl Ahead {
    pub(super) fn of(outset: &Outset) -> Self {
        Self { looks: Vec::new(), has_stepped: false, count: outset.next.max(1) }
    }

    pub(super) fn clear(&mut self) {
        self.looks.clear();
    }
}

/// The payload of a task that is not written yet.
fn known_payload(record: &Record, task: Task) -> Option<String> {
    match task {
        Task::Row { fetcher, run } => record.row(fetcher, run)?.payload.clone(),
        Task::Single { number } => record.singles.added(number).cloned(),
    }
}
