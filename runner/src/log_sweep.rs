//! Removes the logs of commands that are older than they are kept, and nothing else: only files with the name and the
//! form of ours, and a day's directory that is empty afterwards. Called by [`super::command`], on a thread of its own.

use std::ffi::OsStr;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{AtFlags, unlinkat};
use rustix::io::Errno;
use tracing::{debug, info, warn};

use super::log_directory::{LogDirectory, day, is_day, is_head_of, key_in};
use super::log_index;
use crate::safe_file;

/// Pause between two checks for logs that are too old.
const SWEEP_EVERY: Duration = Duration::from_secs(3600);
/// How much of a file is checked: a key whose name is not cut off takes less.
const FORM_BYTES_MAX: u64 = 4 * 1024;

impl LogDirectory {
    pub fn sweep_for_ever(&self) {
        let mut is_said = false;
        loop {
            match self.sweep(SystemTime::now()) {
                Ok(Some(kept)) if !std::mem::replace(&mut is_said, true) => {
                    info!(
                        kept = %kept.display(),
                        "Old logs are removed; other files in their directories stay, this one for example."
                    );
                }
                Ok(_) => {}
                Err(error) => {
                    warn!(directory = %self.path.display(), %error, "Old logs cannot be removed.");
                }
            }
            std::thread::park_timeout(SWEEP_EVERY);
        }
    }

    /// Removes the logs of days that have been over for long enough. Returns a file that was not removed because it is
    /// not a log, if there was one.
    pub(super) fn sweep(&self, now: SystemTime) -> io::Result<Option<PathBuf>> {
        let oldest = day(now.checked_sub(self.keep).unwrap_or(UNIX_EPOCH));
        let directory = safe_file::directory(&self.path)?;
        let mut kept = None;
        for entry in std::fs::read_dir(&self.path)? {
            let entry = entry?;
            let name = entry.file_name();
            let is_old = name.to_str().is_some_and(|name| is_day(name) && *name < *oldest);
            if is_old && entry.file_type()?.is_dir() {
                match self.sweep_day(directory.as_fd(), &name) {
                    Ok(stays) => kept = kept.or(stays),
                    // It may be another user's; that is no reason to keep those of other days.
                    Err(error) => {
                        let directory = entry.path();
                        warn!(directory = %directory.display(), %error, "Old logs cannot be removed.");
                    }
                }
            }
        }
        Ok(kept)
    }

    fn sweep_day(&self, parent: impl AsFd, name: &OsStr) -> io::Result<Option<PathBuf>> {
        let directory = safe_file::existing_subdirectory(&parent, name)?;
        let mut kept = None;
        for entry in std::fs::read_dir(self.path.join(name))? {
            let file = entry?.file_name();
            let path = Path::new(name).join(&file);
            if self.is_ours(&path, &file) {
                unlinkat(&directory, &*file, AtFlags::empty())?;
            } else {
                kept = Some(self.path.join(path));
            }
        }
        match unlinkat(&parent, name, AtFlags::REMOVEDIR) {
            Ok(()) => debug!(day = %name.display(), "Old logs were removed."),
            // A file was put there meanwhile.
            Err(Errno::NOTEMPTY | Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(kept)
    }

    /// Whether a worker wrote it, judging by its name and form.
    fn is_ours(&self, path: &Path, file: &OsStr) -> bool {
        let Some(name) = file.to_str() else { return false };
        let (log, is_index) =
            name.strip_suffix(log_index::ENDING).map_or((name, false), |log| (log, true));
        let Some(key) = key_in(log) else { return false };
        let mut form = Vec::new();
        let read = safe_file::open_beneath(&self.path, path)
            .and_then(|file| file.take(FORM_BYTES_MAX).read_to_end(&mut form));
        read.is_ok() && if is_index { log_index::is_form(&form) } else { is_head_of(&key, &form) }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    /// Old logs are removed with their index, for any key; what only looks like a log stays, and so does its directory.
    #[test]
    fn only_logs_are_removed() {
        let directory = tempfile::tempdir().unwrap();
        let logs = LogDirectory::new(directory.path().join("logs"), Duration::ZERO).unwrap();
        let (old, now) = (UNIX_EPOCH, UNIX_EPOCH + Duration::from_secs(3 * 86_400));
        let write = |key: &[u8], time| logs.open(key, Some(7), ["true".into()].iter(), time);
        for key in [&b"a"[..], b"../\xff\x1b: ", "é".repeat(2_000).as_bytes()] {
            write(key, old).unwrap().1.end("exit code 0", Some(0), old);
            write(key, old + Duration::from_secs(86_400)).unwrap();
            write(key, now).unwrap();
        }
        let path = |name: &str| directory.path().join("logs/1970-01-01").join(name);
        fs::copy(path("a.log"), path("a copy.log")).unwrap();
        fs::copy(path("a.log"), path("b.log")).unwrap();
        for (name, text) in [
            ("c.log", "=== 1970-01-01T00:00:00Z notes of c: by hand\n"),
            ("empty.log", ""),
            ("d.log.index", "of a book\n"),
            (".hidden.log", "=== 1970-01-01T00:00:00Z attempt 7 of .hidden: true\n"),
            ("photo.jpg", "="),
        ] {
            fs::write(path(name), text).unwrap();
        }
        fs::create_dir(path("sub.log")).unwrap();
        symlink(path("b.log"), path("link.log")).unwrap();
        symlink(path(""), directory.path().join("logs/1970-01-03")).unwrap();
        assert!(logs.sweep(now).unwrap().is_some());
        let left = |path: PathBuf| {
            let names = fs::read_dir(path).unwrap().map(|it| it.unwrap().file_name());
            let mut names: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
            names.sort();
            names
        };
        let strangers = ".hidden.log, a copy.log, b.log, c.log, d.log.index, empty.log, link.log, photo.jpg, sub.log";
        assert_eq!(left(path("")).join(", "), strangers);
        assert_eq!(left(path("../")), ["1970-01-01", "1970-01-03", "1970-01-04"]);
        assert_eq!(left(path("../1970-01-04")).len(), 6);
    }
}
