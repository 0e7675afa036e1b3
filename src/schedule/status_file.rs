//! Files of running on-changes: a lock and a status for each name, in a directory of the user's own that a reboot
//! empties.
//!
//! `on-change` takes a name there for its life, `--status` reads. The lock is the kernel's and ends with its process;
//! after a kill the status stays, with the last state. If a file is removed meanwhile, by a cleaner of `/tmp` for
//! example, it is made again at once.

use std::cell::RefCell;
use std::ffi::OsString;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use shiftboss_actors::fs_events::{Inotify, WatchMask, readiness};
use tracing::{info, warn};

use super::scheduler::{Observer, Status};
use crate::exit::{ExitCode, Failure};
use crate::lock::{self, LockError};
use crate::safe_file;

/// Longest status: we do not write a longer one.
const STATUS_BYTES_MAX: u64 = 1024 * 1024;
const STATUS: &str = ".status";
/// Between two looks at the files while their directory cannot be watched or made.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// What `--status` shows of an on-change.
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

#[derive(Debug, Clone)]
pub struct StatusFiles(PathBuf);

impl StatusFiles {
    /// The user's: in `XDG_RUNTIME_DIR`, else in `TMPDIR` or `/tmp` under the user's number.
    pub fn of_user() -> Result<Self, Failure> {
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

    fn at(path: PathBuf, user: u32) -> Result<Self, Failure> {
        let files = Self(path);
        match DirBuilder::new().mode(0o700).create(&files.0) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(files.unusable(&error));
            }
            _ => {}
        }
        // In a world-writable directory another user may have been first.
        let metadata = fs::symlink_metadata(&files.0).map_err(|error| files.unusable(&error))?;
        if metadata.is_dir() && metadata.uid() == user && metadata.mode() & 0o022 == 0 {
            return Ok(files);
        }
        let text = format!(
            "the directory {} is not this user's alone: remove it, or name another in XDG_RUNTIME_DIR",
            files.0.display()
        );
        Err(Failure::new(ExitCode::Configuration, text))
    }

    fn unusable(&self, error: &io::Error) -> Failure {
        let path = self.0.display();
        let text =
            format!("cannot use the directory {path}: {error}; XDG_RUNTIME_DIR names another");
        Failure::new(ExitCode::CannotCreate, text)
    }

    /// Takes a name for this process, until the files are dropped.
    pub fn take(&self, name: &str) -> Result<NameFiles, Failure> {
        let lock = RefCell::new(self.lock(name)?);
        let (directory, name, last) = (self.clone(), name.to_owned(), Rc::default());
        Ok(NameFiles { changed: self.file(&name, ".changed"), directory, name, lock, last })
    }

    fn lock(&self, name: &str) -> Result<File, Failure> {
        lock::take_file(&self.file(name, ".lock")).map_err(|error| match error {
            LockError::Taken => {
                let pid = self.report(name).and_then(|report| report.pid);
                let by = pid.map_or(String::new(), |pid| format!(" (pid {pid})"));
                let text = format!(
                    "another on-change{by} runs under the name {name:?}: stop it first, or give this one another --name"
                );
                Failure::new(ExitCode::AlreadyRunning, text)
            }
            error => error.into(),
        })
    }

    /// Reports of the name, or of all names; sorted by it.
    pub fn reports(&self, name: Option<&str>) -> Result<Vec<Report>, Failure> {
        let mut reports: Vec<Report> = match name {
            Some(name) => self.report(name).into_iter().collect(),
            None => {
                let entries = fs::read_dir(&self.0).map_err(|error| self.unusable(&error))?;
                let names =
                    entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
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
        if !lock::is_taken(&self.file(name, ".lock")) {
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
pub struct NameFiles {
    directory: StatusFiles,
    name: String,
    lock: RefCell<File>,
    changed: PathBuf,
    /// What was noted last.
    last: Rc<RefCell<Option<Report>>>,
}

impl NameFiles {
    pub fn changed(&self) -> &Path {
        &self.changed
    }

    /// Writes each new status to the status file; `report` has the constant part.
    pub fn observer(&self, mut report: Report) -> Observer {
        let (path, last) = (self.status(), Rc::clone(&self.last));
        Box::new(move |status| {
            report.status = status.clone();
            write(&path, &report);
            *last.borrow_mut() = Some(report.clone());
        })
    }

    /// Makes removed files again, as long as it is polled. It ends if another process has taken the name meanwhile.
    pub async fn keep(&self) -> Failure {
        loop {
            // Watched first, and looked at then.
            let watched = self.watch();
            match self.make_again() {
                Ok(true) => continue,
                Ok(false) => {}
                Err(failure) if failure.code() == ExitCode::AlreadyRunning => return failure,
                Err(failure) => {
                    warn!(
                        "The files of this on-change were removed, and cannot be made again: {failure}"
                    );
                    tokio::time::sleep(LOOK_EVERY).await;
                    continue;
                }
            }
            match watched.and_then(|inotify| Ok((readiness(inotify.descriptor())?, inotify))) {
                Ok((removed, _inotify)) => _ = removed.readable().await,
                Err(_) => tokio::time::sleep(LOOK_EVERY).await,
            }
        }
    }

    fn watch(&self) -> io::Result<Inotify> {
        let inotify = Inotify::new()?;
        let mask = WatchMask::DELETE | WatchMask::DELETE_SELF | WatchMask::MOVE_SELF;
        inotify.watches().add(&self.directory.0, mask)?;
        Ok(inotify)
    }

    /// Whether something was missing, and all is there by now. A status that cannot be written is left to the next one.
    fn make_again(&self) -> Result<bool, Failure> {
        let last = self.last.borrow();
        let is_locked = self.has_its_lock();
        let noted = last.as_ref().filter(|_| !self.status().exists());
        if is_locked && noted.is_none() {
            return Ok(false);
        }
        let user = rustix::process::geteuid().as_raw();
        let directory = StatusFiles::at(self.directory.0.clone(), user)?;
        if !is_locked {
            *self.lock.borrow_mut() = directory.lock(&self.name)?;
            info!(directory = %directory.0.display(), "The files of this on-change were removed; they are made again.");
        }
        Ok(noted.is_none_or(|report| write(&self.status(), report)))
    }

    /// Whether the lock file that has its name is the one that is locked.
    fn has_its_lock(&self) -> bool {
        let number = |it: fs::Metadata| (it.dev(), it.ino());
        let there = fs::symlink_metadata(self.directory.file(&self.name, ".lock")).map(number);
        let ours = self.lock.borrow().metadata().map(number);
        there.is_ok_and(|there| ours.is_ok_and(|ours| there == ours))
    }

    fn status(&self) -> PathBuf {
        self.directory.file(&self.name, STATUS)
    }
}

/// Whether it is there.
fn write(path: &Path, report: &Report) -> bool {
    let written = safe_file::replace(path, |out| Ok(serde_json::to_writer(out, report)?));
    if let Err(error) = &written {
        warn!(path = %path.display(), %error, "The status cannot be written; runs go on.");
    }
    written.is_ok()
}

impl Drop for NameFiles {
    /// After a clean end there is no status. The lock file stays: if it were removed, two processes could each have
    /// one.
    fn drop(&mut self) {
        let _ = fs::remove_file(self.status());
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn report(name: &str) -> Report {
        let status = Status { state: "idle".to_owned(), ..Status::default() };
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
        observer(&status);
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
        let refused = |path: &Path, user| {
            let refused = StatusFiles::at(path.to_owned(), user).unwrap_err();
            assert!(refused.to_string().contains("not this user's alone"), "{refused}");
        };
        assert!(StatusFiles::at(path.clone(), user).is_ok());
        refused(&path, user + 1);
        fs::set_permissions(&path, PermissionsExt::from_mode(0o777)).unwrap();
        refused(&path, user);
        let link = directory.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        refused(&link, user);
    }
}
