//! Protocol 2 in the store, sentence by sentence of `docs/protocol.md`.

mod ends;

use shiftboss_actors::store::{Ack, Dispatched, ExpiredLease, Requeued, Retried, SetPaused};
use shiftboss_actors::testing::one_by_one::OneByOne;
use shiftboss_protocol::model::{Attempt, Idle, Key};

use super::support::{FAIR, Site, holder, key, options, run};
use crate::stores::sqlite::{Options, Policy};

const NOW: i64 = 1_000_000;
const HALF_DAY: i64 = 43_200;

fn options_with(max_expired_leases: u32) -> Options {
    Options { max_expired_leases, ..options(FAIR) }
}

/// A store in which fetcher f's run 1 lists these keys.
fn site(keys: &[&str]) -> Site {
    let mut site = Site::opened(tempfile::tempdir().unwrap(), &options_with(2));
    site.list(&run("f", 1), keys);
    site
}

impl Site {
    /// Asks for a job with a lease; its attempt and key.
    fn lease(&mut self, now: i64) -> Option<(Attempt, String)> {
        let holder = holder("builder", 60);
        match self.commit(|store| store.dispatch(now, Some(&holder))).unwrap() {
            Dispatched::Job(attempt, job) => Some((attempt, job.key.to_string())),
            Dispatched::Nothing => None,
            Dispatched::Later => panic!("no deletion is under way"),
        }
    }

    /// The attempt of the next job, which is there.
    fn leased(&mut self, now: i64) -> Attempt {
        self.lease(now).unwrap().0
    }

    fn done(&mut self, attempt: Attempt, code: i64, now: i64) -> Ack {
        self.commit(|store| store.finish_attempt(attempt, code, now)).unwrap()
    }

    fn release(&mut self, attempt: Attempt) -> Ack {
        self.commit(|store| store.release(attempt, NOW + 9)).unwrap()
    }

    fn expire(&mut self, attempt: Attempt) -> Option<ExpiredLease> {
        self.commit(|store| store.expire(attempt, NOW + 60)).unwrap()
    }

    /// Lets the lease expire; whether the job is a dead letter.
    fn lose(&mut self, attempt: Attempt) -> bool {
        self.expire(attempt).unwrap().dead_letter
    }

    fn retry(&mut self, text: &str) -> Option<u64> {
        match self.commit(|store| store.retry(&key(text), None)).unwrap() {
            Retried::Back(tasks) => Some(tasks),
            Retried::Held | Retried::Unknown => None,
        }
    }

    fn outcomes(&self) -> Vec<String> {
        self.rows("SELECT attempt, outcome, exit_code FROM shiftboss_attempts ORDER BY attempt")
    }

    fn log(&self) -> Vec<String> {
        self.rows("SELECT attr_path, started, finished, exit_code FROM log")
    }
}

/// "An attempt is never used again", and "a worker may report also after the daemon was restarted".
#[test]
fn attempts_outlive_the_daemon() {
    for clean in [false, true] {
        let mut site = site(&["alpha", "bravo"]);
        let first = site.leased(NOW);
        site = site.restart(&options(FAIR), clean);
        assert_eq!(site.store.leases().unwrap(), [(first, 60)], "every lease begins anew");
        let second = site.leased(NOW);
        assert!(second > first);
        assert_eq!(site.done(first, 0, NOW + 5), Ack::Recorded);
        assert_eq!(site.store.leases().unwrap(), [(second, 60)]);
    }
}

/// "While a lease lives, its key is handed out to nobody, however long that lasts."
#[test]
fn a_leased_key_is_handed_to_nobody() {
    let mut site = site(&["alpha"]);
    let attempt = site.leased(NOW);
    site.list(&run("g", 1), &["alpha"]);
    site.list(&run("f", 2), &["alpha"]);
    for later in [0, HALF_DAY + 1, 10 * HALF_DAY] {
        assert_eq!((site.lease(NOW + later), site.next(NOW + later)), (None, None));
    }
    assert!(site.store.is_leased(attempt).unwrap());
    assert_eq!(site.store.in_flight(NOW + 10 * HALF_DAY).unwrap(), 1);
}

