//! How a program begins and ends: its command line, its exit code, and what runs until signals end it. `main` of each
//! program calls [`main`].

use std::env::{self, ArgsOs};
use std::io::{self, Write};
use std::panic::{self, AssertUnwindSafe};
use std::process;
use std::time::Duration;

use clap::{Command, Parser};
use clap_complete::Shell;
use nix::sys::signal::Signal as StandardSignal;
use shiftboss_runner::signals::{self, Signals};

use crate::exit::{ExitCode, Failure};
use crate::{first_process, standard_error};

/// Parses the command line, runs the command, and maps its failure to an exit code. A wrong command line is quoted in
/// the form of `shown`: it may contain a password.
pub fn main<P: Parser>(
    read: impl FnOnce(ArgsOs) -> Result<P, clap::Error>,
    shown: impl FnOnce(String) -> String,
    run: impl FnOnce(P) -> Result<(), Failure>,
) -> process::ExitCode {
    if let Some(code) = first_process::run() {
        return code.into();
    }
    let typed = match read(env::args_os()) {
        Ok(typed) => typed,
        Err(error) => {
            // Help and version go to standard output, and are no error.
            if !error.use_stderr() {
                let _ = error.print();
                return process::ExitCode::SUCCESS;
            }
            let text = shown(error.render().ansi().to_string());
            let _ = write!(anstream::stderr(), "{text}");
            return (ExitCode::Usage as u8).into();
        }
    };
    // A file at its size limit (RLIMIT_FSIZE) makes a write fail, as a full disk does; it must not kill us.
    let _ = signals::ignore(StandardSignal::SIGXFSZ);
    let ended = panic::catch_unwind(AssertUnwindSafe(|| run(typed)));
    let code = match ended.unwrap_or_else(|_| Err(bug())) {
        Ok(()) => process::ExitCode::SUCCESS,
        Err(failure) => {
            if !failure.is_silent() {
                // There may be no reader; the exit code is enough then.
                let text = format!("{}: {failure}\n", P::command().get_name());
                standard_error::write(text.as_bytes());
            }
            failure.number().into()
        }
    };
    standard_error::flush();
    code
}

/// The panic itself has been reported on standard error.
fn bug() -> Failure {
    Failure::new(ExitCode::Internal, "a bug ended the program; please report the message above")
}

pub fn completions(mut program: Command, shell: Shell) -> Vec<u8> {
    let (name, mut script) = (program.get_name().to_owned(), Vec::new());
    clap_complete::generate(shell, &mut program, name, &mut script);
    script
}

/// Runs something that ends by itself or by signals. What still runs then is killed.
pub fn with_signals<T>(
    work: impl AsyncFnOnce(Signals) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let cannot = |error: io::Error| {
        let text = format!("cannot start the runtime: {error}; is there a limit on descriptors?");
        Failure::new(ExitCode::StoreIo, text)
    };
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    // Threads stay alive when idle: if the system's process limit is reached, no new ones can be made.
    let runtime = runtime.enable_all().thread_keep_alive(Duration::MAX).build().map_err(cannot)?;
    runtime.block_on(async { work(Signals::new().map_err(cannot)?).await })
}
