//! `shiftboss status`: how the daemon and its queue are, as a table or as JSON.

mod own_fetchers;
mod table;

use shiftboss_actors::clock::{Clock, SystemClock};

use super::{target, view_failure};
use crate::cli::Looked;
use crate::exit::Failure;
use crate::sqlite::queue_status;

/// Shows how the daemon at a target is.
///
/// # Errors
/// When there is no such database or daemon, or the database cannot be read.
pub fn run(looked: &Looked) -> Result<(), Failure> {
    let target = target::find(looked.target.clone(), looked.config.as_deref())?;
    let now = SystemClock.now();
    let queue = queue_status(&target.database, now).map_err(|error| view_failure(&error))?;
    target::show(&target, &queue, looked.json, |queue| table::render(&target, queue, now))
}
