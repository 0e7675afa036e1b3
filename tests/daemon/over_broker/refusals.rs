//! What a relay or a daemon refuses: wrong brokers, taken names, others' fetchers, messages that are none.

use std::time::{Duration, Instant};

use lapin::options::{BasicGetOptions, BasicPublishOptions};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, Connection, ConnectionProperties};

use super::{Installation, broker, prefix};
use crate::common::said::told;
use crate::common::{Daemon, Site, wait_until};

/// The exit code and the message of a relay that cannot start.
fn refused(url: &str, prefix: &str) -> (i32, String) {
    let site = Site::bare();
    let mut command = site.program();
    command.args(["relay", "--broker-prefix", prefix, url]).args([site.input(), site.socket()]);
    let refused = site.refused(command);
    assert!(!site.socket().exists() && !site.input().exists());
    refused
}

#[test]
fn wrong_brokers() {
    let good = broker();
    let user = good.replace("guest:guest", "guest:wrong-secret");
    let no_password = good.replace("guest:guest", "stranger");
    let virtual_host = good.replace("%2f", "nobodys");
    for (url, code, why) in [
        ("http://h/", 78, "amqp://"),
        ("127.0.0.1:5672", 78, "URL 127.0.0.1:5672 cannot be used"),
        ("amqp://u:wrong-secret#@h/", 78, "%23"),
        ("amqp://guest:wrong-secret@127.0.0.1:1/", 69, "refused"),
        (&*user, 78, "ACCESS_REFUSED"),
        (&*no_password, 78, "The URL has no password"),
        (&*virtual_host, 78, "nobodys"),
    ] {
        let (found, error) = refused(url, &prefix());
        assert!(found == code && error.contains(why), "{url}: {found} {error}");
        assert!(!error.contains("wrong-secret"), "{error}");
    }
}

/// A daemon whose broker is wrong, or away, goes on for its own workers, and says so.
#[test]
fn a_daemon_without_its_broker_serves() {
    let site = Site::bare();
    let daemon = site.start_with(&["--broker", "amqp://guest:wrong-secret@127.0.0.1:1/"]);
    wait_until("it is said", || daemon.log().contains("The broker cannot be used: relays wait."));
    assert_eq!(site.ask("READY"), "NOJOBS\n");
    assert!(!daemon.log().contains("the database cannot be used"), "{}", daemon.log());
    assert!(!daemon.log().contains("wrong-secret"), "{}", daemon.log());
    let (code, shown, _) = told(&site.run(&["status", "--check", "-t", "socket"]));
    assert!(shown.contains("broker: amqp://guest@127.0.0.1:1/ cannot be used"), "{shown}");
    assert_eq!(code, 1);
}

/// A queue that somebody declared otherwise is named.
#[test]
fn another_topology_is_named() {
    let prefix = prefix();
    let queue = format!("{prefix}request");
    with_channel(async |channel| {
        let (options, none) = (Default::default(), FieldTable::default());
        channel.queue_declare(queue.as_str().into(), options, none).await.unwrap();
    });
    let site = Site::bare();
    let broker = broker();
    let daemon = site.start_with(&["--broker", &broker, "--broker-prefix", &prefix]);
    wait_until("it is named", || {
        let log = daemon.log();
        log.contains("PRECONDITION_FAILED") && log.contains(&queue)
    });
}

/// A second relay of a name is refused while the first one speaks, in one line with the host and process of both. One that lost
/// its name while it stood still ends, too.
#[test]
fn a_name_is_one_relay_s() {
    let installation = Installation::start();
    let mut first = installation.relay("twin");
    let second = Site::bare();
    let begun = Instant::now();
    let mut refused = installation.start_relay(&second, &broker(), "twin");
    assert_eq!(refused.exit().code(), Some(75));
    assert!(begun.elapsed() < AT_ONCE, "{:?}", begun.elapsed());
    names_both("twin", &first.daemon, &refused, &installation.daemon.warnings(&["twin"]));
    assert!(first.daemon.is_running());
    assert_eq!(first.site.ask("READY"), "NOJOBS\n");
    first.daemon.freeze();
    let _second = installation.start_relay(&second, &broker(), "twin").ready();
    first.daemon.thaw();
    assert_eq!(first.daemon.exit_within(Duration::from_secs(30)).code(), Some(75));
    assert_eq!(installation.daemon.warnings(&["second relay"]).len(), 2);
}

