//! Lock files: one daemon per database, per socket and per input directory (spec 6), one fetch per list.
//!
//! `serve` takes them for its life, and so does `fetch`; `status` looks who holds one. The lock is the kernel's
//! (flock), so it ends with its holder, however that ends; the file stays. Any user who can open the file can lock it,
//! so only its owner can open it. A note beside it names the holder; others may read that, and take the lock for held
//! as long as the note's process lives. Only a start that is refused removes what it made. The database file itself is
//! never opened here: closing it would drop SQLite's own locks.

mod note;

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, FlockOperation, OFlags, flock};
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use shiftboss_actors::directory::Directory;
use shiftboss_protocol::answers::live::Daemon;
use thiserror::Error;
use tracing::warn;

use crate::exit::{ExitCode, Failure};
use crate::safe_file;
use note::Note;
pub use note::this_process;

/// A status command holds the lock for an instant to see whether it is free.
const PATIENCE: Duration = Duration::from_millis(500);
/// Any user who can open a lock file can lock it, and keep all others out.
const MODE: u32 = 0o600;
const PAUSE: Duration = Duration::from_millis(10);

#[derive(Debug, Error)]
pub enum LockError {
    /// Another daemon works on it; the text says which.
    #[error("another daemon{0}")]
    Held(String),
    #[error("another process has it locked")]
    Taken,
    /// The lock file cannot be used.
    #[error("cannot {doing} {path}: {source}")]
    Io { doing: &'static str, path: PathBuf, source: io::Error },
}

impl LockError {
    fn io<E: Into<io::Error>>(doing: &'static str, path: &Path) -> impl Fn(E) -> Self {
        move |error| Self::Io { doing, path: path.to_owned(), source: error.into() }
    }
}

impl From<LockError> for Failure {
    fn from(error: LockError) -> Self {
        let code = match error {
            LockError::Io { .. } => ExitCode::CannotCreate,
            _ => ExitCode::AlreadyRunning,
        };
        Self::new(code, error.to_string())
    }
}

/// The lock of a database or a socket, held until it is dropped. The start it was taken for may still be
/// refused: unless it is [kept](LockFile::keep), all is then as before.
#[derive(Debug)]
pub struct LockFile {
    path: PathBuf,
    _file: File,
    /// Its file was made when it was taken.
    is_made: bool,
    note: Option<Note>,
    is_kept: bool,
}

impl LockFile {
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
pub fn file_of(path: &Path) -> PathBuf {
    hidden(&resolved(path), "shiftboss-lock")
}

/// The note of who holds the lock of a database or a socket.
pub fn note_of(path: &Path) -> PathBuf {
    hidden(&resolved(path), "shiftboss-daemon")
}

/// A hidden file beside a database or a socket, for a purpose.
pub fn hidden(path: &Path, purpose: &str) -> PathBuf {
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    path.with_file_name(name).with_added_extension(purpose)
}

/// The path without links; where nothing is yet, that of its directory and its name.
fn resolved(path: &Path) -> PathBuf {
    let in_directory = || {
        let directory = std::fs::canonicalize(path.parent()?).ok()?;
        Some(directory.join(path.file_name()?))
    };
    std::fs::canonicalize(path).ok().or_else(in_directory).unwrap_or_else(|| path.to_owned())
}

pub fn take(path: &Path, holder: &Daemon) -> Result<LockFile, LockError> {
    let lock = file_of(path);
    let Opened { file, is_made, is_ours } = open_locked(&lock)?;
    if !is_ours {
        return Err(held(path, noted(path)));
    }
    let mut taken = LockFile { path: lock, _file: file, is_made, note: None, is_kept: false };
    // The file in its place may be another's.
    let note = note_of(path);
    let opened = Note::open(note.clone()).map_err(LockError::io("open the note", &note))?;
    // The lock is the kernel's: it is held even if the note cannot be written, because the disk is full, for example.
    if let Err(error) = taken.note.insert(opened).write(holder) {
        let note = note.display();
        warn!(%error, %note, "The note of who runs could not be written: status will not know this daemon.");
    }
    Ok(taken)
}

fn held(path: &Path, holder: Option<Daemon>) -> LockError {
    let who = holder.map_or(String::new(), |Daemon { pid, database, socket, .. }| {
        let (database, socket) = (database.display(), socket.display());
        format!(" (pid {pid}, database {database}, socket {socket})")
    });
    LockError::Held(format!("{who} is using {}: stop it first", path.display()))
}

/// Takes the lock that the file `lock` itself is, with nothing in it. Held until it is closed.
pub fn take_file(lock: &Path) -> Result<File, LockError> {
    match open_locked(lock)? {
        Opened { file, is_ours: true, .. } => Ok(file),
        Opened { .. } => Err(LockError::Taken),
    }
}

/// Whether another process holds the lock that the file `lock` itself is. Changes nothing.
pub fn is_taken(lock: &Path) -> bool {
    safe_file::open_to_read(lock).is_ok_and(|file| is_locked(&file))
}

fn is_locked(file: &File) -> bool {
    flock(file, FlockOperation::NonBlockingLockShared) == Err(Errno::WOULDBLOCK)
}

struct Opened {
    file: File,
    is_made: bool,
    is_ours: bool,
}

/// Opens a lock file, and tries for its lock.
fn open_locked(lock: &Path) -> Result<Opened, LockError> {
    let unopened = LockError::io("open the lock file", lock);
    let (directory, name) = safe_file::parent(lock).map_err(&unopened)?;
    loop {
        let opened = safe_file::open_own(&directory, name, OFlags::empty(), MODE);
        let (file, is_made) = opened.map_err(&unopened)?;
        let is_ours = wait_for(&file).map_err(LockError::io("lock", lock))?;
        // A refused start may have removed it meanwhile: then another process has made another file.
        let there = rustix::fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW);
        let ours = rustix::fs::fstat(&file).map_err(LockError::io("lock", lock))?;
        let is_there =
            there.is_ok_and(|there| (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino));
        if is_there || !is_ours {
            return Ok(Opened { file, is_made, is_ours });
        }
    }
}

/// Takes the lock on an input directory itself: two daemons would both hand out its tasks.
pub fn take_directory(path: &Path) -> Result<Directory, LockError> {
    let opened = Directory::open(path).map_err(LockError::io("open the input directory", path))?;
    if wait_for(&opened).map_err(LockError::io("lock the input directory", path))? {
        return Ok(opened);
    }
    let path = path.display();
    Err(LockError::Held(format!(
        " is watching {path}: stop it first, or give each a directory of its own"
    )))
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LockState {
    Free,
    By(Daemon),
    /// It is not known whether anybody does, or who; and why.
    Unknown(&'static str),
}

/// Who holds the lock of the database or socket at `path` now; a holder may take a while to write its note. Changes
/// nothing.
pub fn state_of(path: &Path) -> LockState {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match state_now(&file_of(path), &note_of(path)) {
            LockState::Unknown(_) if Instant::now() < deadline => pause(),
            state => return state,
        }
    }
}

/// As [`state_of`], for callers that only need a known holder.
pub fn holder_of(path: &Path) -> Option<Daemon> {
    match state_of(path) {
        LockState::By(holder) => Some(holder),
        LockState::Free | LockState::Unknown(_) => None,
    }
}

fn state_now(lock: &Path, note: &Path) -> LockState {
    match safe_file::open_to_read(lock) {
        Ok(file) if is_locked(&file) => {
            note::read(note).map_or(LockState::Unknown("its note does not say who"), LockState::By)
        }
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => state_for_others(note),
        _ => LockState::Free,
    }
}

/// Who holds the lock of a file that this user may not open: the writer of the note, as long as it lives. A clean stop
/// empties the note.
fn state_for_others(note: &Path) -> LockState {
    note::read(note).filter(|noted| lives(noted.pid)).map_or(LockState::Free, LockState::By)
}

fn lives(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    pid.is_some_and(|pid| test_kill_process(pid) != Err(Errno::SRCH))
}

/// Who wrote the note of the database or socket at `path` last: the holder, or one that was
/// killed. A holder that stops takes its note away.
pub fn noted(path: &Path) -> Option<Daemon> {
    note::read(&note_of(path))
}

/// Waits until the process `pid` holds the lock of the database or socket at `path` no longer; false
/// when it still does at `end`.
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

    /// A directory, a database in it that is not there, and a holder of its lock.
    fn place() -> (tempfile::TempDir, PathBuf, Daemon) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("state.db");
        let holder = this_process(&path, directory.path(), Path::new("/s"));
        (directory, path, holder)
    }

