//! Payloads in files, for commands that read them from there: a named file, for `{payload_file}`, and one without a
//! name, for the standard input.
//!
//! A named file is locked as long as its worker lives. So a later worker can recognise what a killed worker has left,
//! and removes it.

use std::fs::File;
use std::io::{self, Seek, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{FlockOperation, flock};
use tempfile::TempPath;

use crate::child::{Place, StartError, Template};
use crate::safe_file;

/// Stands for the path of a file with the payload.
pub const PAYLOAD_FILE: &str = "{payload_file}";
/// What the names of these files begin with, and of those in which commands [ask](file_to_write) for things.
const PREFIXES: [&str; 2] = ["shiftboss-payload-", "shiftboss-control-"];

/// A payload in files for a command to read. Dropping this removes them.
#[derive(Default)]
pub struct Payload {
    /// The file of [`PAYLOAD_FILE`], locked.
    named: Option<(TempPath, File)>,
    /// The standard input, without a name.
    pub input: Option<File>,
}

impl Payload {
    /// Writes a payload to the files that a command needs.
    pub fn of(payload: &[u8], template: &Template, is_input: bool) -> Result<Self, StartError> {
        let write = || {
            let named = template
                .has_place(PAYLOAD_FILE)
                .then(|| named(PREFIXES[0], payload))
                .transpose()?;
            let input = is_input.then(|| unnamed(payload)).transpose()?;
            Ok(Self { named, input })
        };
        write().map_err(StartError::system::<io::Error>("write a payload to a file"))
    }

    pub fn is_in_file(&self) -> bool {
        self.named.is_some() || self.input.is_some()
    }

    /// Where the file is.
    pub fn place(&self) -> Place<'_> {
        let path = self.named.as_ref().map(|(path, _)| path.as_os_str().as_bytes());
        (PAYLOAD_FILE, path.unwrap_or_default())
    }
}

/// An empty file for a command to write to, which goes like those of payloads.
pub fn file_to_write() -> io::Result<(TempPath, File)> {
    named(PREFIXES[1], &[])
}

/// A file in the directory for temporary files.
fn named(prefix: &str, payload: &[u8]) -> io::Result<(TempPath, File)> {
    loop {
        let made = tempfile::Builder::new().prefix(prefix).tempfile()?;
        // Another worker's sweep may hold the lock for an instant, and then removes the file.
        flock(made.as_file(), FlockOperation::LockExclusive)?;
        if made.as_file().metadata()?.nlink() > 0 {
            let (mut file, path) = made.into_parts();
            file.write_all(payload)?;
            return Ok((path, file));
        }
    }
}

/// A file at its beginning.
fn unnamed(payload: &[u8]) -> io::Result<File> {
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
        let name = entry.file_name();
        let is_worker_s = PREFIXES.iter().any(|it| name.to_string_lossy().starts_with(it));
        if is_worker_s && let Ok(Some(_locked)) = left(&entry.path()) {
            // Removed before it is unlocked: a worker that has just made it then sees that it is gone, and makes
            // another.
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

/// A file, locked, if it is this user's and was not locked.
fn left(path: &Path) -> io::Result<Option<File>> {
    let file = safe_file::open_to_read(path)?;
    let is_ours = file.metadata()?.uid() == rustix::process::geteuid().as_raw();
    let is_left = is_ours && flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok();
    Ok(is_left.then_some(file))
}
