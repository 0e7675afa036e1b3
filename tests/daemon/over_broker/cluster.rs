//! A cluster of three brokers loses a node, and the daemon or the relay its connection with it. `make test-broker` runs these on a
//! cluster of their own.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use super::{Away, attempt, lines, prefix, worker};
use crate::common::{Site, wait_within};

/// So many that each range has some.
const ROWS: usize = 100;
/// For two nodes to see that the third is gone, and for connections that are made again.
const PATIENCE: Duration = Duration::from_secs(90);

fn variable(name: &str) -> String {
    std::env::var(name).expect("a cluster: tests/broker.sh starts one")
}

/// What the cluster's directory says of a node, from 1 to 3.
fn of_node(node: u8, what: &str) -> i32 {
    let file = PathBuf::from(variable("SHIFTBOSS_TEST_CLUSTER")).join(format!("{node}/{what}"));
    fs::read_to_string(file).unwrap().trim().parse().unwrap()
}

fn host(node: u8) -> String {
    format!("127.0.0.1:{}", of_node(node, "port"))
}

fn pid(number: i32) -> Pid {
    Pid::from_raw(number).unwrap()
}

fn listens(node: u8) -> bool {
    std::net::TcpStream::connect(host(node)).is_ok()
}

fn kill(node: u8) {
    kill_process_group(pid(of_node(node, "pid")), Signal::KILL).unwrap();
    wait_within(PATIENCE, &format!("node {node} is gone"), || !listens(node));
}

fn start_again(node: u8) {
    let starter = pid(variable("SHIFTBOSS_TEST_BROKER_PID").parse().unwrap());
    kill_process(starter, Signal::USR2).expect("who starts nodes is there: its errors say why not");
    wait_within(PATIENCE, &format!("node {node} is back"), || listens(node));
}

/// With quorum queues everything goes on with the two nodes that live.
#[test]
fn each_node_is_lost_once() {
    lose_each_node("quorum", |_| {});
}

/// Classic queues are on one node each: everything goes on when that is back.
#[test]
fn each_node_is_lost_with_classic_queues() {
    lose_each_node("classic", start_again);
}

/// Kills each node once, so that of the daemon, that of the relay, and that of any queue are among them, and does something then:
/// afterwards all is done, and nobody blames another daemon, or the room in a queue.
fn lose_each_node(queues: &str, then: impl Fn(u8)) {
    // A try before this one may have failed while one was down.
    for node in (1..=3).filter(|node| !listens(*node)) {
        start_again(node);
    }
    let url = |hosts: &[String]| format!("amqp://guest:guest@{}/%2f", hosts.join(","));
    let away = Away { site: Site::bare(), prefix: prefix() };
    let options = ["--broker-queues", queues];
    // Who declares a queue has its leader there: the node that dies first, which the relay has no connection with.
    let away = away.start(&url(&[host(1)]), &options).stop();
    let installation = away.start(&url(&[host(1), host(2), host(3)]), &options);
    let relay = installation.relay_by(&url(&[host(2), host(3)]), "r");
    relay.site.append("f.1.txt.part", "key-0 1\n");
    installation.site.wait_count(1);
    let mut far = worker(&relay.site, 300);
    for node in 1..=3 {
        let (taken, _) = attempt(&far.ask("READY 60"));
        kill(node);
        let first = usize::from(node) * ROWS;
        relay.site.append("f.1.txt.part", lines(first..first + ROWS, "1"));
        then(node);
        wait_within(PATIENCE, &format!("rows are stored without node {node}"), || {
            installation.site.sql("SELECT count(*) FROM queue") == [(first + 1).to_string()]
        });
        wait_within(PATIENCE, &format!("an end is recorded without node {node}"), || {
            far.ask(&format!("DONE {taken} 0")) == "OK\n"
        });
        start_again(node);
    }
    for log in [installation.daemon.log(), relay.daemon.log()] {
        for untrue in ["exclusive", "has no room", "queue is full", "no daemon has used"] {
            assert!(!log.contains(untrue), "{untrue}: {log}");
        }
    }
    let codes = "SELECT DISTINCT exit_code FROM ended";
    assert_eq!(installation.site.sql(codes), ["0"]);
}
