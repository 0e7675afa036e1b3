//! Relays of a queue on a server that several daemons share: each message goes to one of them, and none is needed. These need
//! both servers: `make test-broker` runs them so.

use std::process::Command;

use super::{
    PATIENCE, attempt, broker, lines, prefix, relay_command, wait_said, wait_served, worker,
};
use crate::common::{Peer, Site, wait_within};

/// A queue, and daemons that serve relays of it.
pub(super) struct Queue {
    pub(super) site: Site,
    prefix: String,
}

impl Queue {
    pub(super) fn new() -> Self {
        let queue = Self { site: Site::bare(), prefix: prefix() };
        assert!(queue.site.server().is_some(), "this needs a server, too: make test-broker");
        queue
    }

    pub(super) fn daemon(&self, name: &str) -> Peer {
        let site = Site::bare();
        let daemon = site.spawn(self.command(&site, name)).ready();
        wait_served(&daemon);
        Peer { daemon, site }
    }

    fn command(&self, site: &Site, name: &str) -> Command {
        let mut command = site.program();
        command.args(["serve", "--daemon-name", name, "--broker", &broker()]);
        command.args(["--broker-prefix", &self.prefix, &self.site.server().unwrap().url()]);
        command.args([site.input(), site.socket()]);
        command
    }

    pub(super) fn relay(&self, name: &str) -> Peer {
        let site = Site::bare();
        let daemon = site.spawn(relay_command(&site, &self.prefix, &broker(), name)).ready();
        Peer { daemon, site }
    }

    pub(super) fn count(&self, question: &str) -> usize {
        self.site.server().unwrap().ask(question).trim().parse().unwrap()
    }

    pub(super) fn wait_rows(&self, rows: usize) {
        let count = "SELECT count(*) FROM shiftboss_public.queue";
        wait_within(PATIENCE, "rows are stored", || self.count(count) == rows);
    }
}

/// Two daemons share the messages of two relays; when one is killed, its ranges and requests are the other one's, and each row
/// and each job is there once.
#[test]
fn a_daemon_is_killed() {
    let queue = Queue::new();
    let (one, other) = (queue.daemon("one"), queue.daemon("other"));
    let (near, far) = (queue.relay("near"), queue.relay("far"));
    near.site.write("f.1.txt", lines(0..3_000, "1"));
    far.site.append("g.1.txt.part", "alpha 1\n");
    queue.wait_rows(3_001);
    let mut client = worker(&far.site, 60);
    let (taken, _) = attempt(&client.ask("READY"));
    one.daemon.kill();
    far.site.append("g.1.txt.part", lines(5_000..6_000, "1"));
    queue.wait_rows(4_001);
    wait_within(PATIENCE, "the end is recorded", || {
        let done = client.ask(&format!("DONE {taken} 0"));
        assert!(done == "OK\n" || done.starts_with("ERROR busy"), "{done}");
        done == "OK\n"
    });
    let (next, _) = attempt(&client.ask("READY 20"));
    assert_eq!(client.ask(&format!("DONE {next} 0")), "OK\n");
    let twice =
        "SELECT count(*) FROM (SELECT key FROM attempts GROUP BY key HAVING count(*) > 1) AS twice";
    assert_eq!(queue.count(twice), 0);
    drop(other);
}

/// A dump that was restored in another database is a copy of the queue: its daemon serves no relays while one of the original
/// does, and its own workers all the same. The original's daemons come back as they like.
#[test]
fn a_copy_of_the_queue_waits() {
    let queue = Queue::new();
    let (one, other) = (queue.daemon("one"), queue.daemon("other"));
    let relay = queue.relay("r");
    let copy = Queue { site: Site::bare(), prefix: queue.prefix.clone() };
    let url = |queue: &Queue| queue.site.server().unwrap().url();
    let mut restore = Command::new("sh");
    restore.args(["-ec", "pg_dump \"$0\" | psql -qX -v ON_ERROR_STOP=1 \"$1\""]);
    let restored = restore.args([url(&queue), url(&copy)]).output().unwrap();
    assert!(restored.status.success(), "{restored:?}");
    let site = Site::bare();
    let third = site.spawn(copy.command(&site, "third")).ready();
    wait_said(&third, "so this queue is a copy");
    one.daemon.stop();
    relay.site.write("f.1.txt", "alpha 1\n");
    queue.wait_rows(1);
    let one = queue.daemon("one");
    assert_eq!(
        (copy.count("SELECT count(*) FROM shiftboss_public.queue"), &*site.ask("READY")),
        (0, "NOJOBS\n")
    );
    assert!(!third.log().contains("Relays are served."), "{}", third.log());
    // One that is stopped leaves the lease to the others, and the last one to whoever comes.
    one.daemon.stop();
    other.daemon.stop();
    third.stop();
    let third = site.spawn(copy.command(&site, "third")).ready();
    wait_served(&third);
}

/// A daemon that was frozen with messages in its hands writes nothing of a relay that has joined anew since.
#[test]
fn a_daemon_is_frozen() {
    let queue = Queue::new();
    let (one, other) = (queue.daemon("one"), queue.daemon("other"));
    let relay = queue.relay("r");
    relay.site.append("f.1.txt.part", lines(0..100, "1"));
    queue.wait_rows(100);
    one.daemon.freeze();
    relay.site.append("f.1.txt.part", lines(100..1_100, "1"));
    queue.wait_rows(1_100);
    one.daemon.thaw();
    relay.site.append("f.1.txt.part", lines(1_100..1_200, "1"));
    queue.wait_rows(1_200);
    let mut client = worker(&relay.site, 60);
    wait_within(PATIENCE, "it is handed out", || client.ask("READY 5").starts_with("JOB"));
    drop(other);
}
