//! What the user typed, and the checked settings made of it, once. `main` parses, the commands see
//! only settings. The doc comments are the help texts. Commands with many arguments have a file each.

mod examples;
mod fetch;
mod on_change;
mod work;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::exit::{ExitCode, Failure};
use crate::logging::LogFormat;
use crate::socket::SocketSettings;
use crate::sqlite::{Durability, Options, Policy};
pub use operators::{Operate, Told};
pub use views::{Look, Looked};

mod operators;
mod spool;
mod views;

use examples::{ASK_EXAMPLES, BACKUP_EXAMPLES, CHECK_EXAMPLES, EXIT_CODES, SERVE_EXAMPLES};
pub use fetch::{FetchArguments, FetchSettings};
pub use on_change::{OnChange, OnChangeArguments, OnChangeSettings, Picture};
pub use spool::{
    InQueue, MonitorArguments, OneEntry, PutArguments, SpoolArguments, SpoolRunArguments,
    SpoolVerb, TakeArguments,
};
pub use work::{WorkArguments, WorkSettings};

/// How long a request waits for another process's write to the database.
const BUSY_TIMEOUT: Duration = Duration::from_secs(3);

/// Longest lease: as good as for ever, and far from where a sum of seconds overflows.
const LEASE_MAX_SECONDS: i64 = 10 * 31_557_600;

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

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the daemon: watch INPUT_DIR, keep the queue in DATABASE, answer workers on SOCKET
    Serve(ServeArguments),
    /// Look at a queue.
    #[command(flatten)]
    Look(Look),
    /// Tell a running daemon something.
    #[command(flatten)]
    Operate(Operate),
    /// Read fetcher files as the daemon would, and report each line or name it would skip
    ///
    /// Exits with 65 if anything would be skipped.
    #[command(after_help = CHECK_EXAMPLES)]
    Check {
        /// The directory of the fetcher files
        input_dir: PathBuf,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Send lines to the daemon, and print its answers
    ///
    /// For workers written in shell. Exits with 69 if nobody answers in time.
    #[command(after_help = ASK_EXAMPLES)]
    Ask {
        /// How long to wait for the answers
        #[arg(long, default_value = "5s", value_parser = humantime::parse_duration)]
        timeout: Duration,
        /// The daemon's socket
        socket: PathBuf,
        /// What to send, a line each: READY, or DONE KEY EXIT_CODE
        #[arg(required = true, allow_hyphen_values = true)]
        lines: Vec<String>,
    },
    /// Copy the database, consistently, while the daemon runs
    #[command(after_help = BACKUP_EXAMPLES)]
    Backup {
        /// The database
        database: PathBuf,
        /// The copy to be made; must not exist
        file: PathBuf,
    },
    /// Run COMMAND, which prints a list of tasks, and put the list into INPUT_DIR once it is whole
    Fetch(FetchArguments),
    /// Take jobs from the daemon, and run COMMAND for each
    Work(WorkArguments),
    /// Watch trees, and run COMMAND when something in them has changed and it is quiet again
    OnChange(OnChangeArguments),
    /// A queue in a directory, for processes that share no daemon
    Spool(SpoolArguments),
    /// Started by shiftboss beside its commands, to end them should it be killed
    #[command(hide = true)]
    Guardian,
}

/// The arguments of `serve`, as typed.
#[derive(Debug, Args)]
#[command(after_help = SERVE_EXAMPLES)]
pub struct ServeArguments {
    /// The SQLite database; made if there is none
    pub database: PathBuf,
    /// The directory that fetchers write to; made if there is none
    pub input_dir: PathBuf,
    /// The Unix socket for workers; made
    pub socket: PathBuf,
    /// Follow the Python supervisor's rules exactly: nothing is undone, leased or counted
    #[arg(long, conflicts_with = "lease")]
    pub classic: bool,
    /// How long a job may be out before it is handed out again
    #[arg(long, default_value = "12h", value_parser = humantime::parse_duration)]
    pub lease: Duration,
    /// How often a job's worker may fall silent before the job is parked (protocol 2)
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub max_attempts: u32,
    /// What an answer outlives: a power cut, or only the end of the process
    #[arg(long, value_enum, default_value_t = DurabilityChoice::Power)]
    pub durability: DurabilityChoice,
    /// Take the entries of this spool's queue `tasks` as tasks, too; made if there is none
    #[arg(long, value_name = "DIR")]
    pub spool: Option<PathBuf>,
    /// Permission bits of the socket, in octal
    #[arg(long, default_value = "0600", value_parser = parse_mode)]
    pub socket_mode: u32,
    /// Group of the socket, by name or number
    #[arg(long)]
    pub socket_group: Option<String>,
    /// Connections at once; further ones are closed
    #[arg(long, default_value_t = 16_384, value_parser = clap::value_parser!(u32).range(1..))]
    pub max_connections: u32,
    /// How log lines look; `auto` is `journal` under systemd, else `text`
    #[arg(long, value_enum, default_value_t = LogFormat::Auto)]
    pub log_format: LogFormat,
    /// What is logged: a level (error, warn, info, debug, trace), or a list of target=level
    #[arg(long, env = "SHIFTBOSS_LOG", default_value = "info")]
    pub log_level: String,
}

