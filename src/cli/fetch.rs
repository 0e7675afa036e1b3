//! The arguments of `fetch`, as typed, and the checked list that they describe. Options that a `[[fetcher]]` of the
//! configuration file has, too, are in [`List`].

use std::path::PathBuf;

use clap::Args;

use super::{LogArguments, absolute};
use crate::config::List;
use crate::exit::Failure;
use crate::stores::Database;

/// Run COMMAND, which prints a list of tasks, and put the list into INPUT_DIR once it is whole
///
/// When COMMAND has ended well and the list looks right, it becomes NAME.NUMBER.txt, and NAME's older files are
/// removed. Else nothing of it is handed out, the old list stays, and fetch exits with 69. One fetch of a NAME runs at
/// a time; a second one exits with 75.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  shiftboss fetch input links -- ./list-links.sh
  shiftboss fetch --every 12h --timeout 1h --min-lines 1000 input packages -- \\
      ./list-packages --all")]
pub struct FetchArguments {
    /// The directory that the daemon watches
    pub input_dir: PathBuf,
    #[command(flatten)]
    pub list: List,
    #[command(flatten)]
    pub log: LogArguments,
}

impl FetchArguments {
    /// The input directory, and the list; without `every` there is one run.
    pub fn list(self) -> Result<(PathBuf, List), Failure> {
        if let database @ Database::Server(_) = Database::from(self.input_dir.clone()) {
            let text = format!(
                "{database} is a database: give the input directory that this machine's daemon watches"
            );
            return Err(Failure::usage(text));
        }
        Ok((absolute(self.input_dir)?, self.list))
    }
}
