//! Rows 8 to 10 and a part of 11: a huge list that enters the queue, and one that leaves it.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::bare::key;
use rusqlite::{Connection, OpenFlags};
use shiftboss_protocol::model::jitter;

use super::Setting;
use super::latency::ask;
use super::size::memory;
use crate::report::{Figure, ms, per_second};
use crate::servers::{Server, new_home, write_list};

/// Workers that go on asking meanwhile.
const WORKERS: usize = 6;
/// Rows in one transaction of bare SQLite.
const BATCH_ROWS: usize = 10_000;
const MOST_P99: Duration = Duration::from_millis(20);
const MOST: Duration = Duration::from_millis(100);

pub fn rows(setting: &Setting) -> io::Result<Vec<Figure>> {
    let home = new_home()?;
    let mut server = Server::shiftboss(&setting.program, home.path(), &[])?;
    // Something to do for the workers that ask while the list is read.
    write_list(&server.input("other.1.txt"), 1)?;
    let list = home.path().join("list");
    write_list(&list, setting.list)?;

    let workers = Workers::start(&server.socket);
    let begun = Instant::now();
    fs::rename(&list, server.input("bench.1.txt"))?;
    server.wait(|server| Ok(server.run("bench")?["complete"] == true))?;
    let loaded = begun.elapsed();
    let waits = workers.stop()?;
    let most_memory = server.memory()?.1;

    let workers = Workers::start(&server.socket);
    fs::remove_file(server.input("bench.1.txt"))?;
    server.wait(|_| is_gone(&home.path().join("state.db")))?;
    let deletion_waits = workers.stop()?;

    let rate = setting.list as f64 / loaded.as_secs_f64();
    let bare = bare_rate(setting, home.path())?;
    Ok(vec![
        load_figure(setting, rate, bare),
        reference_figure(rate),
        wait_figure(9, "a worker's wait meanwhile, 6 workers", &waits, Some(MOST_P99)),
        wait_figure(10, "a worker's wait while that run is deleted", &deletion_waits, None),
        memory("the most during row 8", most_memory, 100.0, "100 MB"),
    ])
}

/// Whether the last row of the list is gone: `status` does not count runs that are being deleted.
fn is_gone(database: &Path) -> io::Result<bool> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY;
    let sql = "SELECT NOT EXISTS (SELECT 1 FROM fetchers WHERE name = 'bench')";
    let connection = Connection::open_with_flags(database, flags).map_err(io::Error::other)?;
    connection.query_row(sql, [], |row| row.get(0)).map_err(io::Error::other)
}

/// Shell workers: a connection for each request, and a job that takes no time.
pub struct Workers {
    stopping: Arc<AtomicBool>,
    threads: Vec<JoinHandle<io::Result<Vec<Duration>>>>,
}

impl Workers {
    /// Starts them.
    #[must_use]
    pub fn start(socket: &Path) -> Self {
        let stopping = Arc::new(AtomicBool::new(false));
        let threads = (0..WORKERS).map(|_| {
            let (socket, stopping) = (socket.to_owned(), Arc::clone(&stopping));
            thread::spawn(move || work(&socket, &stopping))
        });
        Self { threads: threads.collect(), stopping }
    }

    /// Every wait of all workers, sorted.
    ///
    /// # Errors
    /// When one of them was not answered.
    pub fn stop(self) -> io::Result<Vec<Duration>> {
        self.stopping.store(true, Ordering::Relaxed);
        let mut waits = Vec::new();
        for thread in self.threads {
            let waited = thread.join().map_err(|_| io::Error::other("a worker panicked"))?;
            waits.extend(waited?);
        }
        waits.sort_unstable();
        Ok(waits)
    }
}

/// The pause of a worker between two requests, so that six of them leave time for the list.
const PAUSE: Duration = Duration::from_millis(10);

