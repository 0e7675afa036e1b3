//! Relays: what fetchers and workers of machines without a database have of a daemon's queue. `make test-broker` runs these,
//! on its broker.

mod broker_faults;
mod cluster;
mod gone;
mod large;
mod lists;
mod operators;
mod outages;
mod quorum;
mod refusals;
mod restored;
mod shared;
mod tls;

use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::common::wait::pause;
use crate::common::{Client, Daemon, Peer, Site, wait_until};

/// The broker that the tests have.
fn broker() -> String {
    std::env::var("SHIFTBOSS_TEST_BROKER").expect("a broker: make test-broker starts one")
}

/// What an installation's names on it begin with; no two tests have the same.
fn prefix() -> String {
    static INSTALLATIONS: AtomicU32 = AtomicU32::new(0);
    let number = INSTALLATIONS.fetch_add(1, Ordering::Relaxed);
    format!("test-{}-{number}.", std::process::id())
}

fn wait_served(daemon: &Daemon) {
    wait_until("relays are served", || daemon.log().contains("Relays are served."));
}

/// A daemon that serves relays.
struct Installation {
    // Ended before its directory goes.
    daemon: Daemon,
    site: Site,
    prefix: String,
}

impl Installation {
    fn start() -> Self {
        Self::start_with(&[])
    }

    fn start_with(options: &[&str]) -> Self {
        let (site, prefix) = (Site::bare(), prefix());
        let daemon = serve(&site, &prefix, options);
        let installation = Self { daemon, site, prefix };
        installation.wait_served();
        installation
    }

    /// By another URL of the broker.
    fn start_by(url: &str) -> Self {
        let (site, prefix) = (Site::bare(), prefix());
        let daemon = site.start_with(&["--broker", url, "--broker-prefix", &prefix]);
        let installation = Self { daemon, site, prefix };
        installation.wait_served();
        installation
    }

    fn wait_served(&self) {
        wait_served(&self.daemon);
    }

    /// The daemon is killed, and started again.
    fn restart(self) -> Self {
        let Self { daemon, site, prefix } = self;
        daemon.kill();
        let daemon = serve(&site, &prefix, &[]);
        let installation = Self { daemon, site, prefix };
        installation.wait_served();
        installation
    }

    fn relay(&self, name: &str) -> Peer {
        self.relay_by(&broker(), name)
    }

    /// By another URL of the broker.
    fn relay_by(&self, url: &str, name: &str) -> Peer {
        let site = Site::bare();
        let daemon = self.start_relay(&site, url, name).ready();
        Peer { daemon, site }
    }

    fn start_relay(&self, site: &Site, url: &str, name: &str) -> Daemon {
        site.spawn(self.relay_command(site, url, name))
    }

    fn relay_command(&self, site: &Site, url: &str, name: &str) -> Command {
        let mut command = site.program();
        command.args(["relay", "--name", name, "--broker-prefix", &self.prefix, url]);
        command.args([site.input(), site.socket()]);
        command
    }
}

fn serve(site: &Site, prefix: &str, options: &[&str]) -> Daemon {
    let broker = broker();
    let mut all = vec!["--broker", &broker, "--broker-prefix", prefix];
    all.extend(options);
    site.start_with(&all)
}

fn worker(site: &Site, lease_seconds: u32) -> Client {
    Client::leased(site, lease_seconds)
}

/// The attempt of a job, and the rest of the line.
fn attempt(answer: &str) -> (String, String) {
    let job = answer.strip_prefix("JOB ").and_then(|rest| rest.split_once(' '));
    let (attempt, rest) = job.unwrap_or_else(|| panic!("{answer:?}"));
    (attempt.to_owned(), rest.to_owned())
}

/// Lists of relays and of the daemon are one queue with one order; ends count wherever they are told.
#[test]
fn relays_share_the_daemon_s_queue() {
    let installation = Installation::start();
    let (one, other) = (installation.relay("one"), installation.relay("other"));
    one.site.write("f.1.txt", "alpha 1\nbravo 2\n");
    other.site.write("g.1.txt", "charlie 3\n");
    installation.site.write("h.1.txt", "delta 4\n");
    installation.site.wait_count(4);
    let mut jobs =
        [&one.site, &other.site, &installation.site, &one.site].map(|site| site.ask("READY"));
    // In the order in which the lists were registered.
    jobs.sort_unstable();
    assert_eq!(
        jobs,
        ["alpha 1", "bravo 2", "charlie 3", "delta 4"].map(|job| format!("JOB {job}\n"))
    );
    assert_eq!(other.site.ask("READY"), "NOJOBS\n");
    assert_eq!(other.site.ask("DONE alpha 0"), "NOJOBS\n");
    assert_eq!(installation.site.ask("DONE bravo 1"), "NOJOBS\n");
    let ended = ["alpha|0", "bravo|1"];
    installation.site.wait_sql(
        "SELECT attr_path, exit_code FROM log WHERE finished IS NOT NULL ORDER BY 1",
        &ended,
    );
    // A list that is replaced and one that goes are so for the queue, too.
    one.site.deliver("f", 2, "echo 5\n");
    other.site.remove("g.1.txt");
    installation.site.wait_sql(
        "SELECT name, run_started FROM fetchers JOIN fetcher_runs USING (fetcher_id) ORDER BY 1",
        &["f|2", "h|1"],
    );
}

