//! A simulated queue: lists in memory, workers that are numbers, and a clock that jumps from one event to the next. Its rules and its
//! engine are the queue's own.
//!
//! Called by `shiftboss simulate`. Each list is new at the start; a simulation ends when each of its tasks ran once. What a job takes,
//! and whether it fails, follows from the seed, its key and its fetcher: it is the same with any number of workers.

mod kept;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;

use shiftboss_protocol::fetcher_file::checksum;
use shiftboss_protocol::model::{About, Attempt, Key, LeaseHolder, Row, Run, UnixSeconds};

use crate::context::Settings;
use crate::engine::Engine;
use crate::error::{StoreError, StoreResult};
use crate::operation::{
    AddRows, CompleteAttempt, Dispatch, Dispatched, EndHolds, Hold, NextHoldEnd, NextOpening,
    Operation, Outcome, RegisterRun, RowBatch, Runs,
};
use crate::record::{LastRun, Millis};
use crate::records::{Edit, Records, at_once};
use kept::Kept;

/// Most tasks, and most workers.
pub const TASKS_MAX: u64 = 20_000_000;
pub const WORKERS_MAX: u32 = 100_000;
/// The longest simulated time.
pub const TIME_MAX: Millis = 100 * 366 * 86_400_000;
/// Into how many parts the time is divided, for a picture of it: at least half as many, at most so many.
pub const SLICES: usize = 64;
/// Ends and hand-outs of one batch.
const BATCH: usize = 64;
/// Each list's only run.
const RUN: i64 = 1;

/// What jobs of a fetcher are like.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Work {
    pub mean_ms: Millis,
    /// Each takes just that. Otherwise they are exponentially distributed: most take less, some far more.
    pub is_exact: bool,
    /// The share of them that fails.
    pub failures: f64,
}

#[derive(Debug, Clone)]
pub struct Jobs {
    pub of: BTreeMap<Arc<str>, Work>,
    /// Of other fetchers.
    pub usual: Work,
    pub seed: u64,
}

/// How it went with so many workers. Times are in milliseconds, from the start.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Simulated {
    pub workers: u32,
    pub took_ms: Millis,
    /// Tasks that did not run: their keys are held, or the time was over.
    pub left: u64,
    pub jobs: u64,
    pub failures: u64,
    /// The time of all workers together in which they had jobs.
    pub busy_ms: Millis,
    /// The time of all workers together in which tasks waited, and none of them was allowed to start.
    pub limited_ms: Millis,
    pub fetchers: BTreeMap<Arc<str>, Cycle>,
    /// Jobs that ended, by time.
    pub slices: Vec<u64>,
    pub slice_ms: Millis,
}

/// How a fetcher's list was worked off.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cycle {
    pub tasks: u64,
    /// Tasks that ran.
    pub ran: u64,
    /// When the last one of them ended that ran for the first time.
    pub took_ms: Millis,
}

/// See the module.
#[derive(Debug)]
pub struct Simulation(Lists<Kept>);

impl Simulation {
    pub fn new(settings: Settings, start: Millis) -> StoreResult<Self> {
        Lists::new(Kept::default(), settings, start).map(Self)
    }

    /// Adds lines to a fetcher's list.
    pub fn add(&mut self, fetcher: &str, rows: Vec<Row>) -> StoreResult<()> {
        self.0.add(fetcher, rows)
    }

    /// Keys were started at these times, before the start.
    pub fn ran(&mut self, last: Vec<(Key, UnixSeconds)>) -> StoreResult<()> {
        self.0.ran(last)
    }

    /// A key is held for so long from the start; `None`: for good.
    pub fn hold(&mut self, key: Key, seconds: Option<u32>) -> StoreResult<()> {
        self.0.hold(key, seconds)
    }

