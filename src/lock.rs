//! Lock files: one daemon per database, per socket and per input directory (spec 6), one fetch per list.
//!
//! `serve` takes them for its life, `fetch` too; `status` looks who holds one. The lock is the kernel's (flock),
//! so it goes with its holder however that ends; the file stays and says who it was. Only a start that is
//! refused removes what it made. The database
//! file itself is never opened here: closing it would drop SQLite's own locks.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags, flock};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use tracing::warn;

use crate::safe_file;

/// A status command holds the lock for an instant to see whether it is free.
const PATIENCE: Duration = Duration::from_millis(500);
/// A holder's note is no longer: three paths and two numbers.
const NOTE_BYTES_MAX: u64 = 64 * 1024;
/// Pause between two tries.
const PAUSE: Duration = Duration::from_millis(10);

/// Who holds a lock, as written into its file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// Process id.
    pub pid: u32,
    /// The database it keeps.
    pub database: PathBuf,
    /// The directory it watches.
    pub input_dir: PathBuf,
    /// The socket it listens on.
    pub socket: PathBuf,
    /// When it started, in seconds since 1970.
    pub started: u64,
}

impl Holder {
    /// This process, with what it works on.
    #[must_use]
    pub fn this_process(database: &Path, input_dir: &Path, socket: &Path) -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        Self {
            pid: std::process::id(),
            database: database.to_owned(),
            input_dir: input_dir.to_owned(),
            socket: socket.to_owned(),
            started: since.map_or(0, |since| since.as_secs()),
        }
    }
}

