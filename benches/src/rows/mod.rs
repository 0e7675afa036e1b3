//! The rows of the table, by what they measure. Each gives [`Figure`]s, and knows its targets.

mod groups;
mod latency;
mod loading;
mod pages;
mod shapes;
mod simulation;
mod size;
mod throughput;
mod watching;
mod work;
mod worker;

use std::io;
use std::path::PathBuf;

use crate::report::Figure;
pub use latency::{ask, waits};
pub use loading::Workers;
pub use work::cycles;

/// What every row needs to know.
#[derive(Debug, Clone)]
pub struct Setting {
    /// The daemon's binary.
    pub program: PathBuf,
    /// Whether beanstalkd can be compared with.
    pub beanstalkd: bool,
    /// Rows of the largest queue: ten million, or fewer for a quick look.
    pub largest: usize,
    /// Lines of the list that is loaded.
    pub list: usize,
    /// How long a rate is measured, in seconds.
    pub seconds: u64,
}

/// A group of rows that share a measurement.
type Group = fn(&Setting) -> io::Result<Vec<Figure>>;

/// Every group, by the numbers of its rows.
pub const GROUPS: &[(&[u32], Group)] = &[
    (&[1, 2, 3, 4, 5], throughput::rows),
    (&[6, 7], shapes::rows),
    (&[8, 9, 10], loading::rows),
    (&[11, 12], size::rows),
    (&[13], latency::rows),
    (&[14], work::rows),
    (&[15], watching::rows),
    (&[16, 17], worker::rows),
    (&[18, 19], pages::rows),
    (&[20], simulation::rows),
    (&[21, 22], groups::grouped),
    (&[23], groups::closed),
    (&[24], groups::due_at_once),
    (&[25], groups::routed),
];
