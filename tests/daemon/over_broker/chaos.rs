//! Relays, daemon and connections that fail at random, under workers at all of them: no key is out twice at a time, and nothing
//! that was acknowledged is lost.

use std::collections::{HashMap, HashSet};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use shiftboss_testbed::proxy::Proxy;

use super::{Installation, Relay, broker};
use crate::common::random::Random;
use crate::common::wait::pause;
use crate::common::wait_within;

const KEYS: usize = 1_600;
const ROUNDS: u64 = 10;
/// How long a job takes.
const JOB: Duration = Duration::from_millis(20);
/// A job whose relay died comes back after this.
const LEASE: Duration = Duration::from_secs(12);
/// All is done so long after the last fault, at the latest.
const PATIENCE: Duration = Duration::from_secs(90);

/// What workers saw.
#[derive(Default)]
struct Ledger {
    /// Keys that are out, and since when.
    out: HashMap<String, Instant>,
    acknowledged: HashSet<String>,
    /// Keys that were out twice at a time.
    twice: Vec<String>,
}

/// One connection; a line that does not come is an error.
struct Line {
    stream: UnixStream,
    reader: BufReader<UnixStream>,
}

impl Line {
    fn connect(socket: &Path) -> Option<Self> {
        let stream = UnixStream::connect(socket).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(10))).ok()?;
        let reader = BufReader::new(stream.try_clone().ok()?);
        let mut line = Self { stream, reader };
        let greeting = line.ask(&format!("HELLO 2 worker {}", LEASE.as_secs()))?;
        greeting.starts_with("HELLO").then_some(line)
    }

    fn ask(&mut self, request: &str) -> Option<String> {
        self.stream.write_all(format!("{request}\n").as_bytes()).ok()?;
        let mut answer = String::new();
        self.reader.read_line(&mut answer).ok()?;
        answer.ends_with('\n').then(|| answer.trim_end().to_owned())
    }
}

/// Takes jobs until it is told to stop, and reports each until it is answered.
fn work(socket: PathBuf, ledger: Arc<Mutex<Ledger>>, stop: Arc<AtomicBool>) {
    let mut line = None;
    while !stop.load(Ordering::Relaxed) {
        let Some(connected) = line.as_mut() else {
            line = Line::connect(&socket);
            pause(Duration::from_millis(20));
            continue;
        };
        let Some(answer) = connected.ask("READY 1") else {
            line = None;
            continue;
        };
        let words: Vec<&str> = answer.split(' ').collect();
        if let ["JOB", attempt, key, ..] = words[..] {
            begin(&ledger, key);
            pause(JOB);
            report(&socket, &mut line, &ledger, attempt, key);
        } else {
            pause(Duration::from_millis(5));
        }
    }
}

fn begin(ledger: &Mutex<Ledger>, key: &str) {
    let mut ledger = ledger.lock().unwrap();
    let since = ledger.out.insert(key.to_owned(), Instant::now());
    if since.is_some_and(|since| since.elapsed() < LEASE) {
        ledger.twice.push(key.to_owned());
    }
}

/// The job is done; its end is told until somebody takes it, or says that it is too late.
fn report(
    socket: &Path,
    line: &mut Option<Line>,
    ledger: &Mutex<Ledger>,
    attempt: &str,
    key: &str,
) {
    let given_up = Instant::now() + PATIENCE;
    while Instant::now() < given_up {
        let answer = line.as_mut().and_then(|line| line.ask(&format!("DONE {attempt} 0")));
        match answer.as_deref() {
            Some("OK") => {
                let mut ledger = ledger.lock().unwrap();
                ledger.out.remove(key);
                ledger.acknowledged.insert(key.to_owned());
                return;
            }
            Some(answer) if answer.starts_with("ERROR stale") => return,
            Some(answer) if answer.starts_with("ERROR busy") => pause(Duration::from_millis(50)),
            _ => {
                pause(Duration::from_millis(20));
                *line = Line::connect(socket);
            }
        }
    }
}