/// Why a lock was not had.
#[derive(Debug, Error)]
pub enum LockError {
    /// Another daemon has it.
    #[error("another daemon{} is using {path}: stop it first", holder.as_ref().map_or(String::new(), |held| format!(" (pid {}, database {}, socket {})", held.pid, held.database.display(), held.socket.display())))]
    Held {
        /// What is locked.
        path: PathBuf,
        /// Who has it, if the file tells.
        holder: Option<Holder>,
    },
    /// Another daemon watches the directory.
    #[error("another daemon{} is watching {path}: stop it first, or give each a directory of its own", pid.map_or(String::new(), |pid| format!(" (pid {pid})")))]
    Watched {
        /// The input directory.
        path: PathBuf,
        /// The daemon's process id, where the kernel tells.
        pid: Option<u32>,
    },
    /// Another process has it.
    #[error("another process{} has {path} locked", pid.map_or(String::new(), |pid| format!(" (pid {pid})")))]
    Taken {
        /// The lock file.
        path: PathBuf,
        /// The other's process id, where the kernel tells.
        pid: Option<u32>,
    },
    /// The lock file cannot be used.
    #[error("cannot {doing} {path}: {source}")]
    Io {
        /// What was tried.
        doing: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// The lock of a database or a socket, held until it is dropped. The start it was taken for may still be
/// refused: unless it is [kept](LockFile::keep), all is then as before.
#[derive(Debug)]
pub struct LockFile {
    path: PathBuf,
    file: File,
    /// What it said when it was taken; `None`: it was made then.
    before: Option<Vec<u8>>,
    is_kept: bool,
}

impl LockFile {
    /// The start succeeded.
    pub fn keep(&mut self) {
        self.is_kept = true;
    }
}

impl Drop for LockFile {
    /// The lock itself goes with the descriptor, after this.
    fn drop(&mut self) {
        let _ = match (self.is_kept, &self.before) {
            // What it says would only mislead.
            (true, _) => self.file.set_len(0),
            (false, Some(before)) => write(&mut self.file, before),
            (false, None) => std::fs::remove_file(&self.path),
        };
    }
}

/// The lock file of a database or a socket: the same through whatever links it is reached.
#[must_use]
pub fn file_of(path: &Path) -> PathBuf {
    hidden(&resolved(path), "shiftboss-lock")
}

/// A hidden file beside a database or a socket, for a purpose.
#[must_use]
pub fn hidden(path: &Path, purpose: &str) -> PathBuf {
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    path.with_file_name(name).with_added_extension(purpose)
}

/// The lock file of daemons up to 0.1. One may still run when this one is started.
fn old_file_of(path: &Path) -> PathBuf {
    resolved(path).with_added_extension("lock")
}

/// The path without links; where nothing is yet, that of its directory and its name.
fn resolved(path: &Path) -> PathBuf {
    let in_directory = || {
        let directory = std::fs::canonicalize(path.parent()?).ok()?;
        Some(directory.join(path.file_name()?))
    };
    std::fs::canonicalize(path).ok().or_else(in_directory).unwrap_or_else(|| path.to_owned())
}

/// Takes the lock of the database or socket at `path`.
///
/// # Errors
/// When another daemon has it, or the lock file cannot be opened for writing.
pub fn take(path: &Path, holder: &Holder) -> Result<LockFile, LockError> {
    let lock = file_of(path);
    let held = |holder| LockError::Held { path: path.to_owned(), holder };
    if let Some(holder) = holder_in(&old_file_of(path), Duration::ZERO) {
        return Err(held(Some(holder)));
    }
    let Opened { mut file, is_made, is_ours } = open_locked(&lock)?;
    if !is_ours {
        return Err(held(read(&mut file)));
    }
    let before = (!is_made).then(|| bytes(&mut file).unwrap_or_default());
    let mut taken = LockFile { path: lock, file, before, is_kept: false };
    // The lock is the kernel's: it is held whatever the file says, also on a disk that is full.
    let note = serde_json::to_vec(holder).map_err(io::Error::from);
    if let Err(error) = note.and_then(|note| write(&mut taken.file, &note)) {
        let lock = taken.path.display();
        warn!(%error, %lock, "The lock file could not be written: status will not know this daemon's pid.");
    }
    Ok(taken)
}

/// Takes the lock that the file `lock` itself is, with nothing in it. Held until it is closed.
///
/// # Errors
/// When another process has it, or the file cannot be opened for writing.
pub fn take_file(lock: &Path) -> Result<File, LockError> {
    match open_locked(lock)? {
        Opened { file, is_ours: true, .. } => Ok(file),
        Opened { file, .. } => {
            Err(LockError::Taken { path: lock.to_owned(), pid: pid_locking(&file) })
        }
    }
}

/// Whether another process holds the lock that the file `lock` itself is, and which, where the kernel
/// tells. Changes nothing.
#[must_use]
pub fn is_taken(lock: &Path) -> (bool, Option<u32>) {
    let Ok(file) = safe_file::open_to_read(lock) else {
        return (false, None);
    };
    match flock(&file, FlockOperation::NonBlockingLockShared) {
        Err(Errno::WOULDBLOCK) => (true, pid_locking(&file)),
        _ => (false, None),
    }
}

/// A lock file.
struct Opened {
    file: File,
    /// There was none.
    is_made: bool,
    /// Its lock was had.
    is_ours: bool,
}

/// Opens a lock file, and tries for its lock.
fn open_locked(lock: &Path) -> Result<Opened, LockError> {
    let failed =
        |doing| move |source: io::Error| LockError::Io { doing, path: lock.to_owned(), source };
    let (directory, name) = safe_file::parent(lock).map_err(failed("open the lock file"))?;
    loop {
        let opened = safe_file::open_own(&directory, name, OFlags::empty(), 0o644);
        let (file, is_made) = opened.map_err(failed("open the lock file"))?;
        let is_ours = wait_for(&file).map_err(|error| failed("lock")(error.into()))?;
        // A start that was refused may have removed it meanwhile: then somebody else has made another.
        let there = rustix::fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW);
        let ours = rustix::fs::fstat(&file).map_err(|error| failed("lock")(error.into()))?;
        let is_there =
            there.is_ok_and(|there| (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino));
        if is_there || !is_ours {
            return Ok(Opened { file, is_made, is_ours });
        }
    }
}

fn write(file: &mut File, text: &[u8]) -> io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    file.write_all(text)
}

