//! What the user typed, and the checked settings made of it, once. `main` parses, the commands see
//! only settings. The doc comments are the help texts. Commands with many arguments have a file each.

mod examples;
mod fetch;
mod on_change;
mod serve;
mod work;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, Subcommand};
use clap_complete::Shell;

use crate::child::Template;
use crate::exit::{ExitCode, Failure};
pub use operators::{Add, DaemonArguments, FailedOnes, Operate};
pub use views::{StatusChoice, View, ViewArguments};

mod operators;
mod spool;
mod views;

use examples::{
    ASK_EXAMPLES, BACKUP_EXAMPLES, CHECK_EXAMPLES, COMPLETIONS_EXAMPLES, EXIT_CODES,
    RECOVER_EXAMPLES,
};
pub use fetch::{FetchArguments, FetchSettings};
pub use on_change::{OnChange, OnChangeArguments, OnChangeSettings, Picture};
pub use serve::{
    CLASSIC_SPOOL, DurabilityChoice, Lease, Mode, ServeArguments, ServeOptions, ServeSettings,
    Tries,
};
pub use spool::{
    InQueue, MonitorArguments, OneEntry, PutArguments, SpoolArguments, SpoolRunArguments,
    SpoolVerb, TakeArguments,
};
pub use work::WorkArguments;

/// Hands out recurring work, longest-waiting first.
///
/// Fetchers write lists of tasks into a directory, one line each: a key, a space, and whatever
/// a worker needs. Shiftboss keeps them in a queue in one SQLite file. Workers ask over a Unix
/// socket and get the task whose key ran least recently, keys that never ran first.
#[derive(Debug, Parser)]
#[command(version, arg_required_else_help = true, after_help = EXIT_CODES)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the daemon: watch INPUT_DIR, keep the queue in DATABASE, answer workers on SOCKET
    #[command(long_about = serve::ABOUT)]
    Serve(Box<ServeArguments>),
    /// Look at a queue.
    #[command(flatten)]
    View(View),
    /// Tell a running daemon what to do.
    #[command(flatten)]
    Operate(Operate),
    /// Read fetcher files, or a configuration file, as the daemon would, and report what is wrong
    ///
    /// Of fetcher files it prints each line or name that would be skipped, and exits with 65 if there is any. Of a
    /// configuration file it prints the first fault, with its line, and what `serve` needs and is missing
    /// (directories, group, socket), and exits with 78 if there is anything.
    #[command(after_help = CHECK_EXAMPLES)]
    Check {
        /// The directory of the fetcher files
        #[arg(required_unless_present_any = ["config", "database"])]
        input_dir: Option<PathBuf>,
        /// Check this configuration file of the daemon instead
        #[arg(long, value_name = "FILE", conflicts_with_all = ["input_dir", "json"])]
        config: Option<PathBuf>,
        /// Check whether this database is sound instead, while no daemon uses it. Prints all faults and exits with
        /// 65 if not. A sound one that a daemon found corrupt may be used again
        #[arg(long, value_name = "DATABASE", conflicts_with_all = ["input_dir", "json", "config"])]
        database: Option<PathBuf>,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Save what can be read of a damaged database into a new one
    ///
    /// Goes table by table, skips what cannot be read, and says of each table how many rows were saved and in how
    /// many places something was lost. The old database is left as it is. Lists are read again from their files.
    #[command(after_help = RECOVER_EXAMPLES)]
    Recover {
        /// The damaged database. No daemon may use it
        database: PathBuf,
        /// The database to be made; must not exist
        new: PathBuf,
    },
    /// Send lines to the daemon, and print its answers
    ///
    /// For workers written in shell. Exits with 69 if nobody answers in time.
    #[command(
        after_help = ASK_EXAMPLES,
        override_usage = "shiftboss ask [OPTIONS] [SOCKET] <LINES>..."
    )]
    Ask {
        /// How long to wait for the answers
        #[arg(long, default_value = "5s", value_parser = humantime::parse_duration)]
        timeout: Duration,
        /// The daemon's socket
        ///
        /// A single argument is a line; then it is SHIFTBOSS_SOCKET, else what the configuration file says
        /// (SHIFTBOSS_CONFIG, else /etc/shiftboss.toml).
        socket: Option<PathBuf>,
        /// What to send, a line each: READY, or DONE KEY EXIT_CODE
        #[arg(allow_hyphen_values = true)]
        lines: Vec<String>,
    },
    /// Copy the database, consistently, while the daemon runs
    #[command(
        after_help = BACKUP_EXAMPLES,
        override_usage = "shiftboss backup [OPTIONS] [TARGET] <FILE>"
    )]
    Backup {
        /// The database, or its daemon's socket
        ///
        /// If it is left out: SHIFTBOSS_DATABASE, else SHIFTBOSS_SOCKET, else what the configuration file says
        /// (SHIFTBOSS_CONFIG, else /etc/shiftboss.toml).
        target: Option<PathBuf>,
        /// The copy to be made; must not exist
        file: Option<PathBuf>,
    },
    /// Run COMMAND, which prints a list of tasks, and put the list into INPUT_DIR once it is whole
    #[command(long_about = fetch::ABOUT)]
    Fetch(FetchArguments),
    /// Take jobs from the daemon, and run COMMAND for each
    #[command(long_about = work::ABOUT)]
    Work(WorkArguments),
    /// Watch directories, and run COMMAND when something in them has changed and it is quiet again
    #[command(long_about = on_change::ABOUT)]
    OnChange(OnChangeArguments),
    /// Use a spool: a queue in a directory, for processes that share no daemon
    Spool(SpoolArguments),
    /// Print completions for a shell
    #[command(after_help = COMPLETIONS_EXAMPLES)]
    Completions { shell: Shell },
    /// Started by shiftboss beside its commands, to end them should it be killed
    #[command(hide = true)]
    Guardian,
}

/// A command to be run for many things. Unless they are allowed, places in a shell's script are refused.
fn template(
    command: Vec<OsString>,
    allow_scripts: bool,
    places: &[&str],
) -> Result<Template, Failure> {
    let wrong = |message: String| Failure::new(ExitCode::Usage, message);
    let mut words = command.into_iter();
    let program = words.next().ok_or_else(|| wrong("there is no COMMAND".to_owned()))?;
    let template = Template { program, arguments: words.collect() };
    if !allow_scripts {
        template.refuse_scripts(places).map_err(|error| wrong(error.to_string()))?;
    }
    Ok(template)
}

/// Paths are kept whole: status shows them to whoever asks, wherever they are.
fn absolute(path: PathBuf) -> Result<PathBuf, Failure> {
    std::path::absolute(&path).map_err(|error| {
        Failure::new(
            ExitCode::Usage,
            format!("the path {:?} cannot be used: {error}", path.display()),
        )
    })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    /// The definitions hold together.
    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }
}
