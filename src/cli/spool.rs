//! The arguments of `spool`, one verb each, as typed; clap checks them. The doc comments are the help.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};

use crate::child::GRACE;
use crate::spool::{Durability, EntryName, QueueName};

const EXAMPLES: &str = "\
Examples:
  shiftboss spool init jobs new done failed
  find . -name '*.png' | shiftboss spool put jobs new --lines
  shiftboss spool run jobs new -n 2 --failed failed -- ./convert {data}
  shiftboss spool fsck jobs";
const INIT_EXAMPLES: &str = "\
Example:
  shiftboss spool init jobs new done failed";
const PUT_EXAMPLES: &str = "\
Examples:
  shiftboss spool put jobs new --meta 'from alice' picture.png
  date | shiftboss spool put jobs new
  ls | shiftboss spool put jobs new --lines";
const TAKE_EXAMPLES: &str = "\
Example:
  name=$(shiftboss spool take jobs new --wait 1h --lease 10m) &&
    ./convert \"jobs/.data/$name\" &&
    shiftboss spool rm jobs new \"$name\"";
const LIST_EXAMPLES: &str = "\
Examples:
  shiftboss spool list jobs new
  shiftboss spool list --json jobs new | jq -r '.checked_out[].name'";
const SHOW_EXAMPLES: &str = "\
Examples:
  shiftboss spool show jobs new picture
  cat \"$(shiftboss spool show --json jobs new picture | jq -r .data_path)\"";
const MOVE_EXAMPLES: &str = "\
Example:
  shiftboss spool move jobs new picture done";
const RELEASE_EXAMPLES: &str = "\
Example:
  shiftboss spool release jobs new picture";
const RM_EXAMPLES: &str = "\
Example:
  shiftboss spool rm jobs new picture";
const STAT_EXAMPLES: &str = "\
Examples:
  shiftboss spool stat jobs
  shiftboss spool stat --json jobs | jq '.queues[].available'";
const WATCH_EXAMPLES: &str = "\
Examples:
  shiftboss spool watch jobs
  shiftboss spool watch --json --every 10s jobs >> lengths.jsonl";
const RUN_EXAMPLES: &str = "\
Examples:
  shiftboss spool run jobs new -- ./convert {data}
  shiftboss spool run jobs new -n 4 --timeout 1h --failed failed -- ./convert {data}
  shiftboss spool run --once jobs new -- sh -c 'wc -c < \"$SHIFTBOSS_SPOOL_DATA\"'";
const MONITOR_EXAMPLES: &str = "\
Examples:
  shiftboss spool monitor jobs
  shiftboss spool monitor --daemon --json --max-age new=1h jobs";
const FSCK_EXAMPLES: &str = "\
Examples:
  shiftboss spool fsck jobs
  shiftboss spool fsck --repair --older-than 10m jobs";

/// What a change outlives.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum SpoolDurability {
    /// The end of processes only
    None,
    /// A crash leaves no entry with a part of its content, but may lose the last ones
    File,
    /// A crash of the system
    Full,
}

impl From<SpoolDurability> for Durability {
    fn from(typed: SpoolDurability) -> Self {
        match typed {
            SpoolDurability::None => Self::None,
            SpoolDurability::File => Self::File,
            SpoolDurability::Full => Self::Full,
        }
    }
}

/// Behind `spool`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct SpoolArguments {
    /// What a change outlives
    #[arg(long, global = true, value_enum, default_value_t = SpoolDurability::Full)]
    pub durability: SpoolDurability,
    /// What to do.
    #[command(subcommand)]
    pub verb: SpoolVerb,
}

/// A queue.
#[derive(Debug, Args)]
pub struct InQueue {
    /// The spool's directory
    pub dir: PathBuf,
    /// The queue
    pub queue: QueueName,
}

/// An entry of a queue.
#[derive(Debug, Args)]
pub struct OneEntry {
    /// Where it is.
    #[command(flatten)]
    pub place: InQueue,
    /// The entry's name, as `list` shows it
    pub name: EntryName,
}

