//! Where the order begins: everything before that was handed out. As long as a snapshot is open (`pg_dump`), places
//! that were left since stay in the index, and a search from its first entry would pass over all of them each time.
//!
//! Each connection remembers its own front, and the *floor*, a number in the header, for which it was true. A batch
//! that makes a key ready where another connection may have passed raises the floor, in its own transaction, as its
//! last statement, because that holds up others that do the same. A batch that is rolled back does not raise it, but
//! others may have passed the keys that it had locked; so a front is forgotten after ten seconds, and before a worker
//! is answered that there is nothing. Plain values: [`crate::records`] asks and writes.

use std::collections::HashSet;

use shiftboss_queue::code;
use shiftboss_queue::place::Turn;
use shiftboss_queue::record::Millis;

use crate::wire::{Ask, ask};

/// A key's place in the order: its turn and its id.
pub(crate) type At = (i64, i64);

pub(crate) const FIRST: At = (i64::MIN, i64::MIN);
/// How long a front is valid.
const KEPT: Millis = 10_000;
/// No front comes closer to the present than this. So a job that ends sooner makes its key ready, if another list has
/// it, too, after all fronts.
const DISTANCE: Millis = 60_000;
const RAISE: &str = "UPDATE header SET floor = floor + 1";

#[derive(Debug, Default)]
pub(crate) struct Front {
    at: Option<At>,
    /// Keys up to here have only rows of lists under deletion. They were looked at without locks, so no locked key was
    /// passed.
    gone: Option<At>,
    /// When the order was last searched from its first place.
    since: Millis,
    /// As last read, plus this connection's own raises since.
    floor: Option<i64>,
    /// Everything made ready up to that floor lies after the front, or was seen by this batch.
    may_move: bool,
    now: Millis,
    /// The places that this batch found, in order, without those that others have locked.
    passed: Vec<At>,
    /// The places of keys that this batch handed out, or took out of the order.
    left: HashSet<At>,
    /// The first place of those that this batch made ready, or changed.
    ready: Option<At>,
}

impl Front {
    /// A batch begins; returns where it looks first.
    pub(crate) fn begin(&mut self) -> At {
        self.passed.clear();
        self.left.clear();
        self.ready = None;
        self.first()
    }

    pub(crate) fn first(&self) -> At {
        self.at.max(self.gone).unwrap_or(FIRST)
    }

    /// Checks the state after that look. Returns whether the look counts; if not, search the order from its first
    /// place.
    pub(crate) fn check(&mut self, floor: i64, now: Millis) -> bool {
        let is_same = self.floor.replace(floor) == Some(floor);
        self.now = now;
        let is_old = self.at.is_some() && !(0..=KEPT).contains(&now.saturating_sub(self.since));
        let is_over = self.first() != FIRST && (!is_same || is_old);
        // Otherwise it may have been raised after that look, but before it was read.
        self.may_move = is_same || is_over;
        if !is_same {
            self.gone = None;
        }
        if is_over || self.at.is_none() {
            (self.at, self.since) = (None, now);
        }
        !is_over
    }

    /// Notes places that were found in the order, after those found before.
    pub(crate) fn found(&mut self, places: impl Iterator<Item = At>) {
        self.passed.extend(places);
    }

    /// Notes that keys up to `last` have only rows of lists under deletion. Returns whether that is farther than
    /// before.
    pub(crate) fn goes(&mut self, last: At) -> bool {
        // Others that make a key ready closer to the present do not raise the floor.
        let last = Some(last.min((self.bound(), i64::MAX)));
        let is_farther = last > self.gone && self.may_move;
        if is_farther {
            self.gone = last;
        }
        is_farther
    }

    /// Forgets the front, because there is hardly anything after it; returns whether there may be something before it.
    pub(crate) fn forget(&mut self) -> bool {
        self.passed.clear();
        self.may_move = false;
        self.at.take().is_some()
    }

    /// `left`: places that were left; `ready`: those of changed keys that are ready now. Returns the statement for the
    /// batch's end, if one is needed.
    pub(crate) fn saved(
        &mut self,
        left: impl Iterator<Item = At>,
        ready: impl Iterator<Item = At>,
    ) -> Option<Ask> {
        self.left.extend(left);
        self.ready = self.ready.into_iter().chain(ready).min();
        self.go_back();
        self.raises().then(|| ask!(RAISE))
    }

