//! Rows of lists on their way: by the queues of their ranges, whatever fails meanwhile.

use lapin::options::BasicConsumeOptions;
use lapin::types::FieldTable;
use shiftboss_testbed::proxy::Proxy;

use super::messages::{counts, delete, ours, refused, with_channel};
use super::{Away, Installation, PATIENCE, broker, lines};
use crate::common::wait::wait_equal;
use crate::common::{Daemon, Peer, Site, wait_within};

impl Installation {
    fn wait_runs(&self, expected: &[&str]) {
        let runs = "SELECT name, run_started, is_complete, rows, skipped FROM fetchers
            JOIN fetcher_runs USING (fetcher_id) JOIN lists USING (fetcher_id, run_started) ORDER BY 1, 2";
        wait_within(PATIENCE, &format!("{expected:?}"), || self.site.sql(runs) == expected);
    }
}

impl Away {
    /// While the daemon is away: most ranges have rows that wait on the broker.
    fn wait_rows(&self) {
        wait_within(PATIENCE, "rows are on the broker", || waiting(&self.prefix) >= 16);
    }
}

fn rows_queue(prefix: &str, range: u8) -> String {
    format!("{prefix}write.{range:02x}")
}

/// Messages with rows that wait on the broker.
fn waiting(prefix: &str) -> u32 {
    with_channel(async |channel| {
        let mut messages = 0;
        for range in 0..16 {
            messages += counts(&channel, &rows_queue(prefix, range)).await.0;
        }
        messages
    })
}

/// A line of a list, whose storing is over: its relay waits for no answer.
fn add_alpha(site: &Site) {
    site.append("f.1.txt.part", "alpha 1\n");
    wait_within(PATIENCE, "it is handed out", || site.ask("READY") == "JOB alpha 1\n");
    assert_eq!(site.ask("READY"), "NOJOBS\n");
}

/// Rows go by all ranges, and are added in many messages; the run is complete with the last of them, and nothing stays behind.
#[test]
fn rows_go_by_ranges() {
    let installation = Installation::start();
    let relay = installation.relay("r");
    relay.site.write("f.1.txt", [lines(0..12_000, "1").as_bytes(), b"\xff faulty\n"].concat());
    installation.wait_runs(&["f|1|1|12000|1"]);
    let lanes = "SELECT count(*), sum(value ->> 'number') >= 120 FROM documents
        WHERE name LIKE 'relay-lane/r/%' AND CAST(substr(name, 14) AS INTEGER) >= 16";
    assert_eq!(installation.site.sql(lanes), ["16|1"]);
    assert_eq!(waiting(&installation.prefix), 0);
    assert_eq!(installation.site.integrity(), ["ok"]);
    // One line, and a list that is edited: what it lacks goes, and what changed is so.
    relay.site.append("g.1.txt.part", "alpha 1\n");
    installation.wait_runs(&["f|1|1|12000|1", "g|1|0|1|0"]);
    relay.site.write("f.1.txt", lines(0..3_000, "2"));
    installation.wait_runs(&["f|1|1|3000|0", "g|1|0|1|0"]);
    let old = "SELECT count(*) FROM queue WHERE payload = '1' AND attr_path <> 'alpha'";
    assert_eq!(installation.site.number(old), 0);
}

/// A relay that dies with rows on the way leaves none out and adds none that are not in its files any more: the next process
/// reads on from the position, and what was sent before it joined counts no more.
#[test]
fn a_relay_is_killed_with_rows_on_the_way() {
    let installation = Installation::start();
    let Peer { daemon, site } = installation.relay("r");
    add_alpha(&site);
    let away = installation.kill();
    site.append("f.1.txt.part", lines(0..2_000, "old"));
    away.wait_rows();
    daemon.kill();
    site.write("f.1.txt.part", "alpha 1\n".to_owned() + &lines(500..600, "new"));
    site.rename("f.1.txt.part", "f.1.txt");
    let installation = away.restart();
    let _again: Daemon = installation.start_relay(&site, &broker(), "r").ready();
    let mut expected: Vec<String> = (500..600).map(|key| format!("key-{key}|new")).collect();
    expected.insert(0, "alpha|1".to_owned());
    let keys = "SELECT attr_path, payload FROM queue ORDER BY 1";
    wait_equal("what the file has", &expected, || installation.site.sql(keys));
    assert_eq!(waiting(&installation.prefix), 0);
}

