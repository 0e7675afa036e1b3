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

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Front {
    at: Option<At>,
    /// When the order was last gone over from its first place.
    since: Millis,
    /// As it was read last.
    floor: Option<i64>,
    /// Whatever was made ready up to that floor lies behind the front, or was seen by this batch.
    may_move: bool,
    now: Millis,
    /// In order, what this batch found of it, without those that others have locked.
    passed: Vec<At>,
    /// What this batch handed out, or took out of the order.
    left: HashSet<At>,
}

impl Front {
    /// A batch begins; where it is to look first.
    pub(crate) fn begin(&mut self) -> At {
        self.passed.clear();
        self.left.clear();
        self.first()
    }

    pub(crate) fn first(&self) -> At {
        self.at.unwrap_or(FIRST)
    }

    /// What is so after that look. Whether it counts; else the order is to be looked at from its first place.
    pub(crate) fn check(&mut self, floor: i64, now: Millis) -> bool {
        let is_same = self.floor.replace(floor) == Some(floor);
        self.now = now;
        let is_old = !(0..=KEPT).contains(&now.saturating_sub(self.since));
        let is_gone = self.at.is_some() && (!is_same || is_old);
        // Else somebody may have raised it after that look, and before it was read.
        self.may_move = is_same || is_gone;
        if is_gone || self.at.is_none() {
            (self.at, self.since) = (None, now);
        }
        !is_gone
    }

    /// Found in the order, behind what was found before.
    pub(crate) fn found(&mut self, places: impl Iterator<Item = At>) {
        self.passed.extend(places);
    }

    /// There is hardly anything behind it, so it is of no use; whether there may be something before it.
    pub(crate) fn forget(&mut self) -> bool {
        self.passed.clear();
        self.may_move = false;
        self.at.take().is_some()
    }

    pub(crate) fn left(&mut self, places: impl Iterator<Item = At>) {
        self.left.extend(places);
    }

    /// What is to be said last by a batch that made these ready.
    pub(crate) fn entered(&self, mut turns: impl Iterator<Item = i64>) -> Option<Ask> {
        turns.any(|turn| turn <= self.bound()).then(|| ask!(RAISE))
    }

    /// What the batch did is kept.
    pub(crate) fn commit(&mut self) {
        let bound = self.bound();
        let is_passed = |it: &&At| self.left.contains(*it) && it.0 <= bound;
        let last = self.passed.iter().take_while(is_passed).last().copied();
        if self.may_move {
            self.at = last.or(self.at);
        }
        self.passed.clear();
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
        front.left(places.iter().copied());
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
        front.left([(2, 1), (2, 3)].into_iter());
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
        let says = |front: &Front, turn| front.entered([turn].into_iter()).is_some();
        assert!(says(&front, code::turn(Turn::Never(5))) && says(&front, started(60_000)));
        assert!(!says(&front, started(59_000)));
        front.begin();
        front.check(7, NOW);
        hands_out(&mut front, &[(started(60_000), 1), (started(59_000), 2)]);
        assert_eq!(front.begin(), (started(60_000), 1));
    }
}
