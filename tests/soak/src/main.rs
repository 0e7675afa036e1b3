//! `make soak`: one daemon at full load for minutes, among everybody who may be there. `make soak-postgres` and `make soak-broker`:
//! daemons of one queue, or relays and their daemons, under all faults that there may be.
//!
//! Each has 64 [`workers`] and some [`fetchers`], which are threads, and one [`ledger`] of what workers were told. What must hold: no
//! line is lost, no key is out twice, no acknowledged result is lost, attempts of a key ascend. At full load nobody waits for long, and
//! [`watch`] looks at the daemon, while [`outsiders`] have its database open and [`tasks`] are added; under faults, which [`rounds`]
//! bring, all daemons work again by themselves. Whatever is wrong is printed when it is seen, and the soak goes on; with any fault it
//! fails. It measures no speed beside anything: that is `make bench`.

// It waits for other processes.
#![allow(clippy::disallowed_methods)]

mod faults;
mod fetchers;
mod ledger;
mod link;
mod outsiders;
mod random;
mod report;
mod rounds;
mod site;
mod tasks;
mod verdict;
mod watch;
mod workers;

use std::fmt::Display;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use clap::{Args, Parser, Subcommand};
use ledger::Ledger;
use random::Random;
use report::Report;
use rounds::Deck;
use site::{Site, broker, file, postgres};
use watch::Figures;

/// Between two looks of a pause at whether the load goes on.
const GLANCE: Duration = Duration::from_millis(100);
/// A run that is no trial.
const WHOLE: Duration = Duration::from_secs(300);

#[derive(Debug, Parser)]
#[command(
    about = "Runs the daemon at full load, with everybody who may be there, and checks what must hold"
)]
struct Cli {
    #[command(subcommand)]
    place: Option<Place>,
    #[command(flatten)]
    arguments: Arguments,
}

#[derive(Debug, Subcommand)]
enum Place {
    /// Several daemons on PostgreSQL, under faults
    Postgres {
        /// Fill the server's disk, too: by root, and by `unshare -m`, for a small one is mounted
        #[arg(long)]
        fill_disk: bool,
    },
    /// Relays over a RabbitMQ broker, and their daemons, under faults
    Broker {
        #[command(flatten)]
        place: broker::Place,
        /// Three daemons on a PostgreSQL server of their own; without it, one with a queue in a file
        #[arg(long)]
        shared: bool,
    },
}

#[derive(Debug, Args)]
struct Arguments {
    /// The daemon's binary
    #[arg(long, global = true, default_value = "target/release/shiftboss")]
    program: PathBuf,
    /// How long; fractions are good for a trial
    #[arg(long, global = true, default_value = "10", value_parser = minutes)]
    minutes: Duration,
    /// What determines the faults; a run prints its own
    #[arg(long, global = true)]
    seed: Option<u64>,
    /// Print what happens, not only what is wrong
    #[arg(long, global = true)]
    verbose: bool,
}

fn minutes(text: &str) -> Result<Duration, String> {
    let minutes: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    Duration::try_from_secs_f64(minutes * 60.0).map_err(|error| error.to_string())
}

