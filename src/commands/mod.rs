//! One file a subcommand: each turns settings into calls of the parts, and has no logic of its own.

pub mod ask;
pub mod backup;
pub mod check;
pub mod fetch;
pub mod guardian;
pub mod serve;
pub mod status;

use crate::cli::{Command, FetchSettings, ServeSettings};
use crate::exit::{ExitCode, Failure};
use crate::logging::{self, LogFormat};
use crate::sqlite::ViewError;

/// Runs what was typed.
///
/// # Errors
/// Why the command ended other than well.
pub fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Serve(typed) => {
            logging::start(typed.log_format, &typed.log_level)?;
            serve::run(&ServeSettings::try_from(typed)?)
        }
        Command::Check { input_dir, json } => check::run(&input_dir, json),
        Command::Ask { timeout, socket, lines } => ask::run(&socket, &lines, timeout),
        Command::Status { target, json } => status::run(&target, json),
        Command::Backup { database, file } => backup::run(&database, &file),
        Command::Fetch(typed) => {
            logging::start(LogFormat::Auto, &typed.log_level)?;
            fetch::run(FetchSettings::try_from(typed)?)
        }
        Command::Guardian => guardian::run(),
    }
}

/// Why a command that only reads the database ended.
fn view_failure(error: &ViewError) -> Failure {
    let code = match error {
        ViewError::Missing(_) | ViewError::Unrecovered { .. } => ExitCode::Unavailable,
        ViewError::Foreign(_) | ViewError::Newer { .. } | ViewError::NotTakenOver { .. } => {
            ExitCode::Configuration
        }
        ViewError::Unsound { .. } => ExitCode::BadData,
        ViewError::Sqlite { .. } => ExitCode::StoreIo,
    };
    Failure::new(code, error.to_string())
}