/// While the daemon is away lists gather on the broker, and are stored when it is back: also of a file that was cut and written anew
/// meanwhile, and of one that went and came again.
#[test]
fn files_made_anew_with_rows_on_the_way() {
    let installation = Installation::start();
    let relay = installation.relay("r");
    relay.site.append("g.1.txt.part", "bravo 1\n");
    installation.site.wait_count(1);
    assert_eq!(relay.site.ask("READY"), "JOB bravo 1\n");
    add_alpha(&relay.site);
    let away = installation.kill();
    relay.site.append("f.1.txt.part", lines(0..200, "old"));
    relay.site.append("g.1.txt.part", lines(0..200, "old"));
    away.wait_rows();
    relay.site.write("f.1.txt.part", lines(0..3, "new"));
    relay.site.rename("f.1.txt.part", "f.1.txt");
    relay.site.remove("g.1.txt.part");
    relay.site.write("g.1.txt", lines(1..3, "new"));
    relay.site.append("h.1.txt.part", lines(10..12, "1"));
    let installation = away.restart();
    let list =
        "SELECT name, attr_path, payload FROM queue JOIN fetchers USING (fetcher_id) ORDER BY 1, 2";
    let (f, g) = (["f|key-0|new", "f|key-1|new", "f|key-2|new"], ["g|key-1|new", "g|key-2|new"]);
    let expected = [&f[..], &g, &["h|key-10|1", "h|key-11|1"]].concat();
    wait_within(PATIENCE, "what the files have", || installation.site.sql(list) == expected);
    assert_eq!(waiting(&installation.prefix), 0);
}

/// A range that nobody takes holds up its rows, and no worker; and none of them is lost with the relay.
#[test]
fn one_range_is_stalled() {
    let away = Installation::start().kill();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (_connection, taker) = runtime.block_on(async {
        let connection = lapin::Connection::connect(&broker(), Default::default()).await.unwrap();
        let channel = connection.create_channel().await.unwrap();
        let queue = rows_queue(&away.prefix, 3);
        let options = BasicConsumeOptions::default();
        let none = FieldTable::default();
        channel.basic_consume(queue.into(), "".into(), options, none).await.unwrap();
        (connection, channel)
    });
    let installation = away.restart();
    let Peer { daemon, site } = installation.relay("r");
    site.append("f.1.txt.part", lines(0..500, "1"));
    let stored = "SELECT count(*) FROM queue";
    wait_within(PATIENCE, "the other ranges", || installation.site.number(stored) > 400);
    assert!(site.ask("READY").starts_with("JOB key-"));
    assert!(installation.site.number(stored) < 500);
    daemon.kill();
    runtime.block_on(taker.close(200, "done".into())).unwrap();
    let _again = installation.start_relay(&site, &broker(), "r").ready();
    installation.wait_runs(&["f|1|0|500|0"]);
}

/// What is no message of rows is a dead letter, in the middle of a list; its neighbours are stored.
#[test]
fn poison_in_the_middle() {
    let installation = Installation::start();
    let relay = installation.relay("r");
    relay.site.append("f.1.txt.part", lines(0..400, "1"));
    let rows = |range: u8, key: &str| {
        format!(
            r#"{{"epoch":1,"range":{range},"number":1,"run":{{"fetcher":"f","started":1}},"rows":[{{"key":"{key}","payload":""}}]}}"#
        )
    };
    let poison = [
        (ours(2), rows(3, "alpha"), "version 2"),
        (ours(1), "garbage".to_owned(), "cannot be read"),
        (ours(1), rows(4, "alpha"), "rows of the range 4 by the queue of 3"),
        (ours(1), rows(3, "alpha"), "a key of the range 14 by the queue of 3"),
        (ours(1), rows(3, "a b"), "no relay may ask"),
    ];
    let (prefix, queue) = (&*installation.prefix, rows_queue(&installation.prefix, 3));
    with_channel(async |channel| {
        for (properties, body, why) in poison {
            refused(&channel, (prefix, &queue), body.as_bytes(), properties, why).await;
        }
    });
    relay.site.append("f.1.txt.part", lines(400..800, "1"));
    installation.wait_runs(&["f|1|0|800|0"]);
    assert_eq!(waiting(&installation.prefix), 0);
}

/// The broker loses everything with rows and requests on the way: the daemon makes the topology again, and all is sent again.
#[test]
fn the_broker_loses_everything() {
    let installation = Installation::start();
    let proxy = Proxy::to_broker(&broker()).unwrap();
    let relay = installation.relay_by(&proxy.url, "r");
    add_alpha(&relay.site);
    let away = installation.kill();
    relay.site.append("f.1.txt.part", lines(0..2_000, "1"));
    away.wait_rows();
    let prefix = away.prefix.clone();
    with_channel(async |channel| {
        for range in 0..16 {
            delete(&channel, &rows_queue(&prefix, range)).await;
        }
        for queue in ["request", "dead"] {
            delete(&channel, &format!("{prefix}{queue}")).await;
        }
        for exchange in ["write", "hint"] {
            let exchange = format!("{prefix}{exchange}");
            channel.exchange_delete(exchange.into(), Default::default()).await.unwrap();
        }
    });
    proxy.refuse();
    let installation = away.restart();
    proxy.release();
    installation.wait_runs(&["f|1|0|2001|0"]);
}
