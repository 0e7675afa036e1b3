//! Row 14: the instructions that the store needs, without actors and sockets.

use std::io;
use std::process::Command;

use clap::ValueEnum;

use crate::bare::{Bare, Kind};

use super::Setting;
use crate::report::Figure;

/// Cycles of the two runs whose difference is counted.
const CYCLES: [usize; 2] = [2_000, 6_000];
/// Jobs of those runs.
const JOBS: usize = 20_000;
/// Cycles in one commit there.
const GROUP: usize = 64;

/// What is run under callgrind: a store with jobs, and so many cycles.
///
/// # Errors
/// When the store says so.
pub fn cycles(count: usize, kind: Kind) -> io::Result<()> {
    let mut bare = Bare::of_kind(JOBS, kind)?;
    (0..count / GROUP).try_for_each(|_| bare.cycles(GROUP))
}

pub fn rows(_: &Setting) -> io::Result<Vec<Figure>> {
    [
        (Kind::First, format!("the store's work for one DONE+next, {GROUP} in a commit")),
        (Kind::Again, "the same, of keys that ran before".to_owned()),
        (Kind::Leased, "the same as at first, leased (protocol 2)".to_owned()),
    ]
    .into_iter()
    .map(|(kind, what)| Ok(figure(what, measured(kind)?)))
    .collect()
}

fn measured(kind: Kind) -> io::Result<String> {
    let (few, many) = (instructions(CYCLES[0], kind)?, instructions(CYCLES[1], kind)?);
    let (Some(few), Some(many)) = (few, many) else {
        return Ok("valgrind is not installed".to_owned());
    };
    let cycles = (CYCLES[1] / GROUP - CYCLES[0] / GROUP) * GROUP;
    Ok(format!("{} instructions", (many - few) / cycles as u64))
}

fn figure(what: String, measured: String) -> Figure {
    Figure {
        row: 14,
        what,
        measured,
        compared: String::new(),
        target: "no more than before",
        met: None,
    }
}

/// The instructions of a whole run; `None` without valgrind.
fn instructions(count: usize, kind: Kind) -> io::Result<Option<u64>> {
    let home = tempfile::tempdir()?;
    let out = format!("--callgrind-out-file={}", home.path().join("out").display());
    let run = Command::new("valgrind")
        .args(["--tool=callgrind", &out])
        .arg(std::env::current_exe()?)
        .args(["cycles", &count.to_string()])
        .args(kind.to_possible_value().map(|name| name.get_name().to_owned()))
        .output();
    let told = match run {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        told => told?,
    };
    let text = String::from_utf8_lossy(&told.stderr).into_owned();
    let collected = text.lines().find_map(|line| line.split_once("Collected : "));
    match collected.and_then(|(_, count)| count.trim().parse().ok()) {
        Some(count) => Ok(Some(count)),
        None => Err(io::Error::other(format!("callgrind: {text}"))),
    }
}
