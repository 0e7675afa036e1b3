//! The directory's side of fetching: who may deliver a list, which files of it there are, and how a new one takes its
//! place. Every step leaves the directory in a state that the daemon understands.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::AtFlags;
use shiftboss_actors::directory::{Directory, Entry};
use shiftboss_protocol::fetcher_file::Line;
use tracing::warn;

use super::FetchError;
use super::intake::read_lines;
use crate::config::ListName;
use crate::exit::ExitCode;
use crate::lock::{self, LockError};
use crate::safe_file;

/// The right to deliver one list into one directory, held by one process at a time.
pub struct Claim {
    directory: Directory,
    name: ListName,
    _lock: File,
}

impl Claim {
    /// Claims a list in the directory at `input`.
    pub fn new(input: &Path, name: &ListName) -> Result<Self, FetchError> {
        let directory = Directory::open(input).map_err(unreadable(input))?;
        let path = input.join(name.lock_file());
        let source = match lock::take_file(&path) {
            Ok(lock) => return Ok(Self { directory, name: name.clone(), _lock: lock }),
            Err(LockError::Taken) => {
                let text = format!(
                    "another fetch of {:?} into {} is running (`fuser {}` names it): stop it first, or give each a name \
                     of its own",
                    name.as_str(),
                    input.display(),
                    path.display()
                );
                return Err(FetchError::new(ExitCode::AlreadyRunning, text));
            }
            Err(LockError::Io { source, .. }) => source,
            Err(other) => io::Error::other(other),
        };
        let advice = match source.kind() {
            io::ErrorKind::PermissionDenied => "; may this user write to the input directory?",
            _ => "",
        };
        let text = format!("cannot open or lock {}: {source}{advice}", path.display());
        Err(FetchError::new(ExitCode::CannotCreate, text))
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
            let counted = self.count(&file.name);
            if let Some(lines) = counted.map_err(self.failed("read the last list", &file.name))? {
                return Ok(Some((file.name.to_string_lossy().into_owned(), lines)));
            }
        }
        Ok(None)
    }

    /// The number of lines of a complete list that the daemon takes; `None` if there is no file, or the daemon does not
    /// read it.
    fn count(&self, name: &OsStr) -> io::Result<Option<u64>> {
        let Entry::File(_) = self.directory.look(name)? else {
            return Ok(None);
        };
        let (file, _) = self.directory.open_file(name)?;
        let mut accepted = 0;
        read_lines(file, false, |line| accepted += u64::from(matches!(line, Line::Row(_))))?;
        Ok(Some(accepted))
    }

    fn files(&self) -> Result<Vec<ListFile>, FetchError> {
        let names = self.directory.names().map_err(unreadable(self.directory.path()))?;
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
        move |source| {
            let source: io::Error = source.into();
            FetchError::unavailable(format!("cannot {doing} {}: {source}", path.display()))
        }
    }

    /// Removes a file; returns whether there was one.
    fn remove(&self, name: impl AsRef<OsStr>) -> io::Result<bool> {
        match rustix::fs::unlinkat(&self.directory, name.as_ref(), AtFlags::empty()) {
            Ok(()) => Ok(true),
            Err(rustix::io::Errno::NOENT) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

struct ListFile {
    name: OsString,
    stamp: i64,
    growing: bool,
}

/// A list that is being written. Dropped, it is removed.
pub struct Part {
    /// The right by which it is delivered.
    pub claim: Arc<Claim>,
    stamp: i64,
    /// Its file's name until it is whole: one that the daemon reads, or one that it does not.
    name: String,
    /// For syncing; the intake writes through another descriptor of the same file.
    file: File,
    is_published: bool,
}

impl Part {
    /// Begins a list, with a number above all others, and removes what a killed fetch has left. The daemon reads it
    /// from now on if it is `live`, else once it is complete. Also returns the file to write to.
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
            return Err(FetchError::unavailable(format!(
                "{} is not the directory any more that it was when the command began (renamed, removed, or mounted over), and nobody reads that one: fetch again",
                self.claim.directory.path().display()
            )));
        }
        self.is_published = true;
        if let Err(error) = rustix::fs::fsync(directory) {
            let (path, source) = (self.claim.path(&whole), io::Error::from(error));
            return Err(FetchError::unavailable(format!(
                "{} is in place but the directory could not be synced: {source}; older lists are kept beside it",
                path.display()
            )));
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

/// The time, or the successor of the largest existing number.
fn stamp_above(claim: &Claim, files: &[ListFile]) -> Result<i64, FetchError> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now = i64::try_from(since.as_secs()).unwrap_or(i64::MAX);
    let Some(largest) = files.iter().max_by_key(|file| file.stamp) else {
        return Ok(now);
    };
    largest.stamp.checked_add(1).map(|next| next.max(now)).ok_or_else(|| {
        let path = claim.path(&largest.name);
        let path = path.display();
        let text = format!("there is no larger number than that of {path}: remove or rename it");
        FetchError::new(ExitCode::BadData, text)
    })
}

fn unreadable(input: &Path) -> impl Fn(io::Error) -> FetchError {
    move |source| {
        let path = input.display();
        let advice = "name the directory that the daemon watches";
        let text = format!("cannot read the input directory {path}: {source}; {advice}");
        FetchError::new(ExitCode::Configuration, text)
    }
}
