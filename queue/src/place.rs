//! Where a key stands for the next dispatch: derived from its record, and saved beside it for stores to order by.
//!
//! The only definition of the order (spec 2). The engine derives a place at each save; stores never compute one.

use serde::{Deserialize, Serialize};
use shiftboss_protocol::model::UnixSeconds;

use crate::code;
use crate::context::Context;
use crate::groups::GroupId;
use crate::record::{Bump, FetcherId, Millis, Record};
use crate::rules::dispatch::{Scope, next_fetcher};

/// A place in the order. Keys that have waited longest come first: those that never ran, by when they began to wait,
/// then the others by their last start. Among equals, stores order by the key's jitter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Turn {
    Never(i64),
    Started(UnixSeconds),
}

/// Where keys stand one behind the other: in the order, or in the lane ahead of it; for anybody, or for those who take one
/// fetcher's tasks alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Line {
    pub of: Option<FetcherId>,
    pub is_lane: bool,
}

impl Line {
    pub const ORDER: Self = Self { of: None, is_lane: false };
    pub const LANE: Self = Self { of: None, is_lane: true };

    /// Those that are looked through for a worker.
    pub fn for_scope(scope: &Scope, is_lane: bool) -> Vec<Self> {
        match scope {
            Scope::All => vec![Self { of: None, is_lane }],
            Scope::Fetchers(fetchers) => {
                fetchers.iter().map(|it| Self { of: Some(*it), is_lane }).collect()
            }
        }
    }
}

/// Where a key stands for those who take one fetcher's tasks alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Route {
    pub fetcher: FetcherId,
    pub group: Option<GroupId>,
}

/// A key in a line beside the order and the lane of keys without a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Standing {
    pub line: Line,
    pub group: Option<GroupId>,
    /// Its turn as a [number](crate::code::turn), or its place in the lane.
    pub at: i64,
}

/// The parts of a key that stores index. A key may have a turn, a place in the lane, and a due time, all at once.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    pub order: Option<Turn>,
    /// It goes ahead of the order, the lowest first, as far as the lane's credit goes.
    pub lane: Option<i64>,
    /// Its place may change at this time: then a rule must look at it.
    pub due: Option<Millis>,
    /// Only with `--classic`: it is out, until the reference's 12 hours from its start are over.
    pub classic_held: bool,
    /// The group of the task that anybody would get: it has its turn when that group is open, too.
    pub group: Option<GroupId>,
    /// For fetchers that [workers name](Context::routed).
    pub routes: Vec<Route>,
}

impl Place {
    /// Where stores find it, other than in the order and the lane of keys without a group.
    pub fn standings(&self) -> Vec<Standing> {
        let Some(turn) = self.order.filter(|_| !self.classic_held) else { return Vec::new() };
        let of_all = self.group.map(|group| (None, Some(group)));
        let routes = self.routes.iter().map(|it| (Some(it.fetcher), it.group));
        let both = |(of, group)| {
            let order = Standing { line: Line { of, is_lane: false }, group, at: code::turn(turn) };
            let lane = |at| Standing { line: Line { of, is_lane: true }, group, at };
            [Some(order), self.lane.map(lane)]
        };
        of_all.into_iter().chain(routes).flat_map(both).flatten().collect()
    }

    /// Its group in a line.
    pub fn group_in(&self, line: Line) -> Option<GroupId> {
        match line.of {
            None => self.group,
            Some(fetcher) => self.routes.iter().find(|it| it.fetcher == fetcher)?.group,
        }
    }
}

/// Tasks that are tried again stand in the lane after all keys that operators bumped.
pub const RETRIES_LANE: i64 = 1 << 62;

