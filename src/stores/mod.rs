//! What keeps the queue, behind the actors' ports `Store` and `Reader`: a module for each kind of database.
//!
//! A store knows no actor, no socket and no command line.

pub mod outcome_words;
pub mod sqlite;

use std::path::Path;
use std::sync::Arc;

use shiftboss_actors::store::Reader;
pub use shiftboss_actors::store::answers::TaskStatus;

/// Who answers questions about the queue in a database. It may block whoever asks, and so needs no thread.
pub fn reader(database: &Path) -> Arc<dyn Reader> {
    Arc::new(sqlite::SqliteReader { database: database.to_owned(), blocks: true })
}

/// The same, for a daemon: nobody's thread is blocked.
pub fn reader_beside(database: &Path) -> Arc<dyn Reader> {
    Arc::new(sqlite::SqliteReader { database: database.to_owned(), blocks: false })
}
