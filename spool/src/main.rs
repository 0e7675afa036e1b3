//! The program `shiftspool`: a page. What a command line means is [`shiftspool::program`]'s.

use std::process::ExitCode;

fn main() -> ExitCode {
    shiftboss_console::program::main(|text| text, shiftspool::program::run)
}
