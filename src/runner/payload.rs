//! Payloads in files, for commands that take them from there: one with a name, for `{payload_file}`, and one
//! without, for the standard input.
//!
//! A file with a name is locked as long as its worker lives. So a later worker can tell what one that was
//! killed has left, and removes it.

use std::fs::File;
use std::io::{self, Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{FlockOperation, flock};
use tempfile::TempPath;

use crate::safe_file;

/// What the names of these files begin with.
const PREFIX: &str = "shiftboss-payload-";

/// A file with a payload. Dropped, it is removed.
pub struct NamedPayload {
    path: TempPath,
    _locked: File,
}

impl NamedPayload {
    /// Makes one in the directory for temporary files.
    pub fn new(payload: &[u8]) -> io::Result<Self> {
        loop {
            let made = tempfile::Builder::new().prefix(PREFIX).tempfile()?;
            // Somebody who sweeps may have it for an instant, and then removes it.
            flock(made.as_file(), FlockOperation::LockExclusive)?;
            if made.as_file().metadata()?.nlink() > 0 {
                let (mut file, path) = made.into_parts();
                file.write_all(payload)?;
                return Ok(Self { path, _locked: file });
            }
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// A file without a name, at its beginning.
pub fn unnamed(payload: &[u8]) -> io::Result<File> {
    let mut file = tempfile::tempfile()?;
    file.write_all(payload)?;
    file.rewind()?;
    Ok(file)
}

/// Removes the files of this user's workers that were killed. What cannot be looked at stays.
pub fn sweep() {
    let Ok(entries) = std::fs::read_dir(std::env::temp_dir()) else {
        return;
    };
    for entry in entries.flatten() {
        let is_payload = entry.file_name().to_string_lossy().starts_with(PREFIX);
        if is_payload && let Ok(Some(_locked)) = left(&entry.path()) {
            // Before it is unlocked: who has just made it sees then that it is gone, and makes another.
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

/// A file, locked, if it is this user's and nobody had it locked.
fn left(path: &Path) -> io::Result<Option<File>> {
    let file = safe_file::open_to_read(path)?;
    let is_ours = file.metadata()?.uid() == rustix::process::geteuid().as_raw();
    let is_left = is_ours && flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok();
    Ok(is_left.then_some(file))
}
