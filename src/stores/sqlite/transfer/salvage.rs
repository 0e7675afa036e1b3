//! What can be read of a damaged file is saved into a new one (`shiftboss_sqlite::salvage`). Called by `shiftboss move --salvage`, which
//! has the damaged file's lock.

use std::path::Path;

use shiftboss_actors::clock::{Clock, SystemClock};
use shiftboss_actors::store::StoreError;
use shiftboss_sqlite::Salvage;

use super::make_new;
use crate::exit::{ExitCode, Failure};
use crate::stores::sqlite::file::set_page_size;

pub(crate) fn salvage(old: &Path, new: &Path) -> Result<Salvage, Failure> {
    make_new(new, |target| {
        let filled = set_page_size(target).map_err(|error| StoreError::Fatal(error.to_string()));
        let filled =
            filled.and_then(|()| shiftboss_sqlite::salvage(old, target, SystemClock.now()));
        filled.map_err(|error| match error {
            StoreError::Corrupt(why) => {
                let text = format!(
                    "nothing can be saved of {}: {why}. Restore a backup; `.recover` of sqlite.org's sqlite3 may read more (Debian's has no such command)",
                    old.display()
                );
                Failure::new(ExitCode::BadData, text)
            }
            error => {
                Failure::new(ExitCode::CannotCreate, format!("cannot fill {}: {error}", new.display()))
            }
        })
    })
}