fn main() -> io::Result<ExitCode> {
    let Cli { place, arguments } = Cli::parse();
    let program = arguments.program.canonicalize()?;
    let is_calm = place.is_none();
    let site = match place {
        None => file::site(&program)?,
        Some(Place::Postgres { fill_disk }) => postgres::site(&program, fill_disk)?,
        Some(Place::Broker { place, shared }) => broker::site(&program, place, shared)?,
    };
    let is_sound = run(site, &arguments, is_calm)?;
    Ok(if is_sound { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Returns whether all held.
fn run(mut site: Site, arguments: &Arguments, is_calm: bool) -> io::Result<bool> {
    let seed = arguments.seed.unwrap_or_else(|| Random::seed() % 1_000_000);
    let what = if is_calm { "at full load" } else { "of faults" };
    println!("soak: {:?} {what}, {} daemons, --seed {seed}", arguments.minutes, site.daemons.len());
    site.wait_up()?;
    let soak = Arc::new(Soak::new(&site, arguments, is_calm));
    let lists = fetchers::of(&soak, &site);
    let mut others = vec![soak.start("the fetchers", move |soak| fetchers::run(soak, lists))];
    let mut deck = Deck::new(seed, soak.time >= WHOLE);
    if is_calm {
        others.push(soak.start("the reader", outsiders::stay));
        others.push(soak.start("the writer", outsiders::edit));
        others.push(soak.start("the adder", tasks::run));
    }
    let workers = soak.start("the workers", move |soak| workers::run(soak, seed));
    if is_calm {
        watch::until_end(&soak, &mut site)?;
    }
    while soak.is_time() {
        deck.play(&mut site, &soak)?;
    }
    soak.is_listed.store(true, Ordering::Relaxed);
    others.into_iter().for_each(|part| soak.join(part));
    verdict::work_off(&mut site, &soak)?;
    soak.join(workers);
    verdict::after(&mut site, &soak)?;
    let ledger = soak.ledger();
    println!("jobs            {} of {} runs", ledger.jobs, ledger.size().0);
    println!("results         {} acknowledged, {} stale", ledger.acknowledged, ledger.stale);
    drop(ledger);
    if is_calm {
        soak.figures().print(&soak)
    } else {
        deck.print(&site, &soak)
    }
    Ok(soak.report.conclude())
}

/// What all parts share.
pub struct Soak {
    report: Report,
    /// How long the load lasts.
    time: Duration,
    /// Nothing is done to the daemon: whatever a worker is told at once holds.
    is_calm: bool,
    /// Of the daemons.
    sockets: Vec<PathBuf>,
    /// Jobs that each daemon handed out.
    served: Vec<AtomicU64>,
    ledger: Mutex<Ledger>,
    figures: Mutex<Figures>,
    /// Nothing more is listed: what is there is worked off.
    is_listed: AtomicBool,
    /// All is worked off: results that are not acknowledged by now never will be.
    is_over: AtomicBool,
}

impl Soak {
    fn new(site: &Site, arguments: &Arguments, is_calm: bool) -> Self {
        let daemons = &site.daemons;
        Self {
            report: Report::new(arguments.verbose),
            time: arguments.minutes,
            is_calm,
            sockets: daemons.iter().map(|daemon| daemon.path("socket")).collect(),
            served: daemons.iter().map(|_| AtomicU64::default()).collect(),
            ledger: Mutex::default(),
            figures: Mutex::default(),
            is_listed: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
        }
    }

    /// Starts a part, a thread; that it fails is a fault, said at once.
    fn start(
        self: &Arc<Self>,
        name: &'static str,
        part: impl FnOnce(&Arc<Self>) -> io::Result<()> + Send + 'static,
    ) -> JoinHandle<()> {
        let soak = Arc::clone(self);
        thread::spawn(move || soak.check(part(&soak).map_err(|error| format!("{name}: {error}"))))
    }

    fn join(&self, part: JoinHandle<()>) {
        self.check(part.join().map_err(|_| "a part panicked"));
    }

    /// Whether the time for the load lasts.
    fn is_time(&self) -> bool {
        self.report.begun.elapsed() < self.time
    }

    /// Pauses. Returns whether more is listed; else the pause is over.
    fn goes_on(&self, pause: Duration) -> bool {
        let since = Instant::now();
        while !is(&self.is_listed) {
            match pause.checked_sub(since.elapsed()) {
                Some(rest) if !rest.is_zero() => thread::sleep(rest.min(GLANCE)),
                _ => return true,
            }
        }
        false
    }

    /// Says that something is not as it must be.
    fn check(&self, result: Result<(), impl Display>) {
        if let Err(text) = result {
            self.report.fault(&text.to_string());
        }
    }

    fn fault(&self, text: &str) {
        self.report.fault(text);
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn figures(&self) -> MutexGuard<'_, Figures> {
        self.figures.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A file of the first daemon.
    fn path(&self, name: &str) -> PathBuf {
        self.sockets[0].with_file_name(name)
    }
}

fn is(flag: &AtomicBool) -> bool {
    flag.load(Ordering::Relaxed)
}
