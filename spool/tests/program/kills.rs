//! `kill -9` of `run`: its entries go to the next one, and none of its commands survives.

use std::fs;
use std::time::Duration;

use super::common::random::Random;
use super::common::wait::pause;
use super::common::{wait_until, wait_within};
use super::{
    assert_whole, command, json, kill, lines, listed, ran, run, stop, wait_gone, wait_lines, with,
};

/// Another `run` that is already waiting gets the entry within moments, as a second attempt; none of the first one's
/// commands survives.
#[test]
fn a_waiting_one_has_it() {
    let site = with(&["a"]);
    let script = "echo $$ >> pids; sleep 1000 & echo $! >> pids; wait";
    let first = run(&site, &["--failed", "bad"], script).spawn().unwrap();
    wait_lines(&site, "pids", 2);
    let second =
        run(&site, &["--failed", "bad"], "echo $SHIFTSPOOL_ATTEMPT > did").spawn().unwrap();
    kill(first);
    wait_within(Duration::from_secs(10), "the second does it", || lines(&site, "did") == ["2"]);
    wait_gone(&site, "pids");
    assert_eq!(stop(second), 0);
    assert_eq!(listed(&site, "bad"), [""; 0]);
    assert_whole(&site);
}

/// An entry that kills every `run` that takes it is set apart after five attempts.
#[test]
fn an_entry_that_kills() {
    let site = with(&["a", "b"]);
    let script = "[ $SHIFTSPOOL_NAME = b ] || { echo x >> kills; kill -9 $PPID; sleep 1000; }";
    for _ in 0..5 {
        let status = run(&site, &["--once", "--failed", "bad"], script).status().unwrap();
        assert_eq!(status.code(), None);
    }
    assert_eq!(ran(&site, &["--once", "--failed", "bad"], script).0, 0);
    assert_eq!(lines(&site, "kills").len(), 5);
    assert_eq!((listed(&site, "q"), listed(&site, "bad")), (vec![], vec!["a".to_owned()]));
    assert_whole(&site);
}

/// Kills at random moments, of producers as well as of two `run`, do not lose an acknowledged entry, leave nothing
/// behind, and never make two work on the same entry: the next one has another attempt, and the one before is dead. The
/// number of kills is in the environment's SHIFTSPOOL_KILLS (`make soak`); else there are few.
#[test]
fn kills_at_random_moments() {
    let mut random = Random::seeded();
    let kills = std::env::var("SHIFTSPOOL_KILLS").map_or(16, |kills| kills.parse().unwrap());
    let names: Vec<String> = (0..60).map(|number| format!("e{number:02}")).collect();
    let site = with(&names.iter().map(String::as_str).collect::<Vec<_>>());
    let script = "echo $$ >> pids; printf '%s %04d %d\\n' $SHIFTSPOOL_NAME $SHIFTSPOOL_ATTEMPT $PPID >> worked; \
        sleep .0$((SHIFTSPOOL_ATTEMPT % 9)); echo $SHIFTSPOOL_NAME >> ended";
    // No entry must be set apart because of these kills.
    let words = ["-n", "2", "--attempts", "1000", "--spread"];
    fs::write(site.path("lines"), "line\n".repeat(40)).unwrap();
    let acknowledged = fs::File::options().create(true).append(true).open(site.path("put"));
    let acknowledged = acknowledged.unwrap();
    let start = || run(&site, &words, script).spawn().unwrap();
    let mut crew = [start(), start()];
    for kill in 0..kills {
        let mut put = command(&site, &["put", "s", "q", "--lines", "lines"]);
        let mut put = put.stdout(acknowledged.try_clone().unwrap()).spawn().unwrap();
        pause(Duration::from_millis(random.below(300)));
        let mut killed = std::mem::replace(&mut crew[kill % 2], start());
        for child in [&mut killed, &mut put] {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
    let left = || {
        let lengths = json(&site, &["list", "--json", "s"]);
        let of = |what: &str| lengths["queues"][0][what].as_u64().unwrap();
        of("available") + of("checked_out")
    };
    wait_until("all are done", || left() == 0);
    let alive = crew.each_ref().map(|child| child.id().to_string());
    for child in &mut crew {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let ended = lines(&site, "ended");
    let put = lines(&site, "put");
    assert!(names.iter().chain(&put).all(|name| ended.binary_search(name).is_ok()));
    for works in lines(&site, "worked").windows(2) {
        let [before, next] = [&works[0], &works[1]].map(|work| work.split(' ').collect::<Vec<_>>());
        let is_again = before[0] == next[0];
        assert!(
            !is_again || before[1] < next[1] && !alive.contains(&before[2].to_owned()),
            "{works:?}"
        );
    }
    wait_gone(&site, "pids");
    let (code, stdout, _) = super::spool(&site, &["fsck", "--repair", "s"]);
    assert!(code == 0 || stdout.ends_with("all mended.\n"), "{stdout}");
    assert_whole(&site);
    assert_eq!(fs::read_dir(site.path("s/.data")).unwrap().count(), 0);
}
