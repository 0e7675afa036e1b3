//! The broker has a fault of its own: an alarm, a time-out, a queue that somebody deletes.
//!
//! Each test has the broker for itself (.config/nextest.toml), for what is done to it is done to all that use it.

use std::process::Command;
use std::time::{Duration, Instant};

use super::messages::{delete, ours, publish, with_channel};
use super::shared::Queue;
use super::{
    Away, Installation, PATIENCE, add, attempt, broker, lines, prefix, relay_command, serve,
    wait_said, wait_served, worker,
};
use crate::common::said::{code_and_error, said, text};
use crate::common::sql::editor;
use crate::common::{Client, Peer, Site, wait_within};

const ALARM: &str = "The broker has an alarm";

/// Runs rabbitmqctl on the broker of the tests.
fn ctl(arguments: &[&str]) -> String {
    let program = std::env::var("SHIFTBOSS_TEST_BROKER_CTL");
    let program = program.expect("this test is for the broker that tests/broker-server.sh starts");
    let output = Command::new(program).arg("--quiet").args(arguments).output().unwrap();
    text(&output)
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

    /// It takes no larger messages, on channels that are opened from now on.
    fn small_messages(bytes: u32) -> Self {
        Self::begin(
            &["eval", &format!("application:set_env(rabbit, max_message_size, {bytes}).")],
            &["eval", "application:set_env(rabbit, max_message_size, 134217728)."],
        )
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

/// A relay with a list of one line, and an attempt of its.
fn with_a_job(relay: Peer, wait_listed: impl FnOnce()) -> (Peer, Client, String) {
    relay.site.append("f.1.txt.part", "alpha 1\n");
    wait_listed();
    let mut far = worker(&relay.site, 60);
    let (taken, _) = attempt(&far.ask("READY"));
    (relay, far, taken)
}

fn wait_done(far: &mut Client, taken: &str) {
    wait_within(PATIENCE, "it is recorded", || far.ask(&format!("DONE {taken} 0")) == "OK\n");
}

/// A broker that is short of memory takes nothing: both sides say so once, the daemon though it has nothing to say, and wait; nobody
/// ends a connection, though it is silent for many of its heartbeats; nobody is taken for dead, and afterwards everything goes on
/// where it was.
#[test]
fn an_alarm_is_waited_for() {
    let url = format!("{}?heartbeat=1", broker());
    let installation = Installation::start_by(&url);
    let listed = || installation.site.wait_count(1);
    let (relay, mut far, taken) = with_a_job(installation.relay_by(&url, "r"), listed);
    let alarm = Fault::memory();
    let waits = |log: String| log.matches(ALARM).count() == 1;
    wait_within(PATIENCE, "the relay says so", || waits(relay.daemon.log()));
    wait_within(PATIENCE, "the daemon says so", || waits(installation.daemon.log()));
    // A worker at the daemon waits for longer than a silent connection, or relay, may live.
    assert_eq!(worker(&installation.site, 60).ask("READY 8"), "NOJOBS busy 1\n");
    add(&installation.site, "charlie");
    relay.site.append("f.1.txt.part", "bravo 1\n");
    let beat = far.ask(&format!("BEAT {taken}"));
    assert!(beat.starts_with("ERROR busy"), "{beat}");
    drop(alarm);
    wait_done(&mut far, &taken);
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
    let codes = "SELECT DISTINCT exit_code FROM ended";
    assert_eq!(installation.site.sql(codes), ["0"]);
}

/// The same where several daemons have the queue: none of them takes the relay for dead.
#[test]
fn an_alarm_is_waited_for_by_several_daemons() {
    let queue = Queue::new();
    let daemons = [queue.daemon("one"), queue.daemon("other")];
    let (relay, mut far, taken) = with_a_job(queue.relay("r"), || queue.wait_rows(1));
    let alarm = Fault::memory();
    wait_said(&relay.daemon, ALARM);
    // Longer than a silent relay may live.
    assert_eq!(worker(&daemons[0].site, 60).ask("READY 9"), "NOJOBS busy 1\n");
    drop(alarm);
    wait_done(&mut far, &taken);
    let ended = "SELECT count(*) FROM attempts WHERE outcome <> 'success'";
    assert_eq!(queue.count(ended), 0);
    assert!(!relay.daemon.log().contains("anew"), "{}", relay.daemon.log());
}

/// A relay that waits for hours, and the daemon that hears it, hold nothing that the broker waits for.
#[test]
fn hints_and_requests_outlive_the_consumer_timeout() {
    let _timeout = Fault::consumer_timeout();
    let installation = Installation::start();
    let relay = installation.relay("r");
    let mut waiting = worker(&relay.site, 60);
    for round in 0..2 {
        assert_eq!(waiting.ask("READY 6"), "NOJOBS\n");
        waiting.write(b"READY 30\n");
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

/// Rows that cannot be stored for so long that the broker ends their channel are stored when they can be, each once.
#[test]
fn rows_outlive_the_consumer_timeout() {
    let _timeout = Fault::consumer_timeout();
    let installation = Installation::start();
    let relay = installation.relay("r");
    relay.site.append("f.1.txt.part", "alpha 1\n");
    installation.site.wait_count(1);
    let position = "SELECT count(*) FROM lists WHERE stale = 0 AND bytes = 8";
    wait_within(PATIENCE, "nothing is on the way", || installation.site.number(position) == 1);
    let lock = editor(&installation.site.database()).unwrap();
    lock.execute_batch("BEGIN IMMEDIATE").unwrap();
    relay.site.append("f.1.txt.part", lines(0..500, "1"));
    let range = format!("{}write.", installation.prefix);
    wait_within(PATIENCE, "the broker ends the channel", || {
        !ctl(&["list_consumers", "--no-table-headers", "queue_name"]).contains(&range)
    });
    lock.execute_batch("ROLLBACK").unwrap();
    relay.site.append("f.1.txt.part", "bravo 1\n");
    wait_within(PATIENCE, "they are stored", || {
        installation.site.sql("SELECT count(*), count(DISTINCT attr_path) FROM queue")
            == ["502|502"]
    });
}

/// Somebody deletes the queue of a relay's answers, or of its hints: it makes others, and loses nothing.
#[test]
fn a_relay_s_own_queues_are_deleted() {
    let installation = Installation::start();
    // That of hints has a limit.
    let own = |has_limit: bool| -> Option<String> {
        let queues = ctl(&["list_queues", "--no-table-headers", "name", "arguments"]);
        let mut own = queues.lines().filter(|line| line.starts_with("amq.gen-"));
        let found = own.find(|line| line.contains("x-max-length") == has_limit);
        found.and_then(|line| line.split_whitespace().next()).map(str::to_owned)
    };
    let listed = || installation.site.wait_count(1);
    let (relay, mut far, taken) = with_a_job(installation.relay("r"), listed);
    for has_limit in [false, true] {
        let queue = own(has_limit).expect("it is there");
        let gone = format!(
            "{{ok, Q}} = rabbit_amqqueue:lookup(rabbit_misc:r(<<\"/\">>, queue, <<\"{queue}\">>)), \
             rabbit_amqqueue:delete(Q, false, false, <<\"test\">>)."
        );
        ctl(&["eval", &gone]);
        wait_within(PATIENCE, "it has others", || own(has_limit).is_some_and(|now| now != queue));
        wait_within(PATIENCE, "it is heard", || far.ask(&format!("BEAT {taken}")) == "OK\n");
    }
    assert_eq!(far.ask(&format!("DONE {taken} 0")), "OK\n");
    relay.site.append("f.1.txt.part", "bravo 1\n");
    installation.site.wait_count(2);
}

/// The broker cancels a consumer of the daemon because somebody deleted its queue: that is made anew, and consumed.
#[test]
fn the_daemon_s_queues_are_deleted() {
    let installation = Installation::start();
    let relay = installation.relay("r");
    for (round, queue) in (1..).zip(["request", "write.03", "write.0f"]) {
        let queue = format!("{}{queue}", installation.prefix);
        with_channel(async |channel| delete(&channel, &queue).await);
        relay.site.write(format!("f-{round}.1.txt"), lines(0..200, "1"));
        installation.site.wait_count(200 * round);
    }
}

/// A broker that takes but small messages is refused, with what to set: a daemon serves its own workers, and relays once that is
/// mended.
#[test]
fn a_broker_takes_small_messages() {
    let fault = Fault::small_messages(64 * 1024);
    let (site, prefix) = (Site::bare(), prefix());
    let daemon = serve(&site, &prefix, &broker(), &[]);
    let told = ["max_message_size", "65536"];
    wait_within(PATIENCE, "it is said", || !daemon.warnings(&told).is_empty());
    assert_eq!(site.ask("READY"), "NOJOBS\n");
    let check = ["broker", "check", &broker(), "--broker-prefix", &prefix];
    let (code, error) = code_and_error(&site.run(&check));
    assert!(code == 78 && error.contains("max_message_size"), "{error}");
    drop(fault);
    wait_served(&daemon);
}

/// A user who may do nothing under the prefix is told so: a relay ends, a daemon serves its own workers.
#[test]
fn a_user_without_rights_is_told() {
    let _user = Fault::begin(&["add_user", "nobody", "secret"], &["delete_user", "nobody"]);
    ctl(&["set_permissions", "nobody", "^amq.gen", "^amq.gen", "^amq.gen"]);
    let url = broker().replace("guest:guest", "nobody:secret");
    let installation = Installation::start();
    let site = Site::bare();
    let mut relay = installation.start_relay(&site, &url, "r");
    assert_eq!(relay.exit().code(), Some(78));
    assert!(relay.log().contains("ACCESS_REFUSED"), "{}", relay.log());
    let daemon = serve(&site, &prefix(), &url, &[]);
    wait_said(&daemon, "ACCESS_REFUSED");
    assert_eq!(site.ask("READY"), "NOJOBS\n");
}

/// The patterns of a user's rights in docs/broker.md, for another prefix.
fn documented_rights(user: &str, prefix: &str) -> [String; 3] {
    let begin = format!("rabbitmqctl set_permissions -p / {user} '");
    let mut lines = include_str!("../../../docs/broker.md").lines();
    let patterns = lines.find_map(|line| line.trim().strip_prefix(&*begin)).expect("its rights");
    let patterns = patterns.replace(r"shiftboss\.", &prefix.replace('.', r"\."));
    let patterns: Vec<_> =
        patterns.trim_end_matches('\'').split("' '").map(str::to_owned).collect();
    patterns.try_into().expect("what it may configure, write and read")
}

/// A daemon and a relay, whose users have the rights that docs/broker.md gives them, do all that they do.
#[test]
fn the_documented_rights_suffice() {
    let (far, near, prefix) = (Site::bare(), Site::bare(), prefix());
    let _users = [
        Fault::begin(&["add_user", "shiftboss", "secret"], &["delete_user", "shiftboss"]),
        Fault::begin(
            &["add_user", "shiftboss-relay", "secret"],
            &["delete_user", "shiftboss-relay"],
        ),
    ];
    let [daemons, relays] = ["shiftboss", "shiftboss-relay"].map(|user| {
        let [configure, write, read] = documented_rights(user, &prefix);
        ctl(&["set_permissions", "-p", "/", user, &configure, &write, &read]);
        broker().replace("guest:guest", &format!("{user}:secret"))
    });
    let installation = Away { site: near, prefix }.start(&daemons, &[]);
    let relay = installation.start_relay(&far, &relays, "r").ready();
    let mut waiting = worker(&far, 60);
    waiting.write(b"READY 20\n");
    // Requests, rows, their answers, and hints.
    add(&installation.site, "alpha");
    let (taken, _) = attempt(&waiting.line());
    assert_eq!(waiting.ask(&format!("DONE {taken} 0")), "OK\n");
    far.write("f.1.txt", lines(0..200, "1"));
    installation.site.wait_count(200);
    // A dead letter, and operators who look at the broker.
    let request = format!("{}request", installation.prefix);
    with_channel(async |channel| publish(&channel, &request, b"garbage", ours(1)).await);
    wait_within(PATIENCE, "it is a dead letter", || {
        let options = ["--broker-prefix", &installation.prefix, &daemons];
        let requeue = ["broker", "dead-letters", "--requeue"];
        let looked = said(&far, &[&requeue[..], &options].concat());
        said(&far, &[&["broker", "check"][..], &options].concat());
        looked.contains("cannot be read")
    });
    for log in [relay.log(), installation.daemon.log()] {
        assert!(!log.contains("REFUSED") && !log.contains("cannot be used"), "{log}");
    }
}

/// However much there is to do, a daemon and a relay have one connection each, and one consumer of each queue.
#[test]
fn a_process_has_one_connection() {
    let installation = Installation::start();
    let relay = installation.relay("r");
    relay.site.write("f.1.txt", lines(0..500, "1"));
    installation.site.wait_count(500);
    let mut queues: Vec<String> = Vec::new();
    // One that joined before its relay was ready may be closing.
    wait_within(PATIENCE, "there are two connections", || {
        let connections = ctl(&["list_connections", "--no-table-headers", "pid"]);
        let consumers = ctl(&["list_consumers", "--no-table-headers", "queue_name"]);
        queues = consumers.lines().map(str::to_owned).collect();
        connections.lines().count() == 2
    });
    queues.sort();
    let own: Vec<_> = queues.iter().filter(|queue| queue.starts_with("amq.gen")).collect();
    let ours = queues.iter().filter(|queue| queue.starts_with(&installation.prefix)).count();
    assert_eq!((own.len(), ours, queues.len()), (2, 18, 20), "{queues:?}");
    queues.dedup();
    assert_eq!(queues.len(), 20);
}

/// What the broker cannot give to a queue fails at once, and does not wait for an answer that cannot come.
#[test]
fn what_has_no_queue_fails_at_once() {
    let away = Installation::start().kill();
    let request = format!("{}request", away.prefix);
    with_channel(async |channel| delete(&channel, &request).await);
    let site = Site::bare();
    let relay = site.spawn(relay_command(&site, &away.prefix, &broker(), "r"));
    let is_told = || relay.log().contains("the broker has no such queue");
    wait_within(Duration::from_secs(3), "it is told", is_told);
}
