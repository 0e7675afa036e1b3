//! `shiftboss move`: brings a queue from a file to a server, or back.

use super::printing::print;
use crate::cli::host_name;
use crate::exit::Failure;
use crate::stores::{Database, Moved, move_in, move_out};
use crate::text::counted;

/// What people count, of what was moved: tables, and what a row is.
const SHOWN: [(&str, &str); 5] = [
    ("runs", "list"),
    ("queue", "task"),
    ("single_tasks", "single task"),
    ("log", "logged key"),
    ("attempts", "attempt"),
];

pub fn run(from: Database, to: Database, daemon_name: Option<String>) -> Result<(), Failure> {
    let owner = daemon_name.unwrap_or_else(host_name);
    let moved = match (&from, &to) {
        (Database::File(file), Database::Server(url)) => {
            let _lock = super::locked(file)?;
            move_in(file, url, &owner)?
        }
        (Database::Server(url), Database::File(file)) => {
            let _lock = super::lock(file)?;
            move_out(url, file)?
        }
        (Database::File(_), Database::File(_)) => {
            return Err(Failure::usage(format!(
                "{from} and {to} are both files: `backup` copies one; `move` is for a file and a server's URL"
            )));
        }
        (Database::Server(_), Database::Server(_)) => {
            return Err(Failure::usage(format!(
                "{from} and {to} are both on a server: `pg_dump` copies one; `move` is for a file and a server's URL"
            )));
        }
    };
    let owner = to.file().is_none().then_some(owner);
    print(report(&moved, &from, &to) + &owner.map_or_else(String::new, whose))
}

fn whose(daemon: String) -> String {
    format!(
        "The lists belong to the daemon {daemon}: start it with --daemon-name {daemon} and the input directory that it had.\n"
    )
}

fn report(moved: &[Moved], from: &Database, to: &Database) -> String {
    if moved.is_empty() {
        return format!("The queue is in {to}: the move that was broken off has ended.\n");
    }
    let count = |(name, noun)| {
        let rows = moved.iter().find(|moved| moved.table == name).map_or(0, |moved| moved.rows);
        counted(rows, noun)
    };
    format!(
        "Moved: {}.\nThe queue is in {to}. No daemon starts on {from} any more.\n",
        SHOWN.map(count).join(", ")
    )
}
