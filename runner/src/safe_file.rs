//! Files that the program makes where another user may write, too: no link is followed, and only a regular file of our
//! own is opened.
//!
//! Locks, logs, status files, lists and new databases are made through this. The directories of a path are the
//! operator's choice: only its last part is distrusted. A lock is opened, looked at, and never renamed ([`open_own`]);
//! content takes its place by a rename ([`replace`]). It does not know what the files are for.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, Stat, openat2};
use rustix::io::Errno;

/// How often to try to open a file that comes and goes.
const TRIES: usize = 16;

/// Opens a directory to make files in. Links that lead to it are followed.
pub fn directory(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

/// The directory of a file, opened, and the file's name in it.
pub fn parent(path: &Path) -> io::Result<(OwnedFd, &OsStr)> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidFilename)?;
    Ok((directory(path.parent().unwrap_or(Path::new("/")))?, name))
}

/// Opens the directory `name`, made if it is missing. Another user's directory is refused.
pub fn subdirectory(parent: impl AsFd, name: &OsStr) -> io::Result<OwnedFd> {
    match rustix::fs::mkdirat(&parent, name, Mode::from_raw_mode(0o777)) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(error) => return Err(error.into()),
    }
    existing_subdirectory(parent, name)
}

/// The same without making it.
pub fn existing_subdirectory(parent: impl AsFd, name: &OsStr) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY;
    let found = open(parent.as_fd(), name, flags, 0)
        .map_err(|error| explained(parent.as_fd(), name, error))?;
    require_owner(parent.as_fd(), &rustix::fs::fstat(&found)?)?;
    Ok(found)
}

/// Opens the file `name` for reading and writing, made if it is missing, and says whether it was made.
/// `more`: [`OFlags::APPEND`], or nothing.
pub fn open_own(
    directory: impl AsFd,
    name: &OsStr,
    more: OFlags,
    mode: u32,
) -> io::Result<(File, bool)> {
    let (directory, flags) = (directory.as_fd(), OFlags::RDWR | more);
    for _ in 0..TRIES {
        match open(directory, name, flags, mode) {
            Ok(found) => {
                require_own(directory, &rustix::fs::fstat(&found)?)?;
                return Ok((found.into(), false));
            }
            Err(Errno::NOENT) => {}
            Err(error) => return Err(explained(directory, name, error)),
        }
        match open(directory, name, flags | OFlags::CREATE | OFlags::EXCL, mode) {
            Ok(made) => return Ok((made.into(), true)),
            Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(explained(directory, name, Errno::EXIST))
}

/// Makes the file `name`, which is an error if anything is there.
pub fn create_new(directory: impl AsFd, name: &OsStr, mode: u32) -> io::Result<File> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
    Ok(open(directory.as_fd(), name, flags, mode)?.into())
}

/// Makes the file `name` in place of one that an earlier process has left there.
pub fn create_anew(directory: impl AsFd, name: &OsStr, mode: u32) -> io::Result<File> {
    match rustix::fs::unlinkat(&directory, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => create_new(directory, name, mode),
        Err(error) => Err(explained(directory.as_fd(), name, error)),
    }
}

/// Gives the file at `path` a new content as a whole, whatever was there: a link is replaced, not
/// followed. One process at a time may do so.
pub fn replace(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
) -> io::Result<()> {
    let (directory, name) = parent(path)?;
    let mut draft = OsString::from(name);
    draft.push(".new");
    let mut out = BufWriter::new(create_anew(&directory, &draft, 0o666)?);
    let replaced = write(&mut out).and_then(|()| out.flush()).and_then(|()| {
        rustix::fs::renameat(&directory, &draft, &directory, name)
            .map_err(|error| explained(directory.as_fd(), name, error))
    });
    if replaced.is_err() {
        // The original error is reported; a draft that stays is replaced by the next one.
        let _ = rustix::fs::unlinkat(&directory, &draft, AtFlags::empty());
    }
    replaced
}

/// Opens the file at `path` to read, if it is a regular one.
pub fn open_to_read(path: &Path) -> io::Result<File> {
    let (directory, name) = parent(path)?;
    let found = open(directory.as_fd(), name, OFlags::RDONLY, 0)?;
    require_file(&rustix::fs::fstat(&found)?)?;
    Ok(found.into())
}

/// Opens a regular file below a directory to read it, whatever its path contains: it stays beneath the directory, and
/// no link is followed.
pub fn open_beneath(path: &Path, name: &Path) -> io::Result<File> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let found = openat2(directory(path)?, name, flags, Mode::empty(), resolve)?;
    require_file(&rustix::fs::fstat(&found)?)?;
    Ok(found.into())
}

