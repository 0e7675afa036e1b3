//! The way back: a queue in a file is moved to a database of the Python supervisor (`shiftboss_sqlite::give_back`). Called by
//! `shiftboss move`, which has the file's lock.

use std::path::Path;

use shiftboss_queue::documents::MOVED;
use shiftboss_sqlite::{GivenBack, document};

use super::{leave, make_new, to_leave};
use crate::exit::{ExitCode, Failure};
use crate::stores::Destination;
use crate::stores::mark::{self, gone};
use crate::stores::sqlite::file::{access, stopped};

/// Makes the supervisor's database at `to`, and marks the file: no daemon uses it any more.
pub(crate) fn give_back(from: &Path, to: &Path) -> Result<GivenBack, Failure> {
    let (source, from) = to_leave(from)?;
    let to = std::path::absolute(to).map_err(|error| access("look at", to, error))?;
    if let Some(left) = document(&source, &MOVED).map_err(stopped("read", &from))? {
        return Err(gone(&from.display().to_string(), &left));
    }
    // An empty file is no database yet.
    if to.symlink_metadata().is_ok_and(|found| found.is_file() && found.len() == 0) {
        std::fs::remove_file(&to).map_err(|error| access("replace", &to, error))?;
    }
    let given = make_new(&to, |target| {
        let given = shiftboss_sqlite::give_back(&from, target);
        given.map_err(|error| {
            let (from, to) = (from.display(), to.display());
            let text = format!("cannot make {to} of the queue in {from}: {error}");
            Failure::new(ExitCode::StoreIo, text)
        })
    })?;
    let mark = mark::new("", Destination::Supervisor(to).to_string());
    leave(&source, &from, &mark)?;
    Ok(given)
}