/// Much less than a relay that is silent is waited for.
pub const AT_ONCE: Duration = Duration::from_secs(5);

/// The warnings of all daemons, and the refused relay's last words, name host and process of both.
pub fn names_both(name: &str, first: &Daemon, refused: &Daemon, warnings: &[String]) {
    let host = rustix::system::uname();
    let host = host.nodename().to_str().unwrap();
    let both = [first, refused].map(|relay| format!("{host} pid {} ", relay.pid()));
    let log = refused.log();
    let last = log.lines().last().unwrap();
    for line in warnings.iter().map(String::as_str).chain([last]) {
        assert!(both.iter().all(|one| line.contains(one)) && line.contains(name), "{line}");
    }
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(last.contains("--name"), "{last}");
}

/// Two queues on one prefix would split the relays: the second daemon ends, and so does one that has a copy of the queue wait.
/// And a relay does not go over to another queue.
#[test]
fn a_prefix_is_one_queue_s() {
    let installation = Installation::start();
    let mut relay = installation.relay("r");
    let (other, copy) = (Site::bare(), Site::bare());
    let broker = broker();
    let options = ["--broker", &*broker, "--broker-prefix", &*installation.prefix];
    let (code, error) = other.refused(other.serve(&options));
    assert!(code == 78 && error.contains("serves another queue than this one"), "{code} {error}");
    let (from, to) = (installation.site.database(), copy.database());
    let copied = copy.run(&["backup", "-t", from.to_str().unwrap(), to.to_str().unwrap()]);
    assert!(copied.status.success(), "{copied:?}");
    let second = copy.start_with(&options);
    wait_until("it is named", || second.log().contains("in exclusive use"));
    relay.site.write("f.1.txt", "alpha 1\n");
    installation.site.wait_count(1);
    assert_eq!(copy.ask("READY"), "NOJOBS\n");
    second.stop();
    installation.daemon.stop();
    // Somebody says that the first queue is gone for good.
    with_channel(async |channel| {
        let claim = format!("{}installation", installation.prefix);
        channel.queue_delete(claim.into(), Default::default()).await.unwrap();
    });
    let _other = other.start_with(&options);
    assert_eq!(relay.daemon.exit_within(Duration::from_secs(30)).code(), Some(74));
    assert!(relay.daemon.log().contains("has another queue by now"), "{}", relay.daemon.log());
    assert_eq!(other.status()["relays"], serde_json::json!([]));
}

/// A list of a fetcher that the daemon has waits at the relay, which says whose it is; its other lists are taken in.
#[test]
fn a_fetcher_is_one_side_s() {
    let installation = Installation::start();
    installation.site.write("f.1.txt", "alpha 1\n");
    installation.site.wait_count(1);
    let relay = installation.relay("r");
    relay.site.write("f.2.txt", "bravo 1\n");
    relay.site.write("g.1.txt", "charlie 1\n");
    installation.site.wait_count(2);
    wait_until("it is said", || relay.daemon.log().contains("the fetcher f is the daemon's"));
    let runs =
        "SELECT name, run_started FROM fetchers JOIN fetcher_runs USING (fetcher_id) ORDER BY 1";
    assert_eq!(installation.site.sql(runs), ["f|1", "g|1"]);
    assert!(relay.site.file("f.2.txt").exists());
}

/// Calls with a channel to the broker.
pub fn with_channel<T>(work: impl AsyncFnOnce(lapin::Channel) -> T) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let url = broker();
        let connection = Connection::connect(&url, ConnectionProperties::default());
        let connection = connection.await.unwrap();
        work(connection.create_channel().await.unwrap()).await
    })
}

