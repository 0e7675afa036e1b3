//! The store alone, without actors and sockets; and row 14, the instructions it needs.
//!
//! Used by row 2 too, which compares the daemon with its own statements.

use std::io;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use shiftboss::sqlite::{Durability, Options, Policy, SqliteStore};
use shiftboss_actors::model::{Key, Position, Row, Run};
use shiftboss_actors::store::{Batch, Dispatch, Store};
use tempfile::TempDir;

use super::Setting;
use crate::report::Figure;
use crate::servers::key;

/// Rows that enter in one transaction.
const BATCH_ROWS: usize = 10_000;
/// Cycles of the two runs whose difference is counted.
const CYCLES: [usize; 2] = [2_000, 6_000];
/// Jobs of those runs.
const JOBS: usize = 20_000;
/// Cycles in one commit there.
const GROUP: usize = 64;

/// When its jobs begin, in Unix seconds.
const START: i64 = 1_700_000_000;
/// Jobs after which its clock shows the next second: about what a disk allows.
const JOBS_A_SECOND: i64 = 10_000;

/// A store of its own, with a job in flight.
pub struct Bare {
    store: SqliteStore,
    jobs: i64,
    now: i64,
    key: Option<Key>,
    _home: TempDir,
}

impl Bare {
    /// A store with `jobs` jobs.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn new(jobs: usize) -> io::Result<Self> {
        let home = tempfile::tempdir()?;
        let mut store = open(&home.path().join("state.db"))?;
        let run = Run { fetcher: "bench".into(), started: 1 };
        told(store.begin())?;
        told(store.register_run(&run))?;
        told(store.commit())?;
        for from in (0..jobs).step_by(BATCH_ROWS) {
            add(&mut store, &run, from..jobs.min(from + BATCH_ROWS))?;
        }
        Ok(Self { store, jobs: 0, now: START, key: None, _home: home })
    }

    /// The end of one job and the next, in a commit of their own.
    ///
    /// # Errors
    /// When the store says so.
    pub fn cycle(&mut self) -> io::Result<()> {
        self.cycles(1)
    }

    /// The same `count` times in one commit.
    ///
    /// # Errors
    /// When the store says so.
    pub fn cycles(&mut self, count: usize) -> io::Result<()> {
        told(self.store.begin())?;
        for _ in 0..count {
            if let Some(key) = self.key.take() {
                told(self.store.finish(&key, 0, self.now))?;
            }
            self.jobs += 1;
            self.now = START + self.jobs / JOBS_A_SECOND;
            if let Dispatch::Job(_, job) = told(self.store.dispatch(self.now))? {
                self.key = Some(job.key);
            }
        }
        told(self.store.commit())
    }
}

fn open(path: &Path) -> io::Result<SqliteStore> {
    let policy = Policy::Fair { lease_seconds: 43_200 };
    let busy_timeout = Duration::from_secs(5);
    SqliteStore::open(path, &Options { policy, durability: Durability::Power, busy_timeout })
        .map_err(io::Error::other)
}

fn add(store: &mut SqliteStore, run: &Run, numbers: std::ops::Range<usize>) -> io::Result<()> {
    let row = |number| Row { key: Key::stored(&key(number)), payload: "1.0 -> 2.0".to_owned() };
    let lines = numbers.end as u64;
    let position = Position { offset: lines * 50, lines, device: 1, inode: 1, checksum: lines };
    let rows = numbers.map(row).collect();
    let batch = Batch { run: run.clone(), rows, skipped: 0, position, complete: false };
    told(store.begin())?;
    told(store.add_rows(&batch))?;
    told(store.commit())
}

fn told<T>(result: shiftboss_actors::store::StoreResult<T>) -> io::Result<T> {
    result.map_err(io::Error::other)
}

/// What is run under callgrind: a store with jobs, and so many cycles.
///
/// # Errors
/// When the store says so.
pub fn cycles(count: usize) -> io::Result<()> {
    let mut bare = Bare::new(JOBS)?;
    (0..count / GROUP).try_for_each(|_| bare.cycles(GROUP))
}

pub fn rows(_: &Setting) -> io::Result<Vec<Figure>> {
    let few = instructions(CYCLES[0])?;
    let many = instructions(CYCLES[1])?;
    let (Some(few), Some(many)) = (few, many) else {
        return Ok(vec![figure("valgrind is not installed".to_owned())]);
    };
    let cycles = (CYCLES[1] / GROUP - CYCLES[0] / GROUP) * GROUP;
    Ok(vec![figure(format!("{} instructions", (many - few) / cycles as u64))])
}

fn figure(measured: String) -> Figure {
    Figure {
        row: 14,
        what: format!("the store's work for one DONE+next, {GROUP} in a commit"),
        measured,
        compared: String::new(),
        target: "no more than before",
        met: None,
    }
}

/// The instructions of a whole run; `None` without valgrind.
fn instructions(count: usize) -> io::Result<Option<u64>> {
    let home = tempfile::tempdir()?;
    let out = format!("--callgrind-out-file={}", home.path().join("out").display());
    let run = Command::new("valgrind")
        .args(["--tool=callgrind", &out])
        .arg(std::env::current_exe()?)
        .args(["cycles", &count.to_string()])
        .output();
    let told = match run {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        told => told?,
    };
    let text = String::from_utf8_lossy(&told.stderr).into_owned();
    let collected = text.lines().find_map(|line| line.split_once("Collected : "));
    match collected.and_then(|(_, count)| count.trim().parse().ok()) {
        Some(count) => Ok(Some(count)),
        None => Err(io::Error::other(format!("callgrind: {text}"))),
    }
}
