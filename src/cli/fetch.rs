//! The arguments of `fetch`, as typed, and the checked settings made of them.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::{RunArguments, absolute};
use crate::config::values::parse_interval;
use crate::config::{FetcherTable, ListName};
use crate::exit::Failure;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  shiftboss fetch input links -- ./list-links.sh
  shiftboss fetch --every 12h --timeout 1h --min-lines 1000 input packages -- \\
      ./list-packages --all")]
pub struct FetchArguments {
    /// Run again so long after the start of the last run; until stopped
    #[arg(long, value_name = "TIME", value_parser = parse_interval)]
    pub every: Option<Duration>,
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
    #[command(flatten)]
    pub run: RunArguments,
    /// The directory that the daemon watches
    pub input_dir: PathBuf,
    /// The list's name; without a dot
    pub name: String,
    /// The program that prints the list, and its arguments
    #[arg(required = true, last = true, num_args = 1..)]
    pub command: Vec<OsString>,
}

/// A list that `fetch` fetches, checked.
#[derive(Debug)]
pub struct FetchSettings {
    pub input: PathBuf,
    /// Without `every` there is one run.
    pub list: FetcherTable,
}

impl TryFrom<FetchArguments> for FetchSettings {
    type Error = Failure;

    fn try_from(typed: FetchArguments) -> Result<Self, Failure> {
        let name = ListName::new(&typed.name).map_err(|error| {
            Failure::usage(format!("the name {:?} cannot be used: {error}", typed.name))
        })?;
        let list = FetcherTable {
            name,
            command: typed.command,
            directory: None,
            every: typed.every,
            on_change: None,
            timeout: typed.run.timeout,
            grace: typed.run.grace.into(),
            min_lines: typed.min_lines,
            min_share: typed.min_share,
            live: typed.live,
            retry: false,
            environment: BTreeMap::new(),
        };
        Ok(Self { input: absolute(typed.input_dir)?, list })
    }
}

fn share(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(share) if (0.0..=1.0).contains(&share) => Ok(share),
        _ => Err("a share is a number from 0 to 1; for example 0.5".to_owned()),
    }
}
