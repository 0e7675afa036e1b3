//! `shiftboss simulate`: a queue as a target has it, or as lists would make it, worked off by the queue's own engine in
//! simulated time.
//!
//! It reads, and asks no daemon. What a simulation is: [`shiftboss_queue::simulation`].

mod lists;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, IsTerminal, Write};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::thread::{self, ScopedJoinHandle};
use std::time::Duration;

use shiftboss_actors::clock::{Clock, SystemClock};
use shiftboss_protocol::answers::StatsGroup;
use shiftboss_protocol::model::{Key, Row};
use shiftboss_queue::context::Settings;
use shiftboss_queue::error::StoreError;
use shiftboss_queue::reader::{Grouping, ListedKey, ReadResult, Reader, StatsOf};
use shiftboss_queue::simulation::{Jobs, Simulated, Simulation, TASKS_MAX, Work};

use super::printing::{json, print};
use crate::cli::{ServeOptions, SimulateArguments};
use crate::config::File;
use crate::exit::{ExitCode, Failure};
use crate::target::{PACKAGED_CONFIGURATION, Target, ask};
use crate::view::simulated::{Run, Runs};

/// Simulations at a time: each has a copy of what changes.
pub const THREADS_MAX: usize = 2;
/// Lines that enter the queue together.
const STEP: usize = 1_000;
const WITHOUT_CONFIG: &str = "simulated without groups and retries: they are in the configuration file, which --config names";
/// As long as sums are kept.
const MEASURED: Duration = Duration::from_secs(90 * 86_400);

pub fn run(typed: &SimulateArguments) -> Result<(), Failure> {
    let is_asked = typed.lists.is_empty() || typed.target.is_typed();
    let target = is_asked.then(|| typed.target.find()).transpose()?;
    let measured = target.as_ref().map(Measured::of).transpose()?.unwrap_or_default();
    let jobs = measured.jobs(typed)?;
    let workers = typed.workers(measured.workers).map_err(Failure::usage)?;
    let config = config(typed);
    if config.is_none() && !typed.json {
        // There may be no reader.
        let _ = writeln!(io::stderr(), "shiftboss: {WITHOUT_CONFIG}");
    }
    let mut queue = Queue::new(rules(config)?)?;
    match &target {
        Some(target) if typed.lists.is_empty() => queue.take_from(target)?,
        _ => lists::read(&typed.lists, |fetcher, row| queue.add(fetcher, row))?,
    }
    let simulation = queue.end()?;
    let most = typed.time.map(millis);
    let told = all(&workers, |workers| simulation.run(&jobs, workers, most)).map_err(failed)?;
    let run = |workers: &u32| Some(Run::new(told.get(workers)?, told.get(&(workers + 1))?));
    let runs = Runs { seed: typed.seed, runs: workers.iter().filter_map(run).collect() };
    match &target {
        Some(target) if typed.json => print(target.json(&runs)?),
        None if typed.json => print(json(&runs)?),
        _ => print(text(&runs)),
    }
}

fn text(runs: &Runs) -> String {
    let picture = if io::stdout().is_terminal() { runs.picture() } else { String::new() };
    runs.table().render_or_none() + &runs.advice() + &picture
}

fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

fn failed(error: StoreError) -> Failure {
    Failure::new(ExitCode::Internal, error.to_string())
}

/// The configuration file that is given, or that of the packages, if it is there.
fn config(typed: &SimulateArguments) -> Option<&Path> {
    let packaged = Path::new(PACKAGED_CONFIGURATION);
    typed.config.as_deref().or_else(|| Some(packaged).filter(|it| it.exists()))
}

fn rules(config: Option<&Path>) -> Result<Settings, Failure> {
    let Some(file) = config else { return Ok(Settings::default()) };
    let (options, _) = File::read(file)?.all::<ServeOptions>()?;
    Ok(options.store()?.settings())
}

/// What is known of jobs.
#[derive(Default)]
struct Measured {
    fetchers: BTreeMap<Arc<str>, Work>,
    all: Option<Work>,
    /// Those that have jobs now.
    workers: u32,
}

impl Measured {
    fn of(target: &Target) -> Result<Self, Failure> {
        ask(&target.database, |reader, now| {
            let sums = |by| reader.stats(&StatsOf::last(MEASURED, by, now));
            let of_fetcher = |it: StatsGroup| Some((it.fetcher.clone()?.into(), work(&it)?));
            let fetchers = sums(Grouping::Fetcher)?.groups.into_iter().filter_map(of_fetcher);
            let fetchers = fetchers.collect();
            let all = sums(Grouping::All)?.groups.first().and_then(work);
            let workers = u32::try_from(reader.status(now)?.rows.in_flight).unwrap_or(0);
            Ok(Self { fetchers, all, workers })
        })
    }

