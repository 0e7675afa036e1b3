//! Where the queue is kept, behind the actors' ports `Store` and `Reader`: a module for each kind of database.
//!
//! All access goes through here: `serve`, and the commands that look at a database or mend one, do not see SQL. A store
//! does not know actors, sockets or the command line.

mod database;
mod forget;
mod options;
mod postgres;
mod server;
mod sqlite;
mod transfer;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

pub use shiftboss_actors::store::Polls;
use shiftboss_actors::store::Store;
use shiftboss_queue::error::StoreError;
use shiftboss_queue::file_identity::DirectoryIdentity;
use shiftboss_queue::reader::{ReadError, Reader};

use crate::exit::{ExitCode, Failure};
pub use database::{Database, Destination, is_server, without_passwords};
pub(crate) use forget::forget_daemon;
pub use options::{BUMP_SHARE_MAX, Durability, Joining, Options, Policy, RetryRules};
pub(crate) use server::{check, migrate};
pub use shiftboss_queue::outcome_words;
pub use shiftboss_queue::pace::{self, Pace};
pub(crate) use shiftboss_sqlite::Findings;
pub(crate) use shiftboss_sqlite::require_files;
use shiftboss_sqlite::{SqliteReader, open_to_read};
pub use sqlite::SqliteStore;
pub(crate) use sqlite::{backup, findings, give_back, look, mark, quick_check, salvage, unmark};
pub(crate) use transfer::{Moved, move_in, move_out};

/// How the last daemon left the queue.
#[derive(Debug, Clone, Default)]
pub struct Found {
    /// It closed the database, rather than being killed.
    pub was_clean: bool,
    /// Nothing is handed out until an operator resumes it.
    pub is_paused: bool,
    /// The identity of the input directory; `None`: it was not noted.
    pub input_directory: Option<DirectoryIdentity>,
}

/// A store that was opened for a daemon.
pub struct Opened {
    pub store: Box<dyn Store + Send>,
    pub found: Found,
}

/// Opens the queue for a daemon; a file, or a server's schema, is made if there is none.
pub fn open(database: &Database, options: &Options, joining: &Joining) -> Result<Opened, Failure> {
    match database {
        Database::File(path) => {
            let store = SqliteStore::open(path, options)?;
            Ok(Opened { found: store.found.clone(), store: Box::new(store) })
        }
        Database::Server(url) => server::open(url, options, joining),
    }
}

/// What is wrong with a database that can be read: it is another program's, or damaged.
pub fn unusable(database: &Path) -> Option<String> {
    match open_to_read(database) {
        Err(ReadError::Foreign(text) | ReadError::Corrupt(text)) => Some(text),
        _ => None,
    }
}

/// Answers questions about the queue in a database, whether or not a daemon keeps it.
pub fn reader(database: &Database) -> Result<Arc<dyn Reader>, Failure> {
    match database {
        Database::File(path) => Ok(Arc::new(SqliteReader::new(path.clone()))),
        Database::Server(url) => server::reader(url),
    }
}

/// The same for several questions, which may take `patience` together. Not for a permanent reader.
pub fn glance(database: &Database, patience: Duration) -> Result<Arc<dyn Reader>, Failure> {
    match database {
        Database::File(path) => Ok(Arc::new(SqliteReader::glance(path.clone(), patience))),
        Database::Server(url) => server::glance(url, patience),
    }
}

/// Why a command that only reads the database ended.
pub fn read_failure(error: ReadError) -> Failure {
    match error {
        ReadError::Unavailable(text) => Failure::new(ExitCode::Unavailable, text),
        ReadError::Foreign(text) => Failure::new(ExitCode::Configuration, text),
        ReadError::Denied(text) => Failure::new(ExitCode::Denied, text),
        ReadError::Corrupt(text) => Failure::new(ExitCode::BadData, text),
        ReadError::Failed(text) => Failure::new(ExitCode::StoreIo, text),
    }
}

/// Why a queue cannot be used from the start: distinguishes what a restart may help with from what needs an operator.
pub(crate) fn start_failure(error: StoreError) -> Failure {
    match error {
        StoreError::Busy(text) => Failure::new(ExitCode::Unavailable, text),
        StoreError::Full(text) => Failure::new(ExitCode::StoreIo, text),
        StoreError::Corrupt(text) => Failure::new(ExitCode::BadData, text),
        // Another daemon, or relay, has the name.
        StoreError::Rejected(text) | StoreError::Displaced(text) => {
            Failure::new(ExitCode::AlreadyRunning, text)
        }
        StoreError::Denied(text) | StoreError::Fatal(text) | StoreError::Newer(text) => {
            Failure::new(ExitCode::Configuration, text)
        }
    }
}
