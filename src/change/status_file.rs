//! Files of those on-changes that run: a lock and a status for each name, in a directory of the user's
//! own that a reboot empties.
//!
//! `on-change` takes a place there for its life, `--status` reads. The lock is the kernel's and goes with
//! its process; the status stays after a kill, and says then how it was.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::run_actor::Observer;
use super::status::Status;
use crate::lock::{self, LockError};
use crate::safe_file;

/// A status is no longer; one that is was not written by us.
const STATUS_BYTES_MAX: u64 = 1024 * 1024;
/// The end of a status file's name.
const STATUS: &str = ".status";

/// Why the files cannot be used.
#[derive(Debug, Error)]
pub enum PlaceError {
    /// The directory cannot be made or read.
    #[error("cannot use the directory {}: {source}; XDG_RUNTIME_DIR names another", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Somebody else could write there.
    #[error(
        "the directory {} is not this user's alone: remove it, or name another in XDG_RUNTIME_DIR",
        path.display()
    )]
    Foreign {
        /// The directory.
        path: PathBuf,
    },
    /// Another process runs under the name.
    #[error(
        "another on-change{} runs under the name {name:?}: stop it first, or give this one another --name",
        pid.map_or(String::new(), |pid| format!(" (pid {pid})"))
    )]
    Taken {
        /// The name.
        name: String,
        /// The other's process id, where the kernel tells.
        pid: Option<u32>,
    },
    /// The lock file cannot be used.
    #[error(transparent)]
    Lock(LockError),
}

/// What a status file says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// The on-change's name.
    pub name: String,
    /// Its process id; `None` if it does not run: the rest is how it was then.
    pub pid: Option<u32>,
    /// What it watches.
    pub paths: Vec<PathBuf>,
    /// What it runs.
    pub command: Vec<String>,
    /// How it is.
    #[serde(flatten)]
    pub status: Status,
}

/// The directory of the files.
#[derive(Debug, Clone)]
pub struct Places(PathBuf);

impl Places {
    /// The user's: in `XDG_RUNTIME_DIR`, else in `TMPDIR` or `/tmp` under the user's number.
    ///
    /// # Errors
    /// When it cannot be made, or others may write to it.
    pub fn of_user() -> Result<Self, PlaceError> {
        let set = |name| std::env::var_os(name).filter(|value: &OsString| !value.is_empty());
        let user = rustix::process::geteuid().as_raw();
        let path = match set("XDG_RUNTIME_DIR") {
            Some(runtime) => Path::new(&runtime).join("shiftboss"),
            None => {
                let temporary = set("TMPDIR").unwrap_or_else(|| "/tmp".into());
                Path::new(&temporary).join(format!("shiftboss-{user}"))
            }
        };
        Self::at(path, user)
    }

    fn at(path: PathBuf, user: u32) -> Result<Self, PlaceError> {
        let failed = |source| PlaceError::Directory { path: path.clone(), source };
        match DirBuilder::new().mode(0o700).create(&path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(failed(error));
            }
            _ => {}
        }
        // In a directory that all may write to somebody else may have been first.
        let metadata = fs::symlink_metadata(&path).map_err(failed)?;
        if !metadata.is_dir() || metadata.uid() != user || metadata.mode() & 0o022 != 0 {
            return Err(PlaceError::Foreign { path });
        }
        Ok(Self(path))
    }

    /// Takes a name for this process, until the place is dropped.
    ///
    /// # Errors
    /// When another process has it.
    pub fn take(&self, name: &str) -> Result<Place, PlaceError> {
        let lock = lock::take_file(&self.file(name, ".lock")).map_err(|error| match error {
            LockError::Taken { pid, .. } => PlaceError::Taken { name: name.to_owned(), pid },
            error => PlaceError::Lock(error),
        })?;
        let (status, changed) = (self.file(name, STATUS), self.file(name, ".changed"));
        Ok(Place { _lock: lock, status, changed })
    }

    /// Reports of the name, or of all names; sorted by it.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub fn reports(&self, name: Option<&str>) -> Result<Vec<Report>, PlaceError> {
        let mut reports: Vec<Report> = match name {
            Some(name) => self.report(name).into_iter().collect(),
            None => {
                let failed = |source| PlaceError::Directory { path: self.0.clone(), source };
                let entries = fs::read_dir(&self.0).map_err(failed)?.flatten();
                let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
                names.filter_map(|file| self.report(file.strip_suffix(STATUS)?)).collect()
            }
        };
        reports.sort_by(|one, two| one.name.cmp(&two.name));
        Ok(reports)
    }

    fn report(&self, name: &str) -> Option<Report> {
        let path = self.file(name, STATUS);
        if fs::metadata(&path).ok()?.len() > STATUS_BYTES_MAX {
            return None;
        }
        let mut report: Report = serde_json::from_slice(&fs::read(&path).ok()?).ok()?;
        if !lock::is_taken(&self.file(name, ".lock")).0 {
            report.pid = None;
            (report.status.run_started, report.status.next_possible_run) = (None, None);
        }
        Some(report)
    }

    fn file(&self, name: &str, suffix: &str) -> PathBuf {
        self.0.join(format!("{name}{suffix}"))
    }
}

