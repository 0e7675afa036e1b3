//! The store alone, without actors and sockets: a small library for what measures it.
//!
//! Called by rows 2 and 14 of the table, and by the benchmark of the store's operations
//! (`benches/store.rs`). It knows no daemon and measures nothing itself.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use futures_util::FutureExt;
use shiftboss::stores::{Durability, Options, Policy, SqliteStore};
use shiftboss_actors::store::Store;
use shiftboss_protocol::model::LeaseHolder;
use shiftboss_protocol::model::{Attempt, Key, Row, Run};
use shiftboss_queue::error::StoreResult;
use shiftboss_queue::file_identity::Position;
use shiftboss_queue::operation::{
    AddRows, Complete, CompleteAttempt, Dispatch, Dispatched, Each, RegisterRun, Request, RowBatch,
};
use tempfile::TempDir;

/// Rows that enter in one transaction while a store is filled.
const BATCH_ROWS: usize = 10_000;

/// When its jobs begin, in Unix seconds.
const START: i64 = 1_700_000_000;
/// Jobs after which its clock shows the next second: about what a disk allows.
const JOBS_A_SECOND: i64 = 10_000;

/// A store of its own in a temporary directory, with jobs in flight as workers have them.
pub struct Bare {
    store: SqliteStore,
    now: i64,
    jobs: i64,
    /// The jobs in flight, the oldest first.
    in_flight: VecDeque<(Attempt, Key)>,
    /// Who leases them; `None`: classic workers.
    holder: Option<LeaseHolder>,
    left: usize,
    _home: TempDir,
}

/// What a store's jobs are like.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Kind {
    /// Each key runs for the first time, with a classic worker.
    First,
    /// Each key ran before.
    Again,
    /// Each key runs for the first time, and is leased (protocol 2).
    Leased,
}

impl Bare {
    /// A store with `jobs` jobs, none of which ran before.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn new(jobs: usize) -> io::Result<Self> {
        Self::of_kind(jobs, Kind::First)
    }

    /// A store with `jobs` jobs of a kind.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn of_kind(jobs: usize, kind: Kind) -> io::Result<Self> {
        let home = tempfile::tempdir()?;
        let path = home.path().join("state.db");
        let mut store = open(&path)?;
        if kind == Kind::Again {
            drop(store);
            fill_log(&path, jobs).map_err(io::Error::other)?;
            store = open(&path)?;
        }
        let holder = LeaseHolder { worker: "bench".into(), lease_seconds: 60 };
        let holder = (kind == Kind::Leased).then_some(holder);
        let in_flight = VecDeque::new();
        let mut bare =
            Self { store, now: START, jobs: 0, in_flight, holder, left: jobs, _home: home };
        let run = Run { fetcher: "bench".into(), started: 1 };
        bare.apply(RegisterRun(run.clone()))?;
        for from in (0..jobs).step_by(BATCH_ROWS) {
            bare.apply(AddRows(batch(&run, from..jobs.min(from + BATCH_ROWS))))?;
        }
        Ok(bare)
    }

    /// A request, in a commit of its own.
    ///
    /// # Errors
    /// When the store says so.
    pub fn apply<R: Request>(&mut self, request: R) -> io::Result<R::Answer> {
        let mut batch = Vec::new();
        request.push(&mut batch);
        // What blocks does its work before.
        let outcomes = self.store.apply(self.now * 1_000, batch).now_or_never();
        let outcomes = outcomes.ok_or_else(|| io::Error::other("the store waits"))?;
        told(R::answer(&mut told(outcomes)?.into_iter()))
    }

    /// The end of one job and the next, in a commit of their own.
    ///
    /// # Errors
    /// When the store says so.
    pub fn cycle(&mut self) -> io::Result<()> {
        self.cycles(1)
    }

    /// The same of `count` workers in one commit.
    ///
    /// # Errors
    /// When the store says so.
    pub fn cycles(&mut self, count: usize) -> io::Result<()> {
        self.jobs += i64::try_from(count).unwrap_or(i64::MAX);
        self.now = START + self.jobs / JOBS_A_SECOND;
        while self.in_flight.len() < count {
            self.dispatch()?;
        }
        let dispatch = Dispatch { holder: self.holder.clone(), fetchers: None };
        let ended: Vec<_> = self.in_flight.drain(..count).collect();
        if self.holder.is_some() {
            let end = |attempt| (CompleteAttempt { attempt, exit_code: 0 }, dispatch.clone());
            self.end_and_dispatch(ended.into_iter().map(|(attempt, _)| end(attempt)).collect())
        } else {
            let end = |key| (Complete { key, exit_code: 0 }, dispatch.clone());
            self.end_and_dispatch(ended.into_iter().map(|(_, key)| end(key)).collect())
        }
    }

    fn end_and_dispatch<E: Request>(&mut self, cycles: Vec<(E, Dispatch)>) -> io::Result<()> {
        for answer in self.apply(Each(cycles))? {
            let (completed, dispatched) = told(answer)?;
            told(completed)?;
            self.handed_out(told(dispatched)?);
        }
        Ok(())
    }

    /// A request for work, without the end of a job, in a commit of its own. The clock stands: no
    /// lease runs out however often it is called.
    ///
    /// # Errors
    /// When the store says so.
    pub fn ask(&mut self) -> io::Result<Dispatched> {
        self.apply(Dispatch { holder: self.holder.clone(), fetchers: None })
    }

    /// Jobs that were not handed out yet.
    #[must_use]
    pub fn left(&self) -> usize {
        self.left
    }

    fn dispatch(&mut self) -> io::Result<()> {
        let dispatched = self.ask()?;
        self.handed_out(dispatched);
        Ok(())
    }

    fn handed_out(&mut self, dispatched: Dispatched) {
        if let Dispatched::Job(attempt, job, _) = dispatched {
            self.in_flight.push_back((attempt, job.key));
            self.left -= 1;
        }
    }
}

