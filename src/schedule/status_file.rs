//! Files of those on-changes that run: a lock and a status for each name, in a directory of the user's
//! own that a reboot empties.
//!
//! `on-change` takes a name there for its life, `--status` reads. The lock is the kernel's and goes with
//! its process; the status stays after a kill, and says then how it was.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::scheduler::Observer;
use super::status::Status;
use crate::lock::{self, LockError};
use crate::safe_file;

/// A status is no longer; one that is was not written by us.
const STATUS_BYTES_MAX: u64 = 1024 * 1024;
/// The end of a status file's name.
const STATUS: &str = ".status";

#[derive(Debug, Error)]
pub enum StatusFilesError {
    #[error("cannot use the directory {}: {source}; XDG_RUNTIME_DIR names another", path.display())]
    Directory { path: PathBuf, source: io::Error },
    #[error(
        "the directory {} is not this user's alone: remove it, or name another in XDG_RUNTIME_DIR",
        path.display()
    )]
    Foreign { path: PathBuf },
    #[error(
        "another on-change{} runs under the name {name:?}: stop it first, or give this one another --name",
        pid.map_or(String::new(), |pid| format!(" (pid {pid})"))
    )]
    Taken {
        name: String,
        /// The other's process id, where the kernel tells.
        pid: Option<u32>,
    },
    /// The lock file cannot be used.
    #[error(transparent)]
    Lock(LockError),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    pub name: String,
    /// Its process id; `None` if it does not run: the rest is how it was then.
    pub pid: Option<u32>,
    pub paths: Vec<PathBuf>,
    pub command: Vec<String>,
    #[serde(flatten)]
    pub status: Status,
}

/// The directory of the files.
#[derive(Debug, Clone)]
pub struct StatusFiles(PathBuf);

impl StatusFiles {
    /// The user's: in `XDG_RUNTIME_DIR`, else in `TMPDIR` or `/tmp` under the user's number.
    pub fn of_user() -> Result<Self, StatusFilesError> {
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

    fn at(path: PathBuf, user: u32) -> Result<Self, StatusFilesError> {
        let failed = |source| StatusFilesError::Directory { path: path.clone(), source };
        match DirBuilder::new().mode(0o700).create(&path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(failed(error));
            }
            _ => {}
        }
        // In a directory that all may write to somebody else may have been first.
        let metadata = fs::symlink_metadata(&path).map_err(failed)?;
        if !metadata.is_dir() || metadata.uid() != user || metadata.mode() & 0o022 != 0 {
            return Err(StatusFilesError::Foreign { path });
        }
        Ok(Self(path))
    }

    /// Takes a name for this process, until the files are dropped.
    pub fn take(&self, name: &str) -> Result<OwnFiles, StatusFilesError> {
        let lock = lock::take_file(&self.file(name, ".lock")).map_err(|error| match error {
            LockError::Taken { pid, .. } => StatusFilesError::Taken { name: name.to_owned(), pid },
            error => StatusFilesError::Lock(error),
        })?;
        let (status, changed) = (self.file(name, STATUS), self.file(name, ".changed"));
        Ok(OwnFiles { _lock: lock, status, changed })
    }

    /// Reports of the name, or of all names; sorted by it.
    pub fn reports(&self, name: Option<&str>) -> Result<Vec<Report>, StatusFilesError> {
        let mut reports: Vec<Report> = match name {
            Some(name) => self.report(name).into_iter().collect(),
            None => {
                let failed = |source| StatusFilesError::Directory { path: self.0.clone(), source };
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
pub struct OwnFiles {
    _lock: File,
    status: PathBuf,
    changed: PathBuf,
}

impl OwnFiles {
    /// The file for the changed paths.
    pub fn changed(&self) -> &Path {
        &self.changed
    }

    /// Writes what is noted to the status file; `report` says what does not change.
    pub fn observer(&self, report: Report) -> StatusFile {
        StatusFile { path: self.status.clone(), report }
    }
}

impl Drop for OwnFiles {
    /// After a clean end there is no status. The lock file stays: were it removed, two could
    /// each have one.
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.status);
        let _ = fs::remove_file(&self.changed);
    }
}

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
            next_run: None,
        };
        let (pid, command) = (Some(std::process::id()), vec!["x".to_owned()]);
        Report { name: name.to_owned(), pid, paths: vec![], command, status }
    }

    /// A name is had once; its status is read by anybody, and gone after a clean end.
    #[test]
    fn a_name_is_had_once() {
        let directory = tempfile::tempdir().unwrap();
        let user = rustix::process::geteuid().as_raw();
        let files = StatusFiles::at(directory.path().join("own"), user).unwrap();
        let own = files.take("a").unwrap();
        let mut observer = own.observer(report("a"));
        let status = Status { runs: 3, ..report("a").status };
        observer.note(&status);
        let read = files.reports(Some("a")).unwrap();
        assert_eq!(read, [Report { status, ..report("a") }]);
        assert_eq!(files.reports(None).unwrap(), read);
        let refused = files.take("a").unwrap_err();
        assert!(refused.to_string().contains(&format!("pid {}", std::process::id())), "{refused}");
        drop(own);
        assert_eq!(files.reports(None).unwrap(), []);
        assert!(files.take("a").is_ok());
    }

    /// A directory that others may write to is not used.
    #[test]
    fn a_foreign_directory_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let user = rustix::process::geteuid().as_raw();
        let path = directory.path().join("own");
        assert!(StatusFiles::at(path.clone(), user).is_ok());
        assert!(matches!(
            StatusFiles::at(path.clone(), user + 1),
            Err(StatusFilesError::Foreign { .. })
        ));
        fs::set_permissions(&path, PermissionsExt::from_mode(0o777)).unwrap();
        assert!(matches!(
            StatusFiles::at(path.clone(), user),
            Err(StatusFilesError::Foreign { .. })
        ));
        let link = directory.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(matches!(StatusFiles::at(link, user), Err(StatusFilesError::Foreign { .. })));
    }
}
