//! `shiftboss completions`: what has a shell complete shiftboss's command line. `make man` writes the same.

use std::io::{self, Write};

use clap::CommandFactory;
use clap_complete::Shell;

use crate::cli::Cli;
use crate::exit::{self, Failure};

pub fn run(shell: Shell) -> Result<(), Failure> {
    io::stdout().lock().write_all(&script(shell)).or_else(|error| exit::output_failed(&error))
}

/// A shell's script, from the definitions of the command line.
pub fn script(shell: Shell) -> Vec<u8> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "shiftboss", &mut script);
    script
}
