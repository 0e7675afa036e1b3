//! Whole files through the layer: written new, read up to a limit, replaced at once, synced. It does not know their
//! content.

use std::ffi::OsStr;
use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::io::Errno;

use super::error::{NoneIf, Result, io};
use super::layer::{FileStat, How, Layer, Listed};

/// Where files are written before they get their names.
pub(crate) const DRAFTS: &str = ".shiftboss/tmp";

/// A number that no other process on any host has: so are the keys of the standard library's hash maps.
pub(crate) fn random() -> u64 {
    RandomState::new().hash_one(0)
}

pub(crate) fn random_name() -> String {
    format!("{:016x}", random())
}

/// A name as it was listed, as a path's last part.
pub(crate) fn joined(directory: &Path, name: &[u8]) -> PathBuf {
    directory.join(OsStr::from_bytes(name))
}

/// A unique path for a file that is being written; it shows its owner.
pub(crate) fn draft_path(owner: &str) -> PathBuf {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    let count = COUNTER.fetch_add(1, Ordering::Relaxed);
    Path::new(DRAFTS).join(format!("{owner}-{count}"))
}

/// The owner of the file at such a path.
pub(crate) fn draft_owner(path: &Path) -> Option<&str> {
    path.file_name()?.to_str()?.split_once('-').map(|(owner, _)| owner)
}

impl dyn Layer + '_ {
    /// Opens a file and writes it, without a sync. A failure half-way leaves a part of it.
    pub(crate) fn write_file(&self, path: &Path, how: How, bytes: &[u8]) -> Result<File> {
        let file = self.open(path, how).map_err(io("create", path))?;
        self.write(&file, bytes).map_err(io("write", path))?;
        Ok(file)
    }

    /// Writes a new file; on disk when it returns, if `sync`.
    pub(crate) fn write_new(&self, path: &Path, bytes: &[u8], sync: bool) -> Result<()> {
        let file = self.write_file(path, How::New, bytes)?;
        if sync { self.sync(&file).map_err(io("sync", path)) } else { Ok(()) }
    }

    /// Reads a file of at most `limit` bytes; `FBIG` if it has more.
    pub(crate) fn read_file(&self, path: &Path, limit: u64) -> Result<Vec<u8>, Errno> {
        self.open(path, How::Read).and_then(|file| self.read(&file, limit))
    }

    pub(crate) fn open_directory(&self, path: &Path) -> Result<File> {
        self.open(path, How::Directory).map_err(io("open", path))
    }

    pub(crate) fn sync_directory(&self, path: &Path) -> Result<()> {
        self.sync(&self.open_directory(path)?).map_err(io("sync the directory", path))
    }

    pub(crate) fn sync_files(&self, files: &[(PathBuf, File)]) -> Result<()> {
        let synced = self.sync_each(&files.iter().map(|(_, file)| file).collect::<Vec<_>>());
        let mut synced = synced.into_iter().zip(files);
        synced.try_for_each(|(result, (path, _))| result.map_err(io("sync", path)))
    }

    /// Unlinks a file; returns whether it was there.
    pub(crate) fn unlink(&self, path: &Path) -> Result<bool> {
        let removed = self.remove(path).none_if(Errno::NOENT).map_err(io("remove", path))?;
        Ok(removed.is_some())
    }

    /// What is known of a file; none if it is not there.
    pub(crate) fn look(&self, path: &Path) -> Result<Option<FileStat>> {
        self.stat(path).none_if(Errno::NOENT).map_err(io("look at", path))
    }

    pub(crate) fn exists(&self, path: &Path) -> Result<bool> {
        self.look(path).map(|stat| stat.is_some())
    }

    /// The names in a directory; none if it is not there.
    pub(crate) fn listed(&self, path: &Path) -> Result<Vec<Listed>> {
        let listed = self.list(path).none_if(Errno::NOENT).map_err(io("list", path))?;
        Ok(listed.unwrap_or_default())
    }

    /// The files that are being written, or were by the dead.
    pub(crate) fn drafts(&self) -> Result<Vec<PathBuf>> {
        let listed = self.listed(Path::new(DRAFTS))?.into_iter();
        Ok(listed.map(|file| joined(Path::new(DRAFTS), &file.name)).collect())
    }
}
