//! The program `shiftspool`. [`shiftspool::program`] does everything.

use std::process::ExitCode;

use clap::Parser;
use shiftboss_console::program;
use shiftspool::program::{cli::Cli, run};

fn main() -> ExitCode {
    program::main(Cli::try_parse_from, |text| text, run)
}