/// Takes the lock on an input directory itself: two daemons would both hand out its tasks.
///
/// # Errors
/// When another daemon has it, or the directory cannot be opened.
pub fn take_directory(path: &Path) -> Result<OwnedFd, LockError> {
    let failed = |doing| {
        move |error: Errno| LockError::Io { doing, path: path.to_owned(), source: error.into() }
    };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory =
        rustix::fs::open(path, flags, Mode::empty()).map_err(failed("open the input directory"))?;
    if wait_for(&directory).map_err(failed("lock the input directory"))? {
        Ok(directory)
    } else {
        Err(LockError::Watched { path: path.to_owned(), pid: pid_locking(&directory) })
    }
}

/// The process that holds a lock on an open file: a directory has no room for its name.
fn pid_locking(file: &impl std::os::fd::AsFd) -> Option<u32> {
    let inode = rustix::fs::fstat(file).ok()?.st_ino.to_string();
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    // 1: FLOCK  ADVISORY  WRITE 4711 fe:00:131075 0 EOF
    locks.lines().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let same = words.get(1) == Some(&"FLOCK")
            && words.get(5).is_some_and(|file| file.rsplit(':').next() == Some(&*inode));
        same.then(|| words.get(4)?.parse().ok())?
    })
}

/// Who holds the lock of the database or socket at `path` now. Changes nothing.
#[must_use]
pub fn holder_of(path: &Path) -> Option<Holder> {
    holder_in(&file_of(path), PATIENCE)
}

/// Who holds a lock file's lock; it may take `patience` to write who it is.
fn holder_in(lock: &Path, patience: Duration) -> Option<Holder> {
    let mut file = safe_file::open_to_read(lock).ok()?;
    let deadline = Instant::now() + patience;
    loop {
        match flock(&file, FlockOperation::NonBlockingLockShared) {
            Err(Errno::WOULDBLOCK) => {}
            _ => return None,
        }
        match read(&mut file) {
            // It was taken a moment ago, and is about to be written.
            None if Instant::now() < deadline => pause(),
            holder => return holder,
        }
    }
}

/// Who wrote the lock file of the database or socket at `path` last: the holder, or one that was
/// killed. A holder that stops takes its note away.
#[must_use]
pub fn noted(path: &Path) -> Option<Holder> {
    read(&mut safe_file::open_to_read(&file_of(path)).ok()?)
}

/// Waits until the process `pid` holds the lock of the database or socket at `path` no longer; false
/// when it still does at `end`.
#[must_use]
pub fn wait_given_up(path: &Path, pid: u32, end: Instant) -> bool {
    while holder_of(path).is_some_and(|holder| holder.pid == pid) {
        if Instant::now() >= end {
            return false;
        }
        pause();
    }
    true
}

fn read(file: &mut File) -> Option<Holder> {
    serde_json::from_slice(&bytes(file).ok()?).ok()
}

