//! The thin layer under the spool: every file-system call goes through [`Layer`], one method a
//! call, paths relative to the spool. [`Disk`] makes them; tests put one between that fails or dies
//! at the Nth. It knows nothing of entries and queues.
//!
//! Others may write to a spool, so that a name may be that of a link to a file that is not
//! the spool's. Each call walks to its directory part by part and follows no link there; nothing is
//! read, truncated, written or touched but a regular file with one name. `LOOP` says that a symbolic link is
//! there, `MLINK` that a hard link is, `NXIO` that a pipe, a socket or a device is.

use std::ffi::OsStr;
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{
    self, AtFlags, FileType, FlockOperation, Mode, OFlags, RenameFlags, Stat, Statx, StatxFlags,
    Timespec, Timestamps, UTIME_NOW,
};
use rustix::io::Errno;

/// New files may be read and written by whoever the umask lets.
const FILE_MODE: u32 = 0o666;
const DIRECTORY_MODE: u32 = 0o777;
/// Whoever can open a lock can hold it: it is for those alone whom the umask lets write.
const LOCK_MODE: u32 = 0o222;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum How {
    Read,
    /// A new file, to write; one that exists is refused.
    New,
    /// To write from its beginning, made if it is not there.
    Over,
    /// To lock it, made if it is not there.
    Lock,
    /// A directory, to sync it.
    Directory,
}

