//! The arguments of `simulate`, as typed.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use shiftboss_queue::simulation::{TIME_MAX, WORKERS_MAX};

use crate::config::values::parse_share;
use crate::target::Asked;

/// Numbers of workers that one command compares.
const COMPARED_MAX: usize = 100;

/// Simulate the queue: how long until every task ran once, and where one more worker helps
///
/// With the daemon's own rules, and a clock that jumps. Each list begins anew, in the order in which its keys ran last; nothing is
/// changed, and no daemon is asked. A job takes as long, and fails as often, as those of its fetcher did in the last 90 days,
/// or as the options say. Groups and retries are those of the configuration file.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  shiftboss simulate --workers 2,4,8
  shiftboss simulate --workers 100 --config new.toml -t /var/lib/shiftboss/state.db
  shiftboss simulate --duration 3s --failures 0.05 --workers 1,2 input/mail.1700000000.txt
  shiftboss simulate --json --workers 8 | jq '.runs[].fetchers[] | {fetcher, cycle_seconds}'")]
pub struct SimulateArguments {
    /// Lists instead of the target's: files as fetchers write them, of each fetcher the newest. With -t, jobs are as
    /// that queue's were
    #[arg(value_name = "LIST")]
    pub lists: Vec<PathBuf>,
    #[command(flatten)]
    pub target: Asked,
    /// The daemon's configuration file, for its groups and retries [default: /etc/shiftboss.toml, if it is there]
    #[arg(long, value_name = "FILE", env = "SHIFTBOSS_CONFIG")]
    pub config: Option<PathBuf>,
    /// How many workers there are, up to 100000; several numbers are compared [default: as many as have jobs now]
    #[arg(long, value_name = "N,N", value_delimiter = ',', num_args = 1, value_parser = clap::value_parser!(u32).range(1..=i64::from(WORKERS_MAX)))]
    pub workers: Vec<u32>,
    /// What each job takes, exactly, instead of what was measured
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub duration: Option<Duration>,
    /// The share of jobs that fail, instead of what was measured: 0 to 1
    #[arg(long, value_name = "SHARE", value_parser = parse_share)]
    pub failures: Option<f64>,
    /// What is random follows from this number
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub seed: u64,
    /// End after so much simulated time, if not every task ran by then
    #[arg(long = "for", value_name = "TIME", value_parser = time)]
    pub time: Option<Duration>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

impl SimulateArguments {
    /// The numbers of workers, each once.
    pub fn workers(&self, usual: u32) -> Result<Vec<u32>, String> {
        let mut workers = self.workers.clone();
        workers.sort_unstable();
        workers.dedup();
        if workers.is_empty() {
            workers.push(usual.clamp(1, WORKERS_MAX));
        }
        if workers.len() > COMPARED_MAX {
            return Err(format!("give up to {COMPARED_MAX} numbers of workers"));
        }
        Ok(workers)
    }
}

fn time(text: &str) -> Result<Duration, String> {
    let all = Duration::from_millis(1)..=Duration::from_millis(TIME_MAX.unsigned_abs());
    let time = humantime::parse_duration(text).ok();
    time.filter(|time| all.contains(time))
        .ok_or_else(|| "give a time from 1ms to 100years, such as 3s".to_owned())
}