    /// A lock keeps a second taker out, names its holder to readers, and goes when dropped.
    #[test]
    fn a_lock_has_one_holder() {
        let (_directory, path, holder) = place();
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

    /// A lock that is not kept leaves everything as it was: no file, or the note of a killed process.
    #[test]
    fn a_refused_start_leaves_nothing() {
        let (_directory, path, holder) = place();
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

    /// Other users cannot open a lock file, but they can read who holds it.
    #[test]
    fn a_lock_is_its_owner_s_alone() {
        use std::os::unix::fs::PermissionsExt;
        let (directory, path, holder) = place();
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
        let _held = take(&path, &holder).unwrap();
        assert_eq!((mode(&file_of(&path)), mode(&note_of(&path))), (0o600, 0o644));
        drop(take_file(&directory.path().join("fetch.lock")).unwrap());
        assert_eq!(mode(&directory.path().join("fetch.lock")), 0o600);
    }

    /// A user who may not open a lock file relies on the note: its process lives, or there is no holder.
    #[test]
    fn others_go_by_the_note() {
        let directory = tempfile::tempdir().unwrap();
        let note = directory.path().join("note");
        assert_eq!(state_for_others(&note), LockState::Free, "stopped cleanly");
        let holder = this_process(&note, &note, &note);
        let mut ended = std::process::Command::new("true").spawn().unwrap();
        ended.wait().unwrap();
        let killed = Daemon { pid: ended.id(), ..holder.clone() };
        for (noted, expected) in
            [(&holder, LockState::By(holder.clone())), (&killed, LockState::Free)]
        {
            std::fs::write(&note, serde_json::to_vec(noted).unwrap()).unwrap();
            assert_eq!(state_for_others(&note), expected);
        }
    }

    /// A lock that is removed while another waits for it is not had by both.
    #[test]
    fn a_lock_that_is_removed_is_made_anew() {
        let (_directory, path, holder) = place();
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

    /// A directory is locked by its own descriptor.
    #[test]
    fn a_directory_has_one_daemon() {
        let directory = tempfile::tempdir().unwrap();
        let held = take_directory(directory.path()).unwrap();
        let refused = take_directory(directory.path()).unwrap_err();
        assert!(refused.to_string().contains("another daemon is watching "), "{refused}");
        drop(held);
        assert!(take_directory(directory.path()).is_ok());
    }
}
