//! The locks of a running daemon or relay, and how a refused start removes what it made.
//!
//! Taken before anything else is changed. The locks themselves are in [`crate::lock`].

use std::path::Path;

use shiftboss_actors::directory::Directory;
use shiftboss_protocol::answers::live::Daemon;

use crate::exit::{ExitCode, Failure};
use crate::lock::{self, LockFile};

/// What a refused start undoes, the last thing first.
#[derive(Default)]
pub(in crate::commands) struct Undo(Vec<Box<dyn FnOnce()>>);

impl Undo {
    pub(super) fn add(&mut self, step: impl FnOnce() + 'static) {
        self.0.push(Box::new(step));
    }
}

impl Drop for Undo {
    fn drop(&mut self) {
        while let Some(step) = self.0.pop() {
            step();
        }
    }
}

/// The locks of a running daemon, released when dropped. Unless they were [kept](Locks::keep), the start
/// was refused, and what it made is removed before.
pub(in crate::commands) struct Locks {
    pub(super) undo: Undo,
    pub(in crate::commands) daemon: Daemon,
    /// A server's database is shared.
    database: Option<LockFile>,
    socket: LockFile,
    pub(in crate::commands) directory: Directory,
}

impl Locks {
    /// Those of a daemon, and of its database if that is a file.
    pub(in crate::commands) fn take(daemon: Daemon, file: Option<&Path>) -> Result<Self, Failure> {
        let mut undo = Undo::default();
        make_input(&daemon.input_dir, &mut undo)?;
        let database = file.map(|file| lock::take(file, &daemon)).transpose()?;
        let new = file.filter(|file| !file.exists()).map(Path::to_owned);
        let socket = lock::take(&daemon.socket, &daemon)?;
        let directory = lock::take_directory(&daemon.input_dir)?;
        if let Some(database) = new {
            undo.add(move || remove_database(&database));
        }
        Ok(Self { undo, daemon, database, socket, directory })
    }

    /// The daemon is up: what it made stays.
    pub(in crate::commands) fn keep(&mut self) {
        self.undo.0.clear();
        self.database.iter_mut().for_each(LockFile::keep);
        self.socket.keep();
    }
}

fn make_input(input: &Path, undo: &mut Undo) -> Result<(), Failure> {
    let is_missing = |path: &&Path| !path.as_os_str().is_empty() && !path.exists();
    let made: Vec<_> = input.ancestors().take_while(is_missing).map(Path::to_owned).collect();
    std::fs::create_dir_all(input).map_err(|error| {
        let text = format!("cannot make the input directory {}: {error}", input.display());
        Failure::new(ExitCode::CannotCreate, text)
    })?;
    // A directory that is no longer empty stays.
    undo.add(move || _ = made.iter().try_for_each(std::fs::remove_dir));
    Ok(())
}

/// No request was answered from such a database, and lists are read again.
fn remove_database(database: &Path) {
    for ending in ["", "-wal", "-shm"] {
        let mut file = database.as_os_str().to_owned();
        file.push(ending);
        let _ = std::fs::remove_file(file);
    }
}
