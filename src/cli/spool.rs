//! The arguments of `spool`, one verb each, as typed; clap checks them. The doc comments are the help.

mod monitor;
mod run;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};

pub use monitor::MonitorArguments;
pub use run::SpoolRunArguments;

use shiftboss_spool::{Durability, EntryName, QueueName};

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
  ls | shiftboss spool put jobs new --lines
  printf '%s\\n' 'alpha 1' 'bravo 2' | shiftboss spool put jobs tasks --meta-lines";
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
    /// Check an entry out, and print its name; it stays checked out until it is resolved
    ///
    /// `rm`, `move` and `release` resolve it, by whoever knows its name. Exits with 69 if there was
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
    ///
    /// What a daemon is accepting, or was when it died, stays, and that is exit code 75. A task that it has
    /// accepted is in the spool no more: `shiftboss cancel` deletes it.
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
    ///
    /// What a daemon is accepting, or was when it died, stays, and that is exit code 75. A task that it has
    /// accepted is in the spool no more: `shiftboss cancel` deletes it.
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
    #[command(long_about = run::ABOUT)]
    Run(SpoolRunArguments),
    /// Report what is too old, orphaned, in two places, or no entry; exits with 1 if something is
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
    #[arg(conflicts_with = "meta_lines")]
    pub meta: OsString,
    /// The entry's name; one by time if not given
    #[arg(long, conflicts_with_all = ["lines", "meta_lines"])]
    pub name: Option<EntryName>,
    /// Put an entry for each line, which is its data; synced together
    #[arg(long)]
    pub lines: bool,
    /// Put an entry for each line, which is its metadata, and no data; synced together. So tasks are put
    #[arg(long, conflicts_with = "lines")]
    pub meta_lines: bool,
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
    /// Give it back if it is not resolved in this time; the attempt counts then
    #[arg(long, value_name = "T", value_parser = humantime::parse_duration)]
    pub lease: Option<Duration>,
    /// Take any, not the first by name: several takers do not race for it then
    #[arg(long)]
    pub spread: bool,
}

/// A pause between two looks.
fn pause(text: &str) -> Result<Duration, String> {
    match humantime::parse_duration(text) {
        Ok(time) if time < Duration::from_millis(10) => Err("give 10ms or more".to_owned()),
        result => result.map_err(|error| error.to_string()),
    }
}