/// Looks whether the file `name` is a regular one with no other name, or not there.
pub fn require_plain_or_none(directory: impl AsFd, name: &OsStr) -> io::Result<()> {
    match rustix::fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(found) => require_plain(&found),
        Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Opens a single-component name: follows no link, does not block on a FIFO, and takes no controlling terminal.
fn open(
    directory: BorrowedFd<'_>,
    name: &OsStr,
    flags: OFlags,
    mode: u32,
) -> Result<OwnedFd, Errno> {
    // A name of several parts could lead elsewhere.
    if Path::new(name).file_name() != Some(name) {
        return Err(Errno::INVAL);
    }
    let mut flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    flags.set(OFlags::NONBLOCK | OFlags::NOCTTY, !flags.contains(OFlags::PATH));
    rustix::fs::openat(directory, name, flags, Mode::from_raw_mode(mode))
}

fn require_own(directory: BorrowedFd<'_>, found: &Stat) -> io::Result<()> {
    require_plain(found)?;
    require_owner(directory, found)
}

fn require_plain(found: &Stat) -> io::Result<()> {
    require_file(found)?;
    if found.st_nlink <= 1 {
        return Ok(());
    }
    let names = found.st_nlink;
    Err(io::Error::other(format!(
        "that file has {names} names (hard links), and ours has one: find out who made the others, and remove the wrong ones"
    )))
}

fn require_file(found: &Stat) -> io::Result<()> {
    let kind = match FileType::from_raw_mode(found.st_mode) {
        FileType::RegularFile => return Ok(()),
        FileType::Symlink => "symbolic link",
        FileType::Directory => "directory",
        FileType::Fifo => "named pipe",
        FileType::Socket => "socket",
        _ => "device",
    };
    Err(io::Error::other(format!(
        "a {kind} is there, not a file of ours: find out who put it there, and remove it"
    )))
}

/// The directory's owner could change the file at will, anyway.
fn require_owner(directory: BorrowedFd<'_>, found: &Stat) -> io::Result<()> {
    let ours = rustix::process::geteuid().as_raw();
    if found.st_uid == ours || found.st_uid == rustix::fs::fstat(directory)?.st_uid {
        return Ok(());
    }
    let user = found.st_uid;
    Err(io::Error::other(format!(
        "it belongs to another user (uid {user}), so it is not ours: run this program as that user, or remove it"
    )))
}

/// The system's refusal, explained by what is there.
fn explained(directory: BorrowedFd<'_>, name: &OsStr, error: Errno) -> io::Error {
    match rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(found) => require_own(directory, &found).err().unwrap_or_else(|| error.into()),
        Err(_) => error.into(),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use rustix::fs::{CWD, mknodat};

    use super::*;

    const CONTENT: &str = "precious";

    /// A directory with what another user may have planted, and a file outside it that links lead to.
    fn planted() -> (tempfile::TempDir, OwnedFd) {
        let site = tempfile::tempdir().unwrap();
        let (victim, ours) = (site.path().join("victim"), site.path().join("ours"));
        fs::write(&victim, CONTENT).unwrap();
        fs::create_dir(&ours).unwrap();
        symlink(&victim, ours.join("link")).unwrap();
        symlink(site.path().join("made"), ours.join("dangling")).unwrap();
        symlink(site.path(), ours.join("up")).unwrap();
        fs::hard_link(&victim, ours.join("linked")).unwrap();
        mknodat(CWD, ours.join("pipe"), FileType::Fifo, Mode::RWXU, 0).unwrap();
        let directory = directory(&ours).unwrap();
        (site, directory)
    }

    #[test]
    fn no_link_is_followed() {
        let (site, directory) = planted();
        let made = OFlags::WRONLY | OFlags::CREATE;
        let try_open =
            |name: &str, flags| open(directory.as_fd(), OsStr::new(name), flags, 0o600).map(drop);
        for flags in [OFlags::RDONLY, OFlags::RDWR, made, made | OFlags::TRUNC] {
            assert_eq!(try_open("link", flags), Err(Errno::LOOP), "{flags:?}");
            assert_eq!(try_open("dangling", flags), Err(Errno::LOOP), "{flags:?}");
        }
        for name in ["link", "dangling", "linked", "pipe"] {
            assert_eq!(try_open(name, made | OFlags::EXCL), Err(Errno::EXIST), "{name}");
        }
        assert_eq!(try_open("up", OFlags::RDONLY | OFlags::DIRECTORY), Err(Errno::NOTDIR));
        assert_eq!(try_open("pipe", OFlags::WRONLY), Err(Errno::NXIO), "and waits for no reader");
        assert_eq!(fs::read_to_string(site.path().join("victim")).unwrap(), CONTENT);
        assert!(!site.path().join("made").exists());
    }

    /// A planted file that is opened nevertheless is recognised afterwards.
    #[test]
    fn what_is_opened_is_looked_at() {
        let (_site, directory) = planted();
        for (name, what) in [("linked", "hard links"), ("pipe", "named pipe")] {
            let (at, flags) = (directory.as_fd(), OFlags::RDWR);
            let opened = open(at, OsStr::new(name), flags, 0).unwrap();
            let error = require_own(at, &rustix::fs::fstat(&opened).unwrap()).unwrap_err();
            assert!(error.to_string().contains(what), "{error}");
        }
    }
}
