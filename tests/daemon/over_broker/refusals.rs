//! What a relay or a daemon refuses: wrong brokers, taken names, others' fetchers, messages that are none.

use std::time::{Duration, Instant};

use super::messages::{delete, ours, publish, refused, with_channel};
use super::{Installation, PATIENCE, broker, prefix, relay_command, wait_said};
use crate::common::said::{said, told};
use crate::common::{Site, wait_until};

#[test]
fn wrong_brokers() {
    let good = broker();
    let user = good.replace("guest:guest", "guest:wrong-secret");
    let no_password = good.replace("guest:guest", "stranger");
    let virtual_host = good.replace("%2f", "nobodys");
    for (url, code, why) in [
        ("amqp://u:wrong-secret#@h/", 78, "%23"),
        ("amqp://guest:wrong-secret@127.0.0.1:1/", 69, "refused"),
        (&*user, 78, "ACCESS_REFUSED"),
        (&*no_password, 78, "The URL has no password"),
        (&*virtual_host, 78, "nobodys"),
    ] {
        let site = Site::bare();
        let (found, error) = site.refused(relay_command(&site, &prefix(), url, "r"));
        assert!(!site.socket().exists() && !site.input().exists());
        assert!(found == code && error.contains(why), "{url}: {found} {error}");
        assert!(!error.contains("wrong-secret"), "{error}");
    }
}

/// A daemon whose broker is wrong, or away, goes on for its own workers, and says so.
#[test]
fn a_daemon_without_its_broker_serves() {
    let site = Site::bare();
    let daemon = site.start_with(&["--broker", "amqp://guest:wrong-secret@127.0.0.1:1/"]);
    wait_said(&daemon, "The broker cannot be used: relays wait.");
    assert_eq!(site.ask("READY"), "NOJOBS\n");
    assert!(!daemon.log().contains("the database cannot be used"), "{}", daemon.log());
    assert!(!daemon.log().contains("wrong-secret"), "{}", daemon.log());
    let (code, shown, _) = told(&site.run(&["status", "--check", "-t", "socket"]));
    assert!(shown.contains("broker: amqp://guest@127.0.0.1:1/ cannot be used"), "{shown}");
    assert_eq!(code, 1);
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
    // Much less than a relay that is silent is waited for.
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    let warnings = installation.daemon.warnings(&["twin"]);
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    let host = rustix::system::uname();
    let host = host.nodename().to_str().unwrap();
    let both = [&first.daemon, &refused].map(|relay| format!("{host} pid {} ", relay.pid()));
    let log = refused.log();
    let last = log.lines().last().unwrap();
    for line in [&*warnings[0], last] {
        assert!(both.iter().all(|one| line.contains(one)) && line.contains("twin"), "{line}");
    }
    assert!(last.contains("--name"), "{last}");
    assert!(first.daemon.is_running());
    assert_eq!(first.site.ask("READY"), "NOJOBS\n");
    first.daemon.freeze();
    let _second = installation.start_relay(&second, &broker(), "twin").ready();
    first.daemon.thaw();
    assert_eq!(first.daemon.exit_within(PATIENCE).code(), Some(75));
    assert_eq!(installation.daemon.warnings(&["second relay"]).len(), 2);
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
    said(&installation.site, &["backup", copy.database().to_str().unwrap()]);
    let second = copy.start_with(&options);
    wait_said(&second, "in exclusive use");
    relay.site.write("f.1.txt", "alpha 1\n");
    installation.site.wait_count(1);
    assert_eq!(copy.ask("READY"), "NOJOBS\n");
    second.stop();
    installation.daemon.stop();
    // Somebody says that the first queue is gone for good.
    with_channel(async |channel| {
        delete(&channel, &format!("{}installation", installation.prefix)).await;
    });
    let _other = other.start_with(&options);
    assert_eq!(relay.daemon.exit_within(PATIENCE).code(), Some(74));
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
    wait_said(&relay.daemon, "the fetcher f is the daemon's");
    let runs =
        "SELECT name, run_started FROM fetchers JOIN fetcher_runs USING (fetcher_id) ORDER BY 1";
    assert_eq!(installation.site.sql(runs), ["f|1", "g|1"]);
    assert!(relay.site.file("f.2.txt").exists());
}

/// What is no request is a dead letter with its reason, and the next request is answered all the same.
#[test]
fn messages_that_are_none_are_dead_letters() {
    let installation = Installation::start();
    let relay = installation.relay("r");
    let (prefix, queue) = (&*installation.prefix, format!("{}request", installation.prefix));
    let epoch =
        installation.site.number("SELECT value ->> 'epoch' FROM documents WHERE name = 'relay/r'");
    let many = format!(
        r#"{{"batch":{{"epoch":{epoch},"lane":"jobs","number":1,"operations":[{}]}}}}"#,
        [r#"{"probe":null}"#; 600].join(",")
    );
    let nested = "[".repeat(100_000);
    let large = vec![b' '; 17 * 1024 * 1024];
    let messages: [(_, &[u8], _); 6] = [
        (Default::default(), b"{}", "version 0"),
        (ours(2), b"{}", "version 2"),
        (ours(1), b"\xff{", "cannot be read"),
        (ours(1), nested.as_bytes(), "cannot be read"),
        (ours(1), many.as_bytes(), "600 operations at once"),
        (ours(1), &large, "bytes"),
    ];
    with_channel(async |channel| {
        for (properties, body, why) in messages {
            refused(&channel, (prefix, &queue), body, properties, why).await;
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
    let dead = format!("{}dead", installation.prefix);
    with_channel(async |channel| {
        delete(&channel, &dead).await;
        publish(&channel, &format!("{}request", installation.prefix), b"garbage", ours(1)).await;
    });
    // A channel on which a missing queue is asked for is closed.
    let is_dead = || {
        with_channel(async |channel| {
            let options = lapin::options::BasicGetOptions { no_ack: true };
            matches!(channel.basic_get(dead.as_str().into(), options).await, Ok(Some(_)))
        })
    };
    wait_until("it is a dead letter", is_dead);
    let tries = installation.daemon.log().matches("could not be answered").count();
    assert!((1..=3).contains(&tries), "{}", installation.daemon.log());
    let relay = installation.relay("r");
    assert_eq!(relay.site.ask("READY"), "NOJOBS\n");
}
