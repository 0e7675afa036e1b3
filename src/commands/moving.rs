//! `shiftboss move`: moves a queue from a file to a server, or back; to the Python supervisor; or saves what is left of
//! it in a damaged file.

use std::fmt::Display;
use std::path::Path;

use shiftboss_relay::host_name;
use shiftboss_sqlite::{GivenBack, Salvage, Salvaged};

use super::printing::print;
use crate::exit::{ExitCode, Failure};
use crate::stores::{self, Database, Destination, Moved, move_in, move_out};
use crate::text::counted;

/// The moved rows that are shown to people: tables, and what a row is.
const SHOWN: [(&str, &str); 5] = [
    ("runs", "list"),
    ("rows", "task"),
    ("tasks", "kept single task"),
    ("keys", "key"),
    ("attempts", "attempt"),
];

pub fn run(from: Database, to: Destination, daemon_name: Option<String>) -> Result<(), Failure> {
    let owner = daemon_name.unwrap_or_else(host_name);
    let to = match (&from, to) {
        (_, Destination::Database(to)) => to,
        (Database::File(file), Destination::Supervisor(path)) => return give_back(file, &path),
        (Database::Server(_), to @ Destination::Supervisor(_)) => {
            return Err(Failure::usage(format!(
                "{from} is on a server: move its queue to a file first, and then from that file to {to}"
            )));
        }
    };
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
                "{from} and {to} are both files: `backup` copies one, and `move --salvage` one that is damaged; `move` is for a file and a server's URL"
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
    let moved = SHOWN.map(count).join(", ");
    format!("Moved: {moved}.\n{}", gone(from, to))
}

fn gone(from: &impl Display, to: &impl Display) -> String {
    format!("The queue is in {to}. No daemon starts on {from} any more.\n")
}

/// The way back to the Python supervisor.
fn give_back(from: &Path, to: &Path) -> Result<(), Failure> {
    let _lock = super::locked(from)?;
    let GivenBack { rows, keys, single_tasks } = stores::give_back(from, to)?;
    let behind = match single_tasks {
        0 => String::new(),
        count => format!(" {} stayed behind.", counted(count, "single task")),
    };
    let moved = [counted(rows, "task"), counted(keys, "logged key")].join(", ");
    print(format!("Moved: {moved}.{behind}\n{}", gone(&from.display(), &to.display())))
}

/// Saves what can be read of a damaged file into a new one.
pub fn salvage(from: &Database, to: &Destination) -> Result<(), Failure> {
    let instead = "restore a backup with the server's own tools (pg_restore)";
    let old = from.require_file("move --salvage", instead)?;
    let Destination::Database(Database::File(new)) = to else {
        let text = format!("`move --salvage` makes a database in a file; {to} is none");
        return Err(Failure::usage(text));
    };
    let _lock = super::locked(old)?;
    let saved = stores::salvage(old, new)?;
    print(what_was_saved(&saved, new))?;
    if saved.tables.iter().any(Salvaged::is_lost_for_good) {
        return Err(Failure::silent(ExitCode::Found));
    }
    Ok(())
}

fn what_was_saved(saved: &Salvage, new: &Path) -> String {
    let mut out = format!("{:<12} {:>10}  {:>10}\n", "Table", "rows", "lost");
    for it in &saved.tables {
        out += &format!("{:<12} {:>10}  {:>10}\n", it.table, it.rows, lost(it));
    }
    let new = new.display();
    let again = "At the next start its lists are read again from their files";
    let gone = saved.tables.iter().filter(|it| it.is_lost_for_good());
    let gone: Vec<_> = gone.map(|it| format!("{} of {}", lost(it), it.table)).collect();
    if gone.is_empty() {
        return out
            + &format!("{new} is ready. {again}, which bring back all that was lost of them.\n");
    }
    if saved.anew > 0 {
        let keys = counted(saved.anew, "key");
        out += &format!("Of {keys} only the names, rows, single tasks and attempts are known.\n");
    }
    out + &format!(
        "{new} is ready, but NOT whole: {} could not be read. {again}; no file brings the others back.\n",
        gone.join(", ")
    )
}

fn lost(it: &Salvaged) -> String {
    it.lost.map_or_else(|| "some".to_owned(), |lost| lost.to_string())
}
