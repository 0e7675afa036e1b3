//! The input directory: listing it, looking at names, opening files safely. Plain and synchronous.
//!
//! Used by the watcher (names) and the tails (bytes). All goes through one descriptor of the
//! directory, so a rename of its path in between cannot lead anywhere else. Nothing is written.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, OFlags, Stat, flock};
use rustix::io::Errno;

use shiftboss_queue::file_identity::{DirectoryIdentity, FileTimes};

/// Two changes of a file that are this far apart have different times. Linux counts file times in
/// ticks of 1 to 10 ms; the rest is room for clocks of other machines.
const FILE_CLOCK_TICK_NANOSECONDS: i64 = 100_000_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileState {
    pub device: u64,
    pub inode: u64,
    pub length: u64,
    pub times: FileTimes,
}

impl FileState {
    fn of(stat: &Stat) -> Self {
        let nanoseconds = |seconds: i128, rest: i128| {
            i64::try_from(seconds * 1_000_000_000 + rest).unwrap_or(i64::MAX)
        };
        Self {
            device: stat.st_dev,
            inode: stat.st_ino,
            length: u64::try_from(stat.st_size).unwrap_or(0),
            times: FileTimes {
                modified: nanoseconds(stat.st_mtime.into(), stat.st_mtime_nsec.into()),
                changed: nanoseconds(stat.st_ctime.into(), stat.st_ctime_nsec.into()),
            },
        }
    }

    /// Whether both looks were at the same file, whatever happened to its content.
    pub fn is_same_file(&self, other: &Self) -> bool {
        (self.device, self.inode) == (other.device, other.inode)
    }

    /// Whether the file was changed so shortly before now that the clock of its times may be too
    /// coarse to show a later change: it must be asked for its content.
    pub fn is_fresh(&self) -> bool {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        // If the time is in the future, it or the clock was set by hand: no tick can be derived from it.
        let now = i64::try_from(now.as_nanos()).unwrap_or(0);
        now.saturating_sub(self.times.changed) < FILE_CLOCK_TICK_NANOSECONDS
    }

    /// Whether a file that was read to its end when it was `self` has nothing new now, as far as
    /// its times tell.
    pub fn is_as_read(&self, now: &Self) -> bool {
        let is_unchanged = self.times.modified == now.times.modified;
        self.is_same_file(now) && self.length == now.length && is_unchanged
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    File(FileState),
    Absent,
    Unfit(String),
}

#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    descriptor: File,
    identity: DirectoryIdentity,
}

impl Directory {
    pub fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let descriptor = File::from(rustix::fs::open(path, flags, Mode::empty())?);
        may_read(&descriptor)?;
        let found = descriptor.metadata()?;
        let born = found.created().ok().and_then(|made| {
            i64::try_from(made.duration_since(SystemTime::UNIX_EPOCH).ok()?.as_nanos()).ok()
        });
        let identity = DirectoryIdentity { device: found.dev(), inode: found.ino(), born };
        Ok(Self { path: path.to_owned(), descriptor, identity })
    }

    pub fn identity(&self) -> DirectoryIdentity {
        self.identity
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the path still leads to this directory, and it still exists.
    pub fn is_at_its_path(&self) -> bool {
        let (Ok(here), Ok(there)) =
            (rustix::fs::fstat(&self.descriptor), rustix::fs::stat(&self.path))
        else {
            return false;
        };
        here.st_nlink > 0 && (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino)
    }

    /// Whether this process may no longer list it, or look at files in it.
    pub fn is_forbidden(&self) -> bool {
        may_read(&self.descriptor) == Err(Errno::ACCESS)
    }

    /// Locks it against other daemons for as long as it is open; false: another daemon has it.
    pub fn lock(&self) -> bool {
        let locked = flock(&self.descriptor, FlockOperation::NonBlockingLockExclusive);
        locked != Err(Errno::WOULDBLOCK)
    }

    /// Whether it was removed: for that it had to be emptied first, file by file.
    pub fn is_removed(&self) -> bool {
        rustix::fs::fstat(&self.descriptor).is_ok_and(|here| here.st_nlink == 0)
    }

    pub fn names(&self) -> io::Result<Vec<OsString>> {
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::read_from(&self.descriptor)? {
            let entry = entry?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name != "." && name != ".." {
                names.push(name.to_owned());
            }
        }
        Ok(names)
    }

    /// Looks at a name without opening it; links are not followed.
    pub fn look(&self, name: &OsStr) -> io::Result<Entry> {
        match rustix::fs::statat(&self.descriptor, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(entry_of(&stat)),
            // A name that is too long (`.part` behind one of 255 bytes) cannot be there either.
            Err(Errno::NOENT | Errno::NAMETOOLONG) => Ok(Entry::Absent),
            Err(error) => Err(error.into()),
        }
    }

    /// Opens a regular file for reading. Never waits on a FIFO, never follows a link.
    pub fn open_file(&self, name: &OsStr) -> io::Result<(File, FileState)> {
        let flags =
            OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
        let descriptor = rustix::fs::openat(&self.descriptor, name, flags, Mode::empty())?;
        let stat = rustix::fs::fstat(&descriptor)?;
        match entry_of(&stat) {
            Entry::File(state) => Ok((File::from(descriptor), state)),
            Entry::Unfit(reason) => Err(io::Error::other(reason)),
            Entry::Absent => Err(io::ErrorKind::NotFound.into()),
        }
    }
}

impl AsFd for Directory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// Whether a directory may be listed, and its files looked at: opening `.` in it requires both rights.
fn may_read(directory: &File) -> Result<(), Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::openat(directory, ".", flags, Mode::empty()).map(drop)
}

pub fn state_of(file: &File) -> io::Result<FileState> {
    Ok(FileState::of(&rustix::fs::fstat(file)?))
}

fn entry_of(stat: &Stat) -> Entry {
    let unfit = |what: &str| Entry::Unfit(format!("it is {what}, not a regular file"));
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Entry::File(FileState::of(stat)),
        FileType::Directory => unfit("a directory"),
        FileType::Symlink => unfit("a symbolic link"),
        FileType::Fifo => unfit("a FIFO"),
        FileType::Socket => unfit("a socket"),
        _ => unfit("a device"),
    }
}