    /// Simulates, and changes nothing here: it can be asked again. `most`: it ends after that time at the latest.
    pub fn run(&self, jobs: &Jobs, workers: u32, most: Option<Millis>) -> StoreResult<Simulated> {
        let store = self.0.engine.store().copied();
        Clockwork::new(store, &self.0, jobs, workers, most)?.run()
    }
}

/// The queue before the first job.
#[derive(Debug)]
struct Lists<S> {
    engine: Engine<S>,
    settings: Settings,
    start: Millis,
    /// Something may be due: a hold that ends, a task that is tried again.
    has_dues: bool,
}

impl<S: Records> Lists<S> {
    fn new(store: S, settings: Settings, start: Millis) -> StoreResult<Self> {
        let has_dues = settings.backoff.is_some() || settings.retries != Default::default();
        let engine = Engine::new(store, settings.clone());
        let mut lists = Self { engine, settings, start, has_dues };
        // The queue is empty: by which rules tasks are sorted into groups is noted at once.
        lists.apply(vec![EndHolds.into()])?;
        Ok(lists)
    }

    fn apply(&mut self, batch: Vec<Operation>) -> StoreResult<Vec<Outcome>> {
        apply(&mut self.engine, self.start, batch)
    }

    fn add(&mut self, fetcher: &str, rows: Vec<Row>) -> StoreResult<()> {
        let run = Run { fetcher: fetcher.into(), started: RUN };
        let add = AddRows(RowBatch::of(run.clone(), rows));
        self.apply(vec![RegisterRun(run).into(), add.into()]).map(drop)
    }

    fn ran(&mut self, last: Vec<(Key, UnixSeconds)>) -> StoreResult<()> {
        let now = self.start.div_euclid(1_000);
        let edit = |(key, started): (Key, UnixSeconds)| Edit::Log {
            key,
            last: LastRun::over_by(started.min(now)),
        };
        let edits = last.into_iter().map(edit).collect();
        done(at_once(self.engine.edit(self.start, edits))).map(drop)
    }

    fn hold(&mut self, key: Key, seconds: Option<u32>) -> StoreResult<()> {
        self.has_dues |= seconds.is_some();
        let hold = Hold { key, seconds, reason: String::new(), by: "simulate".into() };
        self.apply(vec![hold.into()]).map(drop)
    }
}

/// A store in memory is never waited for.
fn done<T>(answer: Option<StoreResult<T>>) -> StoreResult<T> {
    answer.unwrap_or_else(|| Err(StoreError::Fatal("the store in memory waits".to_owned())))
}

fn apply<S: Records>(
    engine: &mut Engine<S>,
    now: Millis,
    batch: Vec<Operation>,
) -> StoreResult<Vec<Outcome>> {
    let outcomes = done(at_once(engine.apply(now, batch)))?;
    // Nobody asks for them.
    engine.take_ends();
    outcomes.into_iter().map(|it| it.map_err(|why| StoreError::Rejected(why.0))).collect()
}

/// A job that is out, by its end.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Out {
    ends: Millis,
    attempt: Attempt,
    exit_code: i64,
    fetcher: Arc<str>,
    is_first: bool,
}

/// One simulation under way.
struct Clockwork<'a, S> {
    engine: Engine<S>,
    jobs: &'a Jobs,
    start: Millis,
    now: Millis,
    end: Millis,
    out: BinaryHeap<Reverse<Out>>,
    free: usize,
    /// How many tasks are asked for at once: few, if it is likely that there are none.
    asks: usize,
    /// Tasks that have not started yet.
    unstarted: u64,
    /// When to look at what is due. `None`: nothing ever is.
    looks: Option<Millis>,
    holder: LeaseHolder,
    told: Simulated,
}

