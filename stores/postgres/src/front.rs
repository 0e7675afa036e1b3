//! Where the order begins: whatever lies before was handed out. As long as somebody has a snapshot open (`pg_dump`), places that were left
//! since stay in the index, and whoever began at its first one would go over all of them each time.
//!
//! Each connection remembers its own front, and the *floor* of which it was true, a number of the header. Whoever makes a key ready where
//! another one may have passed raises the floor, in its own transaction, as its last statement, for that holds up the others who do so.
//! A batch that is rolled back raises nothing, and others have passed the keys that it had locked; so a front is forgotten after
//! ten seconds, and before anybody is told that there is nothing. Plain values: [`crate::records`] asks and writes.

use std::collections::HashSet;

use shiftboss_queue::code;
use shiftboss_queue::place::Turn;
use shiftboss_queue::record::Millis;

use crate::wire::{Ask, ask};

/// A key's place in the order: its turn and its id.
pub(crate) type At = (i64, i64);

pub(crate) const FIRST: At = (i64::MIN, i64::MIN);
/// A front is true for so long.
const KEPT: Millis = 10_000;
/// No front comes nearer to the time. So a job that is over sooner makes its key ready behind all fronts, if another list has it, too.
const DISTANCE: Millis = 60_000;
const RAISE: &str = "UPDATE header SET floor = floor + 1";

#[derive(Debug, Default)]
pub(crate) struct Front {
    at: Option<At>,
    /// Up to it keys have nothing but rows of lists that go. Who looked at them locked none, so none was passed that somebody had.
    gone: Option<At>,
    /// When the order was last gone over from its first place.
    since: Millis,
    /// As it was read last, and raised since by this connection.
    floor: Option<i64>,
    /// Whatever was made ready up to that floor lies behind the front, or was seen by this batch.
    may_move: bool,
    now: Millis,
    /// In order, what this batch found of it, without those that others have locked.
    passed: Vec<At>,
    /// What this batch handed out, or took out of the order.
    left: HashSet<At>,
    /// The first one of those that this batch made ready, or changed.
    ready: Option<At>,
}

impl Front {
    /// A batch begins; where it is to look first.
    pub(crate) fn begin(&mut self) -> At {
        self.passed.clear();
        self.left.clear();
        self.ready = None;
        self.first()
    }

    pub(crate) fn first(&self) -> At {
        self.at.max(self.gone).unwrap_or(FIRST)
    }

    /// What is so after that look. Whether it counts; else the order is to be looked at from its first place.
    pub(crate) fn check(&mut self, floor: i64, now: Millis) -> bool {
        let is_same = self.floor.replace(floor) == Some(floor);
        self.now = now;
        let is_old = self.at.is_some() && !(0..=KEPT).contains(&now.saturating_sub(self.since));
        let is_over = self.first() != FIRST && (!is_same || is_old);
        // Else somebody may have raised it after that look, and before it was read.
        self.may_move = is_same || is_over;
        if !is_same {
            self.gone = None;
        }
        if is_over || self.at.is_none() {
            (self.at, self.since) = (None, now);
        }
        !is_over
    }

    /// Found in the order, behind what was found before.
    pub(crate) fn found(&mut self, places: impl Iterator<Item = At>) {
        self.passed.extend(places);
    }

    /// Up to there keys have nothing but rows of lists that go. Whether that is farther than it was known.
    pub(crate) fn goes(&mut self, last: At) -> bool {
        // Others that make a key ready nearer to the time do not say so.
        let last = Some(last.min((self.bound(), i64::MAX)));
        let is_farther = last > self.gone && self.may_move;
        if is_farther {
            self.gone = last;
        }
        is_farther
    }

    /// There is hardly anything behind it, so it is of no use; whether there may be something before it.
    pub(crate) fn forget(&mut self) -> bool {
        self.passed.clear();
        self.may_move = false;
        self.at.take().is_some()
    }

    /// These were left; those, which were changed, are ready now. What is to be said of it at the batch's end.
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

    /// What the batch did is kept.
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

    /// What this batch made ready does not lie before it.
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

    /// One's own raise is no news; what one makes ready before it is.
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