/// What an answer outlives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DurabilityChoice {
    /// A power cut
    Power,
    /// The end of the process, not of the machine; faster
    Process,
}

/// The settings of `serve`, checked.
#[derive(Debug)]
pub struct ServeSettings {
    /// The database.
    pub database: PathBuf,
    /// The input directory.
    pub input: PathBuf,
    /// The workers' socket.
    pub socket: SocketSettings,
    /// How the database is used.
    pub store: Options,
    /// Connections at once.
    pub connections_max: usize,
    /// The spool whose tasks enter the queue.
    pub spool: Option<PathBuf>,
}

impl TryFrom<ServeArguments> for ServeSettings {
    type Error = Failure;

    fn try_from(typed: ServeArguments) -> Result<Self, Failure> {
        let policy = if typed.classic {
            Policy::Classic
        } else {
            Policy::Fair { lease_seconds: whole_seconds(typed.lease)? }
        };
        let durability = match typed.durability {
            DurabilityChoice::Power => Durability::Power,
            DurabilityChoice::Process => Durability::Process,
        };
        Ok(Self {
            database: absolute(typed.database)?,
            input: absolute(typed.input_dir)?,
            socket: SocketSettings {
                path: absolute(typed.socket)?,
                mode: typed.socket_mode,
                group: typed.socket_group,
            },
            store: Options {
                policy,
                durability,
                busy_timeout: BUSY_TIMEOUT,
                max_attempts: typed.max_attempts,
            },
            spool: typed.spool.map(absolute).transpose()?,
            connections_max: usize::try_from(typed.max_connections).unwrap_or(usize::MAX),
        })
    }
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

/// A lease in whole seconds, the unit it is counted in (spec 2).
fn whole_seconds(lease: Duration) -> Result<i64, Failure> {
    match i64::try_from(lease.as_secs()) {
        Ok(seconds) if (1..=LEASE_MAX_SECONDS).contains(&seconds) && lease.subsec_nanos() == 0 => {
            Ok(seconds)
        }
        _ => {
            let lease = humantime::format_duration(lease);
            let message = format!("--lease {lease}: give whole seconds, from 1s to 10years");
            Err(Failure::new(ExitCode::Usage, message))
        }
    }
}

fn parse_mode(text: &str) -> Result<u32, String> {
    match u32::from_str_radix(text, 8) {
        Ok(mode) if mode <= 0o777 => Ok(mode),
        _ => Err("permission bits are octal, from 0 to 777; for example 0660".to_owned()),
    }
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

    /// What is typed becomes settings, and what is wrong is named.
    #[test]
    fn typed_settings_are_checked() {
        let typed = |more: &[&str]| {
            let all = ["shiftboss", "serve", "/d", "/i", "/s"].iter().chain(more);
            match Cli::try_parse_from(all).map(|cli| cli.command) {
                Ok(Command::Serve(typed)) => {
                    ServeSettings::try_from(typed).map_err(|error| error.to_string())
                }
                Ok(_) => Err("another command".to_owned()),
                Err(error) => Err(error.to_string()),
            }
        };
        let settings = typed(&[]).unwrap();
        assert_eq!(settings.store.policy, Policy::Fair { lease_seconds: 43_200 });
        assert_eq!((settings.socket.mode, settings.connections_max), (0o600, 16_384));
        assert_eq!(typed(&["--classic"]).unwrap().store.policy, Policy::Classic);
        for wrong in [
            ["--lease", "0s"],
            ["--lease", "1500ms"],
            ["--lease", "11years"],
            ["--lease", "soon"],
            ["--socket-mode", "999"],
            ["--durability", "none"],
            ["--max-connections", "0"],
        ] {
            assert!(typed(&wrong).unwrap_err().contains(wrong[0]), "{wrong:?}");
        }
    }
}
