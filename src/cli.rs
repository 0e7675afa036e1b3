//! What the user typed, as clap sees it. The doc comments here are the help texts.
//!
//! `main` parses a [`Cli`] and hands each command its arguments; those that need more than
//! clap's checks become settings in [`settings`], once. Nothing here opens a file.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

pub mod settings;

const EXIT_CODES: &str = "\
Exit codes:
   0  done; the daemon: stopped cleanly     64  wrong command line
  65  some input is faulty                  69  nobody answered
  70  a bug in shiftboss                    73  a file or socket cannot be made
  74  an I/O error                          75  already running
  78  something needed is missing or unusable";

const SERVE_EXAMPLES: &str = "\
Examples:
  shiftboss serve state.db input worker.sock
  shiftboss serve --lease 2h --socket-mode 0660 --socket-group workers \\
      /var/lib/shiftboss/state.db /var/lib/shiftboss/input /run/shiftboss/worker.sock";

const STATUS_EXAMPLES: &str = "\
Examples:
  shiftboss status state.db
  shiftboss status --json /run/shiftboss/worker.sock";

const CHECK_EXAMPLES: &str = "\
Examples:
  shiftboss check input
  shiftboss check --json input | jq '.files[] | select(.skipped_lines > 0)'";

const ASK_EXAMPLES: &str = "\
Examples:
  shiftboss ask worker.sock READY
  shiftboss ask worker.sock 'DONE alpha 0'";

const BACKUP_EXAMPLES: &str = "\
Example:
  shiftboss backup /var/lib/shiftboss/state.db /backup/state-$(date +%F).db";

/// Hands out recurring work, longest-waiting first.
///
/// Fetchers write lists of tasks into a directory, one line each: a key, a space, and whatever
/// a worker needs. Shiftboss keeps them in a queue in one SQLite file. Workers ask over a Unix
/// socket and get the task whose key ran least recently, keys that never ran first.
#[derive(Debug, Parser)]
#[command(name = "shiftboss", version, after_help = EXIT_CODES)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the daemon: watch the input directory, keep the queue, serve the workers
    Serve(ServeArgs),
    /// Show the queue, the fetchers, and what is in flight
    Status(StatusArgs),
    /// Read fetcher files as the daemon would, and say what it would skip
    Check(CheckArgs),
    /// Send request lines to the daemon and print its answers
    Ask(AskArgs),
    /// Copy the database, also while the daemon runs
    Backup(BackupArgs),
}

/// What was typed behind `serve`. [`settings::ServeSettings`] is made of it.
#[derive(Debug, Args)]
#[command(after_help = SERVE_EXAMPLES)]
pub struct ServeArgs {
    /// The SQLite file that keeps the queue; made if it is missing
    pub database: PathBuf,

    /// Where fetchers put FETCHER.NUMBER.txt (growing: .txt.part); made if it is missing
    pub input_dir: PathBuf,

    /// The Unix socket that workers connect to; a stale one is replaced
    pub socket: PathBuf,

    /// Behave as the Python supervisor did, to the letter
    ///
    /// Fetchers do not take turns at a key they share, a dispatch whose answer was lost is not
    /// undone, and nothing is leased.
    #[arg(long, conflicts_with = "lease")]
    pub classic: bool,

    /// How long a worker may take; then its job goes to another
    #[arg(long, value_name = "TIME", default_value = "12h")]
    pub lease: String,

    /// What an answered request has survived
    #[arg(long, value_enum, value_name = "WHAT", default_value_t = Durability::Power)]
    pub durability: Durability,

    /// The socket's permissions, in octal; who may write may take jobs
    #[arg(long, value_name = "MODE", default_value = "0600")]
    pub socket_mode: String,

    /// The socket's group, by name or number [default: the daemon's]
    #[arg(long, value_name = "GROUP")]
    pub socket_group: Option<String>,

    /// How many workers may be connected at a time
    #[arg(long, value_name = "N", default_value = "16384")]
    pub max_connections: String,

    /// How log lines look on standard error
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = LogFormat::Auto)]
    pub log_format: LogFormat,

    /// What is logged: error, warn, info, debug or trace, or directives for single modules
    /// (shiftboss_actors::listener=debug,info)
    #[arg(
        long,
        env = "SHIFTBOSS_LOG",
        value_name = "FILTER",
        default_value = "info"
    )]
    pub log_level: String,
}

/// What an answer promises.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Durability {
    /// A power failure: every answer waits until the disk has it
    Power,
    /// A crash of the daemon, but not of the machine: faster
    Process,
}

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// journal under systemd, else text
    Auto,
    /// For people: time, level, message
    Text,
    /// With the priorities that the systemd journal reads
    Journal,
    /// One JSON object a line
    Json,
}

/// What was typed behind `status`.
#[derive(Debug, Args)]
#[command(after_help = STATUS_EXAMPLES)]
pub struct StatusArgs {
    /// The daemon's database, or its socket
    pub target: PathBuf,

    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// What was typed behind `check`.
#[derive(Debug, Args)]
#[command(after_help = CHECK_EXAMPLES)]
pub struct CheckArgs {
    /// The directory with fetcher files
    pub input_dir: PathBuf,

    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// What was typed behind `ask`. [`settings::AskSettings`] is made of it.
#[derive(Debug, Args)]
#[command(after_help = ASK_EXAMPLES)]
pub struct AskArgs {
    /// How long to wait for all answers together
    #[arg(long, value_name = "TIME", default_value = "5s")]
    pub timeout: String,

    /// The daemon's socket
    pub socket: PathBuf,

    /// A request line, such as READY
    #[arg(required = true, value_name = "LINE")]
    pub lines: Vec<OsString>,
}

/// What was typed behind `backup`.
#[derive(Debug, Args)]
#[command(after_help = BACKUP_EXAMPLES)]
pub struct BackupArgs {
    /// The daemon's database
    pub database: PathBuf,

    /// The copy to make; it must not be there yet
    pub file: PathBuf,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    /// The definitions are free of contradictions (clap looks at all of them).
    #[test]
    fn the_definitions_are_sound() {
        Cli::command().debug_assert();
    }

    /// Each line of help fits a terminal of 80 columns where the text is ours to break.
    #[test]
    fn help_texts_fit() {
        for text in [
            EXIT_CODES,
            STATUS_EXAMPLES,
            ASK_EXAMPLES,
            BACKUP_EXAMPLES,
            CHECK_EXAMPLES,
        ] {
            assert!(text.lines().all(|line| line.len() <= 80), "{text}");
        }
    }
}
