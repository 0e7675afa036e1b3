//! Writes man pages and shell completions, and what docs/ says of them, commands.md and the
//! tables of configuration.md: `make man`, `make docs`.
//!
//! All are made of the definitions that the command line is parsed by, so they say what it does.
//! Apart from the program itself, which does not carry them.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{env, fs, io};

use clap::{Command, CommandFactory};
use clap_complete::{Generator, Shell};
use shiftboss::cli::Cli;
use shiftboss_console::program::completions;
use shiftspool::program::cli::Cli as SpoolCli;

mod keys;
mod page;
mod reference;
mod tables;

/// The shells that get completions.
const SHELLS: [Shell; 3] = [Shell::Bash, Shell::Zsh, Shell::Fish];

fn main() -> ExitCode {
    let words: Vec<PathBuf> = env::args_os().skip(1).map(PathBuf::from).collect();
    let (place, written) = match words.as_slice() {
        [directory] => (directory, write(directory)),
        [option, documents] if option.as_os_str() == "--documents" => {
            (documents, write_documents(documents))
        }
        _ => {
            eprintln!("usage: shiftboss-manual DIRECTORY | --documents DIRECTORY");
            return ExitCode::from(64);
        }
    };
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("shiftboss-manual: cannot write to {}: {error}", place.display());
            ExitCode::from(73)
        }
    }
}

/// Writes commands.md anew, and in configuration.md the tables.
fn write_documents(directory: &Path) -> io::Result<()> {
    let [shiftboss, shiftspool] = programs().map(built);
    let reference = reference::reference([&shiftboss, &shiftspool]);
    fs::write(directory.join("commands.md"), reference)?;
    let configuration = directory.join("configuration.md");
    let document = fs::read_to_string(&configuration)?;
    fs::write(configuration, keys::keys(&document, &shiftboss))
}

/// The definitions of the command lines.
fn programs() -> [Command; 2] {
    [Cli::command(), SpoolCli::command()]
}

/// With the full names of all commands.
fn built(program: Command) -> Command {
    let mut command = program.disable_help_subcommand(true);
    command.build();
    command
}

/// Has each page show the usage that the command's help does. The default lists every option without its
/// value, and no `--` before what another program gets.
fn with_synopsis(mut command: Command) -> Command {
    let usage = command.render_usage().to_string();
    let usage = usage.strip_prefix("Usage:").unwrap_or(&usage).trim().to_owned();
    command.override_usage(usage).mut_subcommands(with_synopsis)
}

/// Fills `man1/` and `completions/` under the directory; what an older version left there goes.
fn write(directory: &Path) -> io::Result<()> {
    let (pages, scripts) = (directory.join("man1"), directory.join("completions"));
    for part in [&pages, &scripts] {
        if part.exists() {
            fs::remove_dir_all(part)?;
        }
        fs::create_dir_all(part)?;
    }
    for program in programs() {
        for shell in SHELLS {
            let file = scripts.join(shell.file_name(program.get_name()));
            fs::write(file, completions(program.clone(), shell))?;
        }
        write_pages(&with_synopsis(built(program)), &pages)?;
    }
    Ok(())
}

/// The pages of a command and of those below it.
fn write_pages(command: &Command, directory: &Path) -> io::Result<()> {
    let name = command.get_display_name().unwrap_or_else(|| command.get_name());
    fs::write(directory.join(format!("{name}.1")), page::page(command)?)?;
    let below = command.get_subcommands().filter(|command| !command.is_hide_set());
    below.into_iter().try_for_each(|command| write_pages(command, directory))
}
