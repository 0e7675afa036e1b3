//! What is looked at when the work is done: that nothing is left, a clean stop, a sound file, and a
//! daemon that starts on it again.
//!
//! Called by the soak's main thread, once.

use std::io;
use std::path::Path;

use rusqlite::{Connection, OpenFlags};

use crate::Soak;
use shiftboss_bench::rows::ask;
use shiftboss_bench::servers::Server;

/// What must be true of the file, and gives 0 then.
const SOUND: [(&str, &str); 3] = [
    ("rows are left undispatched", "SELECT count(*) FROM queue WHERE is_dequeued = 0"),
    ("keys are in flight", "SELECT count(*) FROM log WHERE finished IS NULL"),
    (
        "runs are counted wrongly",
        "SELECT count(*) FROM counts WHERE fetcher > 0 AND (counts.rows, waiting) IS NOT (
            SELECT count(*), coalesce(sum(is_dequeued = 0), 0) FROM queue
            WHERE fetcher_id = counts.fetcher AND fetcher_run_started = counts.run)",
    ),
];

/// Looks at the end of everything.
///
/// # Errors
/// When it cannot be looked at.
pub fn after(soak: &Soak, server: Server, program: &Path) -> io::Result<()> {
    for (run, lines) in soak.ledger().missing() {
        soak.fault(format!("{lines} lines of run {run:?} were never handed out"));
    }
    stop(soak, server);
    look_inside(soak).map_err(io::Error::other)?;
    let again = Server::shiftboss(program, &soak.home, &[])?;
    match ask(&again.socket, "READY\n")?.as_str() {
        "NOJOBS\n" => {}
        answer => soak.fault(format!("started again it answers {answer:?}")),
    }
    stop(soak, again);
    look_inside(soak).map_err(io::Error::other)
}

fn stop(soak: &Soak, server: Server) {
    server.stop().unwrap_or_else(|error| soak.fault(error.to_string()));
}

fn look_inside(soak: &Soak) -> rusqlite::Result<()> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY;
    let connection = Connection::open_with_flags(soak.database(), flags)?;
    let said: String = connection.query_row("PRAGMA integrity_check", [], |row| row.get(0))?;
    if said != "ok" {
        soak.fault(format!("integrity_check: {said}"));
    }
    for (what, sql) in SOUND {
        let found: i64 = connection.query_row(sql, [], |row| row.get(0))?;
        if found != 0 {
            soak.fault(format!("{found} {what}"));
        }
    }
    Ok(())
}
