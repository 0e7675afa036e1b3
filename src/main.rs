//! The program: a page. Parse, call the command, map its error to an exit code.

use std::io::Write;
use std::panic;
use std::process::ExitCode;

use shiftboss::cli::Cli;
use shiftboss::exit::Failure;
use shiftboss::stores::without_passwords;
use shiftboss::{commands, exit, first_process, standard_error};

#[cfg(target_env = "musl")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    if let Some(code) = first_process::run() {
        return code.into();
    }
    let typed = match Cli::of(std::env::args_os()) {
        Ok(typed) => typed,
        Err(error) => {
            // Help and version go to standard output, and are no error.
            if !error.use_stderr() {
                let _ = error.print();
                return ExitCode::SUCCESS;
            }
            // It quotes what was typed.
            let text = without_passwords(error.render().ansi().to_string(), std::env::args_os());
            let _ = write!(anstream::stderr(), "{text}");
            return (exit::ExitCode::Usage as u8).into();
        }
    };
    let ended = panic::catch_unwind(|| commands::run(typed.command)).unwrap_or_else(|_| Err(bug()));
    let code = match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if !failure.is_silent() {
                // Nobody may be reading; the code tells all the same.
                standard_error::write(format!("shiftboss: {failure}\n").as_bytes());
            }
            failure.number().into()
        }
    };
    standard_error::flush();
    code
}

/// A panic has said on standard error where it happened.
fn bug() -> Failure {
    let message = "a bug in shiftboss ended it; please report the message above";
    Failure::new(exit::ExitCode::Internal, message)
}
