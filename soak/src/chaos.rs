//! `make soak-postgres`: four daemons of one queue, 64 workers, and a server of their own, under all faults that there may be,
//! with a ledger of what every worker was told.
//!
//! The workers are on a thread of their own; the fetchers are [`fetchers`](crate::fetchers), one list of each daemon's own and one
//! that all have; [`rounds`] brings the faults. What must hold: no key is out twice, no acknowledged result is lost, no row
//! is lost, attempts of a key ascend, and all daemons work again by themselves.

mod claims;
mod daemons;
mod faults;
mod link;
mod rounds;
mod site;
mod verdict;
mod workers;

use std::io;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use clap::Args;

use crate::fetchers::{Fetcher, Manner};
use crate::ledger::{Ledger, Line, key};
use crate::minutes;
use crate::random::Random;
use crate::report::Report;
use claims::Claims;
use rounds::Deck;
use site::{DAEMONS, Site};

/// A run that is no trial.
const WHOLE: Duration = Duration::from_secs(300);
/// Pause between two looks of the fetchers.
const PAUSE: Duration = Duration::from_millis(50);
/// Lines of a daemon's own list for each minute of the run; the list whose keys all daemons have is a fifth of that.
const LINES_A_MINUTE: usize = 250;
const LINES: RangeInclusive<usize> = 400..=2_000;
const OWN: [(Manner, &str); DAEMONS] = [
    (Manner::Whole, "first"),
    (Manner::Whole, "second"),
    (Manner::Growing, "third"),
    (Manner::Hasty, "fourth"),
];
/// The keys that all have.
const SHARED: &str = "shared";

/// Behind the command.
#[derive(Debug, Args)]
pub struct Arguments {
    /// The daemon's binary
    #[arg(long, default_value = "target/release/shiftboss")]
    program: PathBuf,
    /// How long; fractions are good for a trial
    #[arg(long, default_value = "10", value_parser = minutes)]
    minutes: Duration,
    /// What determines the faults; a run prints its own
    #[arg(long)]
    seed: Option<u64>,
    /// Fill the server's disk, too: by root, and by `unshare -m`, for a small one is mounted
    #[arg(long)]
    fill_disk: bool,
    /// Print what happens, not only what is wrong
    #[arg(long)]
    verbose: bool,
}

/// What all parts share.
pub struct World {
    pub report: Report,
    /// Of the daemons.
    pub sockets: Vec<PathBuf>,
    /// Jobs that each daemon handed out.
    pub served: [AtomicU64; DAEMONS],
    /// Locked before the claims.
    ledger: Mutex<Ledger>,
    claims: Mutex<Claims>,
    /// Nothing more is listed.
    is_listed: AtomicBool,
    /// The load has ended.
    over: AtomicBool,
    /// Results that are not acknowledged by now never will be.
    given_up: AtomicBool,
    verbose: bool,
}

impl World {
    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn claims(&self) -> MutexGuard<'_, Claims> {
        self.claims.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn new(site: &Site, verbose: bool) -> Self {
        Self {
            report: Report::new(),
            sockets: site.daemons.iter().map(daemons::Daemon::socket).collect(),
            served: Default::default(),
            ledger: Mutex::default(),
            claims: Mutex::default(),
            is_listed: AtomicBool::new(false),
            over: AtomicBool::new(false),
            given_up: AtomicBool::new(false),
            verbose,
        }
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    fn is_given_up(&self) -> bool {
        self.given_up.load(Ordering::Relaxed)
    }

    fn name(&self, daemon: usize) -> String {
        format!("daemon{daemon}")
    }

    fn event(&self, text: &str) {
        if self.verbose {
            println!("{:8.3} s: {text}", self.report.begun.elapsed().as_secs_f64());
        }
        self.report.event(text);
    }
}

/// Runs it. Returns whether all held.
///
/// # Errors
/// When it cannot be run.
pub fn run(arguments: &Arguments) -> io::Result<bool> {
    let seed = arguments.seed.unwrap_or_else(|| Random::seed() % 1_000_000);
    println!("soak: {:?} of faults on PostgreSQL, --seed {seed}", arguments.minutes);
    let mut site = Site::new(&arguments.program.canonicalize()?, arguments.fill_disk)?;
    let world = Arc::new(World::new(&site, arguments.verbose));
    while !site.daemons.iter().all(daemons::Daemon::is_up) {
        rounds::watch(&mut site, &world);
    }
    let workers = part(&world, move |world| workers::run(world, seed));
    let inputs: Vec<_> = site.daemons.iter().map(daemons::Daemon::input).collect();
    let lines = LINES_A_MINUTE * arguments.minutes.as_secs() as usize / 60;
    let lines = lines.clamp(*LINES.start(), *LINES.end());
    let fetchers = part(&world, move |world| list(world, &inputs, lines));
    let mut deck = Deck::new(seed, arguments.fill_disk, arguments.minutes >= WHOLE);
    while world.report.begun.elapsed() < arguments.minutes {
        deck.play(&mut site, &world)?;
    }
    world.is_listed.store(true, Ordering::Relaxed);
    join(&world, fetchers);
    verdict::work_off(&mut site, &world)?;
    join(&world, workers);
    verdict::after(&mut site, &world)?;
    deck.print(&world);
    Ok(world.report.conclude())
}

type Part = JoinHandle<io::Result<()>>;

fn part(
    world: &Arc<World>,
    work: impl FnOnce(&Arc<World>) -> io::Result<()> + Send + 'static,
) -> Part {
    let world = Arc::clone(world);
    thread::spawn(move || work(&world))
}

fn join(world: &World, part: Part) {
    match part.join() {
        Ok(Ok(())) => {}
        Ok(Err(error)) => world.report.fault(&error.to_string()),
        Err(_) => world.report.fault("a part panicked"),
    }
}

/// Plays the fetchers until nothing more is to be listed.
fn list(world: &World, inputs: &[PathBuf], lines: usize) -> io::Result<()> {
    let own = inputs.iter().zip(OWN).map(|(input, (manner, keys))| (input, manner, keys, lines));
    let shared = inputs.iter().map(|input| (input, Manner::Whole, SHARED, lines / 5));
    let fetcher = |(number, (input, manner, keys, lines)): (usize, (&PathBuf, _, _, _))| {
        Fetcher::new(input, number, manner, keys, lines)
    };
    let mut fetchers: Vec<_> = own.chain(shared).enumerate().map(fetcher).collect();
    while !world.is_listed.load(Ordering::Relaxed) {
        fetchers.iter_mut().try_for_each(|fetcher| fetcher.step(&world.ledger))?;
        thread::sleep(PAUSE);
    }
    Ok(())
}

/// The key of a line.
fn key_of(((fetcher, _), index): Line) -> String {
    key(OWN.get(fetcher).map_or(SHARED, |(_, keys)| keys), index)
}
