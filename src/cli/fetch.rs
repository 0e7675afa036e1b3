//! The arguments of `fetch`, as typed, and the list that they describe, checked.

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

impl FetchArguments {
    /// The input directory, and the list; without `every` there is one run.
    pub fn list(self) -> Result<(PathBuf, FetcherTable), Failure> {
        let name = ListName::new(&self.name).map_err(|error| {
            Failure::usage(format!("the name {:?} cannot be used: {error}", self.name))
        })?;
        let list = FetcherTable {
            name,
            command: self.command,
            directory: None,
            every: self.every,
            on_change: None,
            timeout: self.run.timeout,
            grace: self.run.grace.into(),
            min_lines: self.min_lines,
            min_share: self.min_share,
            live: self.live,
            retry: false,
            environment: BTreeMap::new(),
        };
        Ok((absolute(self.input_dir)?, list))
    }
}

fn share(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(share) if (0.0..=1.0).contains(&share) => Ok(share),
        _ => Err("a share is a number from 0 to 1; for example 0.5".to_owned()),
    }
}
