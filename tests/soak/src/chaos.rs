//! `make soak-postgres` and `make soak-broker`: daemons of one queue, or relays and their daemons, 64 workers, and a server or a broker of
//! their own, under all faults that there may be, with a ledger of what every worker was told.
//!
//! The workers are on a thread of their own; the fetchers are [`fetchers`](crate::fetchers), one list of each daemon's own and one
//! that all have; [`rounds`] brings the faults. What must hold: no key is out twice, no acknowledged result is lost, no row
//! is lost, attempts of a key ascend, and all daemons work again by themselves.

mod broker;
mod claims;
mod daemons;
mod faults;
mod link;
mod postgres;
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
use site::Site;

/// A run that is no trial.
const WHOLE: Duration = Duration::from_secs(300);
/// Pause between two looks of the fetchers.
const PAUSE: Duration = Duration::from_millis(50);
/// Lines of a daemon's own list for each minute of the run; the list whose keys all daemons have is a fifth of that.
const LINES_A_MINUTE: usize = 250;
const LINES: RangeInclusive<usize> = 400..=2_000;
/// Of each daemon or relay, in turn.
const OWN: [(Manner, &str); 6] = [
    (Manner::Whole, "first"),
    (Manner::Whole, "second"),
    (Manner::Growing, "third"),
    (Manner::Hasty, "fourth"),
    (Manner::Whole, "fifth"),
    (Manner::Growing, "sixth"),
];
/// The keys that all have.
const SHARED: &str = "shared";

/// Behind the command `postgres`.
#[derive(Debug, Args)]
pub struct PostgresArguments {
    #[command(flatten)]
    common: Arguments,
    /// Fill the server's disk, too: by root, and by `unshare -m`, for a small one is mounted
    #[arg(long)]
    fill_disk: bool,
}

/// Behind the command `broker`.
#[derive(Debug, Args)]
pub struct BrokerArguments {
    #[command(flatten)]
    common: Arguments,
    #[command(flatten)]
    place: broker::Place,
    /// Three daemons on a PostgreSQL server of their own; without it, one with a queue in a file
    #[arg(long)]
    shared: bool,
}

#[derive(Debug, Args)]
struct Arguments {
    /// The daemon's binary
    #[arg(long, default_value = "target/release/shiftboss")]
    program: PathBuf,
    /// How long; fractions are good for a trial
    #[arg(long, default_value = "10", value_parser = minutes)]
    minutes: Duration,
    /// What determines the faults; a run prints its own
    #[arg(long)]
    seed: Option<u64>,
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
    pub served: Vec<AtomicU64>,
    names: Vec<String>,
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
            served: site.daemons.iter().map(|_| AtomicU64::default()).collect(),
            names: site.daemons.iter().map(|daemon| daemon.name.clone()).collect(),
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

    fn name(&self, daemon: usize) -> &str {
        &self.names[daemon]
    }

    fn event(&self, text: &str) {
        if self.verbose {
            println!("{:8.3} s: {text}", self.report.begun.elapsed().as_secs_f64());
        }
        self.report.event(text);
    }
}

/// Runs it with daemons on a server. Returns whether all held.
///
/// # Errors
/// When it cannot be run.
pub fn on_postgres(arguments: &PostgresArguments) -> io::Result<bool> {
    let program = arguments.common.program.canonicalize()?;
    run(postgres::site(&program, arguments.fill_disk)?, &arguments.common, "on PostgreSQL")
}

/// Runs it with relays over a broker. Returns whether all held.
///
/// # Errors
/// When it cannot be run.
pub fn over_broker(arguments: &BrokerArguments) -> io::Result<bool> {
    let program = arguments.common.program.canonicalize()?;
    let site = broker::site(&program, &arguments.place, arguments.shared)?;
    let daemons = if arguments.shared { "three daemons" } else { "one daemon" };
    run(site, &arguments.common, &format!("over a broker, with {daemons}"))
}

fn run(mut site: Site, arguments: &Arguments, place: &str) -> io::Result<bool> {
    let seed = arguments.seed.unwrap_or_else(|| Random::seed() % 1_000_000);
    println!("soak: {:?} of faults {place}, --seed {seed}", arguments.minutes);
    let world = Arc::new(World::new(&site, arguments.verbose));
    while !site.daemons.iter().all(daemons::Daemon::is_up) {
        rounds::watch(&mut site, &world);
    }
    let workers = part(&world, move |world| workers::run(world, seed));
    let inputs: Vec<_> = site.daemons.iter().map(daemons::Daemon::input).collect();
    let lines = LINES_A_MINUTE * arguments.minutes.as_secs() as usize / 60;
    let lines = lines.clamp(*LINES.start(), *LINES.end());
    let fetchers = part(&world, move |world| list(world, &inputs, lines));
    let mut deck = Deck::new(seed, arguments.minutes >= WHOLE);
    while world.report.begun.elapsed() < arguments.minutes {
        deck.play(&mut site, &world)?;
    }
    world.is_listed.store(true, Ordering::Relaxed);
    join(&world, fetchers);
    verdict::work_off(&mut site, &world)?;
    join(&world, workers);
    verdict::after(&mut site, &world)?;
    deck.print(&site, &world);
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
    let own = (0..).zip(inputs.iter().zip(OWN));
    let own = own.map(|(at, (input, (manner, keys)))| Fetcher::new(input, at, manner, keys, lines));
    let shared = (OWN.len()..).zip(inputs);
    let shared =
        shared.map(|(at, input)| Fetcher::new(input, at, Manner::Whole, SHARED, lines / 5));
    let mut fetchers: Vec<_> = own.chain(shared).collect();
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