fn work(socket: &Path, stopping: &AtomicBool) -> io::Result<Vec<Duration>> {
    let mut waits = Vec::new();
    let mut request = "READY\n".to_owned();
    while !stopping.load(Ordering::Relaxed) {
        let begun = Instant::now();
        let answer = ask(socket, &request)?;
        waits.push(begun.elapsed());
        request = match answer.split(' ').nth(1) {
            Some(key) => format!("DONE {key} 0\n"),
            None => "READY\n".to_owned(),
        };
        thread::sleep(PAUSE);
    }
    Ok(waits)
}

/// The same rows in the same order into the same two tables, by plain statements.
fn bare_rate(setting: &Setting, home: &Path) -> io::Result<f64> {
    let path = home.join("bare.db");
    let empty = new_home()?;
    Server::shiftboss(&setting.program, empty.path(), &[])?.stop()?;
    fs::copy(empty.path().join("state.db"), &path)?;
    let begun = Instant::now();
    insert(&path, setting.list).map_err(io::Error::other)?;
    Ok(setting.list as f64 / begun.elapsed().as_secs_f64())
}

fn insert(path: &Path, lines: usize) -> rusqlite::Result<()> {
    let connection = Connection::open(path)?;
    connection.execute_batch("PRAGMA journal_mode = WAL; PRAGMA cache_size = -49152")?;
    let mut record = connection.prepare(
        "INSERT INTO keys (id, key, since, claimed, served, waiting, failed, dead, last_attempt, turn, held, extra)
        VALUES (?1, ?2, 1, 0, '', 0, 0, 0, 0, 1, 0, 0)",
    )?;
    let mut row =
        connection.prepare("INSERT INTO rows VALUES (?1, 1, 1, 0, 0, '1.0 -> 2.000000')")?;
    for from in (0..lines).step_by(BATCH_ROWS) {
        let mut keys: Vec<_> = (from..lines.min(from + BATCH_ROWS)).map(numbered).collect();
        keys.sort_unstable();
        connection.execute_batch("BEGIN IMMEDIATE")?;
        for (id, key) in keys {
            record.execute((id, key))?;
            row.execute([id])?;
        }
        connection.execute_batch("COMMIT")?;
    }
    Ok(())
}

/// A key, and the number that it gets: it begins with its jitter.
fn numbered(number: usize) -> (i64, String) {
    let key = key(number);
    (
        (i64::from(jitter(&key)) - i64::from(i32::MIN)) << 31
            | i64::try_from(number).unwrap_or_default(),
        key,
    )
}

fn load_figure(setting: &Setting, rate: f64, bare: f64) -> Figure {
    let ratio = rate / bare;
    Figure {
        row: 8,
        what: format!("loading a complete list of {} lines", setting.list),
        measured: per_second(rate),
        compared: format!("bare SQLite {}: {ratio:.2}x", per_second(bare)),
        target: "0.75x",
        met: Some(ratio >= 0.75),
    }
}

/// What the Python supervisor loads in a second (docs/spec/supervisor.md).
const REFERENCE_RATE: f64 = 33_000.0;

fn reference_figure(rate: f64) -> Figure {
    let ratio = rate / REFERENCE_RATE;
    Figure {
        row: 8,
        what: "the same".to_owned(),
        measured: per_second(rate),
        compared: format!("the Python supervisor {}: {ratio:.2}x", per_second(REFERENCE_RATE)),
        target: "5x",
        met: Some(ratio >= 5.0),
    }
}

fn wait_figure(row: u32, what: &str, waits: &[Duration], most_p99: Option<Duration>) -> Figure {
    let last = waits.len().saturating_sub(1);
    let at = |share: f64| waits.get((share * last as f64) as usize).copied().unwrap_or_default();
    let (most, p99) = (at(1.0), at(0.99));
    Figure {
        row,
        what: what.to_owned(),
        measured: format!(
            "p50 {}, p99 {}, max {} ({} requests)",
            ms(at(0.5)),
            ms(p99),
            ms(most),
            waits.len()
        ),
        compared: String::new(),
        target: if most_p99.is_some() { "p99 20 ms, max 100 ms" } else { "max 100 ms" },
        met: Some(most <= MOST && most_p99.is_none_or(|limit| p99 <= limit)),
    }
}
