//! `make bench-spool`: the spool's operations, one process, beside bare loops of the same system calls
//! in the same run, and beside the figures that were measured of the reference (Multispool).
//!
//! Everything is measured in rounds, each of which has a part of every row, so that a disk that is
//! slow for a while is slow for all of them; the medians of the rounds are what is shown.

mod bare;
mod queues;
mod single;

use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use shiftspool::{Durability, EntryName, Item, Options, QueueName, Spool, SpoolError};
use tempfile::TempDir;

use crate::report::Figure;

/// What the reference did on ext4 with two cores, an entry of metadata and data, in operations a second.
pub struct Reference {
    pub enqueue: f64,
    pub move_to: f64,
    pub remove: f64,
    pub monitor: f64,
}

pub const REFERENCE: Reference =
    Reference { enqueue: 550.0, move_to: 580.0, remove: 1300.0, monitor: 9000.0 };

/// Bytes of metadata and data of a measured entry.
pub const METADATA: &[u8] = b"from alice; third of five; the rest is in the data";
pub const DATA: [u8; 1000] = [b'x'; 1000];

/// How much is measured.
#[derive(Debug, Clone)]
pub struct Setting {
    pub rounds: usize,
    pub longest: usize,
    pub directory: Option<PathBuf>,
}

/// A place for one measurement.
pub struct Place(TempDir);

impl Place {
    pub fn new(setting: &Setting) -> io::Result<Self> {
        match &setting.directory {
            Some(directory) => tempfile::tempdir_in(directory),
            None => tempfile::tempdir(),
        }
        .map(Self)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// A new spool.
    pub fn spool(&self, name: &str, durability: Durability) -> io::Result<Spool> {
        let options = Options { durability, ..Options::default() };
        Spool::create(&self.path(name), options).map_err(failed)
    }
}

pub fn failed(error: SpoolError) -> io::Error {
    io::Error::other(error)
}

pub fn queue(name: &str) -> io::Result<QueueName> {
    QueueName::new(name).map_err(io::Error::other)
}

pub fn both() -> Item {
    Item::new(METADATA, DATA)
}

pub fn data_only() -> Item {
    Item::new(*b"", DATA)
}

/// How often a second `count` calls were made.
pub fn rate(count: usize, mut call: impl FnMut(usize) -> io::Result<()>) -> io::Result<f64> {
    let start = Instant::now();
    (0..count).try_for_each(&mut call)?;
    Ok(count as f64 / start.elapsed().as_secs_f64())
}

pub fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// Entries into a queue, fast, for what comes after.
pub fn fill(spool: &Spool, into: &QueueName, count: usize) -> io::Result<Vec<EntryName>> {
    let mut names = Vec::with_capacity(count);
    for begin in (0..count).step_by(5000) {
        let items = vec![both(); (count - begin).min(5000)];
        let put = spool.enqueue_batch(into, shiftspool::time_ordered, &items);
        names.extend(put.map_err(failed)?);
    }
    Ok(names)
}

/// A row that is to be at least `factor` times something.
pub fn row(
    number: u32,
    what: &str,
    measured: String,
    compared: String,
    target: &'static str,
    met: Option<bool>,
) -> Figure {
    Figure { row: number, what: what.to_owned(), measured, compared, target, met }
}

/// All rows; those that remove something come last, and are shown first.
///
/// # Errors
/// When the disk says so.
pub fn rows(setting: &Setting) -> io::Result<Vec<Figure>> {
    println!("{}\n", crate::report::machine());
    let mut places = Vec::new();
    let queues = queues::rows(setting, &mut places)?;
    let mut figures = single::rows(setting)?;
    figures.extend(queues);
    Ok(figures)
}
