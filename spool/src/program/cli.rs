//! The command line, one verb each, as typed; clap checks it. The doc comments are the help.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;
use shiftboss_console::arguments::{RunnerArguments, one_of};

use crate::{Durability, EntryName, QueueName};

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

/// A queue in a directory, for processes that share no daemon.
///
/// Producers put entries into queues. Consumers wait for entries, check them out, change them, move them on, or remove
/// them. They share nothing but the files.
#[derive(Debug, Parser)]
#[command(
    version,
    arg_required_else_help = true,
    after_help = "\
Exit codes:
   0  done; run, monitor: stopped cleanly   64  wrong command line
   1  fsck, monitor: something is or was wrong; run --once: an entry failed
  65  no such entry or queue, or bad input  69  nothing to take; no room
  70  a bug in shiftspool                   73  a file or directory cannot be made
  74  an I/O error                          75  somebody works on the entry; later
  78  no spool, or COMMAND is missing"
)]
pub struct Cli {
    /// What a change outlives
    #[arg(long, global = true, value_parser = one_of(DURABILITIES), default_value = "full")]
    pub durability: Durability,
    #[command(subcommand)]
    pub verb: Verb,
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
pub enum Verb {
    /// Make a spool, or what is missing of one, with these queues
    #[command(after_help = "\
Example:
  shiftspool init jobs new done failed")]
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
  shiftspool put jobs new --meta 'from alice' picture.png
  date | shiftspool put jobs new
  ls | shiftspool put jobs new --lines
  printf '%s\\n' 'alpha 1' 'bravo 2' | shiftspool put jobs tasks --meta-lines")]
    Put(PutArguments),
    /// Check an entry out, and print its name; it stays checked out until it is resolved
    ///
    /// `rm`, `move` and `release` resolve it, by whoever knows its name. Exits with 69 if there was
    /// nothing to take.
    #[command(after_help = "\
Example:
  name=$(shiftspool take jobs new --wait 1h --lease 10m) &&
    ./convert \"jobs/.data/$name\" &&
    shiftspool rm jobs new \"$name\"")]
    Take(TakeArguments),
    /// List the queues with their lengths, or the entries of a queue that can be taken, one name a line
    #[command(after_help = "\
Examples:
  shiftspool list jobs
  shiftspool list --every 1s jobs
  shiftspool list jobs new
  shiftspool list --json jobs new | jq -r '.checked_out[].name'")]
    List(ListArguments),
    /// Show an entry: who has it, its metadata, and where its data is
    #[command(after_help = "\
Examples:
  shiftspool show jobs new picture
  cat \"$(shiftspool show --json jobs new picture | jq -r .data_path)\"")]
    Show {
        #[command(flatten)]
        entry: OneEntry,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Move an entry into another queue, available or taken
    #[command(after_help = "\
Example:
  shiftspool move jobs new picture done")]
    Move {
        #[command(flatten)]
        entry: OneEntry,
        /// The queue
        to: QueueName,
    },
    /// Give a taken entry back to its queue; the attempt does not count
    #[command(after_help = "\
Example:
  shiftspool release jobs new picture")]
    Release(OneEntry),
    /// Remove an entry, available or taken
    #[command(after_help = "\
Example:
  shiftspool rm jobs new picture")]
    Rm(OneEntry),
    /// Run COMMAND for each entry of a queue
    ///
    /// {name}, {meta}, {meta_file} and {data} (paths) and {id} in ARGS are replaced; no shell looks at them. COMMAND also
    /// has SHIFTSPOOL_DIR, _QUEUE, _NAME, _META, _META_FILE, _DATA, _ID and _ATTEMPT in its environment; _META only if that
    /// can hold it. An ID is one word, the same at each attempt, and no other entry's. Exit code 0 removes the entry. Any
    /// other end is a failure: the entry is tried again after --retry-after, and moved to --failed after --attempts.
    ///
    /// SIGTERM lets running commands finish and takes no more; a second one kills them and gives their entries back. No
    /// command outlives `run`, however that ends.
    Run(RunEntries),
    /// Report what is too old, orphaned, in two places, or no entry; exits with 1 if something is
    Monitor(MonitorArguments),
    /// Say what crashes have left, and mend it; exits with 1 if something is or was wrong
    ///
    /// With --repair producers must be stopped, unless --older-than is given.
    #[command(after_help = "\
Examples:
  shiftspool fsck jobs
  shiftspool fsck --repair --older-than 10m jobs")]
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
    /// Print completions for a shell
    #[command(after_help = "\
Example:
  shiftspool completions bash > ~/.local/share/bash-completion/completions/shiftspool")]
    Completions { shell: Shell },
    /// Started by shiftspool beside its commands, to end them should it be killed
    #[command(hide = true)]
    Guardian,
}

#[derive(Debug, Args)]
pub struct ListArguments {
    /// List those that are checked out, and who has them
    #[arg(long, requires = "queue")]
    pub checkouts: bool,
    /// List again so often, until interrupted: a terminal is drawn anew, else changes are printed
    #[arg(long, value_name = "T", value_parser = pause)]
    pub every: Option<Duration>,
    /// Print one JSON object, with --every one a line for each look; of a queue it has both, also who has what
    #[arg(long)]
    pub json: bool,
    /// The spool's directory
    pub dir: PathBuf,
    /// The queue
    pub queue: Option<QueueName>,
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
  shiftspool monitor jobs
  shiftspool monitor --daemon --json --max-age new=1h jobs")]
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
  shiftspool run jobs new -- ./convert {data}
  shiftspool run jobs new -n 4 --timeout 1h --failed failed -- ./convert {data}
  shiftspool run --once jobs new -- sh -c 'wc -c < \"$SHIFTSPOOL_DATA\"'")]
pub struct RunEntries {
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
    /// Exit codes of COMMAND that mean "later": the entry is given back, the attempt does not count, and it is tried again
    /// after 1 s, 2 s, up to a minute
    #[arg(long, value_name = "CODE,...", value_delimiter = ',')]
    pub defer: Vec<u8>,
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
