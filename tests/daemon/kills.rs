//! `kill -9` at random moments under load, and a restart on the same directory each time
//! (spec 4, 5, 6): nothing that was acknowledged is lost, nothing is handed out twice.

use std::collections::{HashMap, HashSet};
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use crate::common::random::Random;
use crate::common::wait::{SetOnDrop, pause};
use crate::common::worker::key_of;
use crate::common::{Site, wait_until};

/// `SHIFTBOSS_KILLS` asks for more.
fn kills() -> u64 {
    std::env::var("SHIFTBOSS_KILLS").map_or(50, |asked| asked.parse().unwrap())
}

const WORKERS: usize = 6;

/// What the workers know: it must all be true of the database in the end.
#[derive(Default)]
struct Book {
    /// Keys whose JOB line arrived whole.
    received: HashSet<String>,
    /// Keys whose DONE was answered.
    acknowledged: HashMap<String, i64>,
}

struct Load {
    site: Site,
    book: Mutex<Book>,
    written: AtomicUsize,
    over: AtomicBool,
}

/// Kills at random moments of start, load and work.
#[test]
fn kills_under_load() {
    let mut random = Random::seeded();
    let load = Load {
        site: Site::new(),
        book: Mutex::default(),
        written: AtomicUsize::new(0),
        over: AtomicBool::new(false),
    };
    std::thread::scope(|scope| {
        scope.spawn(|| grow(&load));
        for worker in 0..WORKERS {
            let load = &load;
            scope.spawn(move || work(load, worker % 2 == 0));
        }
        let at_end = SetOnDrop(&load.over);
        for kill in 0..kills() {
            let before = acknowledged(&load);
            // Without power cuts the lesser durability, which a server has not, promises the same.
            let is_lesser = random.below(2) == 1 && load.site.server().is_none();
            let options: &[&str] = if is_lesser { &["--durability", "process"] } else { &[] };
            let mut daemon = load.site.spawn(load.site.serve(options));
            // A kill at any time hits the start, too; every other one hits work. A server may still carry out what the
            // one before began, and have this one's connections for those of its own predecessor.
            if kill % 2 == 0 {
                wait_until("work is done", || acknowledged(&load) > before || !daemon.is_running());
            }
            pause(Duration::from_millis(random.below(300)));
            daemon.kill();
        }
        let daemon = load.site.start();
        let before = acknowledged(&load);
        wait_until("work goes on", || acknowledged(&load) > before + 100);
        drop(at_end);
        daemon
    });
    check(&load);
}

fn acknowledged(load: &Load) -> usize {
    load.book.lock().unwrap().acknowledged.len()
}

/// A fetcher whose list grows in pieces that end anywhere in a line.
fn grow(load: &Load) {
    let mut options = std::fs::OpenOptions::new();
    let path = load.site.file("f.1.txt.part");
    let mut file = options.append(true).create(true).open(path).unwrap();
    let mut rest = Vec::new();
    while !load.over.load(Relaxed) {
        for _ in 0..20 {
            let number = load.written.fetch_add(1, Relaxed);
            rest.extend_from_slice(format!("key{number} 0 {number}\n").as_bytes());
        }
        let cut = rest.len() - 7;
        file.write_all(&rest[..cut]).unwrap();
        rest.drain(..cut);
        pause(Duration::from_millis(20));
    }
    file.write_all(&rest).unwrap();
}

/// A stock worker: a request that got no whole answer is sent again.
fn work(load: &Load, half_close: bool) {
    let mut held: Option<String> = None;
    while !load.over.load(Relaxed) {
        let request = match &held {
            Some(key) => format!("DONE {key} {}\n", code_of(key)),
            None => "READY\n".to_owned(),
        };
        match exchange(load, request.as_bytes(), half_close) {
            Some(answer) => held = note(load, held, &answer),
            None => pause(Duration::from_millis(5)),
        }
    }
}

/// Sends one request over a new connection; `None` unless a whole line came back.
fn exchange(load: &Load, request: &[u8], half_close: bool) -> Option<String> {
    let mut stream = UnixStream::connect(load.site.socket()).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.write_all(request).ok()?;
    if half_close {
        stream.shutdown(Shutdown::Write).ok()?;
    }
    let mut answer = Vec::new();
    let mut byte = [0_u8; 512];
    while !answer.ends_with(b"\n") {
        match stream.read(&mut byte) {
            Ok(count) if count > 0 => answer.extend_from_slice(&byte[..count]),
            _ => return None,
        }
    }
    Some(String::from_utf8(answer).unwrap())
}

/// Enters an answer into the book and returns the key of the new job.
fn note(load: &Load, held: Option<String>, answer: &str) -> Option<String> {
    let next = key_of(answer);
    let mut book = load.book.lock().unwrap();
    if let Some(key) = held {
        let code = code_of(&key);
        book.acknowledged.insert(key, code);
    }
    if let Some(key) = &next {
        let first = book.received.insert(key.clone());
        if !first {
            load.over.store(true, Relaxed);
            panic!("{key} was handed out twice");
        }
    }
    next
}

fn code_of(key: &str) -> i64 {
    key.bytes().map(i64::from).sum::<i64>() % 256 - 100
}

/// Everything the workers know, and every line of the file, is in the database.
fn check(load: &Load) {
    let book = load.book.lock().unwrap();
    let (done, lines) = (book.acknowledged.len(), load.written.load(Relaxed));
    eprintln!("{lines} lines, {} jobs received, {done} acknowledged", book.received.len());
    assert!(done as u64 > kills(), "too little load to mean anything");
    let _daemon = load.site.start();
    load.site.wait_count(lines);
    let log = load.site.sql("SELECT attr_path, exit_code FROM log WHERE finished IS NOT NULL");
    let log: HashSet<String> = log.into_iter().collect();
    for (key, code) in &book.acknowledged {
        assert!(log.contains(&format!("{key}|{code}")), "{key} was acknowledged and is lost");
    }
    let dispatched = load.site.sql("SELECT attr_path FROM queue WHERE is_dequeued <> 0");
    let dispatched: HashSet<String> = dispatched.into_iter().collect();
    assert!(book.received.iter().all(|key| dispatched.contains(key)));
    // A kill between commit and answer leaves a job to its lease: one a worker and kill at most.
    let unknown = dispatched.len() - book.received.len();
    assert!(unknown <= WORKERS * kills() as usize, "{unknown} jobs went to nobody");
    assert_eq!(load.site.integrity(), ["ok"]);
}
