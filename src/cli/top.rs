//! The arguments of `top`, as typed.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::target::Asked;

pub const INTERVAL_MIN: Duration = Duration::from_millis(100);
pub const INTERVAL_MAX: Duration = Duration::from_secs(3_600);

/// Show the queue on the terminal, as it is now, until `q`
///
/// It reads the database as `status` does, and asks the daemon on its socket for what only the daemon knows. `?` shows the keys. Those
/// that change something are upper-case letters, ask first, and are there for operators alone. Where the output is no terminal
/// it prints one frame. NO_COLOR leaves out colours.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  shiftboss top
  shiftboss top --interval 10s --log-dir /var/log/jobs
  shiftboss top --read-only -t /var/lib/shiftboss/state.db
  COLUMNS=120 shiftboss top --once | mail -s queue root")]
pub struct TopArguments {
    /// Look so often: 100ms to 1h
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = interval)]
    pub interval: Duration,
    /// Print one frame as plain text, as wide as COLUMNS says, and end
    #[arg(long)]
    pub once: bool,
    /// Draw with ASCII characters alone
    #[arg(long)]
    pub ascii: bool,
    /// Have no keys that change anything
    #[arg(long)]
    pub read_only: bool,
    /// The workers' --log-dir: show what a job wrote
    #[arg(long, value_name = "DIR")]
    pub log_dir: Option<PathBuf>,
    #[command(flatten)]
    pub target: Asked,
}

fn interval(text: &str) -> Result<Duration, String> {
    let time = humantime::parse_duration(text).ok();
    time.filter(|time| (INTERVAL_MIN..=INTERVAL_MAX).contains(time))
        .ok_or_else(|| "give a time from 100ms to 1h, such as 2s".to_owned())
}
