//! Connections to the server that are cut after any number of bytes, under workers that go on.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use shiftboss_testbed::proxy::Proxy;

use super::apart::{beside, number};
use crate::common::random::Random;
use crate::common::wait::{DEADLINE, pause};
use crate::common::{Client, Site, job_of, list_of};

/// A worker asks again after this.
const AGAIN: Duration = Duration::from_millis(20);

/// A worker whose leases do not end within a test: a job that nobody was told of would come back by itself.
pub fn worker(site: &Site) -> Client {
    Client::leased(site, 600)
}

/// Asks until the daemon can answer. To be asked again is all that it may say else.
pub fn ask(client: &mut Client, line: &str) -> String {
    let began = Instant::now();
    loop {
        let answer = client.ask(line);
        if !answer.starts_with("ERROR busy ") {
            return answer;
        }
        assert!(began.elapsed() < DEADLINE, "{line}: {answer}");
        pause(AGAIN);
    }
}

/// A daemon's connections are cut after a random number of bytes, again and again, while its list is read and a worker does all of
/// it, beside a daemon that is not cut off: no job is out twice, and no result that was acknowledged is lost.
#[test]
fn connections_may_be_cut_at_any_byte() {
    const KEYS: usize = 300;
    let mut random = Random::seeded();
    let queue = Site::bare();
    let url = queue.server().unwrap().url();
    let proxy = Proxy::new(&url).unwrap();
    let (cut, other) = (beside(&proxy.url, "cut"), beside(&url, "other"));
    let (mut client, mut beside) = (worker(&cut.site), worker(&other.site));
    proxy.cut_after(2_000);
    cut.site.write("f.1.txt", list_of(KEYS));
    // Each key's job ends with a code of its own.
    let (mut done, began) = (BTreeMap::new(), Instant::now());
    while done.len() < KEYS {
        assert!(began.elapsed() < DEADLINE * 2, "{} of {KEYS} are done", done.len());
        // A batch of one job is some two thousand bytes, and a new connection ten times that.
        proxy.cut_after(usize::try_from(random.below(40_000)).unwrap());
        let jobs = [&mut client, &mut beside].map(|client| (ask(client, "READY"), client));
        let jobs: Vec<_> = jobs.into_iter().filter(|(job, _)| !job.starts_with("NOJOBS")).collect();
        if jobs.is_empty() {
            pause(AGAIN);
        }
        for (job, client) in jobs {
            let ((attempt, key), code) = (job_of(&job), done.len() + 1);
            assert_eq!(done.insert(key, code), None, "{job} is out twice, or done");
            assert_eq!(ask(client, &format!("DONE {attempt} {code}")), "OK\n", "{job}");
        }
    }
    proxy.release();
    assert!(ask(&mut client, "READY").starts_with("NOJOBS"));
    let joined = number(&queue, "SELECT last_value FROM epochs");
    assert!(joined > 20, "the calls of jobs were cut {joined} times only");
    let done: Vec<_> = done.iter().map(|(key, code)| format!("{key}|{code}")).collect();
    let logged = "SELECT attr_path, exit_code FROM shiftboss_public.log ORDER BY 1";
    assert_eq!(queue.server().unwrap().ask(logged).lines().collect::<Vec<_>>(), done);
    assert_eq!(number(&queue, "SELECT count(*) FROM keys WHERE attempt IS NOT NULL"), 0);
}