/// The properties of a message of a version.
pub fn ours(version: i64) -> BasicProperties {
    let mut headers = FieldTable::default();
    headers.insert("shiftboss-version".into(), AMQPValue::LongLongInt(version));
    BasicProperties::default().with_headers(headers)
}

/// What is no request is a dead letter with its reason, and the next request is answered all the same.
#[test]
fn messages_that_are_none_are_dead_letters() {
    let installation = Installation::start();
    let relay = installation.relay("r");
    let (queue, dead) =
        (format!("{}request", installation.prefix), format!("{}dead", installation.prefix));
    let epoch =
        installation.site.number("SELECT value ->> 'epoch' FROM documents WHERE name = 'relay/r'");
    let many = format!(
        r#"{{"batch":{{"epoch":{epoch},"lane":"jobs","number":1,"operations":[{}]}}}}"#,
        [r#"{"probe":null}"#; 600].join(",")
    );
    let nested = "[".repeat(100_000);
    let large = vec![b' '; 17 * 1024 * 1024];
    let messages: [(BasicProperties, &[u8], &str); 6] = [
        (BasicProperties::default(), b"{}", "version 0"),
        (ours(2), b"{}", "version 2"),
        (ours(1), b"\xff{", "cannot be read"),
        (ours(1), nested.as_bytes(), "cannot be read"),
        (ours(1), many.as_bytes(), "600 operations at once"),
        (ours(1), &large, "bytes"),
    ];
    with_channel(async |channel| {
        for (properties, body, why) in messages {
            let options = BasicPublishOptions::default();
            let published =
                channel.basic_publish("".into(), queue.as_str().into(), options, body, properties);
            published.await.unwrap().await.unwrap();
            let refused = loop {
                let got = channel.basic_get(dead.as_str().into(), BasicGetOptions { no_ack: true });
                if let Some(message) = got.await.unwrap() {
                    break message;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            };
            let headers = refused.properties.headers().clone().unwrap();
            let Some(AMQPValue::LongString(reason)) = headers.inner().get("shiftboss-reason")
            else {
                panic!("{headers:?}")
            };
            let reason = reason.to_string();
            assert!(reason.contains(why), "{why}: {reason}");
            assert_eq!(refused.data, body);
        }
    });
    let log = installation.daemon.log();
    let names_queue = log.matches(&format!("is a dead letter. queue=\"{queue}\"")).count();
    let names_relay = format!("is a dead letter. relay=\"r\" queue=\"{queue}\"");
    assert!(names_queue == 5 && log.matches(&names_relay).count() == 1, "{log}");
    relay.site.write("f.1.txt", "alpha 1\n");
    wait_until("it is listed", || relay.site.ask("READY") == "JOB alpha 1\n");
}

/// Somebody deletes the queue of dead letters: what cannot be refused is not tried in a hot loop, and the queue is made again.
#[test]
fn a_queue_that_is_gone_is_made_again() {
    let installation = Installation::start();
    let (queue, dead) =
        (format!("{}request", installation.prefix), format!("{}dead", installation.prefix));
    with_channel(async |channel| {
        channel.queue_delete(dead.as_str().into(), Default::default()).await.unwrap();
        let (options, body) = (BasicPublishOptions::default(), b"garbage");
        let published =
            channel.basic_publish("".into(), queue.as_str().into(), options, body, ours(1));
        published.await.unwrap().await.unwrap();
    });
    // A channel on which a missing queue is asked for is closed.
    wait_until("it is a dead letter", || {
        with_channel(async |channel| {
            let options = BasicGetOptions { no_ack: true };
            matches!(channel.basic_get(dead.as_str().into(), options).await, Ok(Some(_)))
        })
    });
    let tries = installation.daemon.log().matches("could not be answered").count();
    assert!((1..=3).contains(&tries), "{}", installation.daemon.log());
    let relay = installation.relay("r");
    assert_eq!(relay.site.ask("READY"), "NOJOBS\n");
}
