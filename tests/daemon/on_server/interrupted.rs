//! Connections to the server that are cut after any number of bytes, and servers that are started again, under workers that go on.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use shiftboss_testbed::proxy::Proxy;
use shiftboss_testbed::server::{ADMIN, PostgresServer, Stop};

use super::apart::{beside, number};
use crate::common::random::Random;
use crate::common::wait::{DEADLINE, pause};
use crate::common::{Client, Peer, Site, job_of, wait_until};

/// A worker asks again after this.
const AGAIN: Duration = Duration::from_millis(20);

/// What a worker of protocol 2 has been told. Each key's job ends with a code of its own.
#[derive(Default)]
struct Ledger {
    out: HashMap<String, i64>,
    done: HashMap<String, i64>,
}

/// A worker whose leases do not end within a test: a job that nobody was told of would come back by itself.
pub fn worker(site: &Site) -> Client {
    Client::leased(site, 600)
}

/// Asks until the daemon can answer. To be asked again is all that it may say else.
pub fn ask(client: &mut Client, line: &str) -> String {
    let began = Instant::now();
    loop {
        let answer = client.ask(line);
        if !answer.starts_with("ERROR busy ") {
            return answer;
        }
        assert!(began.elapsed() < DEADLINE, "{line}: {answer}");
        pause(AGAIN);
    }
}

impl Ledger {
    /// Takes the next job, if there is one by now.
    fn take(&mut self, client: &mut Client) -> Option<(String, i64)> {
        let answer = ask(client, "READY");
        if answer.starts_with("NOJOBS") {
            return None;
        }
        let (attempt, key) = job_of(&answer);
        assert_eq!(self.done.get(&key), None, "{key} is done");
        assert_eq!(self.out.insert(key.clone(), attempt), None, "{key} is out twice");
        Some((key, attempt))
    }

    /// Ends a job with a code of its own.
    fn end(&mut self, client: &mut Client, key: &str, attempt: i64) {
        let code = i64::try_from(self.done.len()).unwrap() + 1;
        assert_eq!(ask(client, &format!("DONE {attempt} {code}")), "OK\n", "{key}");
        self.out.remove(key);
        self.done.insert(key.to_owned(), code);
    }

    /// All that was acknowledged is in the log, and nothing else is.
    fn assert_logged(&self, logged: &str) {
        let logged: HashMap<_, _> = logged
            .lines()
            .map(|line| line.split_once('|').unwrap())
            .map(|(key, code)| (key.to_owned(), code.parse().unwrap()))
            .collect();
        assert_eq!(logged, self.done);
        assert!(self.out.is_empty(), "{:?}", self.out);
    }
}

const LOGGED: &str = "SELECT attr_path, exit_code FROM shiftboss_public.log";

fn lines(count: usize) -> String {
    (0..count).map(|line| format!("key-{line} {line}\n")).collect()
}

/// A daemon's connections are cut after a random number of bytes, again and again, while its list is read and a worker does all of
/// it, beside a daemon that is not cut off: no job is out twice, and no result that was acknowledged is lost.
#[test]
fn connections_may_be_cut_at_any_byte() {
    const KEYS: usize = 300;
    let mut random = Random::seeded();
    let queue = Site::bare();
    let url = queue.server().unwrap().url();
    let proxy = Proxy::new(&url).unwrap();
    let (cut, other) = (beside(&proxy.url, "cut"), beside(&url, "other"));
    let (mut client, mut beside) = (worker(&cut.site), worker(&other.site));
    proxy.cut_after(2_000);
    cut.site.write("f.1.txt", lines(KEYS));
    let (mut ledger, began) = (Ledger::default(), Instant::now());
    while ledger.done.len() < KEYS {
        assert!(began.elapsed() < DEADLINE * 2, "{} of {KEYS} are done", ledger.done.len());
        // A batch of one job is some two thousand bytes, and a new connection ten times that.
        proxy.cut_after(usize::try_from(random.below(40_000)).unwrap());
        for client in [&mut client, &mut beside] {
            match ledger.take(client) {
                Some((key, attempt)) => ledger.end(client, &key, attempt),
                None => pause(AGAIN),
            }
        }
    }
    proxy.release();
    assert!(ledger.take(&mut client).is_none());
    let joined = number(&queue, "SELECT last_value FROM epochs");
    assert!(joined > 20, "the calls of jobs were cut {joined} times only");
    ledger.assert_logged(&queue.server().unwrap().ask(LOGGED));
    assert_eq!(number(&queue, "SELECT count(*) FROM keys WHERE attempt IS NOT NULL"), 0);
}

/// The server is stopped in the usual way, or killed, and started again under two daemons with a job out each: without anybody's
/// help they go on, and what was acknowledged before is there.
#[test]
fn daemons_go_on_when_their_server_was_started_again() {
    let mut server = PostgresServer::start(&[]).unwrap();
    server.query("postgres", "CREATE DATABASE queue TEMPLATE template0").unwrap();
    let url = server.url(ADMIN, "queue");
    let daemons = [beside(&url, "one"), beside(&url, "other")];
    daemons[0].site.write("f.1.txt", lines(24));
    let mut clients = [worker(&daemons[0].site), worker(&daemons[1].site)];
    let mut ledger = Ledger::default();
    for how in [Stop::Fast, Stop::Kill] {
        let held: Vec<_> = clients
            .iter_mut()
            .map(|client| {
                let mut taken = None;
                wait_until("there is a job", || {
                    taken = ledger.take(client);
                    taken.is_some()
                });
                taken.unwrap()
            })
            .collect();
        for client in &mut clients {
            let (key, attempt) = ledger.take(client).unwrap();
            ledger.end(client, &key, attempt);
        }
        server.stop(how).unwrap();
        let refused = clients[0].ask("READY");
        assert!(refused.starts_with("ERROR busy "), "{refused}");
        server.run().unwrap();
        for (client, (key, attempt)) in clients.iter_mut().zip(held) {
            ledger.end(client, &key, attempt);
            let (key, attempt) = ledger.take(client).unwrap();
            ledger.end(client, &key, attempt);
        }
    }
    for client in &mut clients {
        while let Some((key, attempt)) = ledger.take(client) {
            ledger.end(client, &key, attempt);
        }
    }
    assert_eq!(ledger.done.len(), 24);
    ledger.assert_logged(&server.query("queue", LOGGED).unwrap());
    for Peer { daemon, .. } in daemons {
        daemon.stop();
    }
}