    /// With what the options say instead.
    fn jobs(&self, typed: &SimulateArguments) -> Result<Jobs, Failure> {
        let exact = typed.duration.map(millis);
        let usual = self.all.or(exact.map(|mean_ms| Work { mean_ms, ..Work::default() }));
        let usual = usual.ok_or_else(|| {
            Failure::usage("how long jobs take is not known, as none has ended: give --duration")
        })?;
        let said = |it: Work| Work {
            mean_ms: exact.unwrap_or(it.mean_ms),
            is_exact: exact.is_some(),
            failures: typed.failures.unwrap_or(it.failures),
        };
        let of = self.fetchers.iter().map(|(name, work)| (name.clone(), said(*work)));
        Ok(Jobs { of: of.collect(), usual: said(usual), seed: typed.seed })
    }
}

fn work(sums: &StatsGroup) -> Option<Work> {
    let failed = sums.failure.saturating_add(sums.timeout);
    let failures = failed as f64 / sums.jobs.max(1) as f64;
    Some(Work { mean_ms: sums.mean_ms?, is_exact: false, failures })
}

/// What enters a simulation, some lines at a time.
struct Queue {
    simulation: Simulation,
    /// By fetcher.
    rows: BTreeMap<Arc<str>, Vec<Row>>,
    tasks: u64,
    last: Vec<(Key, i64)>,
    held: Vec<(Key, Option<u32>)>,
}

impl Queue {
    fn new(rules: Settings) -> Result<Self, Failure> {
        let simulation = Simulation::new(rules, SystemClock.millis()).map_err(failed)?;
        let (rows, last, held) = (BTreeMap::new(), Vec::new(), Vec::new());
        Ok(Self { simulation, rows, tasks: 0, last, held })
    }

    fn add(&mut self, fetcher: &Arc<str>, row: Row) -> Result<(), Failure> {
        self.tasks += 1;
        if self.tasks > TASKS_MAX {
            let text = format!("a simulation has up to {TASKS_MAX} tasks: give shorter lists");
            return Err(Failure::usage(text));
        }
        self.rows.entry(fetcher.clone()).or_default().push(row);
        if self.tasks.is_multiple_of(STEP as u64) { self.flush() } else { Ok(()) }
    }

    /// First the lines: only known keys ran, or are held.
    fn flush(&mut self) -> Result<(), Failure> {
        for (fetcher, rows) in &mut self.rows {
            self.simulation.add(fetcher, std::mem::take(rows)).map_err(failed)?;
        }
        self.simulation.ran(std::mem::take(&mut self.last)).map_err(failed)?;
        for (key, seconds) in self.held.drain(..) {
            self.simulation.hold(key, seconds).map_err(failed)?;
        }
        Ok(())
    }

    fn take_from(&mut self, target: &Target) -> Result<(), Failure> {
        let mut taken = Ok(());
        let read = |reader: &dyn Reader, now| -> ReadResult<()> {
            reader.listed(now, &mut |listed| {
                taken = self.take(listed);
                if taken.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            })
        };
        ask(&target.database, read)?;
        taken
    }

    fn take(&mut self, listed: ListedKey) -> Result<(), Failure> {
        let ListedKey { key, last_started, held, rows } = listed;
        for (fetcher, payload) in rows {
            self.add(&fetcher, Row { key: key.clone(), payload })?;
        }
        self.held.extend(held.map(|seconds| (key.clone(), seconds)));
        self.last.extend(last_started.map(|at| (key, at)));
        Ok(())
    }

    fn end(mut self) -> Result<Simulation, Failure> {
        self.flush()?;
        Ok(self.simulation)
    }
}

/// Simulates with each of these numbers of workers, and with one more.
fn all(
    workers: &[u32],
    simulate: impl Fn(u32) -> Result<Simulated, StoreError> + Sync,
) -> Result<BTreeMap<u32, Simulated>, StoreError> {
    let numbers: BTreeSet<u32> = workers.iter().flat_map(|it| [*it, it + 1]).collect();
    let numbers: Vec<u32> = numbers.into_iter().collect();
    let threads = thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX);
    let simulate = &simulate;
    let mut told = BTreeMap::new();
    for some in numbers.chunks(threads) {
        let ended: Vec<_> = thread::scope(|scope| {
            let begun: Vec<_> = some.iter().map(|it| scope.spawn(move || simulate(*it))).collect();
            begun.into_iter().map(ScopedJoinHandle::join).collect()
        });
        for (workers, it) in some.iter().zip(ended) {
            let broken = |_| Err(StoreError::Fatal("a simulation broke off".to_owned()));
            told.insert(*workers, it.unwrap_or_else(broken)?);
        }
    }
    Ok(told)
}
