//! Single tasks that were handed out, and whose jobs ended under the classic rules or the reference.

use shiftboss_actors::store::{Ack, Retried};
use shiftboss_actors::testing::one_by_one::OneByOne;
use shiftboss_protocol::model::Attempt;

use super::support::{FAIR, Site, key, options, run};
use crate::stores::sqlite::Policy;

/// What the reference does at its start to runs without files.
const REFERENCE_START: &str =
    "PRAGMA foreign_keys = ON; PRAGMA user_version = 2; DELETE FROM fetcher_runs";

/// Who has the database meanwhile.
#[derive(Debug, Clone, Copy)]
enum Other {
    Classic,
    Reference,
}

impl Other {
    const ALL: [Self; 2] = [Self::Classic, Self::Reference];

    /// It has the database from now on.
    fn begin(self, mut site: Site) -> Site {
        match self {
            Self::Classic => site.restart(&options(Policy::Classic), true),
            Self::Reference => {
                site.store.close_at_once().unwrap();
                site.edit(REFERENCE_START);
                site
            }
        }
    }

    fn finish(self, site: &mut Site, text: &str, code: i64, now: i64) {
        match self {
            Self::Classic => site.commit(|store| store.finish(&key(text), code, now)).unwrap(),
            Self::Reference => site.edit(&format!(
                "UPDATE log SET finished = {now}, exit_code = {code} WHERE attr_path = '{text}'"
            )),
        };
    }

    /// Hands out a list's job of the key, which ends at once.
    fn run_list(self, site: &mut Site, text: &str, now: i64) {
        match self {
            Self::Classic => {
                site.list(&run("f", 1), &[text]);
                assert_eq!(site.next(now), Some(format!("{text} f.1")));
            }
            Self::Reference => site.edit(&format!(
                "UPDATE log SET started = {now}, finished = NULL, exit_code = NULL
                WHERE attr_path = '{text}'"
            )),
        }
        self.finish(site, text, 5, now);
    }
}

/// One task of each key, handed out at second 10.
fn handed_out(keys: &[&str]) -> (Site, Vec<(Attempt, String)>) {
    let mut site = Site::new(FAIR);
    for key in keys {
        site.add_task(key, "1");
    }
    let mut jobs: Vec<_> = keys.iter().map(|_| site.take_task(10)).collect();
    jobs.sort_by(|one, other| one.1.cmp(&other.1));
    (site, jobs)
}

/// Success deletes it, and a failure keeps it as failed: by whomever the end was written.
#[test]
fn what_ended_elsewhere_does_not_run_again() {
    for other in Other::ALL {
        let (site, _) = handed_out(&["alpha", "bravo"]);
        let mut site = other.begin(site);
        other.finish(&mut site, "alpha", 0, 11);
        other.finish(&mut site, "bravo", 3, 11);
        let mut site = site.restart(&options(FAIR), false);
        let rows = site.rows("SELECT attr_path, status FROM shiftboss_single_tasks");
        assert_eq!((rows, site.next(12)), (vec!["bravo|failed".into()], None), "{other:?}");
        assert_eq!(site.derived(), ["1 1"], "{other:?}");
        site.check_kept();
        assert_eq!(site.commit(|store| store.retry(&key("bravo"), None)), Ok(Retried::Back(1)));
        assert_eq!(site.next(13).as_deref(), Some("bravo 1"), "{other:?}");
    }
}

/// The log of its key may say something newer by then: a list's job of the key.
#[test]
fn a_later_job_of_the_key_hides_no_end() {
    for other in Other::ALL {
        let (site, _) = handed_out(&["alpha", "bravo"]);
        let mut site = other.begin(site);
        other.finish(&mut site, "alpha", 0, 11);
        other.finish(&mut site, "bravo", 3, 11);
        other.run_list(&mut site, "alpha", 20);
        other.run_list(&mut site, "bravo", 20);
        let mut site = site.restart(&options(FAIR), false);
        let rows = site.rows("SELECT attr_path, status FROM shiftboss_single_tasks");
        assert_eq!((rows, site.next(21)), (vec!["bravo|failed".into()], None), "{other:?}");
        site.check_kept();
    }
}

/// One that is out still has the lease of classic jobs, counted from its start; it is handed out after that.
#[test]
fn what_is_out_still_keeps_its_lease() {
    for clean in [true, false] {
        let (site, jobs) = handed_out(&["alpha", "bravo"]);
        let site = Other::Classic.begin(site);
        let site = site.restart(&options(Policy::Classic), clean);
        let mut site = site.restart(&options(FAIR), clean).restart(&options(FAIR), clean);
        let deliveries = "SELECT attr_path, started, lease FROM shiftboss_in_flight";
        assert_eq!(site.rows(deliveries), ["alpha|10|-", "bravo|10|-"]);
        assert_eq!(site.derived(), ["1 1", "1 1"]);
        assert_eq!(site.next(10 + FAIR.lease()), None, "held");
        assert_eq!(site.end_task(jobs[0].0, 0), Ack::Recorded, "its worker lived on");
        assert_eq!(site.singles(), ["1 waiting"]);
        assert_eq!(site.next(11 + FAIR.lease()).as_deref(), Some("bravo 1"));
        site.finish("bravo", 50_000);
        assert_eq!((site.singles(), site.next(60_000)), (vec![], None));
        site.check_kept();
    }
}

/// The end of an attempt before it was put back is not its end.
#[test]
fn what_waits_again_has_not_ended() {
    for other in Other::ALL {
        let (mut site, jobs) = handed_out(&["alpha"]);
        site.end_task(jobs[0].0, 3);
        assert_eq!(site.commit(|store| store.retry(&key("alpha"), None)), Ok(Retried::Back(1)));
        let site = other.begin(site);
        let mut site = site.restart(&options(FAIR), false);
        assert_eq!(site.next(30).as_deref(), Some("alpha 1"), "{other:?}");
        site.finish("alpha", 31);
        assert_eq!(site.singles(), [""; 0]);
    }
}

/// Its lease expired there, and a list's job of its key was handed out: it waits again.
#[test]
fn what_lost_its_lease_elsewhere_waits_again() {
    for other in Other::ALL {
        let (site, _) = handed_out(&["alpha"]);
        let mut site = other.begin(site);
        other.run_list(&mut site, "alpha", 50_000);
        let mut site = site.restart(&options(FAIR), false);
        assert_eq!(site.next(50_001).as_deref(), Some("alpha 1"), "{other:?}");
        site.check_kept();
    }
}

/// A job that somebody ended in the log by hand, and that was put back before the rules changed.
#[test]
fn what_was_put_back_after_an_edit_runs() {
    let (site, _) = handed_out(&["alpha"]);
    let mut site = site.restart(&options(FAIR), true);
    site.edit("UPDATE log SET finished = 11, exit_code = 3 WHERE attr_path = 'alpha'");
    assert_eq!(site.commit(|store| store.retry(&key("alpha"), None)), Ok(Retried::Back(1)));
    let mut site = Other::Classic.begin(site).restart(&options(FAIR), true);
    assert_eq!(site.next(20).as_deref(), Some("alpha 1"));
}
