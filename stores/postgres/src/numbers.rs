//! Numbers of attempts, drawn from a sequence of the server after the keys were locked that they may be given to: so the attempts of a
//! key ascend, whichever daemons hand it out, and that is all that rules ask of them.
//!
//! What was drawn and not used is kept for the next batch. It may be used there only if nobody drew since: else a key that is locked
//! now may have a higher number.

use std::collections::VecDeque;

use shiftboss_protocol::model::Attempt;
use shiftboss_queue::records::StoreResult;
use tokio_postgres::Row;

use crate::error::classify;
use crate::wire::{Ask, ask};

/// $1: the last one that was drawn here. $2: so many more if that is the last one of all, $3: else.
const DRAW: &str = "SELECT nextval('numbers') FROM generate_series(1,
    CASE WHEN (SELECT last_value FROM numbers) = $1::int8 THEN $2::int8 ELSE $3::int8 END)";

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Numbers {
    drawn: VecDeque<i64>,
    /// All keys of the batch were locked before these were drawn.
    is_fresh: bool,
}

impl Numbers {
    /// Asks for as many as `wanted`, with what is left.
    pub(crate) fn draw(&mut self, wanted: usize) -> Ask {
        // What others drew in between may be given already.
        let is_gap = |at: &usize| self.drawn[at - 1] + 1 < self.drawn[*at];
        let gone = (1..self.drawn.len()).rev().find(is_gap).unwrap_or(0);
        self.drawn.drain(..gone);
        let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        let last = self.drawn.back().copied().unwrap_or(-1);
        ask!(DRAW, last, number(wanted.saturating_sub(self.drawn.len())), number(wanted))
    }

    /// What came of it.
    pub(crate) fn take(&mut self, rows: &[Row]) -> StoreResult<()> {
        let drawn: Result<Vec<i64>, _> = rows.iter().map(|row| row.try_get(0)).collect();
        let drawn = drawn.map_err(classify)?;
        let follows = match (self.drawn.back(), drawn.first()) {
            (Some(last), Some(first)) => last + 1 == *first,
            (_, None) => true,
            (None, _) => false,
        };
        if !follows {
            self.drawn.clear();
        }
        self.drawn.extend(drawn);
        self.is_fresh = true;
        Ok(())
    }

    /// The first one behind `last`, if it may be given to all keys that are locked.
    pub(crate) fn next(&mut self, last: Attempt) -> Option<Attempt> {
        self.used_up_to(last.0);
        let next = self.drawn.front().copied().filter(|_| self.is_fresh);
        next.map(Attempt)
    }

    pub(crate) fn used_up_to(&mut self, last: i64) {
        while self.drawn.front().is_some_and(|it| *it <= last) {
            self.drawn.pop_front();
        }
    }

    /// The last one that was used here, as far as it is known.
    pub(crate) fn used(&self) -> Option<i64> {
        self.drawn.front().map(|first| first - 1)
    }

    /// More keys were locked, or may have been.
    pub(crate) fn stale(&mut self) {
        self.is_fresh = false;
    }
}
