//! The statements about what becomes of tasks that fail, and of keys whose jobs fail again and again.

use super::{Check, NOW, jobs, list, next, run_all, words};
use crate::store::{Bumped, EndHolds, NextHoldEnd, Retried};
use crate::testing::conformance::{Subject, key, run};
use crate::testing::model::{often_in_a_row, tried_again};
use crate::testing::one_by_one::OneByOne;

pub(super) const AFTER_FAILURES: [(&str, Check); 5] = [
    ("33 a key that fails twice in a row is held for a while, longer each time", |it| {
        let mut now = NOW;
        let mut round = |it: &mut dyn Subject, code| {
            now += 1;
            list(it, "f", now, &["a"]);
            let jobs = jobs(it, now);
            it.store().finish(&key("a"), code, now).unwrap();
            let next = it.store().ask(now, NextHoldEnd).unwrap();
            (jobs.len(), next.map(|seconds| seconds.cast_signed() - 1))
        };
        let rule = often_in_a_row();
        let delays = [2, 3, 4].map(|failures| rule.delay("a", failures));
        assert_eq!([round(it, 124), round(it, 0), round(it, 124)], [(1, None); 3]);
        for delay in delays {
            assert_eq!(round(it, 124), (1, delay));
            list(it, "f", NOW + 100, &["a"]);
            it.restart(true);
            assert_eq!(jobs(it, NOW + 19), words(""), "it is held");
            assert_eq!(it.store().retry(&key("a"), None), Ok(Retried::Held));
            assert_eq!(it.store().unhold(&key("a"), NOW), Ok(true));
            it.store().delete_runs(&[run("f", NOW + 100)], 10).unwrap();
        }
        let from_the_start = [round(it, 2), round(it, 124)];
        assert_eq!(from_the_start, [(1, None); 2], "another end clears the count");
    }),
    ("34 a failed task waits again when its time comes, before the order, and so often", |it| {
        list(it, "f", 1, &["a", "b", "c"]);
        run_all(it, NOW);
        list(it, "f", 2, &["a", "b", "c"]);
        let (of, mut now) = (next(it, NOW).unwrap().0, NOW);
        for retried in 0..2 {
            it.store().finish(&key(&of), 1, now).unwrap();
            it.restart(retried == 0);
            let delay = tried_again().lists.unwrap().delay(&of, 1, retried).unwrap();
            assert_eq!(it.store().ask(now, NextHoldEnd), Ok(Some(delay.cast_unsigned())));
            now += delay;
            it.store().ask(now - 1, EndHolds).unwrap();
            assert_eq!(it.store().ask(now, NextHoldEnd), Ok(Some(0)), "not before its time");
            it.store().ask(now, EndHolds).unwrap();
            assert_eq!(it.store().ask(now, NextHoldEnd), Ok(None));
            let next = if retried == 0 { vec![next(it, now).unwrap().0] } else { jobs(it, now) };
            assert!(next.contains(&of), "at first before those that wait longer");
        }
        it.store().finish(&key(&of), 1, now).unwrap();
        assert_eq!(it.store().ask(now, NextHoldEnd), Ok(None), "it has failed");
    }),
    ("35 what is delayed is put back by retry and bump, and replaced by a newer list", |it| {
        let fails = |it: &mut dyn Subject, run, now| {
            list(it, "f", run, &["a"]);
            assert_eq!(jobs(it, now), words("a"));
            it.store().finish(&key("a"), 1, now).unwrap();
            assert!(it.store().ask(now, NextHoldEnd).unwrap().is_some());
        };
        let runs = |it: &mut dyn Subject, now| {
            assert_eq!(jobs(it, now), words("a"));
            it.store().finish(&key("a"), 0, now).unwrap();
        };
        fails(it, 1, NOW);
        assert_eq!(it.store().retry(&key("a"), None), Ok(Retried::Back(1)));
        assert_eq!(it.store().ask(NOW, NextHoldEnd), Ok(None));
        runs(it, NOW + 1);
        fails(it, 2, NOW + 2);
        assert_eq!(it.store().bump(&key("a"), NOW + 2), Ok(Bumped::Behind(0)));
        runs(it, NOW + 3);
        fails(it, 3, NOW + 4);
        list(it, "f", 4, &["a"]);
        runs(it, NOW + 5);
        it.store().ask(NOW + 100, EndHolds).unwrap();
        let left = (jobs(it, NOW + 100), it.store().ask(NOW + 100, NextHoldEnd));
        assert_eq!(left, (words(""), Ok(None)), "its time comes, and nothing is to be done");
    }),
    ("36 how often a task was tried again is its own, whatever else its key has", |it| {
        let delay = |it: &mut dyn Subject, now| it.store().ask(now, NextHoldEnd).unwrap();
        let first = tried_again().lists.unwrap().delay("a", 1, 0).unwrap();
        let (due, later) = (Some(first.cast_unsigned()), NOW + first);
        list(it, "f", 1, &["a"]);
        assert_eq!(jobs(it, NOW), words("a"));
        it.store().finish(&key("a"), 1, NOW).unwrap();
        it.store().ask(later, EndHolds).unwrap();
        // In the lane: a list's task that another list has, and then one of a newer list of its own.
        list(it, "g", 1, &["a"]);
        assert_eq!(jobs(it, later), words("a"));
        it.store().finish(&key("a"), 0, later).unwrap();
        assert_eq!(jobs(it, later), words("a"), "the other one's turn");
        it.store().finish(&key("a"), 0, later).unwrap();
        list(it, "f", 2, &["a"]);
        assert_eq!(jobs(it, later), words("a"));
        it.store().finish(&key("a"), 1, later).unwrap();
        assert_eq!(delay(it, later), due, "its first failure");
        list(it, "f", 3, &["a"]);
        assert_eq!(delay(it, later), None, "it is replaced");
        assert_eq!(jobs(it, later), words("a"));
        it.store().finish(&key("a"), 1, later).unwrap();
        assert_eq!(delay(it, later), due, "and so is this one");
    }),
    ("37 who puts back the tasks of one fetcher leaves the others delayed", |it| {
        list(it, "f", 1, &["a"]);
        assert_eq!(jobs(it, NOW), words("a"));
        it.store().finish(&key("a"), 1, NOW).unwrap();
        let due = it.store().ask(NOW, NextHoldEnd).unwrap();
        assert!(due.is_some());
        list(it, "g", 1, &["a"]);
        assert_eq!(jobs(it, NOW), words("a"));
        it.store().finish(&key("a"), 0, NOW).unwrap();
        assert_eq!(it.store().retry(&key("a"), Some("g")), Ok(Retried::Back(1)));
        assert_eq!(it.store().ask(NOW, NextHoldEnd), Ok(due));
    }),
];
