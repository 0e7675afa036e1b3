//! What keeps the queue, behind the actors' ports `Store` and `Reader`: a module for each kind of database.
//!
//! A store knows no actor, no socket and no command line.

pub mod outcome;
pub mod sqlite;

use std::path::Path;
use std::sync::Arc;

use shiftboss_actors::store::Reader;
pub use shiftboss_actors::store::answers::TaskStatus;

/// Who answers questions about the queue in a database.
pub fn reader(database: &Path) -> Arc<dyn Reader> {
    Arc::new(sqlite::SqliteReader(database.to_owned()))
}
