//! Lists a directory: names, and which of them are directories. One buffer for all listings, and no
//! system call for each name where the file system tells the kind.

use std::ffi::OsStr;
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir};
use rustix::io::Errno;

/// Room for the entries of one system call.
const BUFFER_BYTES: usize = 32 * 1024;

/// What a name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A directory, not a link to one.
    Directory,
    Other,
}

#[derive(Default)]
pub struct Lister {
    buffer: Vec<MaybeUninit<u8>>,
}

impl Lister {
    /// Calls `found` for each name in the directory at `path`, to which a link leads only if it
    /// `may_be_link`. The inner error is the directory's.
    pub fn list<E>(
        &mut self,
        path: &Path,
        may_be_link: bool,
        mut found: impl FnMut(&OsStr, Kind) -> Result<(), E>,
    ) -> Result<Result<(), Errno>, E> {
        self.buffer.resize(BUFFER_BYTES, MaybeUninit::uninit());
        let mut flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        flags.set(OFlags::NOFOLLOW, !may_be_link);
        let directory = match rustix::fs::open(path, flags, Mode::empty()) {
            Ok(directory) => directory,
            Err(error) => return Ok(Err(error)),
        };
        let mut entries = RawDir::new(&directory, &mut self.buffer);
        while let Some(entry) = entries.next() {
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) => return Ok(Err(error)),
            };
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            let kind = match entry.file_type() {
                FileType::Unknown => looked_up(&directory, name),
                told => told,
            };
            let kind = if kind == FileType::Directory { Kind::Directory } else { Kind::Other };
            found(OsStr::from_bytes(name.to_bytes()), kind)?;
        }
        Ok(Ok(()))
    }
}

/// The kind of a name, where listing does not tell it.
fn looked_up(directory: &impl AsFd, name: &std::ffi::CStr) -> FileType {
    rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)
        .map_or(FileType::Unknown, |stat| FileType::from_raw_mode(stat.st_mode))
}
