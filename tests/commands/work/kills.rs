//! `kill -9` of the worker, of the daemon, and of both, at random moments.

use std::collections::HashMap;
use std::time::Duration;

use super::{jobs, lines, start, wait_gone};
use crate::common::random::Random;
use crate::common::wait::pause;
use crate::common::{Daemon, Site, wait_within};

const JOBS: usize = 300;
const KILLS: u64 = 25;
const OPTIONS: [&str; 2] = ["--max-expired-leases", "1000"];
/// Each run says that it began, and that it ended.
const SCRIPT: &str = "echo $$ >> pids; echo $SHIFTBOSS_KEY >> began; sleep .0$((SHIFTBOSS_ATTEMPT % 9)); \
    echo $SHIFTBOSS_KEY >> ended";

fn worker(site: &Site) -> Daemon {
    start(site, &["-n", "4", "--lease", "1s"], SCRIPT)
}

/// No job is lost, none is recorded twice, and what was lost with a worker comes again.
#[test]
fn kills_at_random_moments() {
    let mut random = Random::seeded();
    let site = Site::new();
    site.write("f.1.txt", jobs(JOBS));
    let (mut daemon, mut other) = (site.start_with(&OPTIONS), worker(&site));
    for _ in 0..KILLS {
        pause(Duration::from_millis(random.below(250)));
        let what = random.below(3);
        if what != 0 {
            daemon.kill();
            daemon = site.spawn(site.serve(&OPTIONS));
        }
        if what != 1 {
            other.kill();
            other = worker(&site);
        }
    }
    daemon = daemon.ready();
    let done = "SELECT count(DISTINCT attr_path) FROM ended WHERE exit_code IS NOT NULL";
    let all = JOBS as i64;
    wait_within(Duration::from_secs(60), "all jobs are done", || site.number(done) == all);
    other.stop();
    check(&site);
    drop(daemon);
}

fn check(site: &Site) {
    let twice = "SELECT attr_path FROM ended WHERE exit_code IS NOT NULL \
        GROUP BY attr_path HAVING count(*) > 1";
    assert_eq!(site.sql(twice), [""; 0], "recorded twice");
    assert_eq!(site.sql("SELECT count(*) FROM log WHERE exit_code = 0"), [JOBS.to_string()]);
    assert_eq!(site.sql("SELECT count(*) FROM out"), ["0"]);
    // Every recorded end is of a command that ended.
    let mut ended = HashMap::new();
    lines(site, "ended").into_iter().for_each(|key| *ended.entry(key).or_insert(0) += 1);
    assert_eq!(ended.len(), JOBS);
    wait_gone(site, "pids");
    let outcomes = "SELECT outcome, count(*) FROM ended GROUP BY outcome";
    eprintln!("{:?}; {} began", site.sql(outcomes), lines(site, "began").len());
    assert_eq!(site.integrity(), ["ok"]);
}