/// What is done.
#[derive(Debug, Subcommand)]
pub enum SpoolVerb {
    /// Make a spool, or what is missing of one, with these queues
    #[command(after_help = INIT_EXAMPLES)]
    Init {
        /// The spool's directory; its parent must be there
        dir: PathBuf,
        /// The queues
        #[arg(required = true)]
        queue: Vec<QueueName>,
    },
    /// Put an entry into a queue, and print its name
    #[command(after_help = PUT_EXAMPLES)]
    Put(PutArguments),
    /// Check an entry out, and print its name; it stays checked out until it is settled
    ///
    /// `rm`, `move` and `release` settle it, by whoever knows its name. Exits with 69 if there was
    /// nothing to take.
    #[command(after_help = TAKE_EXAMPLES)]
    Take(TakeArguments),
    /// List the entries of a queue that can be taken, one name a line
    #[command(after_help = LIST_EXAMPLES)]
    List {
        /// Where.
        #[command(flatten)]
        place: InQueue,
        /// List those that are checked out, and who has them
        #[arg(long)]
        checkouts: bool,
        /// Print one JSON object, with both
        #[arg(long)]
        json: bool,
    },
    /// Show an entry: who has it, its metadata, and where its data is
    #[command(after_help = SHOW_EXAMPLES)]
    Show {
        /// Which.
        #[command(flatten)]
        entry: OneEntry,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Move an entry into another queue, available or taken
    #[command(after_help = MOVE_EXAMPLES)]
    Move {
        /// Which.
        #[command(flatten)]
        entry: OneEntry,
        /// The queue
        to: QueueName,
    },
    /// Give a taken entry back to its queue; the attempt does not count
    #[command(after_help = RELEASE_EXAMPLES)]
    Release(OneEntry),
    /// Remove an entry, available or taken
    #[command(after_help = RM_EXAMPLES)]
    Rm(OneEntry),
    /// Show how long the queues are
    #[command(after_help = STAT_EXAMPLES)]
    Stat {
        /// The spool's directory
        dir: PathBuf,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Show how long the queues are, live, until interrupted
    ///
    /// On a terminal the table is drawn anew; elsewhere it is printed whenever it has changed.
    #[command(after_help = WATCH_EXAMPLES)]
    Watch {
        /// How often to look
        #[arg(long, value_name = "T", default_value = "1s", value_parser = pause)]
        every: Duration,
        /// Print a JSON object a line, for each look
        #[arg(long)]
        json: bool,
        /// The spool's directory
        dir: PathBuf,
    },
    /// Run COMMAND for each entry of a queue
    #[command(after_help = RUN_EXAMPLES, long_about = RUN_ABOUT)]
    Run(SpoolRunArguments),
    /// Report what is too old, orphaned, in two places, or no entry; exits with 1 if something is
    #[command(after_help = MONITOR_EXAMPLES)]
    Monitor(MonitorArguments),
    /// Say what crashes have left, and mend it; exits with 1 if something is or was wrong
    ///
    /// With --repair producers must be stopped, unless --older-than is given.
    #[command(after_help = FSCK_EXAMPLES)]
    Fsck {
        /// Mend what is found
        #[arg(long)]
        repair: bool,
        /// Leave alone what was touched within this time
        #[arg(long, value_name = "T", value_parser = humantime::parse_duration)]
        older_than: Option<Duration>,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
        /// The spool's directory
        dir: PathBuf,
    },
}

/// Behind `put`.
#[derive(Debug, Args)]
pub struct PutArguments {
    /// Where.
    #[command(flatten)]
    pub place: InQueue,
    /// The entry's metadata
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub meta: OsString,
    /// The entry's name; one by time if not given
    #[arg(long, conflicts_with = "lines")]
    pub name: Option<EntryName>,
    /// Put an entry for each line, synced together
    #[arg(long)]
    pub lines: bool,
    /// The data; standard input if not given
    pub file: Option<PathBuf>,
}

/// Behind `take`.
#[derive(Debug, Args)]
pub struct TakeArguments {
    /// Where.
    #[command(flatten)]
    pub place: InQueue,
    /// Wait so long for an entry
    #[arg(long, value_name = "T", value_parser = humantime::parse_duration)]
    pub wait: Option<Duration>,
    /// Give it back if it is not settled in this time; the attempt counts then
    #[arg(long, value_name = "T", value_parser = humantime::parse_duration)]
    pub lease: Option<Duration>,
    /// Take any, not the first by name: several takers do not race for it then
    #[arg(long)]
    pub spread: bool,
}

const RUN_ABOUT: &str = "Run COMMAND for each entry of a queue\n\n\
    {name}, {meta} and {data} (the path of the data) in ARGS are replaced; no shell looks at them. \
    COMMAND also has SHIFTBOSS_SPOOL_DIR, _QUEUE, _NAME, _META, _META_FILE, _DATA and _ATTEMPT in its \
    environment; _META only if that can hold it. Exit code 0 removes the entry. Any other end is a \
    failure: the entry is tried again after --retry-after, and moved to --failed after --attempts.\n\n\
    SIGTERM lets running commands finish and takes no more; a second one kills them and gives their \
    entries back. Whatever becomes of `run`, no command outlives it.";

/// Behind `run`.
#[derive(Debug, Args)]
pub struct SpoolRunArguments {
    /// Where.
    #[command(flatten)]
    pub place: InQueue,
    /// Run so many at a time
    #[arg(short = 'n', long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub jobs: u16,
    /// Leave when nothing can be taken
    #[arg(long)]
    pub once: bool,
    /// End COMMAND after so long (TERM, then KILL); a failure
    #[arg(long, value_name = "T", value_parser = above_zero)]
    pub timeout: Option<Duration>,
    /// How long COMMAND may take to end when it is told to
    #[arg(long, value_name = "T", default_value_t = GRACE.into(), value_parser = time)]
    pub grace: humantime::Duration,
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

/// Behind `monitor`.
#[derive(Debug, Args)]
pub struct MonitorArguments {
    /// Look again and again, and tell which problems begin and end, until a signal comes
    #[arg(long)]
    pub daemon: bool,
    /// How often the daemon looks
    #[arg(long, value_name = "T", default_value = "15s", value_parser = pause)]
    pub every: Duration,
    /// A problem begins when it is seen in more looks than this, one after the other
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub alert_after: u32,
    /// Oldest temporary file
    #[arg(long, value_name = "T", default_value = "10m", value_parser = humantime::parse_duration)]
    pub max_tmp_age: Duration,
    /// Oldest checkout
    #[arg(long, value_name = "T", default_value = "10m", value_parser = humantime::parse_duration)]
    pub max_checkout_age: Duration,
    /// Oldest entry of a queue; may be given for each
    #[arg(long, value_name = "QUEUE=T", value_parser = queue_age)]
    pub max_age: Vec<(QueueName, Duration)>,
    /// Print JSON: one object, or with --daemon one a line
    #[arg(long)]
    pub json: bool,
    /// The spool's directory
    pub dir: PathBuf,
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

/// A pause between two looks.
fn pause(text: &str) -> Result<Duration, String> {
    match humantime::parse_duration(text) {
        Ok(time) if time < Duration::from_millis(10) => Err("give 10ms or more".to_owned()),
        result => result.map_err(|error| error.to_string()),
    }
}

fn queue_age(text: &str) -> Result<(QueueName, Duration), String> {
    // A queue's name may have an equals sign; a time has none.
    let (queue, age) = text.rsplit_once('=').ok_or("write QUEUE=T; for example new=1h")?;
    let queue = queue.parse().map_err(|error| format!("{error}"))?;
    let age = humantime::parse_duration(age).map_err(|error| error.to_string())?;
    Ok((queue, age))
}
