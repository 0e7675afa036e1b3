//! `shiftboss completions`: what has a shell complete shiftboss's command line. `make man` writes the same.

use clap::CommandFactory;
use clap_complete::Shell;

use super::printing::print;
use crate::cli::Cli;
use crate::exit::Failure;

pub fn run(shell: Shell) -> Result<(), Failure> {
    print(script(shell))
}

/// A shell's script, from the definitions of the command line.
pub fn script(shell: Shell) -> Vec<u8> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "shiftboss", &mut script);
    script
}
