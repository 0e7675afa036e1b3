//! Lock files: one daemon per database, per socket and per input directory (spec 6), one fetch per list.
//!
//! `serve` takes them for its life, `fetch` too; `status` looks who holds one. The lock is the kernel's (flock),
//! so it goes with its holder however that ends; the file stays. Whoever can open it can lock it, so only its owner
//! can; who holds it is said in a note beside it, which others may read. Only a start that is refused removes what
//! it made. The database file itself is never opened here: closing it would drop SQLite's own locks.

mod note;

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags, flock};
use rustix::io::Errno;
use thiserror::Error;
use tracing::warn;

use crate::safe_file;
pub use note::Holder;
use note::Note;

/// A status command holds the lock for an instant to see whether it is free.
const PATIENCE: Duration = Duration::from_millis(500);
/// Whoever can open a lock file can lock it, and keep all others out.
const MODE: u32 = 0o600;
/// Pause between two tries.
const PAUSE: Duration = Duration::from_millis(10);

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
    /// Held by being open.
    _file: File,
    /// Its file was made when it was taken.
    is_made: bool,
    note: Option<Note>,
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
        if let Some(note) = &mut self.note {
            let _ = note.close(self.is_kept);
        }
        if self.is_made && !self.is_kept {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// The lock file of a database or a socket: the same through whatever links it is reached.
#[must_use]
pub fn file_of(path: &Path) -> PathBuf {
    hidden(&resolved(path), "shiftboss-lock")
}

/// The note of who holds the lock of a database or a socket.
#[must_use]
pub fn note_of(path: &Path) -> PathBuf {
    hidden(&resolved(path), "shiftboss-daemon")
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
    let old = old_file_of(path);
    if let Some(holder) = holder_in(&old, &old, Duration::ZERO) {
        return Err(held(Some(holder)));
    }
    let Opened { file, is_made, is_ours } = open_locked(&lock)?;
    if !is_ours {
        return Err(held(noted(path)));
    }
    let mut taken = LockFile { path: lock, _file: file, is_made, note: None, is_kept: false };
    // What stands in its place may be another's.
    let note = note_of(path);
    let failed = |doing| {
        let path = note.clone();
        move |source| LockError::Io { doing, path, source }
    };
    let note = taken.note.insert(Note::open(note.clone()).map_err(failed("open the note"))?);
    // The lock is the kernel's: it is held whatever the note says, also on a disk that is full.
    let text = serde_json::to_vec(holder).map_err(io::Error::from);
    if let Err(error) = text.and_then(|text| note.write(&text)) {
        let note = note.path().display();
        warn!(%error, %note, "The note of who runs could not be written: status will not know this daemon.");
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
            Err(LockError::Taken { path: lock.to_owned(), pid: pid_locking_open(&file) })
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
        Err(Errno::WOULDBLOCK) => (true, pid_locking_open(&file)),
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
        let opened = safe_file::open_own(&directory, name, OFlags::empty(), MODE);
        let (file, is_made) = opened.map_err(failed("open the lock file"))?;
        // An earlier build let others open it. What is not ours stays as it is.
        let _ = rustix::fs::fchmod(&file, Mode::from_raw_mode(MODE));
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
        Err(LockError::Watched { path: path.to_owned(), pid: pid_locking_open(&directory) })
    }
}

/// The process that holds a lock on a file with this inode: a directory has no room for its name.
fn pid_locking(inode: u64) -> Option<u32> {
    let inode = inode.to_string();
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    // 1: FLOCK  ADVISORY  WRITE 4711 fe:00:131075 0 EOF
    locks.lines().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let same = words.get(1) == Some(&"FLOCK")
            && words.get(5).is_some_and(|file| file.rsplit(':').next() == Some(&*inode));
        same.then(|| words.get(4)?.parse().ok())?
    })
}

fn pid_locking_open(file: &impl std::os::fd::AsFd) -> Option<u32> {
    pid_locking(rustix::fs::fstat(file).ok()?.st_ino)
}

/// Who holds the lock of the database or socket at `path` now. Changes nothing.
#[must_use]
pub fn holder_of(path: &Path) -> Option<Holder> {
    holder_in(&file_of(path), &note_of(path), PATIENCE)
}

/// Who holds a lock file's lock, by its note, which it may take `patience` to write.
fn holder_in(lock: &Path, note: &Path, patience: Duration) -> Option<Holder> {
    let deadline = Instant::now() + patience;
    while is_held(lock) {
        match note::read(note) {
            // It was taken a moment ago, and is about to be written.
            None if Instant::now() < deadline => pause(),
            holder => return holder,
        }
    }
    None
}

/// Whether somebody holds a lock file's lock. Who may not open it is told by the kernel.
fn is_held(lock: &Path) -> bool {
    match safe_file::open_to_read(lock) {
        Ok(file) => flock(&file, FlockOperation::NonBlockingLockShared) == Err(Errno::WOULDBLOCK),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            rustix::fs::lstat(lock).is_ok_and(|found| pid_locking(found.st_ino).is_some())
        }
        Err(_) => false,
    }
}

/// Who wrote the note of the database or socket at `path` last: the holder, or one that was
/// killed. A holder that stops takes its note away.
#[must_use]
pub fn noted(path: &Path) -> Option<Holder> {
    note::read(&note_of(path))
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
        assert!(!file_of(&path).exists() && !note_of(&path).exists());
        std::fs::write(note_of(&path), "killed").unwrap();
        drop(take(&path, &holder).unwrap());
        assert_eq!(std::fs::read(note_of(&path)).unwrap(), b"killed");
        let mut kept = take(&path, &holder).unwrap();
        kept.keep();
        drop(kept);
        assert_eq!(std::fs::read(note_of(&path)).unwrap(), b"");
    }

    /// Nobody else can open a lock file, also one that an earlier build made; who holds it may be read, and is
    /// told where it cannot be opened.
    #[test]
    fn a_lock_is_its_owner_s_alone() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("state.db");
        let holder = Holder::this_process(&path, directory.path(), Path::new("/s"));
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
        std::fs::write(file_of(&path), "").unwrap();
        std::fs::set_permissions(file_of(&path), PermissionsExt::from_mode(0o644)).unwrap();
        let held = take(&path, &holder).unwrap();
        assert_eq!((mode(&file_of(&path)), mode(&note_of(&path))), (0o600, 0o644));
        let inode = std::os::unix::fs::MetadataExt::ino(&file_of(&path).metadata().unwrap());
        assert_eq!(pid_locking(inode), Some(std::process::id()));
        drop(held);
        assert_eq!(pid_locking(inode), None);
        drop(take_file(&directory.path().join("fetch.lock")).unwrap());
        assert_eq!(mode(&directory.path().join("fetch.lock")), 0o600);
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
        io::Write::write_all(&mut old, &serde_json::to_vec(&holder).unwrap()).unwrap();
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
