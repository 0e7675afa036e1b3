//! `shiftboss status`: how the daemon and its queue are, as a table or as JSON.
//!
//! It asks nobody: the lock file tells whether a daemon runs, the database (read-only) tells the
//! rest. So it works whether or not one runs.

mod table;

use std::io::{self, Write};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use serde::Serialize;
use shiftboss_actors::clock::{Clock, SystemClock};

use super::view_failure;
use crate::exit::{self, ExitCode, Failure};
use crate::lock::{self, Holder};
use crate::sqlite::{QueueStatus, queue_status};

/// All that is shown; the JSON object (docs/operating.md).
#[derive(Debug, Serialize)]
struct Status {
    /// The database that was looked at.
    database: PathBuf,
    /// The daemon that keeps it; `null`: none runs.
    daemon: Option<Holder>,
    #[serde(flatten)]
    queue: QueueStatus,
}

/// Shows how the daemon at `target`, a database or a socket, is.
///
/// # Errors
/// When there is no such database or daemon, or the database cannot be read.
pub fn run(target: &Path, json: bool) -> Result<(), Failure> {
    let database = database_of(target)?;
    let now = SystemClock.now();
    let queue = queue_status(&database, now).map_err(|error| view_failure(&error))?;
    let status = Status { daemon: lock::holder_of(&database), database, queue };
    let text = if json {
        serde_json::to_string(&status)
            .map_err(|error| Failure::new(ExitCode::Internal, error.to_string()))?
            + "\n"
    } else {
        table::render(&status, now)
    };
    io::stdout().lock().write_all(text.as_bytes()).or_else(|error| exit::output_failed(&error))
}

/// The database itself, or that of the daemon that listens on a socket, or did until it was killed.
fn database_of(target: &Path) -> Result<PathBuf, Failure> {
    if let Some(holder) = lock::holder_of(target) {
        return Ok(holder.database);
    }
    let found = std::fs::symlink_metadata(target);
    if found.is_ok_and(|found| found.file_type().is_socket()) {
        return lock::noted(target).map(|left| left.database).ok_or_else(|| {
            let text = format!(
                "no daemon listens on {}: start one, or give the database instead of the socket",
                target.display()
            );
            Failure::new(ExitCode::Unavailable, text)
        });
    }
    std::path::absolute(target)
        .map_err(|error| Failure::new(ExitCode::Usage, format!("{}: {error}", target.display())))
}