/// The files of one name, and the right to them.
#[derive(Debug)]
pub struct Place {
    _lock: File,
    status: PathBuf,
    changed: PathBuf,
}

impl Place {
    /// The file for the changed paths.
    #[must_use]
    pub fn changed(&self) -> &Path {
        &self.changed
    }

    /// Writes what it is told to the status file; `report` says what does not change.
    #[must_use]
    pub fn observer(&self, report: Report) -> StatusFile {
        StatusFile { path: self.status.clone(), report }
    }
}

impl Drop for Place {
    /// After a clean end there is nothing to be told. The lock file stays: were it removed, two could
    /// each have one.
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.status);
        let _ = fs::remove_file(&self.changed);
    }
}

/// Keeps a status file.
#[derive(Debug)]
pub struct StatusFile {
    path: PathBuf,
    report: Report,
}

impl StatusFile {
    fn write(&self) -> io::Result<()> {
        safe_file::replace(&self.path, |out| Ok(serde_json::to_writer(out, &self.report)?))
    }
}

impl Observer for StatusFile {
    fn note(&mut self, status: &Status) {
        self.report.status = status.clone();
        if let Err(error) = self.write() {
            let path = self.path.display();
            tracing::warn!(%path, %error, "The status cannot be written; runs go on.");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn report(name: &str) -> Report {
        let status = Status {
            state: "idle".to_owned(),
            runs: 0,
            run_started: None,
            last_run: None,
            next_possible_run: None,
        };
        let (pid, command) = (Some(std::process::id()), vec!["x".to_owned()]);
        Report { name: name.to_owned(), pid, paths: vec![], command, status }
    }

    /// A name is had once; its status is read by anybody, and gone after a clean end.
    #[test]
    fn a_name_is_had_once() {
        let directory = tempfile::tempdir().unwrap();
        let user = rustix::process::geteuid().as_raw();
        let places = Places::at(directory.path().join("own"), user).unwrap();
        let place = places.take("a").unwrap();
        let mut observer = place.observer(report("a"));
        let status = Status { runs: 3, ..report("a").status };
        observer.note(&status);
        let read = places.reports(Some("a")).unwrap();
        assert_eq!(read, [Report { status, ..report("a") }]);
        assert_eq!(places.reports(None).unwrap(), read);
        let refused = places.take("a").unwrap_err();
        assert!(refused.to_string().contains(&format!("pid {}", std::process::id())), "{refused}");
        drop(place);
        assert_eq!(places.reports(None).unwrap(), []);
        assert!(places.take("a").is_ok());
    }

    /// A directory that others may write to is not used.
    #[test]
    fn a_foreign_directory_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let user = rustix::process::geteuid().as_raw();
        let path = directory.path().join("own");
        assert!(Places::at(path.clone(), user).is_ok());
        assert!(matches!(Places::at(path.clone(), user + 1), Err(PlaceError::Foreign { .. })));
        fs::set_permissions(&path, PermissionsExt::from_mode(0o777)).unwrap();
        assert!(matches!(Places::at(path.clone(), user), Err(PlaceError::Foreign { .. })));
        let link = directory.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(matches!(Places::at(link, user), Err(PlaceError::Foreign { .. })));
    }
}
