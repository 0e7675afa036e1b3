//! What can be read of a damaged file is saved into a new one (`shiftboss_sqlite::salvage`). Called by `shiftboss move --salvage`, which
//! has the damaged file's lock.

use std::fmt::Display;
use std::path::Path;

use shiftboss_actors::clock::{Clock, SystemClock};
use shiftboss_queue::error::StoreError;
use shiftboss_sqlite::{Salvage, open_damaged};

use super::make_new;
use crate::exit::{ExitCode, Failure};
use crate::stores::sqlite::file::set_page_size;

pub(crate) fn salvage(old: &Path, new: &Path) -> Result<Salvage, Failure> {
    let source = open_damaged(old).map_err(|error| {
        let old = old.display();
        match error {
            StoreError::Corrupt(why) => {
                let text = format!(
                    "nothing of {old} can be read: {why}. Restore a backup; `.recover` of sqlite.org's sqlite3 may read more (Debian's has no such command)"
                );
                Failure::new(ExitCode::BadData, text)
            }
            error => {
                let text = format!("nothing of {old} can be saved: {error}");
                Failure::new(ExitCode::Configuration, text)
            }
        }
    })?;
    let cannot = |why: &dyn Display| {
        Failure::new(ExitCode::CannotCreate, format!("cannot fill {}: {why}", new.display()))
    };
    make_new(new, |target| {
        set_page_size(target).map_err(|why| cannot(&why))?;
        let saved = shiftboss_sqlite::salvage(&source, target, SystemClock.millis());
        saved.map_err(|why| cannot(&why))
    })
}
