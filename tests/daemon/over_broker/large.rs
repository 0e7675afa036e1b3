//! Payloads that are large: many of them are too much for one message, and are shared out over several.

use std::collections::HashSet;
use std::thread;

use super::{Installation, attempt, worker};
use crate::common::said::said;
use crate::common::{Client, Peer};

/// Three payloads, in which JSON has six bytes for one, are more than one message may have. Who waits is served by ones, twos, fours
/// and so on.
const TASKS: usize = 7;
const PAYLOAD_BYTES: usize = 1_000_000;

fn payload() -> String {
    "\u{1}".repeat(PAYLOAD_BYTES)
}

/// Workers that wait together at a relay have a job each, once; nothing is left in flight by an answer that nobody could read.
#[test]
fn large_payloads_are_handed_out() {
    let installation = Installation::start();
    let (Peer { site: relay, daemon: relay_daemon }, queue) =
        (installation.relay("r"), &installation.site);
    said(queue, &["pause", "-t", "socket"]);
    let mut workers: Vec<_> = (0..TASKS).map(|_| worker(&relay, 600)).collect();
    workers.iter_mut().for_each(|worker| worker.write(b"READY 60\n"));
    let payload = payload();
    let list: String = (0..TASKS).map(|key| format!("key-{key} {payload}\n")).collect();
    relay.deliver("f", 1, list);
    queue.wait_count(TASKS);
    said(queue, &["resume", "-t", "socket"]);
    // Who does not read gets nothing; who is told that the daemon is busy asks again.
    let work = |mut worker: Client| {
        let mut answer = worker.line();
        while answer.starts_with("ERROR busy") {
            answer = worker.ask("READY 60");
        }
        let (attempt, job) = attempt(&answer);
        while worker.ask(&format!("DONE {attempt} 0")).starts_with("ERROR busy") {}
        assert!(job.len() > PAYLOAD_BYTES);
        job.split(' ').next().unwrap().to_owned()
    };
    let at_work: Vec<_> =
        workers.into_iter().map(|worker| thread::spawn(move || work(worker))).collect();
    let keys: HashSet<String> = at_work.into_iter().map(|it| it.join().unwrap()).collect();
    assert_eq!(keys.len(), TASKS);
    queue.wait_sql("SELECT count(*) FROM log WHERE exit_code = 0", &[&TASKS.to_string()]);
    let log = relay_daemon.log();
    assert!(!log.contains("WARN") && !log.contains("ERROR"), "{log}");
    assert!(queue.number("SELECT count(*) FROM ended WHERE outcome = 'undone'") > 0);
}
