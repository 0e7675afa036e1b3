//! What all commands share that look at a TARGET: the database, or the socket of its daemon.
//!
//! They ask nobody: the lock file tells whether a daemon runs, the database (read-only) tells the
//! rest. So they work whether or not one runs.

use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use serde::Serialize;
use shiftboss_actors::clock::{Clock, SystemClock};
use shiftboss_actors::live::Report;
use shiftboss_actors::store::Ask;
use tokio::runtime;

use super::output::print;
use crate::exit::{ExitCode, Failure};
use crate::lock::{self, LockState};
use crate::stores;
use crate::target::either;

/// A database that is looked at, and the daemon that keeps it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    pub database: PathBuf,
    /// Its daemon, if one runs.
    pub daemon: LockState,
}

/// Asks a database, whether or not a daemon keeps it.
pub fn ask<Q: Ask>(database: &Path, question: Q) -> Result<Q::Answer, Failure> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(Failure::of(ExitCode::Internal))?;
    let reader = stores::reader(database);
    runtime.block_on(reader.ask(SystemClock.now(), question)).map_err(stores::read_failure)
}

/// Finds the database that is meant ([`either`]), and its daemon if one runs.
pub fn find(given: Option<PathBuf>, config: Option<&Path>) -> Result<Target, Failure> {
    let database = database_of(&either(given, config)?)?;
    Ok(Target { daemon: lock::state_of(&database), database })
}

/// The database itself, or that of the daemon that listens on a socket, or did until it was killed.
fn database_of(target: &Path) -> Result<PathBuf, Failure> {
    if let Some(holder) = lock::holder_of(target) {
        return Ok(holder.database);
    }
    let shown = target.display();
    let why = match std::fs::symlink_metadata(target) {
        Ok(found) if found.file_type().is_socket() => format!("no daemon listens on {shown}"),
        // A clean stop removes the socket, and leaves its lock file.
        Err(error) if error.kind() == ErrorKind::NotFound && lock::file_of(target).exists() => {
            format!("there is nothing at {shown} any more, as after a clean stop of its daemon")
        }
        _ => return absolute(target),
    };
    lock::noted(target).map(|left| left.database).ok_or_else(|| {
        let text = format!("{why}: start one, or give the database instead of the socket");
        Failure::new(ExitCode::Unavailable, text)
    })
}

fn absolute(target: &Path) -> Result<PathBuf, Failure> {
    std::path::absolute(target)
        .map_err(|error| Failure::usage(format!("{}: {error}", target.display())))
}

/// Prints what was found: the JSON object, or the text that `render` makes of it.
pub fn show<T: Serialize>(
    target: &Target,
    found: &T,
    json: bool,
    render: impl FnOnce(&T) -> String,
) -> Result<(), Failure> {
    if json {
        let (daemon, daemon_unknown) = match &target.daemon {
            LockState::Free => (None, None),
            LockState::By(daemon) => (Some(daemon), None),
            LockState::Unknown(why) => (None, Some(*why)),
        };
        let report = Report { database: &target.database, daemon, daemon_unknown, found };
        let line = serde_json::to_string(&report).map_err(Failure::of(ExitCode::Internal))?;
        return print(line + "\n");
    }
    print(render(found))
}

/// Says on standard error that nobody changes what is shown; the JSON object tells it itself.
pub fn warn_if_down(target: &Target, json: bool) {
    let database = target.database.display();
    let why = match &target.daemon {
        LockState::By(_) => return,
        LockState::Free => format!("no daemon runs on {database}"),
        LockState::Unknown(why) => {
            format!("whether a daemon runs on {database} is not known: {why}")
        }
    };
    if !json {
        // Nobody may be reading.
        let _ = writeln!(io::stderr(), "shiftboss: {why}; this is what is in the file");
    }
}
