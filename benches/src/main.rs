//! `make bench`: measures shiftboss beside what a user would otherwise run, in one run on one
//! machine, prints a table, and writes it to docs/benchmarks.md. `make bench-spool`: [`spool`]. `make bench-postgres`:
//! [`postgres`]. `make bench-broker`: [`broker`].
//!
//! It drives the built binary from outside; only rows 2 and 14 call the store itself.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, Subcommand};
use shiftboss_bench::bare::Kind;
use shiftboss_bench::broker;
use shiftboss_bench::load::{self, Plan};
use shiftboss_bench::postgres;
use shiftboss_bench::protocol::Protocol;
use shiftboss_bench::report::{self, Figure};
use shiftboss_bench::rows::{self, GROUPS, Setting};
use shiftboss_bench::spool;

#[derive(Debug, Parser)]
#[command(about = "Measures shiftboss side by side with beanstalkd")]
struct Arguments {
    #[command(subcommand)]
    command: Option<Task>,
    /// The daemon's binary
    #[arg(long, global = true, default_value = "target/release/shiftboss")]
    program: PathBuf,
    /// Rows of the table to measure; all of them without it
    #[arg(long, value_delimiter = ',')]
    rows: Vec<u32>,
    /// Rows of the largest queue
    #[arg(long, default_value_t = 10_000_000)]
    largest: usize,
    /// Lines of the list that is loaded
    #[arg(long, default_value_t = 1_000_000)]
    list: usize,
    /// Seconds for which a rate is measured
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// The document to write the table to; nowhere without it
    #[arg(long, global = true)]
    write: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Run so many DONE+next on a store alone (what row 14 counts)
    Cycles {
        /// How many
        count: usize,
        /// What the jobs are like
        #[arg(value_enum, default_value_t = Kind::First)]
        kind: Kind,
    },
    /// Drive a daemon that runs already, to profile it
    Drive {
        /// Its socket
        socket: PathBuf,
        /// Connections at once
        #[arg(default_value_t = 64)]
        connections: usize,
    },
    /// Measure the spool's operations beside bare loops
    Spool {
        /// How many rounds; the medians are what is shown
        #[arg(long, default_value_t = 9)]
        rounds: usize,
        /// Entries of the longest queue
        #[arg(long, default_value_t = 100_000)]
        longest: usize,
        /// The directory, on the file system that is measured [default: a temporary one]
        #[arg(long)]
        directory: Option<PathBuf>,
    },
    /// Measure the queue on a PostgreSQL server beside graphile-worker
    Postgres(postgres::Setting),
    /// Measure relays on a RabbitMQ broker
    Broker(broker::Setting),
}

fn main() -> io::Result<()> {
    let arguments = Arguments::parse();
    match arguments.command {
        Some(Task::Cycles { count, kind }) => rows::cycles(count, kind)?,
        Some(Task::Drive { socket, connections }) => {
            drive(socket, connections, Duration::from_secs(arguments.seconds))?;
        }
        Some(Task::Spool { rounds, longest, directory }) => {
            let figures = spool::rows(&spool::Setting { rounds, longest, directory })?;
            print!("{}", report::table(&figures));
            if let Some(document) = &arguments.write {
                report::write(document, report::BENCH_SPOOL, &report::machine(), &figures)?;
            }
        }
        Some(Task::Postgres(setting)) => {
            let (machine, figures) = postgres::rows(&arguments.program.canonicalize()?, &setting)?;
            if let Some(document) = &arguments.write {
                report::write(document, report::BENCH_POSTGRES, &machine, &figures)?;
            }
        }
        Some(Task::Broker(setting)) => {
            let (machine, figures) = broker::rows(&arguments.program.canonicalize()?, &setting)?;
            if let Some(document) = &arguments.write {
                report::write(document, report::BENCH_BROKER, &machine, &figures)?;
            }
        }
        None => table(&arguments)?,
    }
    Ok(())
}

fn table(arguments: &Arguments) -> io::Result<()> {
    let setting = Setting {
        program: arguments.program.canonicalize()?,
        beanstalkd: report::beanstalkd_version().is_some(),
        largest: arguments.largest,
        list: arguments.list,
        seconds: arguments.seconds,
    };
    let figures = measure(&setting, &arguments.rows)?;
    match &arguments.write {
        Some(document) => report::write(document, report::BENCH, &report::machine(), &figures),
        None => Ok(()),
    }
}

fn drive(socket: PathBuf, connections: usize, time: Duration) -> io::Result<()> {
    let load = load::run(&Plan::at(vec![socket], Protocol::Classic, connections, time))?;
    println!("{}", report::measured(&load));
    Ok(())
}

/// Measures the rows that are wanted, and prints each group as soon as it is known.
fn measure(setting: &Setting, wanted: &[u32]) -> io::Result<Vec<Figure>> {
    println!("{}\n", report::machine());
    let mut figures = Vec::new();
    for (numbers, group) in GROUPS {
        if wanted.is_empty() || numbers.iter().any(|number| wanted.contains(number)) {
            let measured = group(setting)?;
            print!("{}", report::table(&measured));
            figures.extend(measured);
        }
    }
    figures.sort_by_key(|figure| figure.row);
    Ok(figures)
}
