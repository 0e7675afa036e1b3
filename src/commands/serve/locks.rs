//! The locks of a running daemon or relay, and how a refused start removes what it made.
//!
//! Taken before anything else is changed. The locks themselves are in [`crate::lock`].

use std::path::{Path, PathBuf};

use shiftboss_actors::directory::Directory;
use shiftboss_protocol::answers::live::Daemon;
use shiftboss_sqlite::beside;

use crate::exit::{ExitCode, Failure};
use crate::lock::{self, LockFile};

/// What a start has made, and a refused one removes.
struct Made {
    /// The innermost first.
    directories: Vec<PathBuf>,
    database: Option<PathBuf>,
}

impl Drop for Made {
    fn drop(&mut self) {
        self.database.iter().for_each(|database| remove_database(database));
        // A directory that is no longer empty stays.
        let _ = self.directories.iter().try_for_each(std::fs::remove_dir);
    }
}

/// The locks of a running daemon, released when dropped. Unless they were [kept](Locks::keep), the start
/// was refused, and what it made is removed before.
pub(in crate::commands) struct Locks {
    made: Made,
    pub(in crate::commands) daemon: Daemon,
    /// A server's database is shared.
    database: Option<LockFile>,
    socket: LockFile,
    pub(in crate::commands) directory: Directory,
}

impl Locks {
    /// Those of a daemon, and of its database if that is a file.
    pub(in crate::commands) fn take(daemon: Daemon, file: Option<&Path>) -> Result<Self, Failure> {
        let mut made = Made { directories: make_input(&daemon.input_dir)?, database: None };
        let database = file.map(|file| lock::take(file, &daemon)).transpose()?;
        let new = file.filter(|file| !file.exists()).map(Path::to_owned);
        let socket = lock::take(&daemon.socket, &daemon)?;
        let directory = lock::take_directory(&daemon.input_dir)?;
        made.database = new;
        Ok(Self { made, daemon, database, socket, directory })
    }

    /// The daemon is up: what it made stays.
    pub(in crate::commands) fn keep(&mut self) {
        self.made.directories.clear();
        self.made.database = None;
        self.database.iter_mut().for_each(LockFile::keep);
        self.socket.keep();
    }
}

/// Returns the directories that were missing.
fn make_input(input: &Path) -> Result<Vec<PathBuf>, Failure> {
    let is_missing = |path: &&Path| !path.as_os_str().is_empty() && !path.exists();
    let made: Vec<_> = input.ancestors().take_while(is_missing).map(Path::to_owned).collect();
    std::fs::create_dir_all(input).map_err(|error| {
        let text = format!("cannot make the input directory {}: {error}", input.display());
        Failure::new(ExitCode::CannotCreate, text)
    })?;
    Ok(made)
}

/// No request was answered from such a database, and lists are read again.
fn remove_database(database: &Path) {
    for ending in ["", "-wal", "-shm"] {
        let _ = std::fs::remove_file(beside(database, ending));
    }
}
