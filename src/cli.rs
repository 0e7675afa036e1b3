//! The command line as typed, and the checked settings made from it. `main` parses; the commands get arguments whose
//! values were each checked. The doc comments are the help texts. Commands with many arguments have a file each.

mod broker;
mod common;
mod fetch;
mod on_change;
mod operators;
mod output;
mod relay;
mod serve;
mod simulate;
mod top;
mod views;
mod web;
mod words;
mod work;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PathBufValueParser, TypedValueParser};
use clap::error::ErrorKind;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use clap_complete::Shell;
use shiftboss_console::arguments::{
    LogArguments, RunArguments, RunnerArguments, absolute, one_of, template,
};
use shiftboss_protocol::client::within;
use shiftboss_protocol::url::Url;
use shiftboss_protocol::verbs::{VERBS, Who};
use shiftboss_relay::{Broker, QueueKind};

pub use crate::config::keys::is_number;
pub use crate::config::tables;
use crate::config::values::parse_bounded_time;
use crate::exit::{ExitCode, Failure};
use crate::stores::{Database, Destination};
use crate::target::Asked;
pub use broker::{BrokerArguments, BrokerVerb};
pub use fetch::FetchArguments;
pub use on_change::{OnChangeArguments, OnChangeSettings};
pub use operators::{Add, By, DaemonArguments, FailedOnes, Hold, KeyArguments, ManyKeys, Operate};
pub use output::OutputArguments;
pub use relay::{RelayArguments, RelaySettings};
use serve::parse_daemon_name;
pub use serve::{ServeArguments, ServeOptions, ServeSettings};
pub use simulate::SimulateArguments;
pub use top::{INTERVAL_MAX, INTERVAL_MIN, TopArguments};
pub use views::{View, ViewArguments};
pub use web::WebArguments;
pub use work::WorkArguments;

/// Hands out recurring work, longest-waiting first.
///
/// Fetchers write lists of tasks into a directory, one line each: a key, a space, and whatever
/// a worker needs. Shiftboss keeps them in a queue, in one SQLite file or on a PostgreSQL server.
/// Workers ask over a Unix socket and get the task whose key ran least recently, keys that never ran first.
#[derive(Debug, Parser)]
#[command(
    version,
    arg_required_else_help = true,
    after_help = "\
-t, --target DATABASE|SOCKET|URL says which queue a command is about. It stands before the command or behind it; if it is \
left out, SHIFTBOSS_TARGET says it, or the configuration file (SHIFTBOSS_CONFIG, else /etc/shiftboss.toml).

Exit codes:
   0  done; the daemon: stopped cleanly     64  wrong command line
   1  status --check: something is wrong; work --fail: a job failed
  65  input or database is faulty           69  no daemon or server answered; nothing fetched
  70  a bug in shiftboss                    73  a file or socket cannot be made
  74  an I/O error                          75  already running; in flight, no room
  77  for operators only                    78  something needed is missing or unusable"
)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