/// "The job is back in the queue at once, at its old place": by a lease that ran out and by RELEASE.
#[test]
fn a_job_that_comes_back_is_at_its_old_place() {
    for released in [false, true] {
        let mut site = site(&["alpha", "bravo"]);
        let first = site.lease(NOW).unwrap();
        site.done(first.0, 3, NOW + 1);
        site.list(&run("f", 2), &["alpha", "bravo"]);
        let before = site.tables();
        let (attempt, text) = site.lease(NOW + 2).unwrap();
        assert_ne!(text, first.1, "the other one waits for longer");
        if released {
            assert_eq!(site.release(attempt), Ack::Recorded);
        } else {
            let lost = ExpiredLease {
                key: key(&text),
                worker: "builder".into(),
                dead_letter: false,
                single: false,
            };
            assert_eq!(site.expire(attempt), Some(lost));
            assert_eq!(site.expire(attempt), None, "it ended already");
        }
        assert_eq!(site.tables(), before);
        assert_eq!(site.lease(NOW + 3).unwrap().1, text);
    }
}

/// "After so many attempts that ended so it is a dead letter, until its fetcher's next run lists it."
#[test]
fn a_job_is_parked_until_the_next_run() {
    let mut site = site(&["alpha"]);
    let lost = [site.leased(NOW), Attempt(0)].map(|attempt| site.expire(attempt).is_some());
    assert_eq!(lost, [true, false]);
    let attempt = site.leased(NOW);
    assert!(site.lose(attempt));
    site.list(&run("f", 1), &["alpha"]);
    site.list(&run("f", 2), &["bravo"]);
    assert_eq!(site.lease(NOW + HALF_DAY + 1).map(|job| job.1), Some("bravo".to_owned()));
    site.list(&run("f", 2), &["alpha"]);
    for is_dead_letter in [false, true] {
        let attempt = site.leased(NOW + HALF_DAY + 2);
        assert_eq!(site.lose(attempt), is_dead_letter, "counted anew");
    }
}

/// "... or RETRY is asked", and what is neither counts no try: a release, an end.
#[test]
fn a_parked_job_is_retried() {
    let mut site = site(&["alpha"]);
    for is_dead_letter in [false, true, false, true] {
        let attempt = site.leased(NOW);
        site.release(attempt);
        let attempt = site.leased(NOW);
        assert_eq!(site.lose(attempt), is_dead_letter);
        if is_dead_letter {
            assert_eq!((site.lease(NOW), site.retry("alpha")), (None, Some(1)));
        }
    }
    let attempt = site.leased(NOW);
    assert!(!site.lose(attempt));
    let attempt = site.leased(NOW);
    site.done(attempt, 0, NOW);
    assert_eq!(site.retry("alpha"), Some(1));
    let attempt = site.leased(NOW);
    assert!(!site.lose(attempt), "the end was one");
}

/// Expired leases are counted beside a classic attempt that did not end.
#[test]
fn a_job_with_a_classic_attempt_is_parked() {
    let mut site = Site::opened(tempfile::tempdir().unwrap(), &options_with(3));
    site.list(&run("f", 1), &["alpha"]);
    site.attempt(NOW).unwrap();
    for is_dead_letter in [false, true] {
        let attempt = site.leased(NOW + HALF_DAY + 1);
        assert_eq!(site.lose(attempt), is_dead_letter);
    }
    assert_eq!(site.next(NOW + 9 * HALF_DAY), None, "the classic attempt brings nothing back");
}

