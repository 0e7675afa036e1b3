//! A directory that is found where the input directory was: is it the known one, and if not, may it be
//! taken all the same? Looks at files, decides, and changes nothing; [`lost`](super::lost) acts on it.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::time::Duration;

use tokio::time::Instant;

use crate::directory::{Directory, Entry, FileState};
use crate::run_reader::still_holds;
use shiftboss_protocol::fetcher_file::{FileName, Named};
use shiftboss_queue::file_identity::DirectoryIdentity;
use shiftboss_queue::operation::StoredRun;

/// The lists of a directory: their names, and the state of those that are complete. A list that still grows may change.
type Lists = BTreeMap<OsString, Option<FileState>>;

/// A directory that is not the known one.
pub(super) struct Stranger {
    identity: DirectoryIdentity,
    lists: Lists,
    since: Instant,
}

impl Stranger {
    /// The result of a look at `directory`, after the look `before`.
    pub(super) fn seen(directory: &Directory, before: Option<Self>) -> Self {
        let identity = directory.identity();
        // A directory that cannot be listed counts as empty.
        let lists = lists_of(directory).unwrap_or_default();
        match before {
            Some(before) if before.identity.is_same(&identity) && before.lists == lists => before,
            _ => Self { identity, lists, since: Instant::now() },
        }
    }

    /// Whether it has held lists for at least `long` without a change.
    pub(super) fn has_rested(&self, long: Duration) -> bool {
        !self.lists.is_empty() && self.since.elapsed() >= long
    }
}

fn lists_of(directory: &Directory) -> io::Result<Lists> {
    let mut lists = Lists::new();
    for name in directory.names()? {
        if let Named::Fetcher(file) = FileName::parse(&name)
            && let Entry::File(state) = directory.look(&name)?
        {
            lists.insert(name, (!file.growing).then_some(state));
        }
    }
    Ok(lists)
}

/// Whether a directory holds every complete list that the store knows, so that taking it withdraws none of them; if
/// none is complete, every list. For a store without lists, any directory does.
pub(super) fn holds_known(directory: &Directory, known: &[StoredRun]) -> bool {
    let lists = || known.iter().filter(|run| !run.deleting);
    let any_complete = lists().any(|run| run.complete);
    lists().filter(|run| run.complete || !any_complete).all(|run| holds(directory, run))
}

/// Whether a run's file is there, under one of its names, with what was read of it. Device and inode may differ: a copy
/// will do.
fn holds(directory: &Directory, stored: &StoredRun) -> bool {
    [false, true].iter().any(|growing| {
        directory
            .open_file(stored.run.file_name(*growing).as_ref())
            .and_then(|(file, state)| still_holds(&file, &state, stored.position))
            .unwrap_or(false)
    })
}
