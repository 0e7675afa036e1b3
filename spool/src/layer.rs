//! The thin layer under the spool: every file-system call goes through [`Layer`], one method a call, with paths
//! relative to the spool. [`Disk`] makes the calls; tests insert a layer that fails or dies at the Nth. It does not
//! know entries and queues.
//!
//! Others may write to a spool, so a name may be that of a link to a file outside. Each call walks to its directory
//! part by part and follows no link there; only a regular file with one name is read, truncated, written or touched.
//! `LOOP` says that a symbolic link is there, `MLINK` that a hard link is, `NXIO` that a pipe, a socket or a device is.

use std::ffi::OsStr;
use std::fmt;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{
    self, AtFlags, FileType, FlockOperation, Mode, OFlags, RenameFlags, StatxFlags, Timespec,
    Timestamps, UTIME_NOW,
};
use rustix::io::{Errno, retry_on_intr};

/// New files may be read and written by all whom the umask lets.
const FILE_MODE: u32 = 0o666;
const DIRECTORY_MODE: u32 = 0o777;
/// Any process that can open a lock can hold it, so only those whom the umask lets write may open it.
const LOCK_MODE: u32 = 0o222;
/// Bytes that are read at once, which is all of most metadata.
const READ_BYTES: usize = 4096;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum How {
    Read,
    /// A new file, to write; one that exists is refused.
    New,
    /// To write from its beginning, made if it is not there.
    Over,
    /// To lock it, made if it is not there.
    Lock,
    Directory,
}

