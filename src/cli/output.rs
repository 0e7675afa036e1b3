//! The arguments of `output`, as typed.

use std::path::PathBuf;

use clap::Args;

use crate::runner::log_directory::is_day;

/// Show what a key's jobs wrote: the newest attempt, or another one, to its end
///
/// From the files of `work --log-dir`, whether or not a daemon runs. On a terminal what would steer it is shown by its number, but
/// for colours. Without any output of the key it exits with 69.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  shiftboss output /var/log/jobs python3
  shiftboss output -f /var/log/jobs python3                 until it ends; the exit code is the job's
  shiftboss output --list /var/log/jobs python3
  shiftboss output -f --all-keys /var/log/jobs              whatever is written from now on")]
pub struct OutputArguments {
    /// The workers' --log-dir
    pub log_dir: PathBuf,
    /// The key
    #[arg(required_unless_present = "all_keys")]
    pub key: Option<String>,
    /// Go on until the attempt ends, over midnight, too, and exit with its code; 69 if it ends without a word
    #[arg(short, long)]
    pub follow: bool,
    /// The last lines only
    #[arg(short = 'n', long, value_name = "LINES")]
    pub lines: Option<usize>,
    /// Of this day (UTC), such as 2026-11-21, instead of the newest one
    #[arg(long, value_name = "DAY", value_parser = day)]
    pub day: Option<String>,
    /// This attempt instead of the newest one
    #[arg(long, value_name = "NUMBER")]
    pub attempt: Option<i64>,
    /// List the attempts that wrote something
    #[arg(long, conflicts_with_all = ["follow", "lines", "attempt", "raw", "all_keys"])]
    pub list: bool,
    /// Of all keys: the last lines of each (10), each behind its key; with -f what is written from now on
    #[arg(long, conflicts_with_all = ["key", "attempt", "raw"])]
    pub all_keys: bool,
    /// Show control sequences on a terminal as they are
    #[arg(long)]
    pub raw: bool,
}

fn day(text: &str) -> Result<String, String> {
    let day = Some(text.to_owned()).filter(|day| is_day(day));
    day.ok_or_else(|| "give a date such as 2026-11-21".to_owned())
}
