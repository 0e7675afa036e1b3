//! The arguments of `work`, as typed, and the worker's checked settings made of them.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use shiftboss_protocol::wire::session::{LEASE_SECONDS_MAX, NAME_MAX_BYTES};

use super::absolute;
use super::template;
use crate::child::GRACE;
use crate::exit::{ExitCode, Failure};
use crate::runner::RunnerSettings;
use crate::target;
use crate::worker::Settings;

/// What `--help` begins with.
pub(super) const ABOUT: &str = "Take jobs from the daemon, and run COMMAND for each\n\nA job is a key and a payload: \
the first word of a fetcher's line, and the rest of that line. {key} and {payload} are replaced by them \
wherever they stand in COMMAND's arguments; no shell looks at them. {payload_file} is the path of a file with the \
payload, which may be too long for an argument (128 KiB). COMMAND also has SHIFTBOSS_KEY, SHIFTBOSS_PAYLOAD (not if it is above 120 KiB), \
SHIFTBOSS_ATTEMPT and SHIFTBOSS_WORKER in its environment. Its exit code is reported to the \
daemon: 128 plus the number if a signal ended it, 124 when its time was over. If there is no such program, no job is \
taken, and work exits with 78.\n\n\
SIGTERM lets running jobs finish and takes no more; a second one kills them and gives \
them back. No command outlives the worker, however that ends.";

const EXAMPLES: &str = "\
Examples:
  shiftboss work worker.sock -- ./check-link.sh {key} {payload}
  shiftboss work -n 4 --timeout 1h --log-dir logs worker.sock -- ./build {key}
  shiftboss work --once worker.sock -- sh -c 'echo \"$1\"' sh {key}
  shiftboss work worker.sock -- ./import --from {payload_file}";

/// What is typed behind `work`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct WorkArguments {
    /// Run so many jobs at a time
    #[arg(short = 'n', long, value_name = "JOBS", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub jobs: u16,
    /// Give COMMAND the payload on its standard input
    #[arg(long)]
    pub stdin: bool,
    /// Take {key} and {payload} within the script of a shell's -c, where what they stand for is executed
    #[arg(long)]
    pub allow_shell_templates: bool,
    /// Exit when there is nothing to do, and say how many jobs are left. The code is 0 when every result was
    /// reported (but see --fail), 69 when no daemon answered for 30 s, 73 when no job can be started
    #[arg(long)]
    pub once: bool,
    /// Exit with 1 instead of 0 if a job failed or was lost to another worker; with --once also if jobs were
    /// left because others hold them or the queue is paused
    #[arg(long)]
    pub fail: bool,
    /// Exit after N jobs
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub max_jobs: Option<u64>,
    /// End COMMAND after so long (TERM, then KILL), and report 124
    #[arg(long, value_name = "T", value_parser = humantime::parse_duration)]
    pub timeout: Option<Duration>,
    /// How long COMMAND may take to end after SIGTERM
    #[arg(long, value_name = "T", default_value_t = GRACE.into(), value_parser = time)]
    pub grace: humantime::Duration,
    /// Write the output to DIR/DAY/KEY.log; without it, to standard output behind each job's key
    #[arg(long, value_name = "DIR")]
    pub log_dir: Option<PathBuf>,
    /// How long logs are kept
    #[arg(long, value_name = "T", default_value = "30days", value_parser = time, requires = "log_dir")]
    pub keep: humantime::Duration,
    /// How long the daemon waits for a sign of life before it hands a job to another worker
    #[arg(long, value_name = "T", default_value = "60s", value_parser = time)]
    pub lease: humantime::Duration,
    /// The worker's name, for people [default: HOST-PID]
    #[arg(long, value_parser = worker_name)]
    pub name: Option<String>,
    /// What is logged: a level (error, warn, info, debug, trace), or a list of target=level
    #[arg(long, value_name = "FILTER", env = "SHIFTBOSS_LOG", default_value = "info")]
    pub log_level: String,
    /// The daemon's socket
    ///
    /// If it is left out: SHIFTBOSS_SOCKET, else what the configuration file says (SHIFTBOSS_CONFIG, else
    /// /etc/shiftboss.toml).
    pub socket: Option<PathBuf>,
    /// The program that does a job, and its arguments
    #[arg(required = true, last = true, num_args = 1..)]
    pub command: Vec<OsString>,
}

impl TryFrom<WorkArguments> for Settings {
    type Error = Failure;

    fn try_from(typed: WorkArguments) -> Result<Self, Failure> {
        let wrong = |message| Failure::new(ExitCode::Usage, message);
        if typed.timeout.is_some_and(|timeout| timeout.is_zero()) {
            return Err(wrong("--timeout 0s: give a time above 0, or none".to_owned()));
        }
        let lease_seconds = lease(typed.lease.into()).ok_or_else(|| {
            wrong(format!("--lease {}: give whole seconds, from 1s to 7days", typed.lease))
        })?;
        let command =
            template(typed.command, typed.allow_shell_templates, &["{key}", "{payload}"])?;
        let logs = typed.log_dir.map(absolute).transpose()?;
        Ok(Self {
            socket: absolute(target::socket(typed.socket, "work")?)?,
            runner: RunnerSettings {
                template: command,
                time_limit: typed.timeout,
                grace: typed.grace.into(),
                logs: logs.map(|directory| (directory, typed.keep.into())),
            },
            stdin: typed.stdin,
            name: typed.name,
            jobs: typed.jobs.into(),
            once: typed.once,
            fail: typed.fail,
            jobs_max: typed.max_jobs,
            lease_seconds,
        })
    }
}

fn lease(lease: Duration) -> Option<u32> {
    let seconds = lease.as_secs();
    let is_whole =
        lease.subsec_nanos() == 0 && (1..=u64::from(LEASE_SECONDS_MAX)).contains(&seconds);
    u32::try_from(seconds).ok().filter(|_| is_whole)
}

fn time(text: &str) -> Result<humantime::Duration, humantime::DurationError> {
    text.parse()
}

/// What `HELLO` takes for a name.
fn worker_name(text: &str) -> Result<String, String> {
    let is_faulty = |character: char| character == ' ' || character.is_control();
    if (1..=NAME_MAX_BYTES).contains(&text.len()) && !text.contains(is_faulty) {
        return Ok(text.to_owned());
    }
    Err(format!("a name has 1 to {NAME_MAX_BYTES} bytes and no spaces; for example builder-3"))
}
