//! `make bench`: measures shiftboss beside what a user would otherwise run, in one run on one
//! machine, prints a table, and writes it to docs/benchmarks.md.
//!
//! It drives the built binary from outside; only rows 2 and 14 call the store itself.

// A driver may sleep: it waits for other processes.
#![allow(clippy::disallowed_methods)]

mod load;
mod protocol;
mod report;
mod rows;
mod servers;

use std::io;
use std::path::PathBuf;

use clap::{Parser, Subcommand};
use report::Figure;
use rows::{GROUPS, Setting};

#[derive(Debug, Parser)]
#[command(about = "Measures shiftboss side by side with beanstalkd")]
struct Arguments {
    #[command(subcommand)]
    command: Option<Task>,
    /// The daemon's binary
    #[arg(long, default_value = "target/release/shiftboss")]
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
    #[arg(long)]
    write: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Run so many DONE+next on a store alone (what row 14 counts)
    Cycles {
        /// How many
        count: usize,
    },
}

fn main() -> io::Result<()> {
    let arguments = Arguments::parse();
    if let Some(Task::Cycles { count }) = arguments.command {
        return rows::cycles(count);
    }
    let setting = Setting {
        program: arguments.program.canonicalize()?,
        beanstalkd: report::beanstalkd_version().is_some(),
        largest: arguments.largest,
        list: arguments.list,
        seconds: arguments.seconds,
    };
    let figures = measure(&setting, &arguments.rows)?;
    match arguments.write {
        Some(document) => report::write(&document, &figures),
        None => Ok(()),
    }
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
