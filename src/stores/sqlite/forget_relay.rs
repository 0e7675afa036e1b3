//! Forgets a relay that is gone for good: its lists leave the queue, and its fetchers are free. Called by `shiftboss forget-daemon`,
//! beside the daemon if one runs; it knows none.
//!
//! It edits the tables as anybody may, in bounded steps: triggers see to what is derived. What was begun and failed is ended by the
//! next try.

use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, OptionalExtension, TransactionBehavior};

use super::file::{self, failed, not_ours};
use super::query::Query;
use super::schema;
use crate::exit::{ExitCode, Failure};
use crate::stores::{Left, unknown};

/// How long the daemon is waited for, which writes too.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);
/// Rows that leave in one step: a worker's request waits for one.
const STEP_ROWS: i64 = 250;

/// Fetchers whose lists are the relay's ?1.
const OWN: &str =
    "SELECT fetcher_id FROM fetchers JOIN shiftboss_relay_fetchers USING (name) WHERE relay = ?1";
/// What is kept of it.
const NOTES: [&str; 5] = [
    "shiftboss_relay_fetchers",
    "shiftboss_relay_lanes",
    "shiftboss_relay_leases",
    "shiftboss_relay_rejected_files",
    "shiftboss_relays",
];

/// # Errors
/// When there is no such relay, or it may live; and when the database is no queue of this version, or cannot be written.
pub(in crate::stores) fn forget_relay(path: &Path, name: &str) -> Result<Left, Failure> {
    if matches!(path.try_exists(), Ok(false)) {
        let text = format!(
            "there is no database {}: give the one that `shiftboss serve` was given",
            path.display()
        );
        return Err(Failure::new(ExitCode::Unavailable, text));
    }
    file::look(path)?;
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_with_flags(path, flags).map_err(failed("open", path))?;
    connection.busy_timeout(BUSY_TIMEOUT).map_err(failed("open", path))?;
    let (found, known) =
        (schema::version(&connection).map_err(failed("read", path))?, schema::VERSION);
    if found != known {
        return Err(not_ours(format!(
            "the database {} has version {found}, and this shiftboss forgets relays in one of version {known}: start `shiftboss serve` on it once",
            path.display()
        )));
    }
    loop {
        match forget_part(&mut connection, name).map_err(failed("write to", path))? {
            Step::More => {}
            Step::Gone(left) => return Ok(left),
            Step::Unknown => return Err(unknown(name, &path.display())),
            Step::Lives => {
                return Err(Failure::new(
                    ExitCode::AlreadyRunning,
                    format!(
                        "the relay {name} lives, or no daemon has taken it for dead yet: stop it, and let a daemon run for ten seconds"
                    ),
                ));
            }
        }
    }
}

/// What came of a step.
enum Step {
    More,
    Gone(Left),
    Unknown,
    Lives,
}

fn forget_part(connection: &mut Connection, name: &str) -> rusqlite::Result<Step> {
    let step = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let known = "SELECT relay, lost = 0 FROM shiftboss_relays WHERE name = ?1";
    let relay: i64 = match step.row(known, [name]).optional()? {
        None => return Ok(Step::Unknown),
        Some((_, true)) => return Ok(Step::Lives),
        Some((relay, false)) => relay,
    };
    let rows = format!(
        "DELETE FROM queue WHERE rowid IN (SELECT queue.rowid FROM fetcher_runs AS run JOIN queue
            ON queue.fetcher_run_started = run.run_started AND queue.fetcher_id = run.fetcher_id
            WHERE run.fetcher_id IN ({OWN}) LIMIT ?2)"
    );
    let gone = if step.execute(&rows, (relay, STEP_ROWS))? > 0 {
        Step::More
    } else {
        let fetchers = format!("SELECT count(*) FROM ({OWN})");
        let fetchers = step.query_row(&fetchers, [relay], |row| row.get(0))?;
        let lists = format!("DELETE FROM fetcher_runs WHERE fetcher_id IN ({OWN})");
        let lists = i64::try_from(step.execute(&lists, [relay])?).unwrap_or(i64::MAX);
        for notes in NOTES {
            step.execute(&format!("DELETE FROM {notes} WHERE relay = ?1"), [relay])?;
        }
        Step::Gone(Left { lists, fetchers, jobs: 0 })
    };
    step.commit()?;
    Ok(gone)
}
