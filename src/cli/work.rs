//! The arguments of `work`, as typed, and the worker's checked settings made of them.

use clap::Args;
use shiftboss_protocol::verbs::{FETCHERS_MAX, FetcherName, Fetchers, Lease, Name, checked};

use super::{RunnerArguments, absolute};
use crate::exit::Failure;
use crate::target::Asked;
use crate::worker::{Leaves, Settings};

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  shiftboss work -- ./check-link.sh {key} {payload}
  shiftboss work -n 4 --timeout 1h --log-dir logs -t worker.sock -- ./build {key}
  shiftboss work --once -- sh -c 'echo \"$1\"' sh {key}
  shiftboss work -- ./import --from {payload_file}")]
pub struct WorkArguments {
    /// Give COMMAND the payload on its standard input
    #[arg(long)]
    pub stdin: bool,
    /// Exit when there is nothing to do, and say how many jobs are left. The code is 0 when every result was
    /// reported (but see --fail), 69 when no daemon answered for 30 s, 73 when no job can be started
    #[arg(long)]
    pub once: bool,
    /// With --once: wait for tasks that failed and are tried again later, and for groups that open, until none is left
    #[arg(long, requires = "once")]
    pub until_done: bool,
    /// Exit with 1 instead of 0 if a job failed or was lost to another worker; with --once also if jobs were
    /// left because other workers have them, they are tried again later, or the queue is paused
    #[arg(long)]
    pub fail: bool,
    /// Exit after N jobs, also such as were cancelled
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub max_jobs: Option<u64>,
    /// Exit with 1 after N jobs in a row that failed. Without it a worker whose last jobs, of 20 keys, all failed
    /// within a second each goes on with one at a time, after pauses of up to a minute, until one succeeds
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub max_failures: Option<u64>,
    /// Take only tasks of this fetcher's lists (`@tasks`: single tasks); given several times, of each of
    /// them. The name is not checked: its first list may come later
    #[arg(long = "fetcher", value_name = "NAME", value_parser = checked::<FetcherName>)]
    pub fetchers: Vec<FetcherName>,
    /// How long the daemon waits for a sign of life before it hands a job to another worker
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = lease)]
    pub lease: Lease,
    /// The worker's name, for people [default: HOST-PID]
    #[arg(long, value_parser = checked::<Name>)]
    pub name: Option<Name>,
    #[command(flatten)]
    pub target: Asked,
    #[command(flatten)]
    pub runner: RunnerArguments,
}

impl TryFrom<WorkArguments> for Settings {
    type Error = Failure;

    fn try_from(typed: WorkArguments) -> Result<Self, Failure> {
        Ok(Self {
            socket: absolute(typed.target.socket("work")?)?,
            jobs: typed.runner.jobs.into(),
            runner: typed.runner.settings(&["{key}", "{payload}", "{fetcher}"])?,
            stdin: typed.stdin,
            name: typed.name,
            fetchers: fetchers(&typed.fetchers)?,
            fail: typed.fail,
            leaves: Leaves {
                once: typed.once,
                until_done: typed.until_done,
                jobs_max: typed.max_jobs,
                failures_max: typed.max_failures,
            },
            lease: typed.lease,
        })
    }
}

fn fetchers(names: &[FetcherName]) -> Result<Fetchers, Failure> {
    if names.len() > FETCHERS_MAX {
        return Err(Failure::usage(format!(
            "a worker takes tasks of {FETCHERS_MAX} fetchers at most"
        )));
    }
    let names: Vec<_> = names.iter().map(FetcherName::shared).collect();
    Ok(if names.is_empty() { Fetchers::All } else { Fetchers::Of(names) })
}

fn lease(text: &str) -> Result<Lease, String> {
    let lease = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    let seconds = u32::try_from(lease.as_secs()).ok().filter(|_| lease.subsec_nanos() == 0);
    seconds.and_then(Lease::of).ok_or_else(|| "give whole seconds, from 1s to 7days".to_owned())
}