impl Cli {
    /// What was typed.
    ///
    /// # Errors
    /// clap's error; help and the version, too.
    pub fn of(words: impl Iterator<Item = OsString>) -> Result<Self, clap::Error> {
        let definition = Self::command();
        let words = words::straightened(words.collect());
        let parsed = definition.clone().try_get_matches_from(&words);
        let parsed = parsed.and_then(|found| Self::from_arg_matches(&found));
        if parsed.as_ref().is_err_and(|error| !error.use_stderr()) {
            return parsed;
        }
        let Some(new) = words::renewed(words, &definition, parsed.is_err()) else { return parsed };
        let text = format!("this is written otherwise now:\n  {}\n", words::shown(&new));
        Err(clap::Error::raw(ErrorKind::InvalidSubcommand, text))
    }
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the daemon: watch INPUT_DIR, keep the queue in DATABASE, answer workers on SOCKET
    ///
    /// The file that --config names can set every option, under the option's name with _ for -, and DATABASE, INPUT_DIR
    /// and SOCKET as database, input_dir and socket. A flag wins over the environment, and the environment over the
    /// file. The file also names the fetchers that the daemon runs itself (docs/configuration.md). SIGHUP reads it again.
    Serve(Box<ServeArguments>),
    /// Run a relay: watch INPUT_DIR and answer workers on SOCKET, with a daemon's queue behind BROKER
    ///
    /// For machines that reach a RabbitMQ broker, but not the database. Fetchers and workers use a relay as they use a daemon.
    /// A daemon that is started with --broker has the queue. A relay keeps nothing on disk.
    Relay(Box<RelayArguments>),
    /// Take jobs from the daemon, and run COMMAND for each
    ///
    /// A job is a key and a payload: the first word of a fetcher's line, and the rest of that line. {key} and {payload} are
    /// replaced by them wherever they stand in COMMAND's arguments; no shell looks at them. {payload_file} is the path of
    /// a file with the payload, which may be too long for an argument (128 KiB). COMMAND also has SHIFTBOSS_KEY,
    /// SHIFTBOSS_PAYLOAD (not if it is above 120 KiB), SHIFTBOSS_ATTEMPT, SHIFTBOSS_FETCHER, SHIFTBOSS_RETRY (as in 1/3) and
    /// SHIFTBOSS_WORKER in its environment; in the file SHIFTBOSS_CONTROL it may ask for a pause (docs/groups.md). Its exit
    /// code is reported to the daemon: 128 plus the number if a signal ended it, 124 when its time was over. If there is
    /// no such program, no job is taken, and work exits with 78.
    ///
    /// SIGTERM lets running jobs finish and takes no more; a second one kills them and gives them back. No command
    /// outlives the worker, however that ends.
    Work(WorkArguments),
    Fetch(Box<FetchArguments>),
    /// Watch directories, and run COMMAND when something in them has changed and it is quiet again
    ///
    /// COMMAND runs once at the start, then after each change; two runs never overlap. It finds the changed paths in the
    /// file that SHIFTBOSS_CHANGED names, each ended by a NUL, and in place of an argument {paths}. Globs are written as
    /// in .gitignore. By default .git is left out, and what editors keep beside files (*.tmp, *~, .#*, #*#, .*.sw?, 4913,
    /// *.~undo-tree~).
    OnChange(Box<OnChangeArguments>),
    #[command(flatten)]
    View(View),
    /// Ask whether the daemon can do its work: a round trip through its database
    ///
    /// Anybody who may connect can ask. Exits with 69 if nobody answers in time, or nothing can be written.
    #[command(after_help = "\
Examples:
  shiftboss health
  shiftboss health --timeout 2s -t /run/shiftboss/worker.sock || systemctl status shiftboss")]
    Health(DaemonArguments),
    Top(TopArguments),
    /// Show the queue in a browser, and serve metrics and health over HTTP
    ///
    /// A process of its own, which reads the database as `status` does, and asks the daemon on its socket. It works while the
    /// daemon is stopped. Nothing can be changed there without --token-file. /metrics is for Prometheus, /healthz says whether the
    /// daemon can reach its database (docs/web.md).
    Web(WebArguments),
    Output(OutputArguments),
    Simulate(SimulateArguments),
    #[command(flatten)]
    Operate(Operate),
    /// Read fetcher files, or a configuration file, as the daemon would, and report what is wrong
    ///
    /// Of fetcher files it prints each line or name that would be skipped, and exits with 65 if there is any. Of a
    /// configuration file it prints the first fault, with its line, and what `serve` needs and is missing
    /// (directories, group, socket), and exits with 78 if there is anything. With --list it says how the groups of the file
    /// sort a list, and how long one pass over it takes.
    #[command(after_help = "\
Examples:
  shiftboss check input
  shiftboss check --json input | jq '.files[] | select(.skipped_lines > 0)'
  shiftboss check --config /etc/shiftboss.toml
  shiftboss check --config /etc/shiftboss.toml --list input/links.1.txt --job-time 2s
  shiftboss check --database /var/lib/shiftboss/state.db")]
    Check {
        /// The directory of the fetcher files
        #[arg(required_unless_present_any = ["config", "database"])]
        input_dir: Option<PathBuf>,
        /// Check this configuration file of the daemon instead
        #[arg(long, value_name = "FILE", conflicts_with_all = ["input_dir", "json"])]
        config: Option<PathBuf>,
        /// With --config: a fetcher file, of which to say how its keys would be grouped, and how long one pass takes at the
        /// limits of their groups; may be given more than once
        #[arg(long = "list", value_name = "FILE", requires = "config")]
        lists: Vec<PathBuf>,
        /// How long a job is taken to last for that
        #[arg(long, value_name = "TIME", value_parser = parse_bounded_time, default_value = "1s", requires = "lists")]
        job_time: Duration,
        /// Check whether this database is sound instead, while no daemon uses it. Prints all faults and exits with
        /// 65 if not. A sound one that a daemon found corrupt may be used again
        #[arg(long, value_name = "DATABASE", value_parser = database(), conflicts_with_all = ["input_dir", "json", "config"])]
        database: Option<Database>,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Copy the database, consistently, while the daemon runs
    #[command(after_help = "\
Example:
  shiftboss backup /backup/state-$(date +%F).db")]
    Backup {
        #[command(flatten)]
        target: Asked,
        /// The copy to be made; must not exist
        file: PathBuf,
    },
    /// Move a queue from a file to a PostgreSQL server, or back; to the Python supervisor; or out of a damaged file
    ///
    /// All of it: lists with how far they were read, tasks, the log and the order, attempts, single tasks. No daemon may use
    /// either end. The old queue is left as it is, and marked: no daemon starts on it any more. If a move is broken off, run
    /// it again.
    ///
    /// The Python supervisor gets its four tables, without single tasks, holds and retries, which it does not know. With --salvage
    /// what can be read of a damaged file is saved into a new one: of each table it is said how many rows that were, and what was
    /// lost. The damaged file stays as it is, unmarked. Lists are read again from their files.
    #[command(after_help = "\
Examples:
  shiftboss move /var/lib/shiftboss/state.db postgres://shiftboss@db.example/queue
  shiftboss move postgres://shiftboss@db.example/queue /var/lib/shiftboss/state.db
  shiftboss move /var/lib/shiftboss/state.db supervisor.py:/var/log/bot/state.db
  shiftboss move --salvage /var/lib/shiftboss/state.db /var/lib/shiftboss/saved.db")]
    Move {
        /// Save what can be read of a damaged file; exits with 1 if something was lost that no list's file brings back
        #[arg(long)]
        salvage: bool,
        /// The database that has the queue: a file, or a URL
        #[arg(value_parser = database())]
        from: Database,
        /// Where it goes: the URL of a database without a queue, a file that does not exist, or such a file for the Python
        /// supervisor, as supervisor.py:FILE
        #[arg(value_parser = PathBufValueParser::new().map(Destination::from))]
        to: Destination,
        /// To a server: the name of the daemon that will have the lists [default: the machine's host name]
        #[arg(long, value_name = "NAME", env = "SHIFTBOSS_DAEMON_NAME", value_parser = parse_daemon_name)]
        daemon_name: Option<String>,
    },
    /// Make the schema of a queue on a PostgreSQL server, or bring it up to date
    ///
    /// `serve` does so itself, unless it is started with --no-migrate. The role needs CREATE on the database, once.
    #[command(after_help = "\
Example:
  shiftboss migrate -t postgres://shiftboss@db.example/queue")]
    Migrate {
        #[command(flatten)]
        target: Asked,
    },
    /// Look at a message broker: its queues, and the messages that were refused
    Broker(BrokerArguments),
    /// Send lines to the daemon, and print its answers
    ///
    /// For workers written in shell. Exits with 69 if nobody answers in time.
    #[command(after_help = "\
Examples:
  shiftboss ask READY
  shiftboss ask -t worker.sock 'DONE alpha 0'",
        after_long_help = requests()
    )]
    Ask {
        /// How long to wait for the answers
        #[arg(long, default_value = "5s", value_parser = timeout)]
        timeout: Duration,
        #[command(flatten)]
        target: Asked,
        /// What to send, a line each: READY, or DONE KEY EXIT_CODE
        #[arg(allow_hyphen_values = true, required = true)]
        lines: Vec<String>,
    },
    /// Print completions for a shell
    #[command(after_help = "\
