//! One file a subcommand: each turns settings into calls of the parts, and has no logic of its own.

pub mod ask;
pub mod backup;
pub mod check;
pub mod fetch;
pub mod guardian;
pub mod log;
pub mod on_change;
pub mod operators;
pub mod queue;
pub mod serve;
pub mod spool;
pub mod status;
mod target;
mod text;
pub mod why;
pub mod work;

use crate::cli::{Command, FetchSettings, Look, OnChange};
use crate::exit::{ExitCode, Failure};
use crate::logging::{self, LogFormat};
use crate::sqlite::ViewError;
use crate::sqlite::views::Wanted;

/// Runs what was typed.
///
/// # Errors
/// Why the command ended other than well.
pub fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Serve(typed) => serve::run(*typed),
        Command::Check { config: Some(file), .. } => check::config::run(&file),
        Command::Check { input_dir, json, .. } => check::run(&input_dir.unwrap_or_default(), json),
        Command::Ask { timeout, socket, lines } => ask::run(&socket, &lines, timeout),
        Command::Look(asked) => look(asked),
        Command::Operate(told) => operators::run(told),
        Command::Backup { database, file } => backup::run(&database, &file),
        Command::Fetch(typed) => {
            logging::start(LogFormat::Auto, &typed.log_level)?;
            fetch::run(FetchSettings::try_from(typed)?)
        }
        Command::Work(typed) => {
            logging::start(LogFormat::Auto, &typed.log_level)?;
            work::run(typed.try_into()?)
        }
        Command::OnChange(typed) => {
            logging::start(LogFormat::Auto, &typed.log_level)?;
            on_change::run(OnChange::try_from(typed)?)
        }
        Command::Spool(typed) => spool::run(typed),
        Command::Guardian => guardian::run(),
    }
}

fn look(asked: Look) -> Result<(), Failure> {
    match asked {
        Look::Status(looked) => status::run(&looked),
        Look::Why { looked, key } => why::run(&looked, &key),
        Look::Queue { looked, number } => queue::run(&looked, number),
        Look::Log { looked, failed, key, number } => {
            log::run(&looked, &Wanted { failed, key, count: number.into() })
        }
    }
}

/// Why a command that only reads the database ended.
fn view_failure(error: &ViewError) -> Failure {
    let code = match error {
        ViewError::Missing(_) | ViewError::Unrecovered { .. } => ExitCode::Unavailable,
        ViewError::Foreign(_) | ViewError::Newer { .. } | ViewError::NotTakenOver { .. } => {
            ExitCode::Configuration
        }
        ViewError::Denied { .. } => ExitCode::Denied,
        ViewError::Unsound { .. } => ExitCode::BadData,
        ViewError::Sqlite { .. } => ExitCode::StoreIo,
    };
    Failure::new(code, error.to_string())
}