impl How {
    fn flags(self) -> OFlags {
        let flags = match self {
            Self::Read => OFlags::RDONLY,
            Self::New => OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL,
            // Emptied when it is known what it is.
            Self::Over | Self::Lock => OFlags::WRONLY | OFlags::CREATE,
            Self::Directory => OFlags::RDONLY | OFlags::DIRECTORY,
        };
        // A fifo in the wrong place must not hang its opener.
        flags | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NOFOLLOW | OFlags::NONBLOCK
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    File,
    Directory,
    /// A link, a socket, a device.
    Other,
}

impl Kind {
    fn of(kind: FileType) -> Self {
        match kind {
            FileType::RegularFile => Self::File,
            FileType::Directory => Self::Directory,
            _ => Self::Other,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileStat {
    pub kind: Kind,
    pub size: u64,
    /// A file with other names (hard links) may be anybody's.
    pub linked: bool,
    /// Its last modification, or touch.
    pub modified: SystemTime,
}

/// Which file it is, wherever it is renamed to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileIdentity {
    /// Its inode, which a later file may have.
    pub inode: u64,
    /// When it was made, in nanoseconds since 1970; 0 where that is not known.
    pub born: i64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Listed {
    pub name: Box<[u8]>,
    pub kind: Kind,
}

/// The calls that the spool makes; paths are relative to the spool's directory.
pub(crate) trait Layer: fmt::Debug + Send + Sync {
    fn open(&self, path: &Path, how: How) -> Result<OwnedFd, Errno>;
    /// Writes some of the bytes; says how many.
    fn write(&self, file: BorrowedFd<'_>, bytes: &[u8]) -> Result<usize, Errno>;
    /// Reads some bytes; none at the end.
    fn read(&self, file: BorrowedFd<'_>, buffer: &mut [u8]) -> Result<usize, Errno>;
    /// Waits until a file, or a directory's entries, are on disk.
    fn sync(&self, file: BorrowedFd<'_>) -> Result<(), Errno>;
    /// Waits for several, in any order; the first in theirs that failed, by its place. After a failure the
    /// rest may not have been waited for.
    fn sync_each(&self, files: &[BorrowedFd<'_>]) -> Result<(), (usize, Errno)> {
        let mut all = files.iter().enumerate();
        all.try_for_each(|(place, file)| self.sync(*file).map_err(|errno| (place, errno)))
    }
    /// Waits until everything on the spool's file system is on disk.
    fn sync_all(&self) -> Result<(), Errno>;
    fn make_directory(&self, path: &Path) -> Result<(), Errno>;
    /// Renames; what has the new name already is an error.
    fn rename(&self, from: &Path, to: &Path) -> Result<(), Errno>;
    /// Renames over whatever has the new name.
    fn replace(&self, from: &Path, to: &Path) -> Result<(), Errno>;
    /// Makes a symbolic link, whose target is a note of ours.
    fn symlink(&self, target: &[u8], path: &Path) -> Result<(), Errno>;
    fn read_link(&self, path: &Path) -> Result<Vec<u8>, Errno>;
    fn remove(&self, path: &Path) -> Result<(), Errno>;
    /// Looks at a file, without following a link.
    fn stat(&self, path: &Path) -> Result<FileStat, Errno>;
    /// Which file has a name, without following a link.
    fn identity(&self, path: &Path) -> Result<FileIdentity, Errno>;
    /// Sets a file's times to now.
    fn touch(&self, path: &Path) -> Result<(), Errno>;
    /// The names in a directory, in no order, without `.` and `..`.
    fn list(&self, path: &Path) -> Result<Vec<Listed>, Errno>;
    /// Tries to lock an open file against others; `WOULDBLOCK` if one has it.
    fn lock(&self, file: BorrowedFd<'_>) -> Result<(), Errno>;
}

/// The real file system, below one directory that is held open.
#[derive(Debug)]
pub(crate) struct Disk {
    root: OwnedFd,
}

impl Disk {
    pub fn open(path: &Path) -> Result<Self, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = fs::open(path, flags, Mode::empty())?;
        Ok(Self { root })
    }
}

/// Repeats a call that a signal interrupted.
fn again<T>(mut call: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            result => return result,
        }
    }
}

/// Opens one part of a path, whose other parts were opened before.
fn open_part(
    at: BorrowedFd<'_>,
    name: &OsStr,
    flags: OFlags,
    mode: Mode,
) -> Result<OwnedFd, Errno> {
    match again(|| fs::openat(at, name, flags, mode)) {
        // What the system says of a link where a directory is wanted.
        Err(Errno::NOTDIR) if is_link(at, name) => Err(Errno::LOOP),
        opened => opened,
    }
}

fn is_link(at: BorrowedFd<'_>, name: &OsStr) -> bool {
    let stat = fs::statat(at, name, AtFlags::SYMLINK_NOFOLLOW);
    stat.is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Symlink)
}

/// Refuses what others planted to be read or written: anything but a regular file with one name.
fn require_own(stat: &Stat) -> Result<(), Errno> {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile if stat.st_nlink > 1 => Err(Errno::MLINK),
        FileType::RegularFile => Ok(()),
        FileType::Symlink => Err(Errno::LOOP),
        FileType::Directory => Err(Errno::ISDIR),
        _ => Err(Errno::NXIO),
    }
}

/// Those who may write to a lock may read it, for a copy of the spool; an earlier build let others, too.
fn close_to_readers(lock: &OwnedFd) -> Result<(), Errno> {
    let mode = fs::fstat(lock)?.st_mode & 0o777;
    let closed = (mode & LOCK_MODE) | (mode & LOCK_MODE) << 1;
    // What is not ours stays as it is.
    let _ = (mode != closed).then(|| fs::fchmod(lock, Mode::from_raw_mode(closed)));
    Ok(())
}

impl Disk {
    /// Calls with the directory that a path's last part is in, and that part. Whoever may write to the
    /// spool, no link is followed on the way.
    fn at<T>(
        &self,
        path: &Path,
        call: impl FnOnce(BorrowedFd<'_>, &OsStr) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut parts = path.components();
        let last = parts.next_back().ok_or(Errno::INVAL)?;
        let mut opened = None;
        for part in parts {
            let Component::Normal(part) = part else { return Err(Errno::INVAL) };
            let above = opened.as_ref().map_or(self.root.as_fd(), OwnedFd::as_fd);
            opened = Some(open_part(above, part, flags, Mode::empty())?);
        }
        if !matches!(last, Component::Normal(_) | Component::CurDir) {
            return Err(Errno::INVAL);
        }
        call(opened.as_ref().map_or(self.root.as_fd(), OwnedFd::as_fd), last.as_os_str())
    }

    fn at_both(
        &self,
        from: &Path,
        to: &Path,
        call: impl FnOnce(BorrowedFd<'_>, &OsStr, BorrowedFd<'_>, &OsStr) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        self.at(from, |old, from| self.at(to, |new, to| call(old, from, new, to)))
    }
}

/// Syncs each of a few files on a thread of its own: a journal writes what several wait for in one commit,
/// with one flush of the disk. The first that failed, by its place, and why.
fn sync_together(files: &[BorrowedFd<'_>]) -> Result<(), (usize, Errno)> {
    let Some((first, others)) = files.split_first() else { return Ok(()) };
    let sync = |file: &BorrowedFd<'_>| again(|| fs::fsync(file));
    let results = thread::scope(|scope| {
        let start = |file| {
            let thread = thread::Builder::new().name("spool-sync".into());
            (file, thread.spawn_scoped(scope, move || sync(file)))
        };
        let waits: Vec<_> = others.iter().map(start).collect();
        let mut results = vec![sync(first)];
        results.extend(waits.into_iter().map(|(file, wait)| match wait {
            // What a thread that panicked waited for is not known to be on disk.
            Ok(wait) => wait.join().unwrap_or(Err(Errno::IO)),
            // No room for a thread.
            Err(_) => sync(file),
        }));
        results
    });
    let mut all = results.into_iter().enumerate();
    all.try_for_each(|(place, result)| result.map_err(|errno| (place, errno)))
}

/// When a file was made, if its file system tells.
fn born(found: &Statx) -> i64 {
    let time = &found.stx_btime;
    let known = found.stx_mask & StatxFlags::BTIME.bits() != 0;
    let born = time.tv_sec.saturating_mul(1_000_000_000).saturating_add(i64::from(time.tv_nsec));
    if known { born } else { 0 }
}

impl Layer for Disk {
    fn open(&self, path: &Path, how: How) -> Result<OwnedFd, Errno> {
        let flags = how.flags();
        let mode = Mode::from_raw_mode(match how {
            How::New | How::Over => FILE_MODE,
            How::Lock => LOCK_MODE,
            How::Read | How::Directory => 0,
        });
        let file = self.at(path, |at, name| open_part(at, name, flags, mode))?;
        if matches!(how, How::Read | How::Over | How::Lock) {
            require_own(&fs::fstat(&file)?)?;
        }
        match how {
            How::Over => again(|| fs::ftruncate(&file, 0))?,
            How::Lock => close_to_readers(&file)?,
            How::Read | How::New | How::Directory => {}
        }
        Ok(file)
    }

    fn write(&self, file: BorrowedFd<'_>, bytes: &[u8]) -> Result<usize, Errno> {
        again(|| rustix::io::write(file, bytes))
    }

    fn read(&self, file: BorrowedFd<'_>, buffer: &mut [u8]) -> Result<usize, Errno> {
        again(|| rustix::io::read(file, &mut *buffer))
    }

    fn sync(&self, file: BorrowedFd<'_>) -> Result<(), Errno> {
        again(|| fs::fsync(file))
    }

    fn sync_each(&self, files: &[BorrowedFd<'_>]) -> Result<(), (usize, Errno)> {
        sync_together(files)
    }

    fn sync_all(&self) -> Result<(), Errno> {
        fs::syncfs(&self.root)
    }

    fn make_directory(&self, path: &Path) -> Result<(), Errno> {
        self.at(path, |at, name| fs::mkdirat(at, name, Mode::from_raw_mode(DIRECTORY_MODE)))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<(), Errno> {
        let renamed = self.at_both(from, to, |old, from, new, to| {
            fs::renameat_with(old, from, new, to, RenameFlags::NOREPLACE)
        });
        match renamed {
            // The file system does not know the flag: names are unique by the registry, and this
            // look catches what others put there.
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => match self.stat(to) {
                Ok(_) => Err(Errno::EXIST),
                Err(Errno::NOENT) => self.replace(from, to),
                Err(errno) => Err(errno),
            },
            result => result,
        }
    }

    fn replace(&self, from: &Path, to: &Path) -> Result<(), Errno> {
        self.at_both(from, to, |old, from, new, to| fs::renameat(old, from, new, to))
    }

    fn symlink(&self, target: &[u8], path: &Path) -> Result<(), Errno> {
        self.at(path, |at, name| fs::symlinkat(OsStr::from_bytes(target), at, name))
    }

    fn read_link(&self, path: &Path) -> Result<Vec<u8>, Errno> {
        self.at(path, |at, name| Ok(fs::readlinkat(at, name, Vec::new())?.into_bytes()))
    }

    fn remove(&self, path: &Path) -> Result<(), Errno> {
        self.at(path, |at, name| fs::unlinkat(at, name, AtFlags::empty()))
    }

    fn stat(&self, path: &Path) -> Result<FileStat, Errno> {
        let stat = self.at(path, |at, name| fs::statat(at, name, AtFlags::SYMLINK_NOFOLLOW))?;
        let kind = Kind::of(FileType::from_raw_mode(stat.st_mode));
        let size = u64::try_from(stat.st_size).unwrap_or(0);
        // Times before 1970 count as 1970.
        let seconds = u64::try_from(stat.st_mtime).unwrap_or(0);
        let nanoseconds = u32::try_from(stat.st_mtime_nsec).unwrap_or(0);
        let modified = UNIX_EPOCH + Duration::new(seconds, nanoseconds);
        Ok(FileStat { kind, size, linked: kind == Kind::File && stat.st_nlink > 1, modified })
    }

    fn identity(&self, path: &Path) -> Result<FileIdentity, Errno> {
        self.at(path, |at, name| {
            let (flags, asked) = (AtFlags::SYMLINK_NOFOLLOW, StatxFlags::INO | StatxFlags::BTIME);
            match fs::statx(at, name, flags, asked) {
                Ok(found) => Ok(FileIdentity { inode: found.stx_ino, born: born(&found) }),
                Err(Errno::NOSYS) => {
                    Ok(FileIdentity { inode: fs::statat(at, name, flags)?.st_ino, born: 0 })
                }
                Err(errno) => Err(errno),
            }
        })
    }

    fn touch(&self, path: &Path) -> Result<(), Errno> {
        let now = || Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
        let times = Timestamps { last_access: now(), last_modification: now() };
        self.at(path, |at, name| {
            require_own(&fs::statat(at, name, AtFlags::SYMLINK_NOFOLLOW)?)?;
            fs::utimensat(at, name, &times, AtFlags::SYMLINK_NOFOLLOW)
        })
    }

    fn list(&self, path: &Path) -> Result<Vec<Listed>, Errno> {
        let directory = self.open(path, How::Directory)?;
        let mut names = Vec::new();
        for entry in fs::Dir::new(directory)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") {
                continue;
            }
            let kind = match entry.file_type() {
                // Some file systems do not tell in a listing.
                FileType::Unknown => match self.stat(&path.join(OsStr::from_bytes(name))) {
                    Err(Errno::NOENT) => continue,
                    stat => stat?.kind,
                },
                kind => Kind::of(kind),
            };
            names.push(Listed { name: name.into(), kind });
        }
        Ok(names)
    }

    fn lock(&self, file: BorrowedFd<'_>) -> Result<(), Errno> {
        again(|| fs::flock(file, FlockOperation::NonBlockingLockExclusive))
    }
}
