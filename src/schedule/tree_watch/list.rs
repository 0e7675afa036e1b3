//! Lists a directory: names, and which of them are directories. No system call for each name where the file
//! system tells the kind.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;

/// Calls `found` for each name in the directory at `path`, and whether it is a directory itself. A link leads to
/// the directory only if it `may_be_link`. The inner error is the directory's; `found`'s ends the listing.
pub fn list<E>(
    path: &Path,
    may_be_link: bool,
    mut found: impl FnMut(&OsStr, bool) -> Result<(), E>,
) -> Result<Result<(), Errno>, E> {
    let mut flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    flags.set(OFlags::NOFOLLOW, !may_be_link);
    let opened = rustix::fs::open(path, flags, Mode::empty()).and_then(Dir::new);
    let mut directory = match opened {
        Ok(directory) => directory,
        Err(error) => return Ok(Err(error)),
    };
    while let Some(entry) = directory.read() {
        let entry = match entry {
            Ok(entry) => entry,
            Err(error) => return Ok(Err(error)),
        };
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        let kind = match (entry.file_type(), directory.fd()) {
            (FileType::Unknown, Ok(fd)) => rustix::fs::statat(fd, name, AtFlags::SYMLINK_NOFOLLOW)
                .map_or(FileType::Unknown, |stat| FileType::from_raw_mode(stat.st_mode)),
            (kind, _) => kind,
        };
        found(OsStr::from_bytes(name.to_bytes()), kind == FileType::Directory)?;
    }
    Ok(Ok(()))
}
