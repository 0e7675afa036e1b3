//! The arguments of `spool monitor`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::pause;
use shiftboss_spool::QueueName;

const MONITOR_EXAMPLES: &str = "\
Examples:
  shiftboss spool monitor jobs
  shiftboss spool monitor --daemon --json --max-age new=1h jobs";

/// Behind `monitor`.
#[derive(Debug, Args)]
#[command(after_help = MONITOR_EXAMPLES)]
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

fn queue_age(text: &str) -> Result<(QueueName, Duration), String> {
    // A queue's name may have an equals sign; a time has none.
    let (queue, age) = text.rsplit_once('=').ok_or("write QUEUE=T; for example new=1h")?;
    let queue = queue.parse().map_err(|error| format!("{error}"))?;
    let age = humantime::parse_duration(age).map_err(|error| error.to_string())?;
    Ok((queue, age))
}
