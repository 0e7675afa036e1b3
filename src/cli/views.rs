//! The commands that look at a queue and change nothing: `status`, `why`, `queue`, `log`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

const STATUS_EXAMPLES: &str = "\
Examples:
  shiftboss status
  shiftboss status state.db
  shiftboss status --check state.db || mail -s shiftboss root
  shiftboss status --json /run/shiftboss/worker.sock";

const WHY_EXAMPLES: &str = "\
Examples:
  shiftboss why state.db alpha
  shiftboss why --json /run/shiftboss/worker.sock alpha | jq .place.keys_before";

const QUEUE_EXAMPLES: &str = "\
Examples:
  shiftboss queue state.db
  shiftboss queue -n 1000 --json state.db | jq -r '.keys[].key'";

const LOG_EXAMPLES: &str = "\
Examples:
  shiftboss log state.db
  shiftboss log --failed -n 100 /run/shiftboss/worker.sock
  shiftboss log --key alpha --json state.db";

/// What is looked at.
#[derive(Debug, Subcommand)]
pub enum Look {
    /// Show how the daemon and its queue are
    #[command(after_help = STATUS_EXAMPLES)]
    Status {
        /// What is looked at, and how it is shown.
        #[command(flatten)]
        looked: Looked,
        /// Print what is wrong alone, a line each; exit with 1 if anything is, with 69 without a daemon
        #[arg(long)]
        check: bool,
    },
    /// Say where a key is, and why it is not the next one
    ///
    /// Exits with 65 if nobody ever heard of the key.
    #[command(after_help = WHY_EXAMPLES, override_usage = "shiftboss why [OPTIONS] [TARGET] <KEY>")]
    Why {
        /// What is looked at, and how it is shown.
        #[command(flatten)]
        looked: Looked,
        /// The key
        key: Option<String>,
    },
    /// Show the next keys, in the order in which they would be handed out now
    #[command(after_help = QUEUE_EXAMPLES)]
    Queue {
        /// What is looked at, and how it is shown.
        #[command(flatten)]
        looked: Looked,
        /// How many: 1 to 10000
        #[arg(short = 'n', long = "number", default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=10_000))]
        number: u16,
    },
    /// Show the attempts that ended, newest first, by start time
    ///
    /// The daemon keeps the last 100000; under --classic it keeps none.
    #[command(after_help = LOG_EXAMPLES)]
    Log {
        /// What is looked at, and how it is shown.
        #[command(flatten)]
        looked: Looked,
        /// Only those that did not end with exit code 0
        #[arg(long)]
        failed: bool,
        /// Only those of this key
        #[arg(long)]
        key: Option<String>,
        /// How many: 1 to 10000
        #[arg(short = 'n', long = "number", default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=10_000))]
        number: u16,
    },
}

/// What is looked at, and how it is shown.
#[derive(Debug, Args)]
pub struct Looked {
    /// The database, or the daemon's socket
    ///
    /// If it is left out: SHIFTBOSS_DATABASE, else SHIFTBOSS_SOCKET, else what the configuration file says
    /// (SHIFTBOSS_CONFIG, else /etc/shiftboss.toml).
    pub target: Option<PathBuf>,
    /// Look at the daemon of this configuration file
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}