/// A worker keeps its job when the run is deleted, whatever somebody did to the log row.
#[test]
fn a_run_deleted_while_its_job_is_leased() {
    let edits = ["", "UPDATE log SET started = 5", "DELETE FROM log"];
    for (edit, by_hand) in edits.into_iter().flat_map(|edit| [(edit, false), (edit, true)]) {
        let mut site = site(&["alpha"]);
        let attempt = site.leased(NOW);
        site.edit(edit);
        if by_hand {
            site.edit("DELETE FROM fetcher_runs");
        } else {
            site.delete(&run("f", 1));
        }
        assert!(site.store.is_leased(attempt).unwrap(), "{edit} {by_hand}");
        site.list(&run("g", 1), &["alpha"]);
        assert_eq!(site.next(NOW + HALF_DAY + 1), None, "the key is held still");
        assert_eq!(site.done(attempt, 4, NOW + 5), Ack::Recorded);
        assert_eq!(site.next(NOW + 6).as_deref(), Some("alpha g.1"));
    }
}

/// With `--classic` nothing is leased: what was ends, and waits for its fetcher's next run.
#[test]
fn classic_after_fair() {
    let mut site = site(&["alpha", "bravo"]);
    site.leased(NOW);
    site.attempt(NOW).unwrap();
    site = site.restart(&options(Policy::Classic), true);
    assert_eq!(site.store.leases().unwrap(), []);
    assert_eq!(site.rows("SELECT attempt FROM shiftboss_in_flight"), Vec::<String>::new());
    assert_eq!(site.outcomes(), ["1|expired|-", "2|expired|-"]);
    assert_eq!(site.next(NOW + HALF_DAY + 1), None);
    site.list(&run("f", 2), &["alpha"]);
    assert_eq!(site.next(NOW + HALF_DAY + 1).as_deref(), Some("alpha f.2"));
}

/// "PAUSE: nothing is handed out, classic workers get NOJOBS; kept over restarts." Ends count.
#[test]
fn a_pause() {
    let mut site = site(&["alpha", "bravo"]);
    let attempt = site.leased(NOW);
    site.commit(|store| store.set_paused(true)).unwrap();
    for clean in [false, true] {
        assert_eq!((site.lease(NOW), site.next(NOW)), (None, None));
        site = site.restart(&options(FAIR), clean);
    }
    assert_eq!(site.done(attempt, 0, NOW), Ack::Recorded);
    site.commit(|store| store.set_paused(false)).unwrap();
    assert!(site.lease(NOW).is_some());
    site.fail(NOW, SetPaused(true));
    site.list(&run("f", 1), &["charlie"]);
    assert!(site.lease(NOW).is_some(), "a pause that was rolled back is none");
}

/// With a fetcher named, the others' rows of the key stay as they are.
#[test]
fn retry_of_one_fetcher() {
    let mut site = Site::new(FAIR);
    site.list(&run("f", 1), &["alpha"]);
    site.list(&run("g", 1), &["alpha"]);
    site.add_task("alpha", "1");
    while site.next(10).is_some() {
        site.commit(|store| store.finish(&key("alpha"), 1, 11)).unwrap();
    }
    for (fetcher, job) in [("f", "alpha f.1"), ("@tasks", "alpha 1"), ("g", "alpha g.1")] {
        let back = site.commit(|store| store.retry(&key("alpha"), Some(fetcher)));
        assert_eq!(back, Ok(Retried::Back(1)));
        assert_eq!(site.next(20).as_deref(), Some(job));
        site.commit(|store| store.finish(&key("alpha"), 1, 21)).unwrap();
        assert_eq!(site.next(22), None);
    }
    assert_eq!(site.commit(|store| store.retry(&key("alpha"), Some("none"))), Ok(Retried::Back(0)));
    site.check_kept();
}

