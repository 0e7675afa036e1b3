//! The directory's side of fetching: who may deliver a list, which files of it there are, and how a
//! new one takes its place. Every step leaves the directory in a state the daemon makes sense of.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::AtFlags;
use shiftboss_actors::directory::{Directory, Entry};
use shiftboss_protocol::fetcher_file::{Line, LineReader};
use tracing::warn;

use super::error::FetchError;
use super::name::ListName;
use crate::lock::{self, LockError};
use crate::safe_file;

/// How much of a list is read at a time.
const CHUNK_BYTES: usize = 64 * 1024;

/// The right to deliver one list into one directory, held by one process at a time.
pub struct Claim {
    directory: Directory,
    name: ListName,
    _lock: File,
}

impl Claim {
    /// Claims a list in the directory at `input`.
    pub fn new(input: &Path, name: &ListName) -> Result<Self, FetchError> {
        let directory = Directory::open(input)
            .map_err(|source| FetchError::Input { path: input.to_owned(), source })?;
        let path = input.join(name.lock_file());
        match lock::take_file(&path) {
            Ok(lock) => Ok(Self { directory, name: name.clone(), _lock: lock }),
            Err(LockError::Taken { pid, .. }) => {
                let (name, input) = (name.as_str().to_owned(), input.to_owned());
                Err(FetchError::Claimed { name, input, pid })
            }
            Err(LockError::Io { source, .. }) => Err(FetchError::Lock { path, source }),
            Err(other) => Err(FetchError::Lock { path, source: io::Error::other(other) }),
        }
    }

    /// Whether the directory is still where it was.
    pub fn is_current(&self) -> bool {
        self.directory.is_at_its_path()
    }

    /// The newest complete list and its number of good lines, if there is one.
    pub fn last_complete(&self) -> Result<Option<(String, u64)>, FetchError> {
        let mut complete = self.files()?;
        complete.retain(|file| !file.growing);
        complete.sort_unstable_by_key(|file| std::cmp::Reverse(file.stamp));
        for file in complete {
            let failed = self.failed("read the last list", &file.name);
            match self.count(&file.name) {
                Ok(Some(lines)) => {
                    return Ok(Some((file.name.to_string_lossy().into_owned(), lines)));
                }
                Ok(None) => {}
                Err(error) => return Err(failed(error)),
            }
        }
        Ok(None)
    }

    /// The good lines of a file; none where there is no file, or none that the daemon reads.
    fn count(&self, name: &OsStr) -> io::Result<Option<u64>> {
        match self.directory.look(name)? {
            Entry::File(_) => accepted_lines(self.directory.open_file(name)?.0).map(Some),
            Entry::Absent | Entry::Unfit(_) => Ok(None),
        }
    }

    fn files(&self) -> Result<Vec<ListFile>, FetchError> {
        let names = self.directory.names().map_err(|source| {
            let path = self.directory.path().to_owned();
            FetchError::Input { path, source }
        })?;
        let of_ours = |name: OsString| {
            let (stamp, growing) = self.name.parse(&name)?;
            Some(ListFile { name, stamp, growing })
        };
        Ok(names.into_iter().filter_map(of_ours).collect())
    }

    fn path(&self, name: impl AsRef<OsStr>) -> PathBuf {
        self.directory.path().join(Path::new(name.as_ref()))
    }

    fn failed<E: Into<io::Error>>(
        &self,
        doing: &'static str,
        name: impl AsRef<OsStr>,
    ) -> impl FnOnce(E) -> FetchError {
        let path = self.path(name);
        move |source| FetchError::Io { doing, path, source: source.into() }
    }