impl<'a, S: Records> Clockwork<'a, S> {
    fn new<T>(
        store: S,
        lists: &Lists<T>,
        jobs: &'a Jobs,
        workers: u32,
        most: Option<Millis>,
    ) -> StoreResult<Self> {
        let (settings, now) = (lists.settings.clone(), lists.start);
        let mut engine = Engine::new(store, settings);
        let mut fetchers = BTreeMap::new();
        for outcome in apply(&mut engine, now, vec![Runs.into()])? {
            let Outcome::Runs(runs) = outcome else { continue };
            let cycle = |tasks| Cycle { tasks, ..Cycle::default() };
            fetchers.extend(runs.into_iter().map(|it| (it.run.fetcher, cycle(it.rows))));
        }
        let unstarted = fetchers.values().map(|it| it.tasks).sum();
        let workers = workers.clamp(1, WORKERS_MAX);
        Ok(Self {
            engine,
            jobs,
            start: now,
            now,
            end: now.saturating_add(most.unwrap_or(TIME_MAX).min(TIME_MAX)),
            out: BinaryHeap::new(),
            free: workers as usize,
            asks: BATCH,
            unstarted,
            looks: lists.has_dues.then_some(now),
            holder: LeaseHolder { worker: "simulated".into(), lease_seconds: u32::MAX },
            told: Simulated { workers, fetchers, slice_ms: 1, ..Simulated::default() },
        })
    }

    fn run(mut self) -> StoreResult<Simulated> {
        while let Some(next) = self.step()? {
            if next > self.end {
                break;
            }
            if self.unstarted > 0 {
                let waits = i64::try_from(self.free).unwrap_or(i64::MAX);
                let limited = waits.saturating_mul(next - self.now);
                self.told.limited_ms = self.told.limited_ms.saturating_add(limited);
            }
            self.now = next;
        }
        let tasks: u64 = self.told.fetchers.values().map(|it| it.tasks).sum();
        let ran: u64 = self.told.fetchers.values().map(|it| it.ran).sum();
        self.told.left = tasks.saturating_sub(ran);
        Ok(self.told)
    }

    /// What happens now; returns when something happens next. `None`: nothing does.
    fn step(&mut self) -> StoreResult<Option<Millis>> {
        loop {
            let mut batch = Vec::with_capacity(2 * BATCH);
            if self.looks.is_some_and(|at| at <= self.now) {
                batch.push(EndHolds.into());
                self.looks = Some(self.now.saturating_add(1_000));
            }
            self.end_some(&mut batch);
            let may_start = self.unstarted > 0;
            let asks = if may_start { self.free.min(self.asks) } else { 0 };
            let dispatch = Dispatch { holder: Some(self.holder.clone()), fetchers: None };
            batch.extend(std::iter::repeat_n(Operation::from(dispatch), asks));
            let is_dry = !batch.is_empty() && self.carry_out(batch)?;
            self.asks = if is_dry { 1 } else { BATCH.min(self.asks * 2) };
            let ended = self.out.peek().map(|Reverse(it)| it.ends);
            let has_more = ended.is_some_and(|at| at <= self.now);
            if has_more || self.unstarted > 0 && self.free > 0 && !is_dry {
                continue;
            }
            let opens = if self.free > 0 && self.unstarted > 0 { self.opens()? } else { None };
            return Ok(ended.into_iter().chain(opens).min());
        }
    }

    /// Ends of jobs that have come.
    fn end_some(&mut self, batch: &mut Vec<Operation>) {
        let mut room = BATCH;
        while let Some(Reverse(it)) = self.out.peek()
            && it.ends <= self.now
            && room > 0
            && let Some(Reverse(it)) = self.out.pop()
        {
            room -= 1;
            self.free += 1;
            batch.push(CompleteAttempt { attempt: it.attempt, exit_code: it.exit_code }.into());
            self.note_end(&it);
        }
    }

