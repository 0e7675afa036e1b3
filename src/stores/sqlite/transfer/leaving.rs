//! A queue in a file, from which it is moved to a server: one transaction, in which nobody else writes, reads all of it, and ends with
//! the mark that it was moved.

use std::path::{Path, PathBuf};

use rusqlite::Connection;
use shiftboss_queue::documents::{DAEMON, IDENTITY, MOVED, Policy};
use shiftboss_sqlite::document;

use crate::exit::Failure;
use crate::stores::mark::Mark;
use crate::stores::sqlite::file::{failed, not_usable, stopped};
use crate::stores::transfer::Source;

/// What others wrote into the views, and no daemon has carried out.
const EDITED: &str = "SELECT EXISTS (SELECT 1 FROM log_edits) OR EXISTS (SELECT 1 FROM row_edits)";

/// See the module's documentation. Without [`Source::leave`] the file stays as it was.
pub(in crate::stores) struct Leaving {
    pub(in crate::stores) connection: Connection,
    pub(in crate::stores) path: PathBuf,
}

impl Leaving {
    /// The caller has its lock.
    pub(in crate::stores) fn open(path: &Path) -> Result<Self, Failure> {
        let (connection, path) = super::to_leave(path)?;
        let leaving = Self { connection, path };
        leaving.fit()?;
        // Before anything is moved: the target has it from the beginning on.
        let named = "INSERT OR IGNORE INTO documents (name, value)
            VALUES (?1, json_quote(lower(hex(randomblob(16)))))";
        let named = leaving.connection.execute(named, [IDENTITY.name()]);
        named
            .and_then(|_| leaving.connection.execute_batch("COMMIT; BEGIN IMMEDIATE"))
            .map_err(failed("write to", &leaving.path))?;
        Ok(leaving)
    }

    fn fit(&self) -> Result<(), Failure> {
        let daemon = document(&self.connection, &DAEMON).map_err(stopped("read", &self.path))?;
        let edited = self.connection.query_row(EDITED, [], |row| row.get::<_, bool>(0));
        let is_classic = daemon.is_some_and(|it| it.policy == Policy::Classic);
        if is_classic || edited.map_err(failed("read", &self.path))? {
            let why = "it was used without leases last (--classic, the Python supervisor), or edited by hand: start \
                       `shiftboss serve` on it once, which sees to that, and stop it";
            return Err(not_usable(&self.path, why));
        }
        Ok(())
    }
}

impl Source for Leaving {
    fn name(&self) -> String {
        self.path.display().to_string()
    }

    fn identity(&mut self) -> Result<String, Failure> {
        let named = document(&self.connection, &IDENTITY).map_err(stopped("read", &self.path))?;
        Ok(named.unwrap_or_default())
    }

    fn mark(&mut self) -> Result<Option<Mark>, Failure> {
        document(&self.connection, &MOVED).map_err(stopped("read", &self.path))
    }

    fn leave(&mut self, mark: &Mark) -> Result<(), Failure> {
        super::leave(&self.connection, &self.path, mark)
    }
}
