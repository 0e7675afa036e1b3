//! One process of the soak's crew on a spool: a producer, or a consumer of the first or the second queue.
//! It is killed at any moment; what it did stands in two files.
//!
//! Started by [`crew`](super::crew), as this program with a hidden command.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use clap::{Args, ValueEnum};
use rustix::process::{Signal, set_parent_process_death_signal};
use shiftspool::{Durability, EntryName, Guard, Item, Options, Order, QueueName, Spool, Stop};

/// Entries in the first queue above which producers wait.
const AHEAD_MAX: usize = 100;
/// Between two entries of a producer: it is kills that are wanted here, and the processors are the daemon's.
const PACE: Duration = Duration::from_millis(5);
/// Between two looks whether it is over.
const WAIT: Duration = Duration::from_millis(100);

/// What a process does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Role {
    /// Puts entries into the first queue.
    Produce,
    /// Moves entries from the first to the second queue.
    First,
    /// Removes entries from the second queue.
    Second,
}

/// Behind the hidden command.
#[derive(Debug, Args)]
pub struct Hand {
    /// What it does
    pub role: Role,
    /// Its number
    pub id: u32,
    /// The crew's directory
    pub base: PathBuf,
}

/// Opens the crew's spool, made if it is not there.
///
/// # Errors
/// When it cannot be.
pub fn spool(base: &Path) -> io::Result<Spool> {
    let options = Options { durability: Durability::None, ..Options::default() };
    Spool::create(&base.join("spool"), options).map_err(io::Error::other)
}

/// A queue.
///
/// # Errors
/// When that is no name.
pub fn queue(name: &str) -> io::Result<QueueName> {
    QueueName::new(name).map_err(io::Error::other)
}

/// Works until it is over.
///
/// # Errors
/// When the spool refuses anything: nothing in a soak makes it.
pub fn run(hand: &Hand) -> io::Result<()> {
    // A soak that is killed leaves nobody behind.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let spool = spool(&hand.base)?;
    match hand.role {
        Role::Produce => produce(&spool, hand),
        Role::First => consume(&spool, hand, "in", Some(&queue("out")?)),
        Role::Second => consume(&spool, hand, "out", None),
    }
}

fn is_over(hand: &Hand) -> bool {
    hand.base.join("over").exists()
}

/// One line, with one write.
fn note(hand: &Hand, file: &str, line: &str) -> io::Result<()> {
    let mut file = File::options().append(true).create(true).open(hand.base.join(file))?;
    file.write_all(format!("{line}\n").as_bytes())
}

fn produce(spool: &Spool, hand: &Hand) -> io::Result<()> {
    let queue = queue("in")?;
    let mut number = 0;
    while !is_over(hand) {
        thread::sleep(PACE);
        if spool.list(&queue).map_err(io::Error::other)?.len() > AHEAD_MAX {
            continue;
        }
        let text = format!("e{}-{number:06}", hand.id);
        let name = EntryName::new(&text).map_err(io::Error::other)?;
        let item = Item::new(text.as_str(), text.as_str());
        spool.enqueue(&queue, |_| name.clone(), &item).map_err(io::Error::other)?;
        note(hand, "acknowledged", &text)?;
        number += 1;
    }
    Ok(())
}

fn consume(spool: &Spool, hand: &Hand, from: &str, to: Option<&QueueName>) -> io::Result<()> {
    let mut reader = spool.reader(&queue(from)?, Order::Spread).map_err(io::Error::other)?;
    let stop = Stop::new()?;
    while !is_over(hand) {
        if let Some(guard) = reader.dequeue(&stop, Some(WAIT)).map_err(io::Error::other)? {
            work(hand, from, to, guard)?;
        }
    }
    Ok(())
}

fn work(hand: &Hand, from: &str, to: Option<&QueueName>, guard: Guard) -> io::Result<()> {
    note(hand, "worked", &format!("{from} {} {} {}", guard.name(), hand.id, guard.attempt()))?;
    let data = guard.data().load().map_err(io::Error::other)?;
    if data != guard.metadata() || data != guard.name().to_string().as_bytes() {
        return Err(io::Error::other(format!("{} has another's content", guard.name())));
    }
    let ended = match to {
        Some(to) => guard.move_to(to),
        None => guard.complete(),
    };
    ended.map_err(io::Error::other)
}