Examples:
  shiftboss completions bash > ~/.local/share/bash-completion/completions/shiftboss
  shiftboss completions zsh > ~/.zfunc/_shiftboss
  shiftboss completions fish > ~/.config/fish/completions/shiftboss.fish")]
    Completions {
        shell: Shell,
    },
    /// Started by shiftboss beside its commands, to end them should it be killed
    #[command(hide = true)]
    Guardian,
}

/// The URL of a server; what is wrong with it is said without its password, when it is used.
fn url() -> impl TypedValueParser<Value = Url> {
    clap::builder::StringValueParser::new().map(Url::new)
}

/// How a broker keeps queues.
const BROKER_QUEUES: &[(&str, &str, QueueKind)] = &[
    ("classic", "On one node", QueueKind::Classic),
    ("quorum", "On most nodes of a cluster", QueueKind::Quorum),
];

fn broker(url: Option<Url>, prefix: &str, queues: QueueKind) -> Result<Option<Broker>, Failure> {
    let broker = url.map(|url| Broker::new(url, prefix, queues));
    broker.transpose().map_err(Failure::of(ExitCode::Configuration))
}

/// A path, or the URL of a server's database; what is wrong with it is said without its password, when it is used.
fn database() -> impl TypedValueParser<Value = Database> {
    PathBufValueParser::new().map(Database::from)
}

/// Columns of a request.
const REQUEST_WIDTH: usize = 32;

/// The requests that `ask --help` lists besides its options, from the table of verbs.
fn requests() -> String {
    let mut help = "\
Examples:
  shiftboss ask READY
  shiftboss ask -t worker.sock 'HELLO 2 me' 'WHY alpha' QUIT

Requests of protocol 2, behind HELLO 2 NAME [LEASE] (* for operators only):
"
    .to_owned();
    for verb in VERBS {
        let star = if verb.who == Who::Operator { '*' } else { ' ' };
        help += &format!("{star} {:REQUEST_WIDTH$} {}\n", verb.synopsis(), verb.help);
    }
    help.pop();
    help
}

/// How long an answer is waited for.
fn timeout(text: &str) -> Result<Duration, String> {
    let time = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    within(time)
        .filter(|_| !time.is_zero())
        .map(|_| time)
        .ok_or_else(|| "give a time such as 5s".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The definitions hold together.
    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }
}
