//! Relays: what fetchers and workers of machines without a database have of a daemon's queue. `make test-broker` runs these,
//! on its broker.

mod broker_faults;
mod cluster;
mod gone;
mod large;
mod lists;
mod messages;
mod operators;
mod outages;
mod quorum;
mod refusals;
mod restored;
mod shared;
mod tls;

use std::ops::Range;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::common::said::{code_and_error, said};
use crate::common::wait::pause;
use crate::common::{Client, Daemon, Peer, Site, wait_within};

/// Whatever failed goes on so soon: a connection is made again, rows are sent again, who is silent is taken for dead.
const PATIENCE: Duration = Duration::from_secs(40);

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

/// Waits until a process has said something.
fn wait_said(daemon: &Daemon, text: &str) {
    wait_within(PATIENCE, &format!("it is said: {text}"), || daemon.log().contains(text));
}

fn wait_served(daemon: &Daemon) {
    wait_said(daemon, "Relays are served.");
}

/// A daemon that serves relays.
struct Installation {
    // Ended before its directory goes.
    daemon: Daemon,
    site: Site,
    prefix: String,
}

/// An installation whose daemon is away.
struct Away {
    site: Site,
    prefix: String,
}

impl Installation {
    fn start() -> Self {
        Self::start_with(&[])
    }

    fn start_with(options: &[&str]) -> Self {
        Away { site: Site::bare(), prefix: prefix() }.start(&broker(), options)
    }

    /// By another URL of the broker.
    fn start_by(url: &str) -> Self {
        Away { site: Site::bare(), prefix: prefix() }.start(url, &[])
    }

    /// With these processes, which run.
    fn of(daemon: Daemon, site: Site, prefix: String) -> Self {
        wait_served(&daemon);
        Self { daemon, site, prefix }
    }

    fn kill(self) -> Away {
        let Self { daemon, site, prefix } = self;
        daemon.kill();
        Away { site, prefix }
    }

    fn stop(self) -> Away {
        let Self { daemon, site, prefix } = self;
        daemon.stop();
        Away { site, prefix }
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
        site.spawn(relay_command(site, &self.prefix, url, name))
    }
}

impl Away {
    fn restart(self) -> Installation {
        self.start(&broker(), &[])
    }

    fn start(self, url: &str, options: &[&str]) -> Installation {
        let Self { site, prefix } = self;
        let daemon = serve(&site, &prefix, url, options);
        Installation::of(daemon, site, prefix)
    }
}

/// A daemon that need not have been let in by its broker.
fn serve(site: &Site, prefix: &str, url: &str, options: &[&str]) -> Daemon {
    site.start_with(&[&["--broker", url, "--broker-prefix", prefix], options].concat())
}

fn relay_command(site: &Site, prefix: &str, url: &str, name: &str) -> Command {
    let mut command = site.program();
    command.args(["relay", "--name", name, "--broker-prefix", prefix, url]);
    command.args([site.input(), site.socket()]);
    command
}

fn worker(site: &Site, lease_seconds: u32) -> Client {
    Client::leased(site, lease_seconds)
}

/// Adds a single task.
fn add(site: &Site, key: &str) {
    said(site, &["add", "-t", "socket", key, "1"]);
}

/// Lines of a list.
fn lines(keys: Range<usize>, payload: &str) -> String {
    keys.map(|key| format!("key-{key} {payload}\n")).collect()
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

/// Who heard a worker last keeps its lease, the relay or the daemon: a beat there keeps the job, and without one it goes back.
#[test]
fn leases_run_where_workers_are_heard() {
    let installation = Installation::start();
    let relay = installation.relay("r");
    relay.site.write("f.1.txt", "alpha 1\nbravo 1\n");
    installation.site.wait_count(2);
    let (mut far, mut near) = (worker(&relay.site, 2), worker(&installation.site, 2));
    let (there, _) = attempt(&far.ask("READY"));
    let (here, lost) = attempt(&near.ask("READY"));
    for _ in 0..8 {
        pause(Duration::from_millis(300));
        assert_eq!(near.ask(&format!("BEAT {there}")), "OK\n");
        assert_eq!(far.ask(&format!("BEAT {here}")), "OK\n");
    }
    assert_eq!(near.ask(&format!("DONE {there} 0")), "OK\n");
    let (again, rest) = attempt(&far.ask("READY 20"));
    assert!(again != here && rest == lost, "{again} {rest}");
    assert_eq!(far.ask(&format!("BEAT {here}")), "LOST\n");
    assert!(relay.daemon.log().contains("A lease expired"), "{}", relay.daemon.log());
    let outcomes = "SELECT outcome FROM ended ORDER BY 1";
    assert_eq!(installation.site.sql(outcomes), ["expired", "success"]);
}

/// A job that a relay's worker has is to stop, by an order to the daemon.
#[test]
fn a_job_at_a_relay_is_cancelled() {
    let installation = Installation::start();
    let relay = installation.relay("r");
    relay.site.write("f.1.txt", "alpha 1\n");
    installation.site.wait_count(1);
    let mut far = worker(&relay.site, 600);
    let (there, _) = attempt(&far.ask("READY"));
    far.write(format!("BEAT {there} 600\n").as_bytes());
    said(&installation.site, &["cancel", "--running", "-t", "socket", "alpha"]);
    assert_eq!(far.line(), "STOP\n");
    assert_eq!(far.ask(&format!("RELEASE {there}")), "OK\n");
    installation.site.wait_sql("SELECT outcome FROM ended", &["cancelled"]);
}

/// Operators' orders at a relay are those of operators only where the daemon allows it.
#[test]
fn operators_at_a_relay() {
    let installation = Installation::start_with(&["--relay-operators", "trusted"]);
    let (trusted, other) = (installation.relay("trusted"), installation.relay("other"));
    let run = |relay: &Peer, words: &[&str]| {
        code_and_error(&relay.site.run(&[words, &["-t", "socket"]].concat()))
    };
    assert_eq!(run(&trusted, &["add", "alpha", "1"]).0, 0);
    let (code, error) = run(&other, &["add", "alpha", "1"]);
    assert!(code == 77 && error.contains("--relay-operators"), "{code} {error}");
    assert_eq!(other.site.ask("READY"), "JOB alpha 1\n");
    // A relay has no queue to look at.
    let (code, error) = run(&other, &["status"]);
    assert!(code == 69 && error.contains("socket of a relay"), "{error}");
}
