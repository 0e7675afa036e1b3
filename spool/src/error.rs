//! What can go wrong with a spool, in words for whoever must mend it. Used by every part.

use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use thiserror::Error;

use super::name::{EntryName, QueueName};

/// Result of the spool's operations.
pub type Result<T, E = SpoolError> = std::result::Result<T, E>;

/// Why an operation on a spool failed. Nothing acknowledged is lost by any of them.
#[derive(Debug, Error)]
pub enum SpoolError {
    /// The system refused a call.
    #[error("cannot {doing} {}: {source}{}", path.display(), hint(source))]
    Io {
        /// What was tried.
        doing: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The entry is published, moved or removed, but the system failed to make that durable.
    #[error(
        "entry {name}: {doing} is done but not known to be on disk ({source}); do not repeat it, look after the disk"
    )]
    NotDurable {
        /// What was done.
        doing: &'static str,
        /// The entry.
        name: EntryName,
        /// What the system said to the sync.
        source: io::Error,
    },
    /// The directory is not a spool.
    #[error("{} is not a spool: it has no .registry; make one with `shiftboss spool init`, elsewhere if this directory is in use", .0.display())]
    NotASpool(PathBuf),
    /// It has a part of what a spool has.
    #[error("{} is a spool without {missing}: an interrupted creation, mended by `create` or `fsck --repair`", path.display())]
    Incomplete {
        /// The spool.
        path: PathBuf,
        /// The first directory that is missing.
        missing: &'static str,
    },
    /// The directory has something else in it.
    #[error("{} has other files in it ({found}): a spool is created in an empty or new directory", path.display())]
    Foreign {
        /// The directory.
        path: PathBuf,
        /// One of them.
        found: String,
    },
    /// It was made by a later version of this program.
    #[error("{} says {found:?} in .shiftboss/version, and this program knows 1: use a later one", path.display())]
    Version {
        /// The spool.
        path: PathBuf,
        /// What it says.
        found: String,
    },
    /// The name is in use, so that it can be neither reserved nor published.
    #[error("the name {0} is taken: an entry has it until it is removed; choose another")]
    Taken(EntryName),
    /// The generator gave nothing but taken names.
    #[error("{tries} names in a row were taken, the last {last}: the generator must give others")]
    NoFreeName {
        /// How often it was asked.
        tries: u32,
        /// Its last answer.
        last: EntryName,
    },
    /// The entry is not there.
    #[error("there is no entry {name} in {queue}: it was taken, moved or removed")]
    NotFound {
        /// Where it was looked for.
        queue: QueueName,
        /// The entry.
        name: EntryName,
    },
    /// The entry is checked out by somebody who may still be at it.
    #[error("{name} in {queue} is checked out by {by}")]
    Held {
        /// Where it was checked out of.
        queue: QueueName,
        /// The entry.
        name: EntryName,
        /// Who has it, and what can be done.
        by: String,
    },
    /// The claim was given to others: this process was silent for longer than its lease, or somebody
    /// repaired the spool meanwhile.
    #[error(
        "the claim on {name} in {queue} is lost: it was given back by another process; what was worked on it may be worked again"
    )]
    Lost {
        /// Where it was checked out of.
        queue: QueueName,
        /// The entry.
        name: EntryName,
    },
    /// The name was never reserved, or given up since.
    #[error("the name {0} is not reserved: reserve it first")]
    NotReserved(EntryName),
    /// The entry's metadata could not be read, and the entry was set aside.
    #[error(
        "the metadata of {name} in {queue} cannot be read ({source}); it is set aside in .shiftboss/quarantine/{name}"
    )]
    SetAside {
        /// Where it was.
        queue: QueueName,
        /// The entry.
        name: EntryName,
        /// Why.
        source: io::Error,
    },
    /// More bytes than may be.
    #[error("{what} of {name} has {bytes} bytes, and {limit} may be")]
    TooLarge {
        /// Metadata or data.
        what: &'static str,
        /// The entry.
        name: EntryName,
        /// How many it has (or at least has).
        bytes: u64,
        /// The limit.
        limit: u64,
    },
    /// The source of the data has more than may be.
    #[error("the data has more than {limit} bytes, and no more may be")]
    DataTooLarge {
        /// The limit.
        limit: u64,
    },
    /// The source of the data failed.
    #[error("cannot read the data: {0}")]
    Unread(#[source] io::Error),
    /// Another process repairs or reclaims.
    #[error("{} is locked by another fsck or reclaim: try again when it has ended", .0.display())]
    Locked(PathBuf),
    /// Another process accepts.
    #[error(
        "another daemon accepts the entries of {}: stop it first, or give each a spool of its own", .0.display()
    )]
    Accepting(PathBuf),
    /// A batch was published in part.
    #[error("{} of {all} entries are published, the rest is not: {source}", published.len())]
    Batch {
        /// Those that are in the queue, in the order given.
        published: Vec<EntryName>,
        /// How many there were.
        all: usize,
        /// What happened to the next.
        source: Box<SpoolError>,
    },
}

/// What to do about what the system said, where there is something to do.
fn hint(source: &io::Error) -> &'static str {
    match source.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::NOSPC | Errno::DQUOT) => "; nothing is lost: free some space and try again",
        Some(Errno::ACCESS | Errno::PERM) => "; the spool must belong to whoever works on it",
        Some(Errno::XDEV) => "; the whole spool must be on one file system",
        Some(Errno::ROFS) => "; the file system is read-only",
        Some(Errno::LOOP) => {
            "; a symbolic link is there or above it, and none is followed: find out who made it, and remove it"
        }
        Some(Errno::MLINK) => {
            "; a hard link is there, to a file with other names: find out who made it, and remove it"
        }
        Some(Errno::ISDIR) => {
            "; a directory is there, where a file belongs: find out who made it, and remove it"
        }
        Some(Errno::NXIO) => {
            "; a pipe, a socket or a device is there, where a file belongs: find out who made it, and remove it"
        }
        Some(Errno::MFILE | Errno::NFILE) => "; raise the limit of open files",
        _ => "",
    }
}

/// Makes an error of what the system said while doing something to a path.
pub(super) fn io(doing: &'static str, path: &Path) -> impl FnOnce(Errno) -> SpoolError {
    move |errno| SpoolError::Io { doing, path: path.to_owned(), source: errno.into() }
}

impl SpoolError {
    /// Whether the disk is full, or what the user may have of it.
    pub(super) fn is_full(&self) -> bool {
        let full = [Errno::NOSPC, Errno::DQUOT].map(Errno::raw_os_error);
        self.errno().is_some_and(|errno| full.contains(&errno))
    }

    /// What the system said, if it was the system.
    #[must_use]
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::Io { source, .. } | Self::NotDurable { source, .. } => source.raw_os_error(),
            Self::Batch { source, .. } => source.errno(),
            _ => None,
        }
    }
}
