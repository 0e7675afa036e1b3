//! What is remembered of the input directory, in rows of `shiftboss_state`: which one it is, and since when
//! and why it is lost. Status shows it; the next start asks which one it was.

use shiftboss_actors::file_identity::DirectoryIdentity;
use shiftboss_actors::store::{InputDirectory, StoreResult};
use shiftboss_protocol::model::UnixSeconds;

use super::SqliteStore;
use super::error::sorted;

impl SqliteStore {
    /// Which directory the input directory is; `None` on a database that no daemon has noted it in.
    ///
    /// # Errors
    /// As any read.
    pub fn input_directory(&self) -> StoreResult<Option<DirectoryIdentity>> {
        let noted =
            super::views::snapshot::state(&self.connection, "input_directory").map_err(sorted)?;
        Ok(noted.as_deref().and_then(DirectoryIdentity::parse))
    }

    pub(super) fn set_input(
        &mut self,
        input: &InputDirectory,
        now: UnixSeconds,
    ) -> rusqlite::Result<()> {
        match input {
            InputDirectory::There(identity) => {
                self.set_state("input_directory", &identity.to_string())?;
                let found = "DELETE FROM shiftboss_state
                    WHERE name IN ('directory_lost_since', 'directory_lost_reason')";
                self.execute(found, [])
            }
            InputDirectory::Lost(reason) => {
                self.set_state("directory_lost_reason", reason)?;
                let since = "INSERT INTO shiftboss_state (name, value)
                    VALUES ('directory_lost_since', ?1) ON CONFLICT DO NOTHING";
                self.execute(since, [now.to_string()])
            }
        }
    }
}
