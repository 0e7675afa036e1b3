//! The contract of [`Store`](crate::store::Store), one numbered statement a check: what is asked, and what must be
//! answered. Each begins with an empty store under the default rules; some with rules for failures.

mod after_failures;
mod on_keys;

use super::{FETCHERS, HALF_DAY, LEASE_SECONDS, Subject, holder, key, row, rows_of_run, run};
use crate::store::{
    Ack, Added, Cancelled, Complete, CountInFlight, Dispatch, Dispatched, EntryId, FetcherRecord,
    HasWork, RegisterRun, Registered, Request, Requeued, Retried, SpoolEntry, Store,
};
use crate::testing::model::Rules;
use crate::testing::one_by_one::OneByOne;
use shiftboss_protocol::model::{Attempt, Idle};

/// A time from which leases of half a day can have begun.
const NOW: i64 = 1_000_000;

type Check = fn(&mut dyn Subject);

/// Checks each statement with a store of its own.
///
/// # Panics
/// At the first one that does not hold; its name is printed before.
pub fn hold<S: Subject>(open: impl Fn(Rules) -> S) {
    let check = |(name, check): (&str, Check), rules| {
        println!("{name}");
        check(&mut open(rules));
    };
    let usual = STATEMENTS.into_iter().chain(on_keys::ON_KEYS);
    usual.for_each(|statement| check(statement, Rules::default()));
    let after_failures = after_failures::AFTER_FAILURES.into_iter();
    after_failures.for_each(|statement| check(statement, Rules::after_failures()));
}