fn bytes(file: &mut File) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.rewind()?;
    file.take(NOTE_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Tries for the lock for a little while.
fn wait_for(file: &impl std::os::fd::AsFd) -> Result<bool, Errno> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match flock(file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(true),
            Err(Errno::WOULDBLOCK) if Instant::now() < deadline => pause(),
            Err(Errno::WOULDBLOCK) => return Ok(false),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
}

#[allow(clippy::disallowed_methods)] // Nothing runs that could be kept waiting.
fn pause() {
    std::thread::sleep(PAUSE);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A lock keeps a second taker out, names its holder to readers, and goes when dropped.
    #[test]
    fn a_lock_has_one_holder() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("state.db");
        let holder = Holder::this_process(&path, directory.path(), Path::new("/s"));
        assert_eq!(holder_of(&path), None);
        let held = take(&path, &holder).unwrap();
        assert_eq!(holder_of(&path), Some(holder.clone()));
        let refused = take(&path, &holder).unwrap_err();
        assert!(refused.to_string().contains(&format!("pid {}", std::process::id())), "{refused}");
        assert!(!wait_given_up(&path, std::process::id(), Instant::now()));
        assert!(wait_given_up(&path, 0, Instant::now()), "another process had it");
        drop(held);
        assert!(wait_given_up(&path, std::process::id(), Instant::now()));
        assert_eq!(holder_of(&path), None);
        assert!(take(&path, &holder).is_ok());
        assert!(!path.exists(), "the database is not touched");
    }

    /// A link leads to the lock of what it leads to, before and after that is made.
    #[test]
    fn a_link_has_no_lock_of_its_own() {
        let directory = tempfile::tempdir().unwrap();
        let (real, link) = (directory.path().join("state.db"), directory.path().join("link"));
        std::os::unix::fs::symlink(directory.path(), &link).unwrap();
        let lock = file_of(&real);
        assert_eq!(file_of(&link.join("state.db")), lock);
        std::fs::write(&real, "").unwrap();
        std::os::unix::fs::symlink(&real, directory.path().join("other.db")).unwrap();
        assert_eq!(file_of(&directory.path().join("other.db")), lock);
        assert_eq!(file_of(&link.join("state.db")), lock);
    }

    /// A lock that is not kept leaves everything as it was: no file, or the note of who was killed.
    #[test]
    fn a_refused_start_leaves_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("state.db");
        let holder = Holder::this_process(&path, directory.path(), Path::new("/s"));
        drop(take(&path, &holder).unwrap());
        assert!(!file_of(&path).exists());
        std::fs::write(file_of(&path), "killed").unwrap();
        drop(take(&path, &holder).unwrap());
        assert_eq!(std::fs::read(file_of(&path)).unwrap(), b"killed");
        let mut kept = take(&path, &holder).unwrap();
        kept.keep();
        drop(kept);
        assert_eq!(std::fs::read(file_of(&path)).unwrap(), b"");
    }

    /// A lock that is removed while another waits for it is not had by both.
    #[test]
    fn a_lock_that_is_removed_is_made_anew() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("state.db");
        let holder = Holder::this_process(&path, directory.path(), Path::new("/s"));
        let holders = std::sync::atomic::AtomicU32::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        let Ok(_held) = take(&path, &holder) else { continue };
                        assert_eq!(holders.fetch_add(1, std::sync::atomic::Ordering::SeqCst), 0);
                        holders.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
                    }
                });
            }
        });
        assert!(!file_of(&path).exists());
    }

    /// A daemon of the version before, which locks another file, is not started beside.
    #[test]
    fn an_older_daemon_is_seen() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("state.db");
        let holder = Holder::this_process(&path, directory.path(), Path::new("/s"));
        let mut old = File::create(directory.path().join("state.db.lock")).unwrap();
        flock(&old, FlockOperation::NonBlockingLockExclusive).unwrap();
        assert!(take(&path, &holder).is_ok(), "somebody else's lock");
        write(&mut old, &serde_json::to_vec(&holder).unwrap()).unwrap();
        let refused = take(&path, &holder).unwrap_err();
        assert!(matches!(refused, LockError::Held { holder: Some(held), .. } if held == holder));
        drop(old);
        assert!(take(&path, &holder).is_ok(), "it has ended");
    }

    /// A directory is locked by its own descriptor.
    #[test]
    fn a_directory_has_one_daemon() {
        let directory = tempfile::tempdir().unwrap();
        let held = take_directory(directory.path()).unwrap();
        let refused = take_directory(directory.path()).unwrap_err();
        assert!(refused.to_string().contains(&format!("pid {}", std::process::id())), "{refused}");
        drop(held);
        assert!(take_directory(directory.path()).is_ok());
    }
}
