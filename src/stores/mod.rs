//! What keeps the queue, behind the actors' ports `Store` and `Reader`: a module for each kind of database.
//!
//! The one door to it: `serve`, and the commands that look at a database or mend one, meet no SQL. A store knows no
//! actor, no socket and no command line.

mod database;
mod options;
mod postgres;
mod server;
mod sqlite;
mod transfer;

use std::fmt::Display;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

pub use shiftboss_actors::store::Polls;
use shiftboss_actors::store::Store;
pub use shiftboss_queue::answers::TaskStatus;
use shiftboss_queue::error::StoreError;
use shiftboss_queue::file_identity::DirectoryIdentity;
pub use shiftboss_queue::reader::Grouping;
use shiftboss_queue::reader::{ReadError, Reader};

use crate::exit::{ExitCode, Failure};
use crate::target::line;
pub use database::{Database, Destination, is_server, without_passwords};
pub use options::{BUMP_SHARE_MAX, Durability, Joining, Options, Policy, RetryRules};
pub(crate) use server::{check, migrate};
pub use shiftboss_queue::outcome_words;
pub use shiftboss_queue::pace::{self, Pace};
pub(crate) use shiftboss_sqlite::Findings;
pub(crate) use shiftboss_sqlite::require_files;
use shiftboss_sqlite::{SqliteReader, open_to_read};
use sqlite::Found;
pub use sqlite::SqliteStore;
pub(crate) use sqlite::{backup, findings, give_back, look, mark, quick_check, salvage, unmark};
pub(crate) use transfer::{Moved, move_in, move_out};

/// A store that was opened for a daemon, and what it found.
pub struct Opened {
    pub store: Box<dyn Store + Send>,
    /// The last daemon closed it, rather than being killed.
    pub was_clean: bool,
    pub is_paused: bool,
    /// `None` where no daemon has noted it.
    pub input_directory: Option<DirectoryIdentity>,
}

/// What a daemon that was forgotten left.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Left {
    /// Lists that leave the queue.
    pub(crate) lists: i64,
    /// Fetchers that another daemon may have.
    pub(crate) fetchers: i64,
    /// Leased jobs that wait again, for no other daemon lived.
    pub(crate) jobs: i64,
}

/// Forgets a daemon of a queue on a server, or a relay of any, that is gone for good.
pub(crate) fn forget_daemon(database: &Database, name: &str) -> Result<Left, Failure> {
    match database {
        Database::File(path) => sqlite::forget_relay(path, name),
        Database::Server(url) => server::forget_daemon(url, name),
    }
}

fn unknown(name: &str, database: &dyn Display) -> Failure {
    let text = format!(
        "the queue in {database} has no daemon and no relay {name}: {} shows those that it has",
        line("status")
    );
    Failure::new(ExitCode::BadData, text)
}

/// Opens the queue for a daemon; a file, or a server's schema, is made if there is none.
pub fn open(database: &Database, options: &Options, joining: &Joining) -> Result<Opened, Failure> {
    match database {
        Database::File(path) => open_file(path, options),
        Database::Server(url) => server::open(url, options, joining),
    }
}

fn open_file(path: &Path, options: &Options) -> Result<Opened, Failure> {
    let store = SqliteStore::open(path, options)?;
    let Found { was_clean, is_paused, input_directory } = store.found().clone();
    Ok(Opened { store: Box::new(store), was_clean, is_paused, input_directory })
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

/// The same for several questions together, which may take so long. Not for a reader that stays.
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

/// Why a queue cannot be used from the start: what a restart may help with, and what needs somebody.
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