impl Record {
    pub fn place(&self, context: &Context) -> Place {
        let due = self.dues(context).min();
        let out = self.flight.is_some() && context.settings.is_fair;
        if out || self.is_on_hold() || !self.has_work(&Scope::All, context) {
            return Place { due, ..Place::default() };
        }
        let classic_held = !context.settings.is_fair && self.is_unfinished();
        if context.settings.is_fair && self.is_with_somebody(context) {
            return Place { due, ..Place::default() };
        }
        let lane = if context.settings.is_fair { self.lane() } else { None };
        let group = next_fetcher(self, &Scope::All, context).and_then(|it| self.group_of(it));
        let named = |it: &FetcherId| context.routed.contains(it);
        let routes = match context.routed.is_empty() {
            true => Vec::new(),
            false => self
                .waiting_fetchers()
                .filter(named)
                .filter_map(|it| self.route(it, context))
                .collect(),
        };
        Place { order: Some(self.turn(context)), lane, due, classic_held, group, routes }
    }

    fn route(&self, fetcher: FetcherId, context: &Context) -> Option<Route> {
        let scope = Scope::Fetchers(vec![fetcher]);
        next_fetcher(self, &scope, context).map(|it| Route { fetcher, group: self.group_of(it) })
    }

    /// The group of the task that a fetcher has for it.
    pub fn group_of(&self, fetcher: FetcherId) -> Option<GroupId> {
        match fetcher {
            FetcherId::TASKS => self.singles.group,
            _ => self.newest_rows().find(|row| row.fetcher == fetcher)?.group,
        }
    }

    /// Whether it has a row or a single task that may be handed out: no rule holds it, and its run is not being deleted.
    pub fn has_work(&self, scope: &Scope, context: &Context) -> bool {
        next_fetcher(self, scope, context).is_some()
    }

    fn turn(&self, context: &Context) -> Turn {
        match self.stands_at() {
            None if !context.settings.is_fair => Turn::Never(0),
            None => Turn::Never(self.since.unwrap_or(0)),
            Some(at) if context.settings.is_fair => Turn::Started(at.min(context.seconds())),
            Some(at) => Turn::Started(at),
        }
    }

    fn lane(&self) -> Option<i64> {
        let bumped = self.extras.bump.as_ref().map(|Bump { number, .. }| *number);
        let retries = self.extras.retries.iter();
        let retried = retries.filter(|it| it.due.is_none() && self.waits(it.task));
        bumped.or_else(|| retried.map(|it| RETRIES_LANE.saturating_add(it.lane)).min())
    }

    /// Whether an operator or a backoff holds it. [A rule](crate::rules::holds::wake) removes holds that are over.
    pub fn is_on_hold(&self) -> bool {
        let backed_off = self.extras.backoff.is_some_and(|it| it.until.is_some());
        self.extras.hold.is_some() || backed_off
    }

    pub fn is_unfinished(&self) -> bool {
        self.last.is_some_and(|last| last.finished.is_none())
    }

    /// Until when a start without an attempt of ours counts, for example from a database that was taken over (spec 2).
    fn held_until(&self, context: &Context) -> Option<Millis> {
        let started = self.stands_at().filter(|_| self.is_claimed && self.is_unfinished())?;
        let end = started.saturating_add(context.settings.lease_seconds).saturating_add(1);
        Some(end.saturating_mul(1_000))
    }

    fn is_with_somebody(&self, context: &Context) -> bool {
        self.held_until(context).is_some_and(|until| until > context.now)
    }

    fn dues(&self, context: &Context) -> impl Iterator<Item = Millis> {
        let hold = self.extras.hold.as_ref().and_then(|it| it.until);
        let backoff = self.extras.backoff.and_then(|it| it.until);
        // The reference's rules do not retry: the task stays delayed.
        let retries = self.extras.retries.iter().filter(|_| context.settings.is_fair);
        let retries = retries.filter_map(|it| it.due);
        let started = self.held_until(context).filter(|until| {
            context.settings.is_fair
                && *until > context.now
                && self.waiting_fetchers().next().is_some()
        });
        hold.into_iter()
            .chain(backoff)
            .chain(retries)
            .map(|due| context.followed(due).at)
            .chain(started)
    }
}
