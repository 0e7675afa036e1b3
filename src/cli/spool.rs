//! The arguments of `spool`, one verb each, as typed; clap checks them. The doc comments are the help.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use shiftboss_spool::{Durability, EntryName, QueueName};

use super::{RunnerArguments, one_of};

/// What a change outlives.
const DURABILITIES: &[(&str, &str, Durability)] = &[
    ("none", "The end of processes only", Durability::None),
    (
        "file",
        "A crash leaves no entry with a part of its content, but may lose the last ones",
        Durability::File,
    ),
    ("full", "A crash of the system", Durability::Full),
];

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  shiftboss spool init jobs new done failed
  find . -name '*.png' | shiftboss spool put jobs new --lines
  shiftboss spool run jobs new -n 2 --failed failed -- ./convert {data}
  shiftboss spool fsck jobs")]
pub struct SpoolArguments {
    /// What a change outlives
    #[arg(long, global = true, value_parser = one_of(DURABILITIES), default_value = "full")]
    pub durability: Durability,
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
    /// The spool's directory
    pub dir: PathBuf,
    /// The queue
    pub queue: QueueName,
    /// The entry's name, as `list` shows it
    pub name: EntryName,
}

#[derive(Debug, Subcommand)]
pub enum SpoolVerb {
    /// Make a spool, or what is missing of one, with these queues
    #[command(after_help = "\
Example:
  shiftboss spool init jobs new done failed")]
    Init {
        /// The spool's directory; its parent must be there
        dir: PathBuf,
        /// The queues
        #[arg(required = true)]
        queue: Vec<QueueName>,
    },
    /// Put an entry into a queue, and print its name
    #[command(after_help = "\
Examples:
  shiftboss spool put jobs new --meta 'from alice' picture.png
  date | shiftboss spool put jobs new
  ls | shiftboss spool put jobs new --lines
  printf '%s\\n' 'alpha 1' 'bravo 2' | shiftboss spool put jobs tasks --meta-lines")]
    Put(PutArguments),
    /// Check an entry out, and print its name; it stays checked out until it is resolved
    ///
    /// `rm`, `move` and `release` resolve it, by whoever knows its name. Exits with 69 if there was
    /// nothing to take.
    #[command(after_help = "\
Example:
  name=$(shiftboss spool take jobs new --wait 1h --lease 10m) &&
    ./convert \"jobs/.data/$name\" &&
    shiftboss spool rm jobs new \"$name\"")]
    Take(TakeArguments),
    /// List the entries of a queue that can be taken, one name a line
    #[command(after_help = "\
Examples:
  shiftboss spool list jobs new
  shiftboss spool list --json jobs new | jq -r '.checked_out[].name'")]
    List {
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
    #[command(after_help = "\
Examples:
  shiftboss spool show jobs new picture
  cat \"$(shiftboss spool show --json jobs new picture | jq -r .data_path)\"")]
    Show {
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
    #[command(after_help = "\
Example:
  shiftboss spool move jobs new picture done")]
    Move {
        #[command(flatten)]
        entry: OneEntry,
        /// The queue
        to: QueueName,
    },
    /// Give a taken entry back to its queue; the attempt does not count
    #[command(after_help = "\
Example:
  shiftboss spool release jobs new picture")]
    Release(OneEntry),
    /// Remove an entry, available or taken
    ///
    /// What a daemon is accepting, or was when it died, stays, and that is exit code 75. A task that it has
    /// accepted is in the spool no more: `shiftboss cancel` deletes it.
    #[command(after_help = "\
Example:
  shiftboss spool rm jobs new picture")]
    Rm(OneEntry),
    /// Show how long the queues are
    #[command(after_help = "\
Examples:
  shiftboss spool stat jobs
  shiftboss spool stat --json jobs | jq '.queues[].available'")]
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
    #[command(after_help = "\
Examples:
  shiftboss spool watch jobs
  shiftboss spool watch --json --every 10s jobs >> lengths.jsonl")]
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
    ///
    /// {name}, {meta} and {data} (the path of the data) in ARGS are replaced; no shell looks at them. COMMAND also has
    /// SHIFTBOSS_SPOOL_DIR, _QUEUE, _NAME, _META, _META_FILE, _DATA and _ATTEMPT in its environment; _META only if that
    /// can hold it. Exit code 0 removes the entry. Any other end is a failure: the entry is tried again after
    /// --retry-after, and moved to --failed after --attempts.
    ///
    /// SIGTERM lets running commands finish and takes no more; a second one kills them and gives their entries back. No
    /// command outlives `run`, however that ends.
    Run(SpoolRunArguments),
    /// Report what is too old, orphaned, in two places, or no entry; exits with 1 if something is
    Monitor(MonitorArguments),
    /// Say what crashes have left, and mend it; exits with 1 if something is or was wrong
    ///
    /// With --repair producers must be stopped, unless --older-than is given.
    #[command(after_help = "\
Examples:
  shiftboss spool fsck jobs
  shiftboss spool fsck --repair --older-than 10m jobs")]
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

#[derive(Debug, Args)]
pub struct PutArguments {
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

#[derive(Debug, Args)]
pub struct TakeArguments {
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

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  shiftboss spool monitor jobs
  shiftboss spool monitor --daemon --json --max-age new=1h jobs")]
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

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  shiftboss spool run jobs new -- ./convert {data}
  shiftboss spool run jobs new -n 4 --timeout 1h --failed failed -- ./convert {data}
  shiftboss spool run --once jobs new -- sh -c 'wc -c < \"$SHIFTBOSS_SPOOL_DATA\"'")]
pub struct SpoolRunArguments {
    #[command(flatten)]
    pub place: InQueue,
    /// Exit when nothing can be taken: with 0, or with 1 if an entry failed
    #[arg(long)]
    pub once: bool,
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
    #[command(flatten)]
    pub runner: RunnerArguments,
}

fn queue_age(text: &str) -> Result<(QueueName, Duration), String> {
    // A queue's name may have an equals sign; a time has none.
    let (queue, age) = text.rsplit_once('=').ok_or("write QUEUE=T; for example new=1h")?;
    let queue = queue.parse().map_err(|error| format!("{error}"))?;
    let age = humantime::parse_duration(age).map_err(|error| error.to_string())?;
    Ok((queue, age))
}

/// A pause between two looks.
fn pause(text: &str) -> Result<Duration, String> {
    match humantime::parse_duration(text) {
        Ok(time) if time < Duration::from_millis(10) => Err("give 10ms or more".to_owned()),
        result => result.map_err(|error| error.to_string()),
    }
}