    fn raises(&self) -> bool {
        self.ready.is_some_and(|(turn, _)| turn <= self.bound())
    }

    /// The batch was committed.
    pub(crate) fn commit(&mut self) {
        let bound = self.bound();
        let is_passed = |it: &&At| self.left.contains(*it) && it.0 <= bound;
        let last = self.passed.iter().take_while(is_passed).last().copied();
        if self.may_move {
            self.at = last.or(self.at);
        }
        if self.raises() {
            self.floor = self.floor.map(|floor| floor + 1);
        }
        self.go_back();
        self.passed.clear();
    }

    /// Moves the front back, so that nothing that this batch made ready lies before it.
    fn go_back(&mut self) {
        if let Some(ready) = self.ready {
            self.at.take_if(|at| ready <= *at);
            self.gone.take_if(|gone| ready <= *gone);
        }
    }

    fn bound(&self) -> i64 {
        let started = self.now.saturating_sub(DISTANCE).div_euclid(1_000);
        code::turn(Turn::Started(started))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Millis = 1_000_000_000;

    fn hands_out(front: &mut Front, places: &[At]) {
        front.found(places.iter().copied());
        front.saved(places.iter().copied(), std::iter::empty());
        front.commit();
    }

    #[test]
    fn it_moves_over_what_was_handed_out_from_the_second_batch_on() {
        let mut front = Front::default();
        assert_eq!(front.begin(), FIRST);
        assert!(front.check(7, NOW));
        hands_out(&mut front, &[(1, 1)]);
        assert_eq!(front.begin(), FIRST, "somebody may have raised it to 7 after the look");
        assert!(front.check(7, NOW));
        hands_out(&mut front, &[(1, 2), (1, 3)]);
        assert_eq!(front.begin(), (1, 3));
        assert!(front.check(7, NOW + 1));
        front.found([(2, 1), (2, 2), (2, 3)].into_iter());
        front.saved([(2, 1), (2, 3)].into_iter(), std::iter::empty());
        front.commit();
        assert_eq!(front.begin(), (2, 1), "the next one is there still");
    }

    #[test]
    fn it_is_forgotten() {
        let moved = || {
            let mut front = Front::default();
            for place in [(1, 1), (1, 2)] {
                front.begin();
                front.check(7, NOW);
                hands_out(&mut front, &[place]);
            }
            assert_eq!(front.begin(), (1, 2));
            front
        };
        for (floor, now) in [(8, NOW), (7, NOW + KEPT + 1), (7, NOW - 1)] {
            let mut front = moved();
            assert!(!front.check(floor, now));
            assert_eq!(front.first(), FIRST);
            hands_out(&mut front, &[(1, 3)]);
            assert_eq!(front.begin(), (1, 3), "it was looked at again after the floor was read");
        }
        let mut front = moved();
        assert!(front.check(7, NOW) && front.forget());
        assert_eq!((front.first(), front.forget()), (FIRST, false));
    }

    #[test]
    fn who_makes_a_key_ready_before_it_says_so() {
        let mut front = Front::default();
        front.check(7, NOW);
        let started = |ago: Millis| code::turn(Turn::Started((NOW - ago) / 1_000));
        let mut says = |turn| {
            front.begin();
            front.saved(std::iter::empty(), [(turn, 1)].into_iter()).is_some()
        };
        assert!(says(code::turn(Turn::Never(5))) && says(started(60_000)));
        assert!(!says(started(59_000)));
        front.begin();
        front.check(7, NOW);
        hands_out(&mut front, &[(started(60_000), 1), (started(59_000), 2)]);
        assert_eq!(front.begin(), (started(60_000), 1));
    }

    /// A connection's own raise does not move its front; what it makes ready before the front does.
    #[test]
    fn what_it_makes_ready_itself_it_knows() {
        let mut front = Front::default();
        front.check(7, NOW);
        front.begin();
        front.check(7, NOW);
        assert!(front.goes((5, 0)) && !front.goes((4, 9)));
        hands_out(&mut front, &[(6, 1), (6, 2)]);
        for (ready, floor, first) in [((6, 3), 7, (6, 2)), ((5, 1), 8, (5, 0)), ((5, 0), 9, FIRST)]
        {
            front.begin();
            assert!(front.check(floor, NOW));
            assert!(front.saved(std::iter::empty(), [ready].into_iter()).is_some());
            front.commit();
            assert_eq!(front.begin(), first, "{ready:?}");
        }
    }
}