/// "RETRY puts the key's dispatched rows back", but for those in flight and those of older runs.
#[test]
fn a_retry() {
    let mut site = site(&["alpha"]);
    assert_eq!((site.retry("alpha"), site.retry("bravo")), (Some(0), None));
    let attempt = site.leased(NOW);
    assert_eq!(site.retry("alpha"), Some(0));
    site.done(attempt, 0, NOW + 1);
    site.list(&run("g", 1), &["alpha"]);
    site.next(NOW + 2);
    site.finish("alpha", NOW + 3);
    assert_eq!((site.lease(NOW + 4), site.retry("alpha")), (None, Some(2)));
    let (attempt, _) = site.lease(NOW + 5).unwrap();
    site.list(&run("f", 2), &["alpha"]);
    site.done(attempt, 0, NOW + 6);
    assert_eq!(site.retry("alpha"), Some(0), "run 2's and g's wait");
    site.check_kept();
}

/// Who is given nothing is told why: what waits while the queue is paused, and what others hold else.
#[test]
fn why_there_is_nothing() {
    let mut site = site(&["alpha", "bravo", "charlie"]);
    assert_eq!(site.store.why_idle(NOW), Ok(Idle::Nothing));
    site.leased(NOW);
    site.attempt(NOW).unwrap();
    let reasons = [NOW, NOW + HALF_DAY, NOW + HALF_DAY + 1].map(|now| site.store.why_idle(now));
    assert_eq!(reasons, [Ok(Idle::Busy(2)), Ok(Idle::Busy(2)), Ok(Idle::Busy(1))]);
    site.commit(|store| store.set_paused(true)).unwrap();
    assert_eq!(site.store.why_idle(NOW), Ok(Idle::Paused(1)));
    let keys: Vec<String> = (0..1_200).map(|number| format!("k{number}")).collect();
    site.list(&run("g", 1), &keys.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(site.store.why_idle(NOW), Ok(Idle::Paused(1_000)), "it stops counting");
    site.commit(|store| store.set_paused(false)).unwrap();
    for _ in 0..1_100 {
        site.leased(NOW);
    }
    assert_eq!(site.store.why_idle(NOW), Ok(Idle::Busy(1_000)));
}

/// "REQUEUE puts the job back at its old place", a leased one and a classic one; a late DONE is stale.
#[test]
fn a_requeue() {
    for is_leased in [true, false] {
        let mut site = site(&["alpha", "bravo"]);
        let before = site.tables();
        let holder = is_leased.then(|| holder("builder", 60));
        let job = site.commit(|store| store.dispatch(NOW, holder.as_ref())).unwrap();
        let Dispatched::Job(attempt, job) = job else { panic!("no job") };
        let requeue = |site: &mut Site, key: &Key| {
            site.commit(|store| store.requeue(key, NOW + HALF_DAY)).unwrap()
        };
        assert_eq!(requeue(&mut site, &job.key), Requeued::Back(attempt));
        assert_eq!(site.tables(), before, "at its old place, not counted");
        assert_eq!(site.outcomes(), [format!("{}|released|-", attempt.0)]);
        assert_eq!(site.rows("SELECT * FROM shiftboss_expired_leases"), [""; 0]);
        assert_eq!(requeue(&mut site, &job.key), Requeued::NotInFlight);
        assert_eq!(requeue(&mut site, &key("nobody")), Requeued::Unknown);
        if is_leased {
            assert_eq!(site.done(attempt, 0, NOW + 9), Ack::Stale);
        }
        assert_eq!(site.lease(NOW + 10).unwrap().1, job.key.as_str());
    }
}

/// Jobs that are out: leased ones for as long as they are, classic ones for their lease.
#[test]
fn jobs_in_flight() {
    let mut site = site(&["alpha", "bravo", "charlie"]);
    site.leased(NOW);
    site.attempt(NOW).unwrap();
    let counts = [NOW, NOW + HALF_DAY, NOW + HALF_DAY + 1].map(|now| site.store.in_flight(now));
    assert_eq!(counts, [Ok(2), Ok(2), Ok(1)]);
}
