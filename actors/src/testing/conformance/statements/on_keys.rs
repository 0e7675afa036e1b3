//! The statements about what operators do with single keys: to hold, bump and forget them.

use super::{Check, NOW, jobs, lease, list, next, run_all, words};
use crate::store::answers::Hold;
use crate::store::{Ack, Bumped, EndHolds, Forget, Forgotten, Held, NextHoldEnd, Retried};
use crate::testing::conformance::{Subject, key, run};
use crate::testing::one_by_one::OneByOne;
use shiftboss_protocol::model::jitter;

pub(super) const ON_KEYS: [(&str, Check); 6] = [
    (
        "27 a key on hold is not handed out, over lists and restarts; then it is at its old place",
        |it| {
            list(it, "f", 1, &["a", "b"]);
            run_all(it, NOW);
            assert_eq!(it.store().hold(&key("a"), None, NOW), Ok(held(None, true)));
            assert_eq!(it.store().hold(&key("x"), None, NOW), Ok(held(None, false)));
            list(it, "f", 2, &["x", "a", "b"]);
            it.restart(true);
            assert_eq!((jobs(it, NOW + 1), it.store().has_work(NOW + 1)), (words("b"), Ok(false)));
            assert_eq!(it.store().retry(&key("a"), None), Ok(Retried::Held));
            for expected in [true, false] {
                assert_eq!(it.store().unhold(&key("a"), NOW), Ok(expected));
            }
            it.store().finish(&key("b"), 0, NOW + 2).unwrap();
            list(it, "f", 3, &["x", "a", "b"]);
            assert_eq!(jobs(it, NOW + 3), words("a b"));
        },
    ),
    ("28 a hold leaves a job in flight alone, may be changed, and may end by itself", |it| {
        list(it, "f", 1, &["a"]);
        let attempt = lease(it, NOW);
        let mut replaced = None;
        for seconds in [7, 5] {
            let hold = Hold::of_operator(Some(seconds), "it is broken", "eve", NOW);
            let held = Held::Held { until: hold.until, is_known: true, replaced };
            assert_eq!(it.store().hold(&key("a"), Some(seconds), NOW), Ok(held));
            replaced = Some(Box::new(hold));
        }
        assert_eq!(it.store().finish_attempt(attempt, 1, NOW), Ok(Ack::Recorded));
        list(it, "f", 2, &["a"]);
        assert_eq!(it.store().ask(NOW + 2, NextHoldEnd), Ok(Some(4)));
        it.store().ask(NOW + 5, EndHolds).unwrap();
        assert_eq!(jobs(it, NOW + 5), words(""));
        assert_eq!(it.store().ask(NOW + 6, NextHoldEnd), Ok(Some(0)));
        it.store().ask(NOW + 6, EndHolds).unwrap();
        assert_eq!(
            (jobs(it, NOW + 6), it.store().ask(NOW + 6, NextHoldEnd)),
            (words("a"), Ok(None))
        );
    }),
    ("29 a key that nothing lists is forgotten; one that is listed or in flight is not", |it| {
        let forget = |it: &mut dyn Subject, of| it.store().ask(NOW, Forget(key(of)));
        assert_eq!(forget(it, "a"), Ok(Forgotten::Unknown));
        list(it, "f", 1, &["a", "b"]);
        let attempt = lease(it, NOW);
        it.store().hold(&key("b"), None, NOW).unwrap();
        assert_eq!(forget(it, "a"), Ok(Forgotten::Listed));
        while it.store().delete_runs(&[run("f", 1)], 10).unwrap() == 0 {}
        let in_flight = ["a", "b"].map(|of| forget(it, of).unwrap());
        assert!(in_flight.contains(&Forgotten::InFlight), "{in_flight:?}");
        it.store().finish_attempt(attempt, 0, NOW).unwrap();
        let answers = ["a", "b"].map(|of| forget(it, of).unwrap());
        assert!(answers.contains(&Forgotten::Forgotten), "{answers:?}");
        assert_eq!(it.store().finish_attempt(attempt, 0, NOW), Ok(Ack::Unknown));
        list(it, "g", 1, &["a", "b"]);
        assert_eq!(
            jobs(it, NOW + 1).len(),
            2,
            "neither is held, and both are as if they had never run"
        );
    }),
    ("30 a bumped key goes before the order, as far as the credit allows, and once", |it| {
        let keys = ["a", "b", "c", "d", "e", "g"];
        list(it, "f", 1, &keys);
        run_all(it, NOW);
        list(it, "f", 2, &keys);
        let mut order = keys;
        order.sort_by_key(|of| jitter(of));
        assert_eq!(it.store().bump(&key(order[5]), NOW), Ok(Bumped::Behind(0)));
        for _ in 0..2 {
            assert_eq!(it.store().bump(&key(order[4]), NOW), Ok(Bumped::Behind(1)));
        }
        it.restart(true);
        // With a share of three tenths the second one is paid for when two others went.
        assert_eq!(jobs(it, NOW + 1), [5, 0, 1, 4, 2, 3].map(|at| order[at]));
        assert_eq!(it.store().bump(&key("x"), NOW), Ok(Bumped::Unknown));
        it.store().hold(&key("a"), None, NOW).unwrap();
        assert_eq!(it.store().bump(&key("a"), NOW), Ok(Bumped::Held));
    }),
    (
        "31 a bumped key in flight runs once more; a hand-out that is taken back leaves it bumped",
        |it| {
            list(it, "f", 1, &["a", "b"]);
            run_all(it, NOW);
            list(it, "f", 2, &["a", "b"]);
            let of = next(it, NOW + 1).unwrap().0;
            let other = if of == "a" { "b" } else { "a" };
            assert_eq!(it.store().bump(&key(&of), NOW), Ok(Bumped::Behind(0)));
            it.store().finish(&key(&of), 0, NOW + 2).unwrap();
            let attempt = lease(it, NOW + 3);
            assert_eq!(it.store().release(attempt, NOW + 3), Ok(Ack::Recorded));
            assert_eq!(jobs(it, NOW + 3), words(&format!("{other} {of}")), "the credit is spent");
            for of in ["a", "b"] {
                it.store().finish(&key(of), 0, NOW + 4).unwrap();
            }
            assert_eq!(jobs(it, NOW + 5), words(""), "it ran once more");
        },
    ),
    ("32 a bumped key whose lease expired has run when its result comes late", |it| {
        list(it, "f", 1, &["a"]);
        assert_eq!(it.store().bump(&key("a"), NOW), Ok(Bumped::Behind(0)));
        let attempt = lease(it, NOW);
        assert!(it.store().expire(attempt, NOW + 1).unwrap().is_some());
        assert_eq!(it.store().finish_attempt(attempt, 0, NOW + 2), Ok(Ack::Recorded));
        assert_eq!(jobs(it, NOW + 3), words(""));
    }),
];

fn held(until: Option<i64>, is_known: bool) -> Held {
    Held::Held { until, is_known, replaced: None }
}
