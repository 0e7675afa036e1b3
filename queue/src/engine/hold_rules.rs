//! [Rules that hold many keys](crate::hold_rules): how they begin and end, and how all places follow them.

use std::sync::Arc;

use super::{Batch, STEP_KEYS};
use crate::documents::HOLDS;
use crate::hold_rules::{HoldOf, HoldRule, HoldRules, RULES_MAX};
use crate::operation::{HeldAll, HoldAll};
use crate::record::{Hold, Millis};
use crate::records::{From, Records, StoreResult, Stored};

/// How far places have followed the rules, which had changed so often.
#[derive(Debug)]
pub(super) struct Carried {
    number: i64,
    behind: Stored,
}

impl<S: Records> Batch<'_, S> {
    pub(super) async fn read_hold_rules(&mut self) -> StoreResult<()> {
        let rules = self.document(&HOLDS, HOLDS.name()).await?.unwrap_or_default();
        self.memo.holds = Arc::new(rules);
        self.context.holds = self.memo.holds.clone();
        Ok(())
    }

    pub(super) async fn hold_all(&mut self, it: HoldAll) -> StoreResult<HeldAll> {
        let HoldAll { of, seconds, reason, by } = it;
        let mut rules = HoldRules::clone(&self.context.holds);
        let until = seconds.map(|seconds| self.context.due_in(seconds.into()));
        let rule = HoldRule { of, hold: Hold { since: self.context.seconds(), until, reason, by } };
        let shown = rule.shown(&self.context);
        let replaced = match rules.find(&rule.of) {
            Ok(at) => {
                let before = std::mem::replace(&mut rules.rules[at], rule);
                Some(Box::new(before.shown(&self.context)))
            }
            Err(_) if rules.rules.len() >= RULES_MAX => return Ok(HeldAll::Full),
            Err(at) => {
                rules.rules.insert(at, rule);
                rules.change();
                None
            }
        };
        self.set_hold_rules(rules).await?;
        // A short queue has followed at once.
        self.carry_hold_rules().await?;
        Ok(HeldAll::Held { until: shown.until, replaced })
    }

    pub(super) async fn unhold_all(&mut self, of: HoldOf) -> StoreResult<bool> {
        let mut rules = HoldRules::clone(&self.context.holds);
        let Ok(at) = rules.find(&of) else { return Ok(false) };
        rules.rules.remove(at);
        rules.change();
        self.set_hold_rules(rules).await?;
        self.carry_hold_rules().await?;
        Ok(true)
    }

    async fn set_hold_rules(&mut self, rules: HoldRules) -> StoreResult<()> {
        // What was changed before has its place by the rules before.
        self.flush().await?;
        let is_none = rules == HoldRules { number: rules.number, ..HoldRules::default() };
        match is_none {
            true => self.store.note(HOLDS.of(""), None).await?,
            false => self.note(&HOLDS, HOLDS.of(""), &rules).await?,
        }
        self.memo.holds = Arc::new(rules);
        self.context.holds = self.memo.holds.clone();
        Ok(())
    }

    /// When the first rule ends by itself, or at once if places have to follow.
    pub(super) fn hold_rules_due(&self) -> Option<Millis> {
        let rules = &self.context.holds;
        let ends = rules.rules.iter().filter_map(|rule| rule.hold.until);
        let ends = ends.map(|due| self.context.followed(due).at);
        rules.carried.map(|_| self.context.now).into_iter().chain(ends).min()
    }

    /// Rules that are over end, and the due times of the others follow the clock; then some more keys get their places.
    pub(super) async fn follow_hold_rules(&mut self) -> StoreResult<()> {
        let mut rules = HoldRules::clone(&self.context.holds);
        for rule in &mut rules.rules {
            rule.hold.until = rule.hold.until.map(|due| self.context.followed(due));
        }
        let (now, count) = (self.context.now, rules.rules.len());
        rules.rules.retain(|rule| rule.hold.until.is_none_or(|due| !due.is_over(now)));
        if rules.rules.len() < count {
            rules.change();
        }
        if rules != *self.context.holds {
            self.set_hold_rules(rules).await?;
        }
        self.carry_hold_rules().await
    }

    /// Some more keys get the places that the rules leave them.
    async fn carry_hold_rules(&mut self) -> StoreResult<()> {
        let Some(carried) = self.context.holds.carried else { return Ok(()) };
        let mut rules = HoldRules::clone(&self.context.holds);
        rules.carried = self.carry(rules.number, carried).await?;
        self.set_hold_rules(rules).await
    }

    /// Derives the places of some more keys; returns of how many by now, or `None`: of all.
    async fn carry(&mut self, number: i64, carried: i64) -> StoreResult<Option<i64>> {
        self.flush().await?;
        let before = self.memo.carried.take().filter(|it| it.number == number);
        let behind = before.as_ref().map(|it| &it.behind);
        let next = self.store.next(From::All, behind, STEP_KEYS).await?;
        let more = i64::try_from(next.len()).unwrap_or(i64::MAX);
        let last = next.last().filter(|_| next.len() == STEP_KEYS).cloned();
        self.derive(next);
        // The batch is alone: fewer keys are the last ones.
        let Some(behind) = last else { return Ok(None) };
        self.memo.carried = Some(Carried { number, behind });
        let carried = if before.is_some() { carried } else { 0 };
        Ok(Some(carried.saturating_add(more)))
    }
}
