//! The commands: a file for each, or for those that are alike (`operators`, `views`). Each calls the parts and shows
//! what they answer. `input`, `printing` and [`text`] are what they share.

pub mod ask;
mod broker;
pub mod check;
pub mod fetch;
mod moving;
pub mod on_change;
pub mod operators;
mod output;
pub mod relay;
pub mod serve;
mod simulate;
mod views;
pub mod work;

use std::io::{self, ErrorKind};
use std::path::Path;

use clap::CommandFactory;
use shiftboss_console::{input, printing};

use crate::child;
use crate::cli::{Cli, Command};
use crate::exit::{ExitCode, Failure};
use crate::limits::Needs;
use crate::lock::{self, LockError, LockFile};
use crate::logging::{self, LogFormat};
use crate::program::completions;
use crate::runner::descriptors;
use crate::stores::{self, Database};
use crate::text;
use crate::top;
use crate::web;

pub fn run(command: Command) -> Result<(), Failure> {
    let has_connections =
        matches!(command, Command::Serve(_) | Command::Relay(_) | Command::Web(_));
    if has_connections {
        // Each connection and each growing file takes a descriptor: as many as the system allows.
        descriptors::raise();
    }
    needs(&command).require()?;
    match command {
        Command::Serve(typed) => serve::run(*typed),
        Command::Relay(typed) => relay::run((*typed).try_into()?),
        Command::Web(typed) => {
            logging::start(LogFormat::Auto, &typed.log_level)?;
            web::run(typed.try_into()?)
        }
        Command::Top(typed) => top::run(typed),
        Command::Broker(typed) => broker::run(typed.verb),
        Command::Check { config: Some(file), lists, job_time, .. } => {
            check::config::run(&file, &lists, job_time)
        }
        Command::Check { database: Some(database), .. } => {
            let instead = "pg_amcheck checks it";
            check::database::run(database.require_file("check --database", instead)?)
        }
        Command::Migrate { target } => migrate(&target.database()?),
        Command::Move { salvage: true, from, to, .. } => moving::salvage(&from, &to),
        Command::Move { from, to, daemon_name, .. } => {
            logging::start(LogFormat::Auto, "")?;
            moving::run(from, to, daemon_name)
        }
        Command::Check { input_dir, json, .. } => check::run(&input_dir.unwrap_or_default(), json),
        Command::Ask { timeout, target, lines } => {
            ask::run(&target.socket("ask")?, &lines, timeout)
        }
        Command::Output(typed) => output::run(typed),
        Command::Simulate(typed) => simulate::run(&typed),
        Command::View(asked) => views::run(asked),
        Command::Health(daemon) => operators::health(&daemon),
        Command::Operate(asked) => operators::run(asked),
        Command::Backup { target, file } => {
            let database = target.database()?;
            stores::backup(database.require_file("backup", "pg_dump copies it")?, &file)
        }
        Command::Fetch(typed) => {
            logging::start(LogFormat::Auto, &typed.log.log_level)?;
            let (input, list) = typed.list()?;
            fetch::run(input, list)
        }
        Command::Work(typed) => {
            logging::start(LogFormat::Auto, &typed.runner.run.log.log_level)?;
            work::run(typed.try_into()?)
        }
        Command::OnChange(typed) => {
            logging::start(LogFormat::Auto, &typed.run.log.log_level)?;
            on_change::run(*typed)
        }
        Command::Completions { shell } => printing::print(completions(Cli::command(), shell)),
        // It ends the commands of a shiftboss that was killed, which started it through `child`.
        Command::Guardian => child::guard(io::stdin()).map_err(Failure::of(ExitCode::Usage)),
    }
}

/// The resources that a command needs, with some to spare; connections and simultaneous jobs are added to that.
fn needs(command: &Command) -> Needs {
    let (descriptors, threads) = match command {
        Command::Serve(_) | Command::Relay(_) => (48, 8),
        // Each job is a process.
        Command::Work(typed) => (32, 6 + usize::from(typed.runner.jobs)),
        Command::Fetch(_) | Command::OnChange(_) => (32, 6),
        Command::Top(_) => (24, 4),
        Command::Simulate(_) => (16, simulate::THREADS_MAX),
        // It stands by with what it was given.
        Command::Guardian => (0, 0),
        _ => (16, 0),
    };
    Needs { descriptors, threads }
}

/// A file is brought up to date by the daemon that uses it alone.
fn migrate(database: &Database) -> Result<(), Failure> {
    let Database::Server(url) = database else {
        let text = format!(
            "`migrate` is for a database on a server; {database} is a file, which `serve` makes and brings up to date"
        );
        return Err(Failure::usage(text));
    };
    stores::migrate(url)?;
    printing::print(format!("{url} is up to date\n"))
}

/// Keeps daemons from a database as long as the lock is held.
fn locked(database: &Path) -> Result<LockFile, Failure> {
    stores::require_files(database).map_err(stores::read_failure)?;
    if !database.is_file() {
        let text = format!("there is no database {}", database.display());
        return Err(Failure::new(ExitCode::Unavailable, text));
    }
    lock(database)
}

/// The same where there may be nothing yet.
fn lock(database: &Path) -> Result<LockFile, Failure> {
    let holder = lock::this_process(database, Path::new(""), Path::new(""));
    lock::take(database, &holder).map_err(|error| match error {
        LockError::Io { source, .. } if source.kind() == ErrorKind::ReadOnlyFilesystem => {
            let text = format!(
                "{} is on a read-only file system, where it cannot be locked: copy it, with the -wal beside it if \
                 there is one, to where you may write, and give the copy",
                database.display()
            );
            Failure::new(ExitCode::CannotCreate, text)
        }
        error => error.into(),
    })
}
