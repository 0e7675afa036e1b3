//! Whole files through the layer: written new, read up to a limit, replaced at once, synced. Used by
//! the spool's operations; knows nothing of what is in them.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};

use super::error::{self, Result};
use super::layer::{How, Layer};
use super::layout::DRAFTS;

/// Read first, which is all of most metadata, and at most at once.
const FIRST_BYTES: usize = 4096;
const CHUNK_BYTES: usize = 1024 * 1024;

/// A number that no other process on any host has.
pub(super) fn random() -> u64 {
    let mut bytes = [0; 8];
    match getrandom(&mut bytes, GetRandomFlags::empty()) {
        Ok(8) => u64::from_ne_bytes(bytes),
        // Before the kernel had entropy, or in a jail without the call: time and process do.
        _ => {
            let now = std::time::UNIX_EPOCH.elapsed().unwrap_or_default();
            (now.as_nanos() as u64).rotate_left(20) ^ u64::from(std::process::id())
        }
    }
}

/// A place for a file that is being written, which no one else uses; it tells whose it is.
pub(super) fn draft_path(owner: &str) -> PathBuf {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    let count = COUNTER.fetch_add(1, Ordering::Relaxed);
    Path::new(DRAFTS).join(format!("{owner}-{count}"))
}

/// Who writes the file at such a place.
pub(super) fn draft_owner(path: &Path) -> Option<&str> {
    path.file_name()?.to_str()?.split_once('-').map(|(owner, _)| owner)
}

/// Writes all bytes to an open file.
pub(super) fn write_all(layer: &dyn Layer, file: &OwnedFd, mut bytes: &[u8]) -> Result<(), Errno> {
    while !bytes.is_empty() {
        match layer.write(file.as_fd(), bytes)? {
            0 => return Err(Errno::IO),
            written => bytes = bytes.get(written..).unwrap_or_default(),
        }
    }
    Ok(())
}

/// Opens a new file and writes it, without a sync. What fails half-way leaves a part of it.
pub(super) fn write(layer: &dyn Layer, path: &Path, how: How, bytes: &[u8]) -> Result<OwnedFd> {
    let file = layer.open(path, how).map_err(error::io("create", path))?;
    write_all(layer, &file, bytes).map_err(error::io("write", path))?;
    Ok(file)
}

/// Writes a new file; on disk when it returns, if `sync`.
pub(super) fn write_new(layer: &dyn Layer, path: &Path, bytes: &[u8], sync: bool) -> Result<()> {
    let file = write(layer, path, How::New, bytes)?;
    sync_file(layer, path, &file, sync)
}

/// Waits for a file, if `sync`.
pub(super) fn sync_file(layer: &dyn Layer, path: &Path, file: &OwnedFd, sync: bool) -> Result<()> {
    if sync {
        layer.sync(file.as_fd()).map_err(error::io("sync", path))?;
    }
    Ok(())
}

/// Replaces a file's content at once, by way of a draft: readers see the old or the new, and so does a crash.
pub(super) fn replace(
    layer: &dyn Layer,
    draft: &Path,
    path: &Path,
    bytes: &[u8],
    sync: bool,
) -> Result<()> {
    let result = write_new(layer, draft, bytes, sync)
        .and_then(|()| layer.replace(draft, path).map_err(error::io("replace", path)));
    if result.is_err() {
        // The failure is what is told; a draft that stays is swept up.
        let _ = layer.remove(draft);
    }
    result
}

/// Reads a file of at most `limit` bytes; `FBIG` if it has more.
pub(super) fn read(layer: &dyn Layer, path: &Path, limit: u64) -> Result<Vec<u8>, Errno> {
    let file = layer.open(path, How::Read)?;
    let mut bytes = Vec::new();
    loop {
        let len = bytes.len();
        // One byte more than may be shows that there are more.
        let chunk = len.clamp(FIRST_BYTES, CHUNK_BYTES) as u64;
        let room = (limit + 1).saturating_sub(len as u64).min(chunk);
        if room == 0 {
            return Err(Errno::FBIG);
        }
        bytes.resize(len + room as usize, 0);
        let count = layer.read(file.as_fd(), &mut bytes[len..])?;
        bytes.truncate(len + count);
        if count == 0 {
            return Ok(bytes);
        }
    }
}

/// Opens a directory, to sync it.
pub(super) fn open_directory(layer: &dyn Layer, path: &Path) -> Result<OwnedFd> {
    layer.open(path, How::Directory).map_err(error::io("open", path))
}

/// Waits until a directory's entries are on disk.
pub(super) fn sync_directory(layer: &dyn Layer, path: &Path) -> Result<()> {
    let directory = open_directory(layer, path)?;
    layer.sync(directory.as_fd()).map_err(error::io("sync the directory", path))
}

/// Waits for several files and directories, in no order.
pub(super) fn sync_each(layer: &dyn Layer, files: &[(PathBuf, OwnedFd)]) -> Result<()> {
    let open: Vec<_> = files.iter().map(|(_, file)| file.as_fd()).collect();
    layer.sync_each(&open).map_err(|(place, errno)| {
        let path = files.get(place).map_or(Path::new("."), |(path, _)| path);
        error::io("sync", path)(errno)
    })
}

/// Unlinks a file; one that is not there is as good.
pub(super) fn remove(layer: &dyn Layer, path: &Path) -> Result<bool> {
    match layer.remove(path) {
        Ok(()) => Ok(true),
        Err(Errno::NOENT) => Ok(false),
        Err(errno) => Err(error::io("remove", path)(errno)),
    }
}

/// Looks whether something is there.
pub(super) fn exists(layer: &dyn Layer, path: &Path) -> Result<bool> {
    match layer.stat(path) {
        Ok(_) => Ok(true),
        Err(Errno::NOENT) => Ok(false),
        Err(errno) => Err(error::io("look at", path)(errno)),
    }
}
