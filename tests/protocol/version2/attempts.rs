//! Attempts and their leases: who holds what, and how it ends.

use std::time::{Duration, Instant};

use super::with_jobs;
use crate::common::{Client, attempt_of, job_of, wait_equal, wait_until};

/// A job from its hand-out to its end, and every answer that there is for it afterwards.
#[test]
fn the_life_of_an_attempt() {
    let (site, _daemon) = with_jobs(&["alpha"], &[]);
    let mut client = Client::opted_in(&site, "HELLO 2 builder-3");
    let (attempt, key) = job_of(&client.ask("READY"));
    assert_eq!(key, "alpha");
    assert_eq!(client.ask("READY"), "NOJOBS busy 1\n");
    assert_eq!(client.ask(&format!("BEAT {attempt}")), "OK\n");
    let mut other = Client::opted_in(&site, "HELLO 2 other");
    let done = other.ask(&format!("DONE {attempt} 7"));
    assert_eq!(done, "OK\n", "attempts belong to no connection");
    assert_eq!(other.ask(&format!("DONE {attempt} 8")), "OK\n");
    assert_eq!(client.ask(&format!("BEAT {attempt}")), "LOST\n");
    assert!(client.ask(&format!("RELEASE {attempt}")).starts_with("ERROR stale "));
    assert!(client.ask(&format!("DONE {} 0", attempt + 1)).starts_with("ERROR unknown "));
    assert!(
        client.ask("DONE 1 0").starts_with("ERROR unknown "),
        "of another queue, or of an older state"
    );
    assert_eq!(site.sql("SELECT exit_code FROM log"), ["7"], "the first one stands");
    assert_eq!(client.ask("QUIT"), "OK\n");
    assert_eq!(client.rest(), "");
}

/// Who falls silent loses the job at the end of the lease, and a waiting worker gets it then.
#[test]
fn a_lost_job_is_handed_out_again_within_its_lease() {
    let (site, daemon) = with_jobs(&["alpha"], &[]);
    let mut silent = Client::opted_in(&site, "HELLO 2 silent 1");
    let (first, _) = job_of(&silent.ask("READY"));
    drop(silent);
    let began = Instant::now();
    let mut patient = Client::opted_in(&site, "HELLO 2 patient");
    let (second, _) = job_of(&patient.ask("READY 15"));
    let waited = began.elapsed();
    assert!(waited < Duration::from_secs(10), "{waited:?}");
    assert!(patient.ask(&format!("DONE {first} 0")).starts_with("ERROR stale "));
    assert_eq!(patient.ask(&format!("DONE {second} 0")), "OK\n");
    let ended = "SELECT attr_path, outcome = 'expired', exit_code FROM ended ORDER BY attempt";
    let [expired, done] = &site.sql(ended)[..] else { panic!("two attempts") };
    assert!(expired.starts_with("alpha|") && expired.ends_with("|-"), "{expired}");
    assert!(done.ends_with("|0"), "{done}");
    wait_equal("it is told", &1, || daemon.warnings(&["A lease expired", "silent", "alpha"]).len());
}

/// After so many lost leases a job is parked, and an operator brings it back.
#[test]
fn a_job_that_kills_its_workers_is_parked() {
    let (site, daemon) = with_jobs(&["poison"], &["--max-expired-leases", "2"]);
    let mut client = Client::opted_in(&site, "HELLO 2 w 1");
    for _ in 0..2 {
        job_of(&client.ask("READY 20"));
    }
    wait_until("it is parked", || {
        !daemon.warnings(&["the task is dead-lettered", "fetcher's next list", "poison"]).is_empty()
    });
    assert_eq!(client.ask("READY"), "NOJOBS\n");
    assert_eq!(client.ask("RETRY poison"), "{\"key\":\"poison\",\"rows\":1}\n");
    let (attempt, _) = job_of(&client.ask("READY"));
    assert_eq!(client.ask(&format!("DONE {attempt} 0")), "OK\n");
    assert!(client.ask("RETRY nobody").starts_with("ERROR unknown "));
}

/// A daemon that was killed knows its attempts, and gives each a whole lease.
#[test]
fn attempts_outlive_the_daemon() {
    let (site, daemon) = with_jobs(&["alpha", "bravo"], &[]);
    let mut client = Client::leased(&site, 2);
    let [kept, lost] = [(); 2].map(|()| attempt_of(&client.ask("READY")));
    daemon.kill();
    let _daemon = site.start();
    let began = Instant::now();
    let mut client = Client::leased(&site, 30);
    assert_eq!(client.ask(&format!("BEAT {lost}")), "OK\n");
    assert_eq!(client.ask("READY"), "NOJOBS busy 2\n");
    assert_eq!(client.ask(&format!("DONE {kept} 0")), "OK\n");
    assert!(attempt_of(&client.ask("READY 20")) > lost);
    assert!(began.elapsed() > Duration::from_secs(1), "the lease was whole");
}