    fn note_end(&mut self, it: &Out) {
        let at = it.ends - self.start;
        let told = &mut self.told;
        told.took_ms = at;
        told.jobs += 1;
        told.failures += u64::from(it.exit_code != 0);
        if it.is_first
            && let Some(cycle) = told.fetchers.get_mut(&it.fetcher)
        {
            cycle.ran += 1;
            cycle.took_ms = at;
        }
        let slice = |width: Millis| usize::try_from(at / width).unwrap_or(usize::MAX);
        while slice(told.slice_ms) >= SLICES {
            told.slice_ms = told.slice_ms.saturating_mul(2);
            told.slices = told.slices.chunks(2).map(|it| it.iter().sum()).collect();
        }
        let slice = slice(told.slice_ms);
        told.slices.resize(told.slices.len().max(slice + 1), 0);
        told.slices[slice] += 1;
    }

    /// Returns whether a request for a task was in vain.
    fn carry_out(&mut self, batch: Vec<Operation>) -> StoreResult<bool> {
        let mut is_dry = false;
        for outcome in apply(&mut self.engine, self.now, batch)? {
            match outcome {
                Outcome::Dispatch(Dispatched::Job(attempt, row, about)) => {
                    self.start(attempt, &row.key, about);
                }
                Outcome::Dispatch(Dispatched::Nothing) => is_dry = true,
                _ => {}
            }
        }
        Ok(is_dry)
    }

    fn start(&mut self, attempt: Attempt, key: &Key, about: About) {
        let About { fetcher, retry, .. } = about;
        let work = self.jobs.of.get(&fetcher).unwrap_or(&self.jobs.usual);
        let (took, exit_code) = work.of_job(self.jobs.seed, key, &fetcher, retry);
        let is_first = retry == 0;
        self.free -= 1;
        self.unstarted = self.unstarted.saturating_sub(u64::from(is_first));
        self.told.busy_ms = self.told.busy_ms.saturating_add(took);
        let ends = self.now.saturating_add(took);
        self.out.push(Reverse(Out { ends, attempt, exit_code, fetcher, is_first }));
    }

    /// When time brings work.
    fn opens(&mut self) -> StoreResult<Option<Millis>> {
        let asked = vec![NextOpening.into(), NextHoldEnd.into()];
        let mut opens = None;
        for outcome in apply(&mut self.engine, self.now, asked)? {
            // Each step goes on by a millisecond at least.
            let at = match outcome {
                Outcome::NextOpening(Some(millis)) => self.later(millis.max(1)),
                Outcome::NextHoldEnd(Some(seconds)) => {
                    let at = self.later(seconds.saturating_mul(1_000).max(1));
                    self.looks = Some(at);
                    at
                }
                _ => continue,
            };
            opens = opens.into_iter().chain([at]).min();
        }
        Ok(opens)
    }

    fn later(&self, millis: u64) -> Millis {
        self.now.saturating_add(i64::try_from(millis).unwrap_or(i64::MAX))
    }
}

impl Work {
    /// How long a job takes, and its exit code.
    fn of_job(&self, seed: u64, key: &Key, fetcher: &str, retry: u32) -> (Millis, i64) {
        let of_key = checksum(key.as_str().as_bytes());
        let of_list = checksum(fetcher.as_bytes()).rotate_left(32);
        let mixed = mixed(seed ^ mixed(of_key ^ mixed(of_list ^ u64::from(retry))));
        let took = match self.is_exact {
            true => self.mean_ms,
            // A product beyond the range of numbers is the longest time.
            false => (self.mean_ms as f64 * -(1.0 - share(mixed)).ln()).round() as Millis,
        };
        let has_failed = share(self::mixed(mixed)) < self.failures;
        (took.clamp(1, TIME_MAX), i64::from(has_failed))
    }
}

/// From 0 to 1, without 1.
fn share(number: u64) -> f64 {
    (number >> 11) as f64 / (1_u64 << 53) as f64
}

/// Another number, of which each bit depends on all of this one (the end of splitmix64).
fn mixed(number: u64) -> u64 {
    let it = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let it = (it ^ (it >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let it = (it ^ (it >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    it ^ (it >> 31)
}
