//! `make bench-postgres`: the queue on a PostgreSQL server, beside graphile-worker and bare statements on the same server
//! in the same run.
//!
//! What is compared is measured in rounds, in turn, so that a machine that is slow for a while is slow for all; the
//! medians of the rounds are what is shown. Server, daemons and workers share the machine's cores.

mod bare;
pub(crate) mod database;
mod graphile;
mod growth;
mod moving;
mod peers;
mod queue;
mod throughput;

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::report::{self, Figure};
use database::Cluster;

/// How much is measured, and where.
#[derive(Debug, Clone, clap::Args)]
pub struct Setting {
    /// The server, as a URL without a database; its role may make databases
    #[arg(long, env = "SHIFTBOSS_TEST_POSTGRES", hide_env_values = true)]
    pub server: String,
    /// Where graphile-worker is installed
    #[arg(long, default_value = "target/graphile-worker")]
    pub graphile: PathBuf,
    /// Rows of the table to measure; all of them without it
    #[arg(id = "postgres_rows", long = "rows", value_delimiter = ',')]
    pub wanted: Vec<u32>,
    /// How often each rate is measured, in turn; the medians are what is shown
    #[arg(long, default_value_t = 3)]
    pub rounds: usize,
    /// Seconds for which each is measured
    #[arg(id = "postgres_seconds", long = "seconds", default_value_t = 3)]
    pub seconds: u64,
    /// Jobs of the queues whose speeds are compared
    #[arg(long, default_value_t = 400_000)]
    pub jobs: usize,
    /// Lines of the list that is loaded
    #[arg(id = "postgres_list", long = "list", default_value_t = 1_100_000)]
    pub list: usize,
    /// Rows of a queue that is larger still; 0: there is none
    #[arg(id = "postgres_largest", long = "largest", default_value_t = 0)]
    pub largest: usize,
    /// Milliseconds that an answer of the server takes longer, as if it were farther away
    #[arg(long, default_value_t = 0.0)]
    pub round_trip: f64,
}

/// What every group needs to know.
struct Stage<'a> {
    setting: &'a Setting,
    /// The daemon's binary.
    program: &'a Path,
    cluster: Cluster,
}

/// A group of rows that share a measurement.
type Group = fn(&Stage) -> io::Result<Vec<Figure>>;

/// Every group, by the numbers of its rows.
const GROUPS: &[(&[u32], Group)] = &[
    (&[1, 2, 3, 4, 5, 6], throughput::rows),
    (&[7, 8, 9], growth::rows),
    (&[10, 11], peers::rows),
    (&[12], moving::rows),
];

/// What was measured on, and all rows that are wanted; each group is printed as soon as it is known.
///
/// # Errors
/// When the server, a daemon or a worker fails.
pub fn rows(program: &Path, setting: &Setting) -> io::Result<(String, Vec<Figure>)> {
    let round_trip = Duration::from_secs_f64(setting.round_trip.max(0.0) / 1e3);
    let cluster = Cluster::new(&setting.server, round_trip)?;
    let stage = Stage { setting, program, cluster };
    let theirs = graphile::version(&setting.graphile);
    let measured_on = format!("{}, {theirs}; {}", report::hardware(), stage.cluster.settings()?);
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

/// A figure that is to be at least, or at most, some factor of another.
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
