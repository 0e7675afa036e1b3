//! The arguments of `spool run`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::InQueue;
use crate::child::{GRACE, Template};
use crate::cli::template;
use crate::exit::Failure;
use shiftboss_spool::QueueName;

const RUN_EXAMPLES: &str = "\
Examples:
  shiftboss spool run jobs new -- ./convert {data}
  shiftboss spool run jobs new -n 4 --timeout 1h --failed failed -- ./convert {data}
  shiftboss spool run --once jobs new -- sh -c 'wc -c < \"$SHIFTBOSS_SPOOL_DATA\"'";

/// What `--help` begins with.
pub(super) const ABOUT: &str = "Run COMMAND for each entry of a queue\n\n\
    {name}, {meta} and {data} (the path of the data) in ARGS are replaced; no shell looks at them. \
    COMMAND also has SHIFTBOSS_SPOOL_DIR, _QUEUE, _NAME, _META, _META_FILE, _DATA and _ATTEMPT in its \
    environment; _META only if that can hold it. Exit code 0 removes the entry. Any other end is a \
    failure: the entry is tried again after --retry-after, and moved to --failed after --attempts.\n\n\
    SIGTERM lets running commands finish and takes no more; a second one kills them and gives their \
    entries back. No command outlives `run`, however that ends.";

/// Behind `run`.
#[derive(Debug, Args)]
#[command(after_help = RUN_EXAMPLES)]
pub struct SpoolRunArguments {
    /// Where.
    #[command(flatten)]
    pub place: InQueue,
    /// Run so many at a time
    #[arg(short = 'n', long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub jobs: u16,
    /// Take {name}, {meta} and {data} within the script of a shell's -c, where what they stand for is
    /// executed
    #[arg(long)]
    pub allow_shell_templates: bool,
    /// Exit when nothing can be taken: with 0, or with 1 if an entry failed
    #[arg(long)]
    pub once: bool,
    /// End COMMAND after so long (TERM, then KILL); that is a failure
    #[arg(long, value_name = "T", value_parser = above_zero)]
    pub timeout: Option<Duration>,
    /// How long COMMAND may take to end after SIGTERM
    #[arg(long, value_name = "T", default_value_t = GRACE.into(), value_parser = time)]
    pub grace: humantime::Duration,
    /// Write the output to DIR/DAY/NAME.log; without it, to standard output behind each entry's name
    #[arg(long, value_name = "DIR")]
    pub log_dir: Option<PathBuf>,
    /// How long logs are kept
    #[arg(long, value_name = "T", default_value = "30days", value_parser = time, requires = "log_dir")]
    pub keep: humantime::Duration,
    /// Where an entry goes that failed too often [default: dead-letter]
    #[arg(long, value_name = "QUEUE")]
    pub failed: Option<QueueName>,
    /// How often an entry is tried [default: 1 with --failed, else 5]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub attempts: Option<u32>,
    /// How long a failed entry rests before it is tried again
    #[arg(long, value_name = "T", default_value = "10s", value_parser = humantime::parse_duration)]
    pub retry_after: Duration,
    /// Take in any order: several `run` do not race for the same entry then
    #[arg(long)]
    pub spread: bool,
    /// What is logged: a level (error, warn, info, debug, trace), or a list of target=level
    #[arg(long, value_name = "FILTER", env = "SHIFTBOSS_LOG", default_value = "info")]
    pub log_level: String,
    /// The program, and its arguments
    #[arg(required = true, last = true, num_args = 1..)]
    pub command: Vec<OsString>,
}

impl SpoolRunArguments {
    /// What is run for each entry, checked; it is taken out.
    ///
    /// # Errors
    /// When there is none, or an entry would be executed by a shell.
    pub fn template(&mut self) -> Result<Template, Failure> {
        let places = ["{name}", "{meta}", "{data}"];
        template(std::mem::take(&mut self.command), self.allow_shell_templates, &places)
    }
}

fn time(text: &str) -> Result<humantime::Duration, humantime::DurationError> {
    text.parse()
}

fn above_zero(text: &str) -> Result<Duration, String> {
    match humantime::parse_duration(text) {
        Ok(time) if time.is_zero() => Err("give a time above 0, or none".to_owned()),
        result => result.map_err(|error| error.to_string()),
    }
}