    /// Removes a file; says whether there was one.
    fn remove(&self, name: impl AsRef<OsStr>) -> io::Result<bool> {
        match rustix::fs::unlinkat(&self.directory, name.as_ref(), AtFlags::empty()) {
            Ok(()) => Ok(true),
            Err(rustix::io::Errno::NOENT) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

/// A file of a list.
struct ListFile {
    name: OsString,
    stamp: i64,
    growing: bool,
}

/// A list that is being written. Dropped, it is removed.
pub struct Part {
    claim: Arc<Claim>,
    stamp: i64,
    /// Its file's name until it is whole: one that the daemon reads, or one that it does not.
    name: String,
    /// For syncing; the intake writes through another descriptor of the same file.
    file: File,
    is_published: bool,
}

impl Part {
    /// Begins a list, with a number above those of all others, and removes what a fetch that was
    /// killed has left. The daemon reads it from now on if it is `live`, else once it is whole.
    /// Returns what is to be written to, too.
    pub fn begin(claim: Arc<Claim>, live: bool) -> Result<(Self, File), FetchError> {
        let files = claim.files()?;
        let stamp = stamp_above(&claim, &files)?;
        let growing = files.into_iter().filter(|file| file.growing).map(|file| file.name);
        let draft = claim.name.draft_file();
        for left in growing.chain([draft.clone().into()]) {
            let failed = claim.failed("remove what an earlier fetch left,", &left);
            if claim.remove(&left).map_err(failed)? {
                warn!(file = %left.display(), "Removed what a fetch that was killed had left.");
            }
        }
        let name = if live { claim.name.file(stamp, true) } else { draft };
        let made = safe_file::create_new(&claim.directory, name.as_ref(), 0o666);
        let file = made.map_err(claim.failed("make", &name))?;
        let part = Self { claim, stamp, name, file, is_published: false };
        let writer = part.file.try_clone().map_err(part.claim.failed("open", &part.name))?;
        Ok((part, writer))
    }

    /// The right by which it is delivered.
    pub fn claim(&self) -> &Claim {
        &self.claim
    }

    /// Why the list could not be written.
    pub fn unwritten(&self, source: io::Error) -> FetchError {
        self.claim.failed("write to", &self.name)(source)
    }

    /// Puts the list in place: on disk, then named, where the daemon looks, then the name on disk, and only
    /// then are older lists removed. Returns its file's name.
    pub fn publish(mut self) -> Result<String, FetchError> {
        let whole = self.claim.name.file(self.stamp, false);
        let directory = &self.claim.directory;
        self.file.sync_all().map_err(self.claim.failed("sync", &self.name))?;
        rustix::fs::renameat(directory, &self.name, directory, &whole)
            .map_err(self.claim.failed("rename", &self.name))?;
        self.name.clone_from(&whole);
        // Only now: until then the directory could be replaced unseen.
        if !self.claim.is_current() {
            return Err(FetchError::Replaced { path: self.claim.directory.path().to_owned() });
        }
        self.is_published = true;
        if let Err(error) = rustix::fs::fsync(directory) {
            return Err(FetchError::Unsettled {
                path: self.claim.path(&whole),
                source: error.into(),
            });
        }
        for old in self.claim.files()?.iter().filter(|file| file.stamp < self.stamp) {
            if let Err(error) = self.claim.remove(&old.name) {
                warn!(file = %old.name.display(), %error, "An older list could not be removed.");
            }
        }
        Ok(whole)
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        if self.is_published {
            return;
        }
        if let Err(error) = self.claim.remove(&self.name) {
            let file = self.claim.path(&self.name);
            warn!(file = %file.display(), %error, "A list that failed could not be removed; the next fetch removes it.");
        }
    }
}

/// The time, or what follows the largest number there is.
fn stamp_above(claim: &Claim, files: &[ListFile]) -> Result<i64, FetchError> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now = i64::try_from(since.as_secs()).unwrap_or(i64::MAX);
    let Some(largest) = files.iter().max_by_key(|file| file.stamp) else {
        return Ok(now);
    };
    match largest.stamp.checked_add(1) {
        Some(next) => Ok(next.max(now)),
        None => Err(FetchError::NoStamp { path: claim.path(&largest.name) }),
    }
}

/// The lines of a complete list that the daemon takes.
fn accepted_lines(mut file: File) -> io::Result<u64> {
    let mut reader = LineReader::new(true, 0);
    let (mut chunk, mut lines, mut accepted) = (vec![0; CHUNK_BYTES], Vec::new(), 0);
    loop {
        let length = match file.read(&mut chunk) {
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        if length == 0 {
            reader.finish(&mut lines);
        } else {
            reader.feed(&chunk[..length], &mut lines);
        }
        let is_row = |line: &Line| u64::from(matches!(line, Line::Row(_)));
        accepted += lines.drain(..).map(|line| is_row(&line)).sum::<u64>();
        if length == 0 {
            return Ok(accepted);
        }
    }
}
