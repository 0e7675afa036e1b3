//! Rules that hold all keys with a prefix, or all tasks of a fetcher, also those that come later. They are kept as one
//! document ([`HOLDS`](crate::documents::HOLDS)); what a rule holds is not handed out, and so has no place in the order.
//!
//! When the rules change, the [engine](crate::engine) derives all places anew, some keys at a time; a held key that a
//! dispatch meets meanwhile is passed over, and saved where it belongs.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use shiftboss_protocol::answers::{self, HeldBy};

use crate::context::Context;
use crate::record::{Hold, seconds};

/// Most rules: each key that changes is compared with all of them.
pub const RULES_MAX: usize = 1_000;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HoldOf {
    Prefix(Arc<str>),
    Fetcher(Arc<str>),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HoldRule {
    pub of: HoldOf,
    #[serde(flatten)]
    pub hold: Hold,
}

/// See the module.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HoldRules {
    pub rules: Vec<HoldRule>,
    /// How often they have changed.
    pub number: i64,
    /// Of how many keys the places were derived anew since; `None`: of all.
    pub carried: Option<i64>,
}

impl HoldRules {
    /// Its place among the rules, in the order of what they hold.
    pub fn find(&self, of: &HoldOf) -> Result<usize, usize> {
        self.rules.binary_search_by(|rule| rule.of.cmp(of))
    }

    pub(crate) fn change(&mut self) {
        (self.number, self.carried) = (self.number.saturating_add(1), Some(0));
    }
}

impl HoldRule {
    pub fn shown(&self, context: &Context) -> answers::HoldRule {
        let (held_by, text) = match &self.of {
            HoldOf::Prefix(text) => (HeldBy::Prefix, text),
            HoldOf::Fetcher(name) => (HeldBy::Fetcher, name),
        };
        let Hold { since, until, reason, by } = &self.hold;
        answers::HoldRule {
            rule: held_by,
            of: text.to_string(),
            since: *since,
            until: until.map(|due| seconds(context.followed(due).at)),
            reason: reason.clone(),
            by: by.to_string(),
        }
    }
}
