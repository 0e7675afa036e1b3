//! Why a list was not fetched. The former list is untouched in each of these cases but
//! [`FetchError::Unsettled`], where it stands beside the new one.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use thiserror::Error;

use crate::child::{End, StartError};

#[derive(Debug, Error)]
pub enum FetchError {
    #[error("another fetch{} of {name:?} into {} is running: stop it first, or give each a name of its own", pid.map_or(String::new(), |pid| format!(" (pid {pid})")), input.display())]
    Claimed {
        name: String,
        input: PathBuf,
        /// The other's process id, where the kernel tells.
        pid: Option<u32>,
    },
    #[error("cannot read the input directory {}: {source}; name the directory that the daemon watches", path.display())]
    Input { path: PathBuf, source: io::Error },
    #[error("cannot open or lock {}: {source}{}", path.display(), may_write(source))]
    Lock { path: PathBuf, source: io::Error },
    #[error("there is no larger number than that of {}: remove or rename it", path.display())]
    NoStamp {
        /// The file with the largest number.
        path: PathBuf,
    },
    /// What changed cannot be handed over.
    #[error("{0}")]
    Changed(#[source] io::Error),
    /// The command did not start.
    #[error(transparent)]
    Start(#[from] StartError),
    #[error("{}", end.failure(*time_limit))]
    Command {
        end: End,
        /// How long it might have run.
        time_limit: Option<Duration>,
    },
    #[error("the command wrote no good line ({faulty} faulty ones)")]
    NoLines {
        /// Lines that the daemon would skip.
        faulty: u64,
    },
    #[error("the command wrote {accepted} good lines, and {min_lines} are asked for (min-lines)")]
    TooFew { accepted: u64, min_lines: u64 },
    #[error(
        "the command wrote {accepted} good lines, less than the share {min_share} (min-share) of the {last} in {file}; if so few are right, fetch once by hand with --min-share 0"
    )]
    Shrunk { accepted: u64, last: u64, file: String, min_share: f64 },
    #[error("cannot {doing} {}: {source}", path.display())]
    Io { doing: &'static str, path: PathBuf, source: io::Error },
    /// The list was written into a directory that is not the input directory any more.
    #[error("{} is not the directory any more that it was when the command began (renamed, removed, or mounted over), and nobody reads that one: fetch again", path.display())]
    Replaced { path: PathBuf },
    /// The list is in place, and the directory could not be synced: a power cut may undo it.
    #[error("{} is in place but the directory could not be synced: {source}; older lists are kept beside it", path.display())]
    Unsettled { path: PathBuf, source: io::Error },
    #[error("stopped while the command was running")]
    Stopped,
    #[error("the delivery broke off")]
    Interrupted,
}

/// What to do, where `source` does not say it itself.
fn may_write(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::PermissionDenied => "; may this user write to the input directory?",
        _ => "",
    }
}
