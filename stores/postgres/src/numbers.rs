//! Numbers of attempts, drawn from a sequence of the server after the keys that may get them were locked: so the
//! attempts of a key ascend, whichever daemons hand it out. The rules need no more than that.
//!
//! Unused numbers are kept for the next batch. They may be used there only if no other daemon has drawn since:
//! otherwise a key that is locked now may have a higher number.

use std::collections::VecDeque;

use shiftboss_protocol::model::Attempt;

#[derive(Debug, Default)]
pub(crate) struct Numbers {
    drawn: VecDeque<i64>,
    /// All keys of the batch were locked before these were drawn.
    is_fresh: bool,
}

impl Numbers {
    /// The last number drawn here; how many more make up `wanted` if that is the last of all; and how many otherwise.
    pub(crate) fn draw(&mut self, wanted: usize) -> [i64; 3] {
        // Numbers that others drew in between may already be given.
        let is_gap = |at: &usize| self.drawn[at - 1] + 1 < self.drawn[*at];
        let gone = (1..self.drawn.len()).rev().find(is_gap).unwrap_or(0);
        self.drawn.drain(..gone);
        let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        let last = self.drawn.back().copied().unwrap_or(-1);
        [last, number(wanted.saturating_sub(self.drawn.len())), number(wanted)]
    }

    /// Takes the drawn numbers. If none came though some were wanted, those left here are the last of all.
    pub(crate) fn take(&mut self, drawn: Vec<i64>) {
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
    }

    /// The first number after `last`, if it may be given to all locked keys.
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

    /// The last number that was used here, as far as is known.
    pub(crate) fn used(&self) -> Option<i64> {
        self.drawn.front().map(|first| first - 1)
    }

    /// More keys were locked since, or may have been.
    pub(crate) fn stale(&mut self) {
        self.is_fresh = false;
    }
}
