//! Queues that are kept by most nodes of a cluster (`--broker-queues quorum`), here on one node.

use super::messages::{counts, with_channel};
use super::{Installation, broker, serve, wait_said};
use crate::common::Site;
use crate::common::said::said;

const QUORUM: [&str; 2] = ["--broker-queues", "quorum"];

/// The daemon of a copy of the queue is refused as with other queues, and so is one that would have them of another kind. The
/// check knows which kind they are.
#[test]
fn a_prefix_is_one_queue_s_there_too() {
    let installation = Installation::start_with(&QUORUM);
    let broker = broker();
    let second = |options: &[&str], why: &str| {
        let other = Site::bare();
        said(&installation.site, &["backup", other.database().to_str().unwrap()]);
        let daemon = serve(&other, &installation.prefix, &broker, options);
        wait_said(&daemon, why);
        assert!(!daemon.log().contains("Relays are served."), "{}", daemon.log());
    };
    second(&QUORUM, "in exclusive use");
    second(&[], "x-queue-type");
    let check = |kind: &[&str]| {
        let check = ["broker", "check", &broker, "--broker-prefix", &installation.prefix];
        installation.site.run(&[&check, kind].concat()).status.code()
    };
    assert_eq!((check(&QUORUM), check(&[])), (Some(0), Some(78)));
    let request = format!("{}request", installation.prefix);
    let (_, consumers) = with_channel(async |channel| counts(&channel, &request).await);
    assert_eq!(consumers, 1);
}
