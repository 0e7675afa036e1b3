//! The arguments of `fetch`, as typed, and the checked settings made of them.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::absolute;
use crate::child::GRACE;
use crate::exit::{ExitCode, Failure};
use crate::fetch::{ListName, Settings};

/// What `--help` begins with.
pub(super) const ABOUT: &str = "Run COMMAND, which prints a list of tasks, and put the list into INPUT_DIR once \
it is whole\n\nWhen COMMAND has ended well and the list looks right, it becomes NAME.<number>.txt, \
and NAME's older files are removed. Else nothing of it is handed out, the old list stays, and \
fetch exits with 69. One fetch of a NAME runs at a time; a second one exits with 75.";

const EXAMPLES: &str = "\
Examples:
  shiftboss fetch input links -- ./list-links.sh
  shiftboss fetch --every 12h --timeout 1h --min-lines 1000 input packages -- \\
      ./list-packages --all";

/// The shortest and the longest time between two runs.
const EVERY: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(366 * 86_400)];

/// What is typed behind `fetch`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct FetchArguments {
    /// Run again so long after the start of the last run; until stopped
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    pub every: Option<Duration>,
    /// End COMMAND after so long (TERM, then KILL), and keep the old list
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    pub timeout: Option<Duration>,
    /// How long COMMAND may take to end after SIGTERM
    #[arg(long, value_name = "TIME", default_value_t = GRACE.into(), value_parser = grace)]
    pub grace: humantime::Duration,
    /// Keep the old list if there are fewer good lines
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub min_lines: u64,
    /// Keep the old list if there are fewer good lines than this share of its own, from 0 to 1
    #[arg(long, value_name = "SHARE", default_value_t = 0.5, value_parser = share)]
    pub min_share: f64,
    /// Write the lines to NAME.NUMBER.txt.part as they come: the daemon hands them out at once, also
    /// those of a list that fails in the end
    #[arg(long)]
    pub live: bool,
    /// What is logged: a level (error, warn, info, debug, trace), or a list of target=level
    #[arg(long, value_name = "FILTER", env = "SHIFTBOSS_LOG", default_value = "info")]
    pub log_level: String,
    /// The directory that the daemon watches
    pub input_dir: PathBuf,
    /// The list's name; without a dot
    pub name: String,
    /// The program that prints the list, and its arguments
    #[arg(required = true, last = true, num_args = 1..)]
    pub command: Vec<OsString>,
}

/// The settings of `fetch`, checked.
#[derive(Debug)]
pub struct FetchSettings {
    /// What is fetched.
    pub list: Settings,
    /// From the start of a run to that of the next; `None`: there is one run.
    pub every: Option<Duration>,
}

impl TryFrom<FetchArguments> for FetchSettings {
    type Error = Failure;

    fn try_from(typed: FetchArguments) -> Result<Self, Failure> {
        let wrong = |message| Failure::new(ExitCode::Usage, message);
        if let Some(every) = typed.every.filter(|every| !(EVERY[0]..=EVERY[1]).contains(every)) {
            let every = humantime::format_duration(every);
            return Err(wrong(format!("--every {every}: give a time from 1s to 366days")));
        }
        if typed.timeout.is_some_and(|timeout| timeout.is_zero()) {
            return Err(wrong("--timeout 0s: give a time above 0, or none".to_owned()));
        }
        let name = ListName::new(&typed.name)
            .map_err(|error| wrong(format!("the name {:?} cannot be used: {error}", typed.name)))?;
        let mut words = typed.command.into_iter();
        let program = words.next().ok_or_else(|| wrong("there is no COMMAND".to_owned()))?;
        let list = Settings {
            input: absolute(typed.input_dir)?,
            name,
            program,
            arguments: words.collect(),
            environment: Vec::new(),
            directory: None,
            time_limit: typed.timeout,
            grace: typed.grace.into(),
            min_lines: typed.min_lines,
            min_share: typed.min_share,
            live: typed.live,
            changed_file: None,
        };
        Ok(Self { list, every: typed.every })
    }
}

fn grace(text: &str) -> Result<humantime::Duration, humantime::DurationError> {
    text.parse()
}

fn share(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(share) if (0.0..=1.0).contains(&share) => Ok(share),
        _ => Err("a share is a number from 0 to 1; for example 0.5".to_owned()),
    }
}
