//! What operators see of a broker, and do there: `broker check`, `broker dead-letters`.

use std::process::Output;

use lapin::types::FieldTable;
use serde_json::Value;

use super::messages::{self, ours, take, with_channel};
use super::{Installation, attempt, broker, prefix, worker};
use crate::common::said::{code_and_error, object, said, told};
use crate::common::{Site, wait_until};

/// The queues and exchanges of an installation.
const PARTS: usize = 21;

/// Runs `shiftboss broker` with a verb and options.
fn run(prefix: &str, arguments: &[&str]) -> Output {
    let site = Site::bare();
    let mut command = site.program();
    command.arg("broker").args(arguments).args(["--broker-prefix", prefix]);
    command.env("SHIFTBOSS_BROKER", broker()).output().unwrap()
}

/// The exit code, and the JSON object.
fn asked(prefix: &str, arguments: &[&str]) -> (i32, Value) {
    let (code, stdout, _) = told(&run(prefix, &[arguments, &["--json"]].concat()));
    (code, object(&stdout))
}

/// Standard output.
fn shown(prefix: &str, arguments: &[&str]) -> String {
    told(&run(prefix, arguments)).1
}

/// How often parts are in a state.
fn count(checked: &Value, state: &str) -> usize {
    checked["parts"].as_array().unwrap().iter().filter(|part| part["state"] == state).count()
}

#[test]
fn a_check_says_what_is_missing_and_who_serves() {
    let unused = prefix();
    for _ in 0..2 {
        let (code, checked) = asked(&unused, &["check"]);
        assert_eq!(
            (code, count(&checked, "missing")),
            (69, PARTS),
            "a look makes nothing: {checked}"
        );
        assert_eq!(checked["takes_messages"], true);
    }
    let installation = Installation::start();
    let (code, checked) = asked(&installation.prefix, &["check"]);
    assert_eq!((code, count(&checked, "as_declared")), (0, PARTS), "{checked}");
    let request = &checked["parts"][0];
    assert_eq!(request["name"], format!("{}request", installation.prefix));
    assert_eq!((&request["messages"], &request["consumers"]), (&0.into(), &1.into()));
    let shown = shown(&installation.prefix, &["check"]);
    assert!(shown.contains("Takes messages  yes\n"), "{shown}");
    assert!(!shown.contains("guest:guest") && !checked.to_string().contains("guest:guest"));

    let (code, error) = code_and_error(&run(&installation.stop().prefix, &["check"]));
    assert!(code == 69 && error.contains("no daemon takes"), "{error}");
}

/// The queue and the exchange that somebody made otherwise are named, with the broker's word on them; and a broker that is away
/// or refuses the user is told apart.
#[test]
fn a_check_names_what_differs() {
    let prefix = prefix();
    let (queue, exchange) = (format!("{prefix}write.03"), format!("{prefix}hint"));
    with_channel(async |channel| {
        let none = FieldTable::default();
        let durable = lapin::options::QueueDeclareOptions { durable: true, ..Default::default() };
        channel.queue_declare(queue.as_str().into(), durable, none.clone()).await.unwrap();
        let kind = lapin::ExchangeKind::Topic;
        let name = exchange.as_str().into();
        channel.exchange_declare(name, kind, Default::default(), none).await.unwrap();
    });
    let (code, checked) = asked(&prefix, &["check"]);
    assert_eq!((code, count(&checked, "differs"), count(&checked, "missing")), (78, 2, PARTS - 2));
    let parts = checked["parts"].as_array().unwrap();
    let difference = |name: &str| {
        let part = parts.iter().find(|part| part["name"] == name).unwrap();
        part["difference"].as_str().unwrap().to_owned()
    };
    assert!(difference(&queue).contains("x-max-length"), "{checked}");
    assert!(difference(&exchange).contains("type"), "{checked}");
    let (_, error) = code_and_error(&run(&prefix, &["check"]));
    assert!(error.contains(&queue) && error.contains(&exchange), "{error}");

    let wrong = broker().replace("guest:guest", "guest:wrong-secret");
    for (url, code) in [("amqp://guest:wrong-secret@127.0.0.1:1/", 69), (&*wrong, 78)] {
        let (found, error) = code_and_error(&run(&prefix, &["check", url]));
        assert_eq!(found, code, "{error}");
        assert!(!error.contains("wrong-secret"), "{error}");
    }
}

/// Publishes to a queue, as somebody who waits for an answer.
fn publish(queue: &str, body: &[u8]) {
    let properties = ours(1).with_message_id("m-1".into()).with_reply_to("nobody".into());
    with_channel(async |channel| messages::publish(&channel, queue, body, properties).await);
}

fn wait_dead_letters(prefix: &str, count: usize) {
    wait_until("it is a dead letter", || {
        let (_, found) = asked(prefix, &["dead-letters"]);
        found["letters"].as_array().unwrap().len() == count
    });
}

