//! Queues that are kept by most nodes of a cluster (`--broker-queues quorum`), here on one node.

use lapin::options::QueueDeclareOptions;
use lapin::types::FieldTable;

use super::refusals::with_channel;
use super::{Installation, attempt, broker, worker};
use crate::common::{Site, wait_until, wait_within};

const QUORUM: [&str; 2] = ["--broker-queues", "quorum"];
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(40);

/// Lists, jobs and results go by quorum queues as by others; the daemon that comes back takes what waits.
#[test]
fn everything_goes_by_quorum_queues() {
    let installation = Installation::start_with(&QUORUM);
    let relay = installation.relay("r");
    let lines: String = (0..3_000).map(|key| format!("key-{key} 1\n")).collect();
    relay.site.append("f.1.txt.part", lines);
    installation.site.wait_count(3_000);
    let mut far = worker(&relay.site, 60);
    let (taken, _) = attempt(&far.ask("READY"));
    let Installation { daemon, site, prefix } = installation;
    daemon.kill();
    relay.site.append("f.1.txt.part", "alpha 1\nbravo 1\n");
    let again = super::serve(&site, &prefix, &QUORUM);
    wait_until("relays are served", || again.log().contains("Relays are served."));
    site.wait_count(3_002);
    wait_within(PATIENCE, "it is recorded", || far.ask(&format!("DONE {taken} 0")) == "OK\n");
    assert!(attempt(&far.ask("READY")).1.starts_with("key-"));
}

/// The daemon of a copy of the queue is refused as with other queues, and so is one that would have them of another kind. The
/// check knows which kind they are.
#[test]
fn a_prefix_is_one_queue_s_there_too() {
    let installation = Installation::start_with(&QUORUM);
    let (broker, from) = (broker(), installation.site.database());
    let second = |more: &[&str], why: &str| {
        let other = Site::bare();
        let to = other.database();
        let copied = other.run(&["backup", "-t", from.to_str().unwrap(), to.to_str().unwrap()]);
        assert!(copied.status.success(), "{copied:?}");
        let mut options = vec!["--broker", &*broker, "--broker-prefix", &*installation.prefix];
        options.extend(more);
        let daemon = other.start_with(&options);
        wait_until("it is named", || daemon.log().contains(why));
        assert!(!daemon.log().contains("Relays are served."), "{}", daemon.log());
    };
    second(&QUORUM, "in exclusive use");
    second(&[], "x-queue-type");
    let check = |kind: &[&str]| {
        let mut arguments = vec!["broker", "check", &broker, "--broker-prefix"];
        arguments.push(&installation.prefix);
        arguments.extend(kind);
        installation.site.run(&arguments).status.code()
    };
    assert_eq!((check(&QUORUM), check(&[])), (Some(0), Some(78)));
    let consumers = with_channel(async |channel| {
        let passive = QueueDeclareOptions { passive: true, ..Default::default() };
        let queue = format!("{}request", installation.prefix);
        let found = channel.queue_declare(queue.into(), passive, FieldTable::default());
        found.await.unwrap().consumer_count()
    });
    assert_eq!(consumers, 1);
}