impl How {
    fn flags_and_mode(self) -> (OFlags, Mode) {
        let (flags, mode) = match self {
            Self::Read => (OFlags::RDONLY, 0),
            Self::New => (OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL, FILE_MODE),
            // Truncated only once it is known what it is.
            Self::Over => (OFlags::WRONLY | OFlags::CREATE, FILE_MODE),
            Self::Lock => (OFlags::WRONLY | OFlags::CREATE, LOCK_MODE),
            Self::Directory => (OFlags::RDONLY | OFlags::DIRECTORY, 0),
        };
        // A fifo in the wrong place must not hang its opener.
        let always = OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        (flags | always, Mode::from_raw_mode(mode))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileStat {
    pub kind: FileType,
    pub size: u64,
    /// A file with other names (hard links) may be any user's.
    pub linked: bool,
    /// Its last modification, or touch.
    pub modified: SystemTime,
    /// Its inode, which a later file may have.
    pub inode: u64,
    /// When it was made, in nanoseconds since 1970; 0 where that is not known.
    pub born: i64,
}

impl FileStat {
    /// Looks at what has a name, without following a link; with an empty name, at the open file itself.
    fn of(at: BorrowedFd<'_>, name: &OsStr) -> Result<Self, Errno> {
        let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::EMPTY_PATH;
        let found = fs::statx(at, name, flags, StatxFlags::BASIC_STATS | StatxFlags::BTIME)?;
        let kind = FileType::from_raw_mode(found.stx_mode.into());
        let (changed, made) = (found.stx_mtime, found.stx_btime);
        // Times before 1970 count as 1970.
        let seconds = u64::try_from(changed.tv_sec).unwrap_or(0);
        let is_born = found.stx_mask & StatxFlags::BTIME.bits() != 0;
        let born = made.tv_sec.saturating_mul(1_000_000_000).saturating_add(made.tv_nsec.into());
        Ok(Self {
            kind,
            size: found.stx_size,
            linked: kind == FileType::RegularFile && found.stx_nlink > 1,
            modified: UNIX_EPOCH + Duration::new(seconds, changed.tv_nsec),
            inode: found.stx_ino,
            born: if is_born { born } else { 0 },
        })
    }

    /// Refuses what others may have planted: anything but a regular file with one name.
    pub fn require_own(self) -> Result<(), Errno> {
        match self.kind {
            FileType::RegularFile if self.linked => Err(Errno::MLINK),
            FileType::RegularFile => Ok(()),
            FileType::Symlink => Err(Errno::LOOP),
            FileType::Directory => Err(Errno::ISDIR),
            _ => Err(Errno::NXIO),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Listed {
    pub name: Box<[u8]>,
    pub kind: FileType,
}

/// The calls that the spool makes; paths are relative to the spool's directory.
pub(crate) trait Layer: fmt::Debug + Send + Sync {
    fn open(&self, path: &Path, how: How) -> Result<File, Errno>;
    /// Writes all of the bytes; what fails may have written a part.
    fn write(&self, file: &File, bytes: &[u8]) -> Result<(), Errno>;
    /// Reads a file of at most `limit` bytes to its end; `FBIG` if it has more.
    fn read(&self, file: &File, limit: u64) -> Result<Vec<u8>, Errno>;
    /// Waits until a file, or a directory's entries, are on disk.
    fn sync(&self, file: &File) -> Result<(), Errno>;
    /// Waits for several, in any order; the results are in the order of `files`.
    fn sync_each(&self, files: &[&File]) -> Vec<Result<(), Errno>> {
        files.iter().map(|file| self.sync(file)).collect()
    }
    /// Waits until everything on the spool's file system is on disk.
    fn sync_all(&self) -> Result<(), Errno>;
    fn make_directory(&self, path: &Path) -> Result<(), Errno>;
    /// Renames; if the new name exists, that is an error.
    fn rename(&self, from: &Path, to: &Path) -> Result<(), Errno>;
    fn replace(&self, from: &Path, to: &Path) -> Result<(), Errno>;
    /// Makes a symbolic link, whose target is a note of ours.
    fn symlink(&self, target: &[u8], path: &Path) -> Result<(), Errno>;
    fn read_link(&self, path: &Path) -> Result<Vec<u8>, Errno>;
    fn remove(&self, path: &Path) -> Result<(), Errno>;
    /// Looks at a file, without following a link.
    fn stat(&self, path: &Path) -> Result<FileStat, Errno>;
    fn touch(&self, path: &Path) -> Result<(), Errno>;
    /// The names in a directory, in no order, without `.` and `..`.
    fn list(&self, path: &Path) -> Result<Vec<Listed>, Errno>;
    /// Tries to lock an open file against others; `WOULDBLOCK` if one has it.
    fn lock(&self, file: &File) -> Result<(), Errno>;
}

/// The system's error of a call of the standard library.
fn said(error: io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}

/// Only users who may write to a lock may read it, so that they can copy the spool.
fn close_to_readers(lock: &File) -> Result<(), Errno> {
    let mode = fs::fstat(lock)?.st_mode & 0o777;
    let closed = (mode & LOCK_MODE) | (mode & LOCK_MODE) << 1;
    // A file that is not ours keeps its mode.
    let _ = (mode != closed).then(|| fs::fchmod(lock, Mode::from_raw_mode(closed)));
    Ok(())
}

/// Opens one part of a path, whose other parts were opened before.
fn open_part(
    at: BorrowedFd<'_>,
    name: &OsStr,
    flags: OFlags,
    mode: Mode,
) -> Result<OwnedFd, Errno> {
    let is_link = || FileStat::of(at, name).is_ok_and(|stat| stat.kind == FileType::Symlink);
    match retry_on_intr(|| fs::openat(at, name, flags, mode)) {
        // This is the system's error for a link where a directory is wanted.
        Err(Errno::NOTDIR) if is_link() => Err(Errno::LOOP),
        opened => opened,
    }
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

    /// Calls with the directory of a path's last part, and that part. No link is followed on the way, whoever may write
    /// to the spool.
    fn at<T>(
        &self,
        path: &Path,
        call: impl FnOnce(BorrowedFd<'_>, &OsStr) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut parts = path.components();
        let last = parts.next_back().ok_or(Errno::INVAL)?;
        let mut above = None;
        for part in parts {
            let Component::Normal(part) = part else { return Err(Errno::INVAL) };
            let at = above.as_ref().unwrap_or(&self.root).as_fd();
            above = Some(open_part(at, part, flags, Mode::empty())?);
        }
        if !matches!(last, Component::Normal(_) | Component::CurDir) {
            return Err(Errno::INVAL);
        }
        call(above.as_ref().unwrap_or(&self.root).as_fd(), last.as_os_str())
    }

    fn rename_with(&self, from: &Path, to: &Path, flags: RenameFlags) -> Result<(), Errno> {
        self.at(from, |old, from| {
            self.at(to, |new, to| fs::renameat_with(old, from, new, to, flags))
        })
    }
}

impl Layer for Disk {
    fn open(&self, path: &Path, how: How) -> Result<File, Errno> {
        let (flags, mode) = how.flags_and_mode();
        let file = File::from(self.at(path, |at, name| open_part(at, name, flags, mode))?);
        if matches!(how, How::Read | How::Over | How::Lock) {
            FileStat::of(file.as_fd(), OsStr::new(""))?.require_own()?;
        }
        match how {
            How::Over => file.set_len(0).map_err(said)?,
            How::Lock => close_to_readers(&file)?,
            How::Read | How::New | How::Directory => {}
        }
        Ok(file)
    }

    fn write(&self, mut file: &File, bytes: &[u8]) -> Result<(), Errno> {
        file.write_all(bytes).map_err(said)
    }

    fn read(&self, file: &File, limit: u64) -> Result<Vec<u8>, Errno> {
        let mut bytes = Vec::with_capacity(READ_BYTES);
        // One byte beyond the limit shows that there are more.
        file.take(limit + 1).read_to_end(&mut bytes).map_err(said)?;
        if bytes.len() as u64 > limit { Err(Errno::FBIG) } else { Ok(bytes) }
    }

    fn sync(&self, file: &File) -> Result<(), Errno> {
        file.sync_all().map_err(said)
    }

    /// Each on a thread of its own: a journal then writes them in one commit, with one flush of the disk.
    fn sync_each(&self, files: &[&File]) -> Vec<Result<(), Errno>> {
        let Some((first, others)) = files.split_first() else { return Vec::new() };
        thread::scope(|scope| {
            let start = |file| {
                let thread = thread::Builder::new().name("spool-sync".into());
                (file, thread.spawn_scoped(scope, move || self.sync(file)))
            };
            let waits: Vec<_> = others.iter().copied().map(start).collect();
            let mut results = vec![self.sync(first)];
            results.extend(waits.into_iter().map(|(file, wait)| match wait {
                // If its thread panicked, it is not known whether the file is on disk.
                Ok(wait) => wait.join().unwrap_or(Err(Errno::IO)),
                // No room for a thread.
                Err(_) => self.sync(file),
            }));
            results
        })
    }

    fn sync_all(&self) -> Result<(), Errno> {
        fs::syncfs(&self.root)
    }

    fn make_directory(&self, path: &Path) -> Result<(), Errno> {
        self.at(path, |at, name| fs::mkdirat(at, name, Mode::from_raw_mode(DIRECTORY_MODE)))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<(), Errno> {
        match self.rename_with(from, to, RenameFlags::NOREPLACE) {
            // The file system does not know the flag: names are unique by the registry, and this check catches files of
            // others.
            Err(Errno::INVAL | Errno::OPNOTSUPP) => match self.stat(to) {
                Ok(_) => Err(Errno::EXIST),
                Err(Errno::NOENT) => self.replace(from, to),
                Err(errno) => Err(errno),
            },
            result => result,
        }
    }

    fn replace(&self, from: &Path, to: &Path) -> Result<(), Errno> {
        self.rename_with(from, to, RenameFlags::empty())
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
        self.at(path, FileStat::of)
    }

    fn touch(&self, path: &Path) -> Result<(), Errno> {
        let now = || Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
        let times = Timestamps { last_access: now(), last_modification: now() };
        self.at(path, |at, name| {
            FileStat::of(at, name)?.require_own()?;
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
                // Some file systems do not give the type in a listing.
                FileType::Unknown => match self.stat(&path.join(OsStr::from_bytes(name))) {
                    Err(Errno::NOENT) => continue,
                    stat => stat?.kind,
                },
                kind => kind,
            };
            names.push(Listed { name: name.into(), kind });
        }
        Ok(names)
    }

    fn lock(&self, file: &File) -> Result<(), Errno> {
        retry_on_intr(|| fs::flock(file, FlockOperation::NonBlockingLockExclusive))
    }
}
