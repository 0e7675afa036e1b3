//! The note beside a lock file: who holds the lock, for others to read. It does not say whether the lock is held.

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::OFlags;
use shiftboss_protocol::answers::live::Daemon;

use crate::safe_file;

/// Longest note of a holder: three paths and two numbers.
const NOTE_BYTES_MAX: u64 = 64 * 1024;

/// This process as a daemon, with what it works on.
pub fn this_process(database: &Path, input_dir: &Path, socket: &Path) -> Daemon {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let started = since.map_or(0, |since| since.as_secs());
    let [database, input_dir, socket] = [database, input_dir, socket].map(Path::to_owned);
    Daemon { pid: std::process::id(), database, input_dir, socket, started }
}

/// Who has a lock, in a file that others may read.
#[derive(Debug)]
pub struct Note {
    path: PathBuf,
    file: File,
    /// Its former content; `None`: it did not exist.
    before: Option<Vec<u8>>,
}

impl Note {
    pub fn open(path: PathBuf) -> io::Result<Self> {
        let (directory, name) = safe_file::parent(&path)?;
        let (mut file, is_made) = safe_file::open_own(&directory, name, OFlags::empty(), 0o644)?;
        let before = (!is_made).then(|| bytes(&mut file).unwrap_or_default());
        Ok(Self { path, file, before })
    }

    pub fn write(&mut self, holder: &Daemon) -> io::Result<()> {
        replace(&mut self.file, &serde_json::to_vec(holder)?)
    }

    /// The lock is given up. `is_kept`: empties the note, which would now mislead; otherwise restores the former state.
    pub fn close(&mut self, is_kept: bool) -> io::Result<()> {
        match (is_kept, &self.before) {
            (true, _) => self.file.set_len(0),
            (false, Some(before)) => replace(&mut self.file, before),
            (false, None) => std::fs::remove_file(&self.path),
        }
    }
}

pub fn read(note: &Path) -> Option<Daemon> {
    let mut file = safe_file::open_to_read(note).ok()?;
    serde_json::from_slice(&bytes(&mut file).ok()?).ok()
}

fn bytes(file: &mut File) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.rewind()?;
    file.take(NOTE_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn replace(file: &mut File, text: &[u8]) -> io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    file.write_all(text)
}