/// The key of the `index`th line of a list: names sort as numbers do, and look like paths.
#[must_use]
pub fn key(index: usize) -> String {
    format!("packages/by-name/p{index:08}")
}

/// The lines `numbers` of a run's list, as a tail sends them.
#[must_use]
pub fn batch(run: &Run, numbers: Range<usize>) -> RowBatch {
    let row = |number| Row { key: Key::stored(&key(number)), payload: "1.0 -> 2.0".to_owned() };
    let lines = numbers.end as u64;
    let position = Position {
        offset: lines * 50,
        lines,
        device: 1,
        inode: 1,
        checksum: lines,
        ..Position::default()
    };
    let rows = numbers.map(row).collect();
    RowBatch { position, complete: false, ..RowBatch::of(run.clone(), rows) }
}

/// Has all keys have run, long before the first second, in a database that no daemon uses: the next one begins with that.
///
/// # Errors
/// When SQLite says so.
fn fill_log(path: &Path, keys: usize) -> rusqlite::Result<()> {
    let mut connection = rusqlite::Connection::open(path)?;
    let transaction = connection.transaction()?;
    let sql = "INSERT INTO log VALUES (?1, ?2, ?2, 0)";
    for key in (0..keys).map(key) {
        transaction.prepare_cached(sql)?.execute((key, START - 1_000_000))?;
    }
    transaction.commit()
}

fn open(path: &Path) -> io::Result<SqliteStore> {
    let policy = Policy::Fair { lease_seconds: 43_200 };
    let busy_timeout = Duration::from_secs(5);
    SqliteStore::open(
        path,
        &Options {
            policy,
            durability: Durability::Power,
            busy_timeout,
            max_expired_leases: 5,
            max_single_tasks: 1_000_000,
            history: 100_000,
            bump_share: 100,
            backoff: None,
            retries: shiftboss::stores::RetryRules::default(),
            unlisted_kept: None,
            groups: Default::default(),
        },
    )
    .map_err(|refused| io::Error::other(refused.to_string()))
}

fn told<T>(result: StoreResult<T>) -> io::Result<T> {
    result.map_err(io::Error::other)
}
