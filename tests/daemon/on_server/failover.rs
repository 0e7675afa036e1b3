//! A server that falls back: a replica takes its place that does not have all that was written.

use shiftboss_testbed::server::{PostgresServer, Stop};

use super::interrupted::{ask, worker};
use super::lacking::{serve_by, server};
use crate::common::said::all_said;
use crate::common::{Site, attempt_of, job_of, wait_until};

const BEATS: &str = "SELECT beat FROM shiftboss.daemons";

fn number(server: &PostgresServer, question: &str) -> i64 {
    server.query("queue", question).unwrap().parse().unwrap_or(-1)
}

/// What was written since is done again: numbers of attempts are none that were handed out before, lines that were read are read
/// again, and whoever looks is told.
#[test]
fn a_replica_that_was_behind_takes_over() {
    let (site, mut primary) = (Site::new(), server(&[]));
    let replica = primary.replica(&[]).unwrap();
    let other = replica.home().to_str().unwrap().replace('/', "%2F");
    let url = primary.url("plain", "queue").replacen("/queue", &format!(",{other}/queue"), 1);
    let url = format!("{url}?target_session_attrs=read-write");
    let daemon = site.spawn(serve_by(&site, &url)).ready();
    site.write("f.1.txt.part", "alpha 1\nbravo 2\ncharlie 3\n");
    let listed = "SELECT count(*) FROM shiftboss_public.queue";
    wait_until("the replica has the list", || number(&replica, listed) == 3);
    for alone in ["ALTER SYSTEM SET primary_conninfo = ''", "SELECT pg_reload_conf()"] {
        replica.query("postgres", alone).unwrap();
    }
    let follows = "SELECT count(*) FROM pg_stat_wal_receiver";
    wait_until("it follows no more", || number(&replica, follows) == 0);

    let mut client = worker(&site);
    let before: Vec<i64> = (0..3).map(|_| attempt_of(&client.ask("READY"))).collect();
    assert_eq!(client.ask(&format!("DONE {} 0", before[0])), "OK\n");
    site.append("f.1.txt.part", "delta 4\n");
    assert_eq!(job_of(&client.ask("READY 15")).1, "delta");
    let (known, late) = (number(&replica, BEATS), before[1]);
    wait_until("the daemon lives on", || number(&primary, BEATS) > known + 2);
    primary.stop(Stop::Kill).unwrap();
    replica.promote().unwrap();

    let mut keys = Vec::new();
    for _ in 0..4 {
        let answer = ask(&mut client, "READY 15");
        let (attempt, key) = job_of(&answer);
        assert!(attempt > *before.last().unwrap(), "{answer} after {before:?}");
        keys.push(key);
    }
    keys.sort();
    assert_eq!(keys, ["alpha", "bravo", "charlie", "delta"]);
    let answer = ask(&mut client, &format!("DONE {late} 7"));
    assert!(answer.starts_with("ERROR unknown "), "{answer}");
    let told = "went back to an older state";
    assert_eq!(daemon.warnings(&[told]).len(), 1, "{}", daemon.log());
    let (_, status) = all_said(&site.run(&["status", "-t", "socket"]));
    assert!(status.contains(told), "{status}");
}
