//! `make bench-broker`: relays of one daemon over a RabbitMQ broker, beside what the broker does alone and what the daemon does
//! at its own socket, in the same run.
//!
//! What is compared is measured in rounds, in turn, so that a machine that is slow for a while is slow for all; the
//! medians of the rounds are what is shown. Broker, daemon, relays and workers share the machine's cores. Nothing here knows
//! how relays and daemons speak, but for the names of the queues and how a look for work is asked.

mod bare;
mod claims;
mod client;
mod hints;
mod installation;
mod lists;
mod memory;
mod takeover;
mod tap;

use std::io;
use std::path::Path;
use std::process::Command;

use crate::report::{self, Figure};

/// How much is measured, and where.
#[derive(Debug, Clone, clap::Args)]
pub struct Setting {
    /// The broker's URL; its user may declare queues
    #[arg(long, env = "SHIFTBOSS_TEST_BROKER", hide_env_values = true)]
    pub broker: String,
    /// The PostgreSQL server of row 7, as a URL without a database; its role may make databases
    #[arg(
        id = "broker_server",
        long = "server",
        env = "SHIFTBOSS_TEST_POSTGRES",
        hide_env_values = true
    )]
    pub server: String,
    /// Rows of the table to measure; all of them without it
    #[arg(id = "broker_rows", long = "rows", value_delimiter = ',')]
    pub wanted: Vec<u32>,
    /// How often each rate is measured, in turn; the medians are what is shown
    #[arg(id = "broker_rounds", long = "rounds", default_value_t = 3)]
    pub rounds: usize,
    /// Seconds for which each is measured
    #[arg(id = "broker_seconds", long = "seconds", default_value_t = 3)]
    pub seconds: u64,
    /// Lines of the list that is stored
    #[arg(id = "broker_list", long = "list", default_value_t = 200_000)]
    pub list: usize,
}

/// What every group needs to know.
struct Stage<'a> {
    setting: &'a Setting,
    /// The daemon's and the relays' binary.
    program: &'a Path,
}

/// A group of rows that share a measurement.
type Group = fn(&Stage) -> io::Result<Vec<Figure>>;

/// Every group, by the numbers of its rows.
const GROUPS: &[(&[u32], Group)] = &[
    (&[1], lists::rows),
    (&[2, 3], claims::rows),
    (&[4, 5], hints::rows),
    (&[6], memory::rows),
    (&[7], takeover::rows),
];

/// What was measured on, and all rows that are wanted; each group is printed as soon as it is known.
///
/// # Errors
/// When the broker, the daemon, a relay or a worker fails.
pub fn rows(program: &Path, setting: &Setting) -> io::Result<(String, Vec<Figure>)> {
    let stage = Stage { setting, program };
    let measured_on = format!("{}; {}.", report::hardware(), version());
    println!("{measured_on}\n");
    let mut figures = Vec::new();
    for (numbers, group) in GROUPS {
        if setting.wanted.is_empty() || numbers.iter().any(|row| setting.wanted.contains(row)) {
            let measured = group(&stage)?;
            print!("{}", report::table(&measured));
            figures.extend(measured);
        }
    }
    figures.sort_by_key(|figure| figure.row);
    Ok((measured_on, figures))
}

/// Of the broker that is installed.
fn version() -> String {
    let told = Command::new("rabbitmqctl").arg("version").output();
    let version = told.map(|told| String::from_utf8_lossy(&told.stdout).trim().to_owned());
    format!("RabbitMQ {}", version.unwrap_or_default())
}

fn figure(
    row: u32,
    what: &str,
    measured: String,
    compared: String,
    target: &'static str,
    met: Option<bool>,
) -> Figure {
    Figure { row, what: what.to_owned(), measured, compared, target, met }
}
