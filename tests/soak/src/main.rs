//! `make soak`: the daemon at full load for minutes, among everybody who may be there, and checks of
//! what must hold all the while and at the end.
//!
//! [`fetchers`], [`workers`] and [`outsiders`] are threads that play their parts, and
//! [`crew`] one that kills processes on a spool; [`tasks`] are added one by one;
//! [`watch`] looks at the daemon meanwhile, and [`verdict`] at what it leaves. It measures no
//! speed beside anything: that is `make bench`. Whatever is wrong is printed when it is seen, and the
//! soak goes on; with any fault it fails.

// It waits for other processes.
#![allow(clippy::disallowed_methods)]

mod chaos;
mod crew;
mod fetchers;
mod hand;
mod ledger;
mod outsiders;
mod random;
mod report;
mod tasks;
mod verdict;
mod watch;
mod workers;

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use clap::{Parser, Subcommand};
use ledger::Ledger;
use report::Report;
use shiftboss_bench::servers::{Server, new_home};
use watch::Figures;

/// Between two looks of a pause at whether the load goes on.
const GLANCE: Duration = Duration::from_millis(100);

/// A part of the load: a thread.
type Part = fn(&Arc<Soak>) -> io::Result<()>;

/// Everybody but the workers.
const OTHERS: [(&str, Part); 6] = [
    ("the fetchers", |soak| fetchers::run(soak)),
    ("the counting reader", |soak| outsiders::count(soak)),
    ("the reader that stays", |soak| outsiders::stay(soak)),
    ("the writer", |soak| outsiders::edit(soak)),
    ("the crew", |soak| crew::run(soak)),
    ("the adder", |soak| tasks::run(soak)),
];

/// What all parts share.
struct Soak {
    /// The daemon's directory.
    home: PathBuf,
    /// How long the load lasts.
    time: Duration,
    report: Report,
    /// The load has ended: what is there is worked off.
    draining: AtomicBool,
    ledger: Mutex<Ledger>,
    figures: Mutex<Figures>,
}

#[derive(Debug, Parser)]
#[command(
    about = "Runs the daemon at full load, with everybody who may be there, and checks what must hold"
)]
struct Arguments {
    #[command(subcommand)]
    part: Option<Process>,
    /// The daemon's binary
    #[arg(long, default_value = "target/release/shiftboss")]
    program: PathBuf,
    /// How long; fractions are good for a trial
    #[arg(long, default_value = "10", value_parser = minutes)]
    minutes: Duration,
}

#[derive(Debug, Subcommand)]
enum Process {
    /// A process of the crew
    #[command(hide = true)]
    Hand(hand::Hand),
    /// Several daemons on PostgreSQL, under faults
    Postgres(chaos::PostgresArguments),
    /// Relays over a RabbitMQ broker, and their daemons, under faults
    Broker(chaos::BrokerArguments),
}

fn minutes(text: &str) -> Result<Duration, String> {
    let minutes: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    Duration::try_from_secs_f64(minutes * 60.0).map_err(|error| error.to_string())
}

fn main() -> io::Result<ExitCode> {
    let arguments = Arguments::parse();
    let is_sound = match arguments.part {
        Some(Process::Hand(hand)) => hand::run(&hand).map(|()| true)?,
        Some(Process::Postgres(arguments)) => chaos::on_postgres(&arguments)?,
        Some(Process::Broker(arguments)) => chaos::over_broker(&arguments)?,
        None => run(&arguments.program.canonicalize()?, arguments.minutes)?,
    };
    Ok(if is_sound { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Runs the soak for that long. Returns whether all held.
///
/// # Errors
/// When the daemon does not start, or what it did cannot be looked at.
fn run(program: &Path, time: Duration) -> io::Result<bool> {
    let home = new_home()?;
    let mut soak = Soak::new(home.path(), time);
    tasks::expect(&soak);
    let mut server = Server::shiftboss(program, home.path(), &[])?;
    soak.report.begun = Instant::now();
    let soak = Arc::new(soak);
    println!("soak: {time:?} at full load");
    let workers = soak.start("the workers", workers::run);
    let others = OTHERS.map(|(name, part)| soak.start(name, part));
    watch::until_end(&soak, &mut server)?;
    others.into_iter().for_each(|part| soak.join(part));
    soak.draining.store(true, Ordering::Release);
    let drained = Instant::now();
    soak.join(workers);
    println!("worked off in {:?}", drained.elapsed());
    verdict::after(&soak, server, program)?;
    soak.figures().print(&soak);
    Ok(soak.report.conclude())
}

impl Soak {
    fn new(home: &Path, time: Duration) -> Self {
        Self {
            home: home.to_owned(),
            time,
            report: Report::new(),
            draining: AtomicBool::new(false),
            ledger: Mutex::default(),
            figures: Mutex::default(),
        }
    }

    /// Starts a part; that it fails is a fault, said at once.
    fn start(self: &Arc<Self>, name: &'static str, part: Part) -> JoinHandle<()> {
        let soak = Arc::clone(self);
        thread::spawn(move || {
            part(&soak).unwrap_or_else(|error| soak.fault(format!("{name}: {error}")));
        })
    }

    fn join(&self, part: JoinHandle<()>) {
        part.join().unwrap_or_else(|_| self.fault("a part panicked".to_owned()));
    }

    /// Pauses. Returns whether the load goes on; it ends a pause.
    fn goes_on(&self, pause: Duration) -> bool {
        let since = Instant::now();
        while self.report.begun.elapsed() < self.time {
            match pause.checked_sub(since.elapsed()) {
                Some(rest) if !rest.is_zero() => thread::sleep(rest.min(GLANCE)),
                _ => return true,
            }
        }
        false
    }

    fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
    }

    /// Says that something is not as it must be.
    fn fault(&self, text: String) {
        self.report.fault(&text);
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn figures(&self) -> MutexGuard<'_, Figures> {
        self.figures.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn socket(&self) -> PathBuf {
        self.home.join("socket")
    }

    fn database(&self) -> PathBuf {
        self.home.join("state.db")
    }
}
