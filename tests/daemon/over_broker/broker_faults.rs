//! The broker has a fault of its own: an alarm, a time-out, a queue that is not there.
//!
//! Each test has the broker for itself (.config/nextest.toml), for what is done to it is done to all that use it.

use std::process::Command;
use std::time::{Duration, Instant};

use super::refusals::with_channel;
use super::{Installation, attempt, broker, worker};
use crate::common::wait::pause;
use crate::common::{Site, wait_within};

const PATIENCE: Duration = Duration::from_secs(40);

/// Runs rabbitmqctl on the broker of the tests.
fn ctl(arguments: &[&str]) -> String {
    let program = std::env::var("SHIFTBOSS_TEST_BROKER_CTL");
    let program = program.expect("this test is for the broker that tests/broker-server.sh starts");
    let output = Command::new(program).arg("--quiet").args(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// A fault of the broker, until it goes.
struct Fault {
    undo: &'static [&'static str],
}

impl Fault {
    fn begin(begin: &[&str], undo: &'static [&'static str]) -> Self {
        let fault = Self { undo };
        ctl(begin);
        fault
    }

    /// The broker is short of memory.
    fn memory() -> Self {
        let undo = &["set_vm_memory_high_watermark", "0.6"];
        Self::begin(&["set_vm_memory_high_watermark", "0"], undo)
    }

    /// What is not acknowledged within five seconds ends its channel, of those that are opened from now on.
    fn consumer_timeout() -> Self {
        Self::begin(
            &[
                "eval",
                "application:set_env(rabbit, consumer_timeout, 5000), application:set_env(rabbit, channel_tick_interval, 1000).",
            ],
            &[
                "eval",
                "application:set_env(rabbit, consumer_timeout, 1800000), application:set_env(rabbit, channel_tick_interval, 60000).",
            ],
        )
    }
}

impl Drop for Fault {
    fn drop(&mut self) {
        // One that fails says why by itself.
        if !std::thread::panicking() {
            ctl(self.undo);
        } else if let Ok(program) = std::env::var("SHIFTBOSS_TEST_BROKER_CTL") {
            let _ = Command::new(program).args(self.undo).output();
        }
    }
}

fn delete_queue(name: &str) {
    with_channel(async |channel| {
        channel.queue_delete(name.into(), Default::default()).await.unwrap();
    });
}

fn add(site: &Site, key: &str) {
    let added = site.run(&["add", site.socket().to_str().unwrap(), key, "1"]);
    assert!(added.status.success(), "{added:?}");
}

/// A broker that is short of memory takes nothing: both sides say so once, and wait; nobody ends a connection, though it is
/// silent for many of its heartbeats; nobody is taken for dead, and afterwards everything goes on where it was.
#[test]
#[ignore = "needs a broker: make test-broker"]
fn an_alarm_is_waited_for() {
    let url = format!("{}?heartbeat=1", broker());
    let installation = Installation::start_by(&url);
    let relay = installation.relay_by(&url, "r");
    relay.site.append("f.1.txt.part", "alpha 1\n");
    installation.site.wait_count(1);
    let mut far = worker(&relay.site, 60);
    let (taken, _) = attempt(&far.ask("READY"));
    let alarm = Fault::memory();
    let waits = |log: String| log.matches("The broker has an alarm").count() == 1;
    wait_within(PATIENCE, "the relay says so", || waits(relay.daemon.log()));
    add(&installation.site, "charlie");
    wait_within(PATIENCE, "the daemon says so", || waits(installation.daemon.log()));
    relay.site.append("f.1.txt.part", "bravo 1\n");
    let beat = far.ask(&format!("BEAT {taken}"));
    assert!(beat.starts_with("ERROR busy"), "{beat}");
    // Longer than a silent connection, or relay, may live.
    pause(Duration::from_secs(10));
    drop(alarm);
    wait_within(PATIENCE, "it is recorded", || far.ask(&format!("DONE {taken} 0")) == "OK\n");
    installation.site.wait_count(3);
    for log in [relay.daemon.log(), installation.daemon.log()] {
        assert!(waits(log.clone()) && log.contains("takes messages again"), "{log}");
        assert!(
            !log.contains("taken for dead") && !log.contains("The broker cannot be used"),
            "{log}"
        );
    }
    let log = installation.daemon.log();
    assert!(log.matches("Relays are served.").count() == 1 && !log.contains("silent"), "{log}");
    assert_eq!(relay.daemon.log().matches("anew").count(), 0, "{}", relay.daemon.log());
    let outcomes = "SELECT DISTINCT outcome FROM shiftboss_attempts";
    assert_eq!(installation.site.sql(outcomes), ["done"]);
}

/// A relay that waits for hours, and the daemon that hears it, hold nothing that the broker waits for.
#[test]
#[ignore = "needs a broker: make test-broker"]
fn hints_and_requests_outlive_the_consumer_timeout() {
    let _timeout = Fault::consumer_timeout();
    let installation = Installation::start();
    let relay = installation.relay("r");
    let mut waiting = worker(&relay.site, 60);
    for round in 0..3 {
        waiting.write(b"READY 30\n");
        pause(Duration::from_secs(4));
        add(&installation.site, &format!("key-{round}"));
        let begun = Instant::now();
        let (attempt, _) = attempt(&waiting.line());
        // By a hint: it would look by itself after 30 s.
        assert!(begun.elapsed() < Duration::from_secs(20));
        assert_eq!(waiting.ask(&format!("DONE {attempt} 0")), "OK\n");
    }
    let log = installation.daemon.log();
    assert_eq!(log.matches("Relays are served.").count(), 1, "{log}");
    assert!(!relay.daemon.log().contains("WARN"), "{}", relay.daemon.log());
}

/// What the broker cannot give to a queue fails at once, and does not wait for an answer that cannot come.
#[test]
#[ignore = "needs a broker: make test-broker"]
fn what_has_no_queue_fails_at_once() {
    let Installation { daemon, prefix, site: _site } = Installation::start();
    daemon.kill();
    let queue = format!("{prefix}request");
    delete_queue(&queue);
    let site = Site::bare();
    let mut command = site.program();
    command.args(["relay", "--broker-prefix", &prefix, &broker()]);
    command.args([site.input(), site.socket()]);
    let begun = Instant::now();
    let (code, error) = site.refused(command);
    let taken = begun.elapsed();
    assert!(code == 69 && error.contains("the broker has no such queue"), "{code} {error}");
    assert!(taken < Duration::from_secs(3), "{taken:?}");
}