/// Dead letters are shown with their reasons, and are still there; what is put back comes from where it was, as it was; what is
/// deleted is what was shown; and one that does not say where it was stays.
#[test]
fn dead_letters_are_shown_put_back_and_deleted() {
    let installation = Installation::start();
    let prefix = installation.prefix.clone();
    let (request, rows) = (format!("{prefix}request"), format!("{prefix}write.03"));
    assert_eq!(shown(&prefix, &["dead-letters"]), "There are no dead letters.\n");
    publish(&request, b"garbage\x1b[2J");
    wait_dead_letters(&prefix, 1);
    publish(&rows, b"\xff rows");
    wait_dead_letters(&prefix, 2);
    // The daemon would refuse them again.
    let _away = installation.stop();

    let shown = shown(&prefix, &["dead-letters", "-n", "1"]);
    assert!(shown.contains("the message cannot be read"), "{shown}");
    assert!(
        shown.contains(&format!("from {request}, 11 bytes\n  garbage\\u{{1b}}[2J\n")),
        "{shown}"
    );
    assert!(shown.contains("There are 1 more"), "{shown}");
    let (code, found) = asked(&prefix, &["dead-letters"]);
    let letters = &found["letters"];
    assert_eq!((code, &found["more"]), (0, &0.into()), "{found}");
    assert_eq!(letters[1]["queue"], rows, "{found}");

    publish(&format!("{prefix}dead"), b"of somebody else");
    let (code, found) = asked(&prefix, &["dead-letters", "--requeue"]);
    let requeued = found["letters"].as_array().unwrap().iter();
    let requeued: Vec<&Value> = requeued.map(|letter| &letter["requeued"]).collect();
    assert_eq!((code, requeued), (69, vec![&true.into(), &true.into(), &false.into()]), "{found}");
    with_channel(async |channel| {
        for (queue, body) in [(&request, &b"garbage\x1b[2J"[..]), (&rows, b"\xff rows")] {
            let message = take(&channel, queue).await.expect("it was put back").delivery;
            assert_eq!(message.data, body);
            let properties = &message.properties;
            assert_eq!(properties.message_id().as_ref().unwrap().as_str(), "m-1");
            assert_eq!(properties.reply_to().as_ref().unwrap().as_str(), "nobody");
            assert_eq!(properties.headers(), ours(1).headers());
        }
    });

    publish(&format!("{prefix}dead"), b"another");
    let (code, found) = asked(&prefix, &["dead-letters", "--drop", "-n", "1"]);
    assert_eq!((code, &found["more"]), (0, &1.into()), "{found}");
    assert_eq!(found["letters"][0]["excerpt"], "of somebody else");
    let (_, found) = asked(&prefix, &["dead-letters"]);
    assert_eq!(found["letters"][0]["excerpt"], "another", "{found}");
}

/// A message that is quoted in the reason makes a dead letter, however long it is: headers have a limit on the broker.
#[test]
fn a_long_reason_is_cut() {
    let installation = Installation::start();
    let body = format!("{{\"{}\": 1}}", "x".repeat(300_000));
    publish(&format!("{}request", installation.prefix), body.as_bytes());
    wait_dead_letters(&installation.prefix, 1);
    let log = installation.daemon.log();
    assert!(!log.contains("could not be answered"), "{log}");
}

/// The status has relays as the queue knows them, with what the daemon's memory adds: who is heard of, and what waits on the
/// broker; and what is wrong is said.
#[test]
fn the_status_shows_relays() {
    let installation = Installation::start();
    let status = |target| installation.site.status_of(target);
    let relay = installation.relay("one");
    relay.site.write("f.1.txt", "alpha 1\nbravo 1\n");
    installation.site.wait_count(2);
    let mut worker = worker(&relay.site, 60);
    attempt(&worker.ask("READY"));

    let found = status("socket");
    let one = &found["relays"][0];
    assert_eq!(
        (&one["name"], &one["gone"], &one["in_flight"]),
        (&"one".into(), &false.into(), &1.into())
    );
    assert_eq!(one["fetchers"], serde_json::json!(["f"]), "{found}");
    assert_eq!(status("state.db")["relays"], found["relays"]);
    let broker = &found["live"]["broker"];
    assert_eq!((&broker["connected"], &broker["relays"][0]["name"]), (&true.into(), &"one".into()));
    assert!(broker["relays"][0]["silent_seconds"].as_u64().unwrap() < 6, "{found}");
    assert!(!found.to_string().contains("guest:guest"), "{found}");

    publish(&format!("{}request", installation.prefix), b"garbage");
    wait_until("the daemon knows of it", || {
        status("socket")["live"]["broker"]["dead_letters"] == 1
    });
    let found = status("socket");
    let ranges = found["live"]["broker"]["ranges"].as_array().unwrap();
    assert!(ranges.len() == 16 && ranges.iter().all(|range| range["consumers"] == 1), "{found}");
    let shown = said(&installation.site, &["status", "-t", "socket"]);
    assert!(shown.contains("heard of ") && shown.contains("no rows wait"), "{shown}");
    let check = said(&installation.site, &["status", "--check", "-t", "socket"]);
    assert!(check.contains("warning: broker: refused 1 message"), "{check}");

    relay.daemon.stop();
    wait_until("it is gone", || status("state.db")["relays"][0]["gone"] == true);
    assert_eq!(status("socket")["live"]["broker"]["relays"], serde_json::json!([]));
}

/// A relay whose settings stand in a file, paths in it below its directory.
#[test]
fn a_relay_is_configured_by_a_file() {
    let (installation, site) = (Installation::start(), Site::bare());
    let text = format!(
        "broker = '{}'\nbroker_prefix = '{}'\nname = 'filed'\ninput_dir = 'input'\nsocket = 'socket'\n",
        broker(),
        installation.prefix
    );
    site.write_private("relay.toml", &text);
    let mut command = site.program();
    command.arg("relay").arg("--config").arg(site.path("relay.toml"));
    let relay = site.spawn(command).ready();
    site.write("f.1.txt", "alpha 1\n");
    installation.site.wait_count(1);
    assert_eq!(installation.site.status()["relays"][0]["name"], "filed");
    assert!(!relay.log().contains("guest:guest"), "{}", relay.log());
}
