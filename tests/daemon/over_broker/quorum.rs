//! Queues that are kept by most nodes of a cluster (`--broker-queues quorum`), here on one node.

use lapin::options::QueueDeclareOptions;
use lapin::types::FieldTable;

use super::refusals::with_channel;
use super::{Installation, broker};
use crate::common::{Site, wait_until};

const QUORUM: [&str; 2] = ["--broker-queues", "quorum"];

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