/// A relay by way of a proxy.
struct Far {
    proxy: Proxy,
    relay: Option<Relay>,
    name: &'static str,
}

impl Far {
    fn start(installation: &Installation, name: &'static str) -> Self {
        let proxy = Proxy::to_broker(&broker()).unwrap();
        let relay = Some(installation.relay_by(&proxy.url, name));
        Self { proxy, relay, name }
    }

    fn socket(&self) -> PathBuf {
        self.relay.as_ref().unwrap().site.socket()
    }

    fn suffer(&mut self, installation: &Installation, random: &mut Random) {
        let short = Duration::from_millis(200 + random.below(1_500));
        let Relay { daemon, site } = self.relay.take().unwrap();
        let daemon = match random.below(5) {
            0 => {
                daemon.kill();
                installation.start_relay(&site, &self.proxy.url, self.name).ready()
            }
            1 => {
                daemon.freeze();
                pause(short);
                daemon.thaw();
                daemon
            }
            2 => {
                self.proxy.refuse();
                pause(short);
                self.proxy.release();
                daemon
            }
            3 => {
                self.proxy.hold_answers();
                pause(short);
                self.proxy.release();
                daemon
            }
            _ => {
                self.proxy.cut_after(usize::try_from(random.below(5_000)).unwrap());
                pause(short);
                self.proxy.release();
                daemon
            }
        };
        self.relay = Some(Relay { daemon, site });
    }
}

/// At the end each key is recorded as done, as often as it was acknowledged at the least.
#[test]
#[ignore = "needs a broker: make test-broker"]
fn nothing_is_lost_whatever_fails() {
    let mut random = Random::seeded();
    let mut installation = Installation::start();
    let mut relays = [Far::start(&installation, "one"), Far::start(&installation, "other")];
    let list = |from: usize| -> String {
        (from..from + KEYS / 2).map(|key| format!("key-{key} 1\n")).collect()
    };
    relays[0].relay.as_ref().unwrap().site.write("f.1.txt", list(0));
    relays[1].relay.as_ref().unwrap().site.write("g.1.txt", list(KEYS / 2));
    installation.site.wait_count(KEYS);
    let (ledger, stop) = (Arc::<Mutex<Ledger>>::default(), Arc::<AtomicBool>::default());
    let sockets = [relays[0].socket(), relays[1].socket(), installation.site.socket()];
    let workers: Vec<_> = sockets
        .iter()
        .cycle()
        .take(6)
        .map(|socket| {
            let (socket, ledger, stop) = (socket.clone(), Arc::clone(&ledger), Arc::clone(&stop));
            thread::spawn(move || work(socket, ledger, stop))
        })
        .collect();
    for _ in 0..ROUNDS {
        match random.below(5) {
            0 => installation = installation.restart(),
            which => relays[usize::try_from(which % 2).unwrap()].suffer(&installation, &mut random),
        }
        pause(Duration::from_millis(random.below(700)));
    }
    let done = "SELECT count(*) FROM log WHERE finished IS NOT NULL AND exit_code = 0";
    let all = i64::try_from(KEYS).unwrap();
    wait_within(PATIENCE, "all is done", || installation.site.number(done) == all);
    stop.store(true, Ordering::Relaxed);
    workers.into_iter().for_each(|worker| worker.join().unwrap());
    let ledger = ledger.lock().unwrap();
    assert_eq!(ledger.twice, Vec::<String>::new());
    let recorded =
        installation.site.sql("SELECT DISTINCT attr_path FROM ended WHERE exit_code IS NOT NULL");
    let recorded: HashSet<String> = recorded.into_iter().collect();
    let lost: Vec<_> = ledger.acknowledged.difference(&recorded).collect();
    assert!(lost.is_empty(), "{lost:?}");
    assert_eq!(installation.site.number("SELECT count(*) FROM out"), 0);
    assert_eq!(installation.site.integrity(), ["ok"]);
}
