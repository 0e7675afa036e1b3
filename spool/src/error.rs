//! What can go wrong with a spool, in words for the person who must mend it.

use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use thiserror::Error;

use super::name::{EntryName, QueueName};

pub type Result<T, E = SpoolError> = std::result::Result<T, E>;

/// Why an operation on a spool failed. No such failure loses anything acknowledged.
#[derive(Debug, Error)]
pub enum SpoolError {
    #[error("cannot {doing} {}: {source}{}", path.display(), hint(source))]
    Io { doing: &'static str, path: PathBuf, source: io::Error },
    #[error(
        "entry {1}: {0} is done but not known to be on disk ({2}); do not repeat it, look after the disk"
    )]
    NotDurable(&'static str, EntryName, #[source] io::Error),
    #[error("{} is not a spool: it has no .registry; make one with `shiftspool init`, elsewhere if this directory is in use", .0.display())]
    NotASpool(PathBuf),
    #[error("{} is a spool without {}: an interrupted creation, mended by `create` or `fsck --repair`", .0.display(), .1)]
    Incomplete(PathBuf, &'static str),
    #[error("{} has other files in it ({}): a spool is created in an empty or new directory", .0.display(), .1)]
    Foreign(PathBuf, String),
    #[error("{} says {:?} in .shiftboss/version, and this program knows 1: use a later one", .0.display(), .1)]
    Version(PathBuf, String),
    #[error("the name {0} is taken: an entry has it until it is removed; choose another")]
    Taken(EntryName),
    #[error("{0} names in a row were taken, the last {1}: the generator must give others")]
    NoFreeName(u32, EntryName),
    #[error("there is no entry {1} in {0}: it was taken, moved or removed")]
    NotFound(QueueName, EntryName),
    #[error("{1} in {0} is checked out by {2}")]
    Held(QueueName, EntryName, String),
    /// This process was silent for longer than its lease, or the spool was repaired meanwhile.
    #[error(
        "the claim on {1} in {0} is lost: it was given back by another process; what was worked on it may be worked again"
    )]
    Lost(QueueName, EntryName),
    #[error("the name {0} is not reserved: reserve it first")]
    NotReserved(EntryName),
    #[error("the metadata of {1} in {0} cannot be read ({2}); it is in .shiftboss/quarantine/{1}")]
    Quarantined(QueueName, EntryName, #[source] io::Error),
    #[error("{0} has more than {1} bytes, and no more may be")]
    TooLarge(&'static str, u64),
    #[error("cannot read the data: {0}")]
    Unread(#[source] io::Error),
    #[error("{} is locked by another fsck or reclaim: try again when it has ended", .0.display())]
    Locked(PathBuf),
    /// What is published, in the order given; the total; why the next one failed.
    #[error("{} of {} entries are published, the rest is not: {}", .0.len(), .1, .2)]
    Batch(Vec<EntryName>, usize, #[source] Box<SpoolError>),
}

/// What to do about the system's error, if anything can be done.
fn hint(source: &io::Error) -> &'static str {
    match source.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::NOSPC | Errno::DQUOT) => "; nothing is lost: free some space and try again",
        Some(Errno::FBIG) => {
            "; nothing is lost: raise the limit on the size of files (ulimit -f) and try again"
        }
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

/// Makes an error from a system error, for an action on a path.
pub(crate) fn io<E: Into<io::Error>>(
    doing: &'static str,
    path: &Path,
) -> impl FnOnce(E) -> SpoolError {
    move |error| SpoolError::Io { doing, path: path.to_owned(), source: error.into() }
}

/// An error that is an answer.
pub(crate) trait NoneIf<T> {
    /// `None` if the error is `expected`.
    fn none_if(self, expected: Errno) -> Result<Option<T>, Errno>;
}

impl<T> NoneIf<T> for Result<T, Errno> {
    fn none_if(self, expected: Errno) -> Result<Option<T>, Errno> {
        match self {
            Err(errno) if errno == expected => Ok(None),
            result => result.map(Some),
        }
    }
}

impl SpoolError {
    pub(crate) fn not_found(queue: &QueueName, name: &EntryName) -> Self {
        Self::NotFound(queue.clone(), name.clone())
    }

    /// Whether the disk is full, the user's quota is used up, or the file would be too large.
    pub(crate) fn is_full(&self) -> bool {
        [Errno::NOSPC, Errno::DQUOT, Errno::FBIG].into_iter().any(|errno| self.is(errno))
    }

    pub(crate) fn is(&self, errno: Errno) -> bool {
        self.errno() == Some(errno.raw_os_error())
    }

    pub(crate) fn errno(&self) -> Option<i32> {
        match self {
            Self::Io { source, .. } | Self::NotDurable(_, _, source) => source.raw_os_error(),
            Self::Batch(_, _, source) => source.errno(),
            _ => None,
        }
    }
}
