//! The program: a page. Parse, call the command, tell its error, end with its code.

use std::io::{self, Write};
use std::panic;
use std::process::ExitCode;

use clap::Parser;
use shiftboss::cli::settings::ServeSettings;
use shiftboss::cli::{Cli, Command};
use shiftboss::commands::{ask, check};
use shiftboss::exit::{self, Failure};

fn main() -> ExitCode {
    match Cli::try_parse() {
        Ok(cli) => end(panic::catch_unwind(|| run(cli.command)).unwrap_or_else(|_| Err(bug()))),
        Err(error) => {
            // Nowhere to tell it if this fails; the code says it too.
            let _ = error.print();
            if error.use_stderr() {
                exit::ExitCode::Usage.into()
            } else {
                ExitCode::SUCCESS
            }
        }
    }
}

/// Calls the command.
fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Check(args) => check::run(&args),
        Command::Ask(args) => ask::run(&args.try_into()?),
        // The place for the commands that are built elsewhere: serve, status, backup.
        Command::Serve(args) => ServeSettings::try_from(args)
            .map_err(Failure::from)
            .and(not_built()),
        Command::Status(_) | Command::Backup(_) => not_built(),
    }
}

fn not_built() -> Result<(), Failure> {
    Err(Failure::new(
        exit::ExitCode::Unavailable,
        "this command is not built yet",
    ))
}

/// A panic has said on standard error where it happened.
fn bug() -> Failure {
    let message = "a bug in shiftboss ended it; please report the message above";
    Failure::new(exit::ExitCode::Internal, message)
}

/// Tells a failure on standard error and gives the process its exit code.
fn end(result: Result<(), Failure>) -> ExitCode {
    match result {
        Ok(()) | Err(Failure::OutputClosed) => ExitCode::SUCCESS,
        Err(Failure::Error { code, message }) => {
            // Nowhere to tell it if this fails; the code says it too.
            let _ = writeln!(io::stderr(), "shiftboss: {message}");
            code.into()
        }
    }
}