/// What a fetcher wrote just before is found by its relay, each time.
#[test]
fn a_relay_looks_at_its_own_files_before_nojobs() {
    let installation = Installation::start();
    let relay = installation.relay("r");
    for line in 0..20 {
        assert_eq!(relay.site.ask("READY"), "NOJOBS\n");
        relay.site.append("f.1.txt.part", format!("key-{line} 1\n"));
        assert_eq!(relay.site.ask("READY"), format!("JOB key-{line} 1\n"));
    }
}

/// A worker that waits at a relay has a job that becomes ready at the daemon, long before it would look by itself.
#[test]
fn work_is_hinted() {
    let installation = Installation::start();
    let relay = installation.relay("r");
    let mut waiting = worker(&relay.site, 60);
    for number in 0..5 {
        waiting.write(b"READY 20\n");
        let key = format!("key-{number}");
        let socket = installation.site.socket();
        let added = installation.site.run(&["add", "-t", socket.to_str().unwrap(), &key, "1"]);
        assert!(added.status.success(), "{added:?}");
        let (attempt, rest) = attempt(&waiting.line());
        assert_eq!(rest, format!("{key} 1\n"));
        assert_eq!(waiting.ask(&format!("DONE {attempt} 0")), "OK\n");
    }
}

/// Leases run at the relay: a beat there keeps the job, and without one it goes back.
#[test]
fn leases_run_at_the_relay() {
    let installation = Installation::start();
    let relay = installation.relay("r");
    relay.site.write("f.1.txt", "alpha 1\n");
    installation.site.wait_count(1);
    let mut worker = worker(&relay.site, 2);
    let (first, _) = attempt(&worker.ask("READY"));
    for _ in 0..8 {
        pause(Duration::from_millis(300));
        assert_eq!(worker.ask(&format!("BEAT {first}")), "OK\n");
    }
    let (second, rest) = attempt(&worker.ask("READY 20"));
    assert!(second != first && rest == "alpha 1\n", "{second} {rest}");
    assert_eq!(worker.ask(&format!("BEAT {first}")), "LOST\n");
    assert!(relay.daemon.log().contains("A lease expired"), "{}", relay.daemon.log());
}

/// A job that was taken at a relay can be kept, and ended, at the daemon; and the other way round.
#[test]
fn a_worker_may_move() {
    let installation = Installation::start();
    let relay = installation.relay("r");
    relay.site.write("f.1.txt", "alpha 1\nbravo 1\n");
    installation.site.wait_count(2);
    let mut far = worker(&relay.site, 2);
    let mut near = worker(&installation.site, 2);
    let (there, _) = attempt(&far.ask("READY"));
    let (here, _) = attempt(&near.ask("READY"));
    for _ in 0..8 {
        pause(Duration::from_millis(300));
        assert_eq!(near.ask(&format!("BEAT {there}")), "OK\n");
        assert_eq!(far.ask(&format!("BEAT {here}")), "OK\n");
    }
    assert_eq!(near.ask(&format!("DONE {there} 0")), "OK\n");
    assert_eq!(far.ask(&format!("DONE {here} 0")), "OK\n");
    let expired = "SELECT count(*) FROM ended WHERE exit_code IS NULL";
    assert_eq!(installation.site.number(expired), 0);
}

/// Operators' orders at a relay are those of operators only where the daemon allows it.
#[test]
fn operators_at_a_relay() {
    let installation = Installation::start_with(&["--relay-operators", "trusted"]);
    let (trusted, other) = (installation.relay("trusted"), installation.relay("other"));
    let add = |relay: &Peer| {
        let socket = relay.site.socket();
        let added = relay.site.run(&["add", "-t", socket.to_str().unwrap(), "alpha", "1"]);
        (added.status.code().unwrap(), String::from_utf8_lossy(&added.stderr).into_owned())
    };
    assert_eq!(add(&trusted).0, 0);
    let (code, error) = add(&other);
    assert!(code == 77 && error.contains("--relay-operators"), "{code} {error}");
    assert_eq!(other.site.ask("READY"), "JOB alpha 1\n");
    // A relay has no queue to look at.
    let socket = other.site.socket();
    let looked = other.site.run(&["status", "-t", socket.to_str().unwrap()]);
    let error = String::from_utf8_lossy(&looked.stderr).into_owned();
    assert!(looked.status.code() == Some(69) && error.contains("socket of a relay"), "{error}");
}
