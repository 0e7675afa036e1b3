//! The program. [`shiftboss::commands`] does everything.

use std::process::ExitCode;

use shiftboss::cli::Cli;
use shiftboss::commands;
use shiftboss::stores::without_passwords;
use shiftboss_console::program;

#[cfg(target_env = "musl")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let shown = |text: String| without_passwords(text, std::env::args_os());
    program::main(Cli::of, shown, |typed| commands::run(typed.command))
}