const STATEMENTS: [(&str, Check); 26] = [
    ("01 a batch is answered in order, each operation in its place", |it| {
        let batch = (RegisterRun(run("f", 1)), Dispatch { holder: None, fetchers: None });
        let (registered, dispatched) = it.store().ask_both(batch);
        assert!(matches!(registered, Ok(Registered::Run(stored)) if stored.run == run("f", 1)));
        assert_eq!(dispatched.unwrap(), Dispatched::Nothing);
    }),
    ("02 an operation sees what those before it in the batch did", |it| {
        list(it, "f", 1, &["a"]);
        take(it, NOW);
        list(it, "f", 2, &["a"]);
        let batch =
            (Complete { key: key("a"), exit_code: 0 }, Dispatch { holder: None, fetchers: None });
        let (_, dispatched) = it.store().ask_both(batch);
        assert!(matches!(dispatched.unwrap(), Dispatched::Job(..)));
    }),
    ("03 an operation that is rejected spoils no other", |it| {
        list(it, "f", 1, &["a"]);
        it.store().begin_deletion(&run("f", 1)).unwrap();
        let batch = (RegisterRun(run("f", 1)), RegisterRun(run("g", 1)));
        let (rejected, registered) = it.store().ask_both(batch);
        assert!(rejected.is_err() && registered.is_ok());
    }),
    ("04 nothing of a batch that fails has happened", |it| {
        list(it, "f", 1, &["a"]);
        let mut batch = Vec::new();
        Dispatch { holder: None, fetchers: None }.push(&mut batch);
        it.fail(NOW, batch);
        assert_eq!((jobs(it, NOW), it.store().in_flight(NOW).unwrap()), (words("a"), 1));
    }),
    ("05 what was answered outlives the daemon, however it ends", |it| {
        list(it, "f", 1, &["a", "b"]);
        let attempt = lease(it, NOW);
        for clean in [true, false] {
            it.restart(clean);
            assert_eq!(it.store().leases().unwrap(), [(attempt, LEASE_SECONDS)]);
            assert_eq!(it.store().runs().unwrap().len(), 1);
        }
    }),
    ("06 the number of an attempt is never used again", |it| {
        list(it, "f", 1, &["a", "b", "c"]);
        let mut last = lease(it, NOW);
        for clean in [true, false] {
            it.restart(clean);
            let next = lease(it, NOW);
            assert!(next > last);
            last = next;
        }
    }),
    ("07 keys that never ran come first, then the one that ran least recently", |it| {
        list(it, "f", 1, &["late"]);
        run_all(it, NOW + 20);
        list(it, "f", 2, &["early"]);
        run_all(it, NOW);
        list(it, "f", 3, &["late", "early", "new"]);
        assert_eq!(jobs(it, NOW + 30), words("new early late"));
    }),
    ("08 a key is in flight once, and free when its job ends", |it| {
        FETCHERS.iter().for_each(|fetcher| list(it, fetcher, 1, &["a"]));
        assert_eq!(jobs(it, NOW), words("a"));
        it.store().finish(&key("a"), 0, NOW).unwrap();
        assert_eq!(jobs(it, NOW), words("a"));
    }),
    ("09 fetchers that list the same key take turns", |it| {
        let mut runs = Vec::new();
        for round in 1..=4 {
            FETCHERS.iter().for_each(|fetcher| list(it, fetcher, round, &["a"]));
            runs.extend(payload(it, NOW + round));
            it.store().finish(&key("a"), 0, NOW + round).unwrap();
        }
        assert_eq!(runs, words("f.1 g.2 f.3 g.4"));
    }),
    ("10 a newer run's row hides the older one's", |it| {
        list(it, "f", 1, &["a", "b"]);
        list(it, "f", 2, &["a"]);
        let mut payloads: Vec<_> = (0..2).filter_map(|_| payload(it, NOW)).collect();
        payloads.sort();
        assert_eq!((payloads, jobs(it, NOW)), (words("f.1 f.2"), words("")));
    }),
    ("11 rows that are added again keep their place; the last payload counts", |it| {
        list(it, "f", 1, &["a"]);
        it.store().add_rows(&rows_of_run(&run("f", 1), &[("a", "new")], true)).unwrap();
        assert_eq!((payload(it, NOW).as_deref(), jobs(it, NOW)), (Some("new"), words("")));
        assert_eq!(it.store().register_run(&run("f", 1)).unwrap().rows, 1);
    }),
    ("12 rows of a run that is not known are rejected", |it| {
        let rows = rows_of_run(&run("f", 1), &[("a", "1")], true);
        assert!(it.store().add_rows(&rows).is_err());
    }),
    ("13 from the start of its deletion nothing of a run is handed out; it ends in steps", |it| {
        list(it, "f", 1, &["a", "b", "c"]);
        assert_eq!(it.store().delete_runs(&[run("f", 1)], 1), Ok(0));
        assert_eq!(it.store().dispatch(NOW, None), Ok(Dispatched::Nothing));
        while it.store().delete_runs(&[run("f", 1)], 1).unwrap() == 0 {}
        assert_eq!(it.store().runs(), Ok(Vec::new()));
    }),
    ("14 a dispatch that is undone is as if it had not been", |it| {
        list(it, "f", 1, &["a", "b"]);
        let Dispatched::Job(attempt, job) = it.store().dispatch(NOW, None).unwrap() else {
            panic!("there are jobs");
        };
        assert_eq!(it.store().undo(&job.key, attempt), Ok(true));
        assert_eq!(it.store().undo(&job.key, attempt), Ok(false));
        assert_eq!(jobs(it, NOW).first().map(String::as_str), Some(job.key.as_str()));
    }),
    ("15 a classic job may be handed out again once its lease expired, to the second", |it| {
        list(it, "f", 1, &["a"]);
        take(it, NOW);
        assert_eq!((jobs(it, NOW + HALF_DAY), it.store().in_flight(NOW)), (words(""), Ok(1)));
        assert_eq!(jobs(it, NOW + HALF_DAY + 1), words("a"));
    }),
    ("16 a leased job comes back by its release or the end of its lease, at its old place", |it| {
        list(it, "f", 1, &["a"]);
        let first = lease(it, NOW);
        assert_eq!(it.store().is_leased(first), Ok(true));
        assert_eq!(it.store().release(first, NOW), Ok(Ack::Recorded));
        let second = lease(it, NOW);
        let expired = it.store().expire(second, NOW + 60).unwrap().unwrap();
        assert_eq!((expired.key, expired.dead_letter, expired.single), (key("a"), false, false));
        assert_eq!((it.store().is_leased(second), jobs(it, NOW)), (Ok(false), words("a")));
    }),
    ("17 a task whose leases expired too often is a dead letter until it is retried", |it| {
        list(it, "f", 1, &["a"]);
        let dead: Vec<bool> = (0..5).map(|_| expire(it)).collect();
        assert_eq!((dead, jobs(it, NOW)), (vec![false, false, false, false, true], words("")));
        assert_eq!(it.store().retry(&key("a"), None), Ok(Retried::Back(1)));
        assert_eq!(jobs(it, NOW), words("a"));
    }),
    ("18 a late result counts until the key is handed out again", |it| {
        list(it, "f", 1, &["a"]);
        for (again, ack) in [(true, Ack::Stale), (false, Ack::Recorded)] {
            let late = lease(it, NOW);
            it.store().expire(late, NOW).unwrap();
            let next = again.then(|| lease(it, NOW));
            assert_eq!(it.store().finish_attempt(late, 0, NOW), Ok(ack));
            next.map(|next| it.store().release(next, NOW).unwrap());
        }
        assert_eq!(it.store().finish_attempt(Attempt(1_000_000), 0, NOW), Ok(Ack::Unknown));
        assert_eq!(jobs(it, NOW), words(""));
    }),
    ("19 an end that is said again is recorded once more, and is no other's", |it| {
        list(it, "f", 1, &["a"]);
        let attempt = lease(it, NOW);
        for _ in 0..2 {
            assert_eq!(it.store().finish_attempt(attempt, 0, NOW), Ok(Ack::Recorded));
        }
        assert_eq!(it.store().release(attempt, NOW), Ok(Ack::Stale));
    }),
    ("20 requeue takes a job back from whoever has it", |it| {
        list(it, "f", 1, &["a"]);
        assert_eq!(it.store().requeue(&key("x"), NOW), Ok(Requeued::Unknown));
        assert_eq!(it.store().requeue(&key("a"), NOW), Ok(Requeued::NotInFlight));
        let attempt = lease(it, NOW);
        assert_eq!(it.store().requeue(&key("a"), NOW), Ok(Requeued::Back(attempt)));
        assert_eq!(jobs(it, NOW), words("a"));
    }),
    ("21 while paused nothing is handed out, also after a restart", |it| {
        list(it, "f", 1, &["a", "b"]);
        it.store().set_paused(true).unwrap();
        it.restart(true);
        assert_eq!((jobs(it, NOW), it.store().has_work(NOW)), (words(""), Ok(false)));
        assert_eq!(it.store().why_idle(NOW), Ok(Idle::Paused(2)));
        it.store().set_paused(false).unwrap();
        assert_eq!((it.store().has_work(NOW), jobs(it, NOW).len()), (Ok(true), 2));
        assert_eq!(it.store().why_idle(NOW), Ok(Idle::Busy(2)));
    }),
    ("22 questions change nothing", |it| {
        list(it, "f", 1, &["a"]);
        let (in_flight, has_work) = it.store().ask_both((CountInFlight, HasWork));
        assert_eq!((in_flight.unwrap(), has_work.unwrap()), (0, true));
        assert_eq!(jobs(it, NOW), words("a"));
    }),
    (
        "23 single tasks of a key run in order; success deletes one, and a failed one is kept",
        |it| {
            for payload in ["1", "2"] {
                assert_eq!(it.store().add_task(&row("a", payload), NOW), Ok(Added::Added(0)));
                assert_eq!(it.store().add_task(&row("a", payload), NOW), Ok(Added::Known));
            }
            assert_eq!(payload(it, NOW).as_deref(), Some("1"));
            it.store().finish(&key("a"), 7, NOW).unwrap();
            assert_eq!(payload(it, NOW).as_deref(), Some("2"));
            it.store().finish(&key("a"), 0, NOW).unwrap();
            assert_eq!(
                (jobs(it, NOW), it.store().retry(&key("a"), None)),
                (words(""), Ok(Retried::Back(1)))
            );
            assert_eq!(payload(it, NOW).as_deref(), Some("1"));
        },
    ),
    ("24 cancelling spares the single task that is in flight", |it| {
        for payload in ["1", "2"] {
            it.store().add_task(&row("a", payload), NOW).unwrap();
        }
        take(it, NOW);
        let cancelled = Cancelled { deleted: 1, more: false, in_flight: true };
        assert_eq!(it.store().cancel_tasks(&key("a"), NOW), Ok(cancelled));
        it.store().finish(&key("a"), 0, NOW).unwrap();
        assert_eq!(jobs(it, NOW), words(""));
    }),
    ("25 an entry of a spool is accepted once, until its removal is certain", |it| {
        let (spool, name) = ("/spool".into(), "x".into());
        let id = EntryId { spool, name, inode: 1, born: 2, checksum: 3 };
        let entry = SpoolEntry { id: id.clone(), task: row("a", "1") };
        for expected in [Added::Added(0), Added::Known] {
            assert_eq!(it.store().accept(std::slice::from_ref(&entry), NOW), Ok(vec![expected]));
            run_all(it, NOW);
            it.restart(false);
        }
        assert_eq!(it.store().accepted(), Ok(vec![id.clone()]));
        it.store().forget_accepted(&id).unwrap();
        assert_eq!(it.store().accept(&[entry], NOW), Ok(vec![Added::Added(0)]));
    }),
    ("26 what is noted of a managed fetcher is kept until it is forgotten", |it| {
        let state = "idle".to_owned();
        let record = FetcherRecord {
            name: "f".into(),
            state,
            run_started: None,
            last_run: None,
            next_run: Some(NOW),
        };
        it.store().note_fetcher(&record).unwrap();
        it.restart(false);
        assert_eq!(it.store().fetcher_records(), Ok(vec![record]));
        it.store().forget_fetcher("f").unwrap();
        assert_eq!(it.store().fetcher_records(), Ok(Vec::new()));
    }),
];

