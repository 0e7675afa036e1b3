//! The order in which keys would be handed out now, walked from its beginning: what that many requests would get.
//!
//! Used by the other questions. It walks over ids alone, along the indexes by which the daemon hands out; its callers
//! load the records that they show. The dispatch of one key does not affect the other keys.

use std::collections::VecDeque;

use super::{Look, STEP, Steps, WALK_MAX};
use crate::code;
use crate::credit::{Credit, Turns};
use crate::groups::GroupId;
use crate::listings::{Along, Listings, Spot};
use crate::place::Turn;
use crate::records::{KeyId, Stored};
use crate::rules::dispatch::{Scope, next_task};

/// Most keys of runs under deletion that are passed over; after them there may be more.
const IN_VAIN_MAX: usize = 10_000;
/// Most ids that are found at once, after many were walked over.
const IDS_MAX: usize = 8_192;

/// A walk along the order: each key once, the next one first.
pub(super) struct Walk {
    turns: Turns<KeyId>,
    /// Keys that are free; and with `--classic` keys that are out.
    sides: Vec<Side>,
    walked: usize,
    in_vain: usize,
    /// There are no more keys.
    pub(super) is_all: bool,
}

/// Keys that come next, of one kind.
struct Side {
    steps: Steps,
    next: VecDeque<Spot>,
    /// How many are found at once.
    count: usize,
    /// Only keys whose turn is before this.
    before: i64,
}

impl<S: Listings> Look<'_, S> {
    /// A walk of which at most `at_most` keys are wanted.
    pub(super) async fn walk(&mut self, at_most: usize) -> Result<Walk, S::Error> {
        let lane = if self.has_lane() {
            let lane = self.store.keys(Along::Lane, None, at_most).await?;
            self.that_can_go(lane).await?
        } else {
            Vec::new()
        };
        let turns = Turns::new(self.credit(), lane.into_iter().map(|(_, key)| key));
        Ok(self.walk_from(Along::Order, None, turns, at_most))
    }

    /// The same of a group alone, as if it were open.
    pub(super) fn walk_in(&self, group: GroupId, at_most: usize) -> Walk {
        self.walk_from(Along::Group(group), None, Turns::new(self.credit(), []), at_most)
    }

    /// The first key in the order, without the lane, of those that ran, or of all.
    pub(super) async fn first_in_order(
        &mut self,
        that_ran: bool,
    ) -> Result<Option<Stored>, S::Error> {
        let before_all = (code::turn(Turn::Started(i64::MIN)) - 1, KeyId(i64::MAX));
        let turns = Turns::new(self.credit(), []);
        let mut walk = self.walk_from(Along::Order, that_ran.then_some(before_all), turns, 1);
        let first = walk.take(self, 1).await?;
        Ok(self.records(&first).await?.pop())
    }

    fn walk_from(
        &self,
        along: Along,
        behind: Option<Spot>,
        turns: Turns<KeyId>,
        at_most: usize,
    ) -> Walk {
        let settings = &self.context.settings;
        let side = |along, before| Side {
            steps: Steps { behind, ..Steps::new(along) },
            next: VecDeque::new(),
            count: at_most.clamp(1, STEP),
            before,
        };
        let mut sides = vec![side(along, i64::MAX)];
        if !settings.is_fair {
            let over = self.context.seconds().saturating_sub(settings.lease_seconds);
            sides.push(side(Along::ClassicHeld, code::turn(Turn::Started(over))));
        }
        Walk { turns, sides, walked: 0, in_vain: 0, is_all: false }
    }

    /// Leaves out keys whose rows are all of runs under deletion: their places do not show that.
    async fn that_can_go(&mut self, mut keys: Vec<Spot>) -> Result<Vec<Spot>, S::Error> {
        if !self.context.going.is_empty() {
            let records = self.records_of(keys.into_iter().map(|it| (it.1, it)).collect()).await?;
            let can_go = |it: &Stored| next_task(&it.record, &Scope::All, &self.context).is_some();
            keys = records.into_iter().filter(|it| can_go(&it.0)).map(|it| it.1).collect();
        }
        Ok(keys)
    }

    /// The lane's credit, as the last batch left it.
    fn credit(&self) -> Credit {
        let settings = &self.context.settings;
        let share = if settings.is_fair { settings.bump_share } else { 0 };
        Credit::new(share, self.head.header.credit)
    }

    /// Whether keys of the lane go ahead of the order at all.
    pub(super) fn has_lane(&self) -> bool {
        self.credit().share() > 0
    }
}

impl Walk {
    /// The next keys; if fewer than `count`, there are no more, or the walk's limits are reached.
    pub(super) async fn take<S: Listings>(
        &mut self,
        look: &mut Look<'_, S>,
        count: usize,
    ) -> Result<Vec<KeyId>, S::Error> {
        let mut taken = Vec::new();
        while taken.len() < count
            && let Some(side) = self.first(look).await?
        {
            if let Some(key) = self.turns.offered() {
                self.turns.goes(key);
                taken.push(key);
            } else if let Some((_, key)) = self.sides[side].next.pop_front() {
                self.walked += 1;
                taken.extend(Some(key).filter(|key| self.turns.is_left(key)));
            }
        }
        Ok(taken)
    }

    /// The side with the next key of the order.
    async fn first<S: Listings>(
        &mut self,
        look: &mut Look<'_, S>,
    ) -> Result<Option<usize>, S::Error> {
        for side in &mut self.sides {
            while side.next.is_empty() && !side.steps.is_all && self.in_vain <= IN_VAIN_MAX {
                let mut found = side.steps.spots(look, side.count).await?;
                if found.last().is_some_and(|last| last.0 >= side.before) {
                    found.retain(|it| it.0 < side.before);
                    side.steps.is_all = true;
                }
                let count = found.len();
                side.next = look.that_can_go(found).await?.into();
                self.in_vain += count - side.next.len();
                let most = if look.context.going.is_empty() { IDS_MAX } else { STEP };
                side.count = (side.count * 2).min(most);
            }
        }
        if self.walked >= WALK_MAX || self.in_vain > IN_VAIN_MAX {
            return Ok(None);
        }
        let fronts = self.sides.iter().enumerate();
        let fronts = fronts.filter_map(|(at, side)| Some((side.next.front()?, at)));
        let first = fronts.min().map(|(_, at)| at);
        self.is_all = first.is_none();
        Ok(first)
    }
}