impl dyn Store + '_ {
    /// Two requests in one batch.
    fn ask_both<R: Request>(&mut self, requests: R) -> R::Answer {
        self.ask(NOW, requests).unwrap()
    }
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

/// Registers a run and adds rows whose payload names it.
fn list(it: &mut dyn Subject, fetcher: &str, started: i64, keys: &[&str]) {
    let (run, payload) = (run(fetcher, started), format!("{fetcher}.{started}"));
    let rows: Vec<_> = keys.iter().map(|key| (*key, payload.as_str())).collect();
    it.store().register_run(&run).unwrap();
    it.store().add_rows(&rows_of_run(&run, &rows, true)).unwrap();
}

/// The next job of a classic worker, as its key and payload.
fn next(it: &mut dyn Subject, now: i64) -> Option<(String, String)> {
    match it.store().dispatch(now, None).unwrap() {
        Dispatched::Job(_, job) => Some((job.key.to_string(), job.payload)),
        Dispatched::Nothing | Dispatched::Later => None,
    }
}

fn take(it: &mut dyn Subject, now: i64) {
    next(it, now).expect("there is a job");
}

fn payload(it: &mut dyn Subject, now: i64) -> Option<String> {
    next(it, now).map(|(_, payload)| payload)
}

/// The keys of all jobs that are handed out now.
fn jobs(it: &mut dyn Subject, now: i64) -> Vec<String> {
    std::iter::from_fn(|| next(it, now)).map(|(key, _)| key).collect()
}

/// Runs all jobs that there are, with success.
fn run_all(it: &mut dyn Subject, now: i64) {
    for done in jobs(it, now) {
        it.store().finish(&key(&done), 0, now).unwrap();
    }
}

/// The next job, leased.
fn lease(it: &mut dyn Subject, now: i64) -> Attempt {
    match it.store().dispatch(now, Some(&holder("w", LEASE_SECONDS))).unwrap() {
        Dispatched::Job(attempt, _) => attempt,
        other => panic!("{other:?}"),
    }
}

/// Leases the next job and lets the lease expire; whether it is a dead letter now.
fn expire(it: &mut dyn Subject) -> bool {
    let attempt = lease(it, NOW);
    it.store().expire(attempt, NOW).unwrap().unwrap().dead_letter
}
