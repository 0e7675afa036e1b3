//! Due times when the wall clock was set: holds and retries keep their delays.
//!
//! Called by the StorageActor through the store's trait, once for each step of the clock and at each start. What is over is
//! the affair of [`holds`](super::holds) and [`retries`](super::retries).

use rusqlite::Result;
use shiftboss_protocol::model::UnixSeconds;

use super::SqliteStore;
use super::query::Query;

/// Times that are further away from 1970 were written by hand, and stay as they are.
const SECONDS_MAX: i64 = 1 << 48;

/// Whether [`HOLDS`] or [`RETRIES`] have something to do.
const ARE_ANY: &str = "SELECT EXISTS (SELECT 1 FROM shiftboss_holds
        WHERE until BETWEEN -?3 AND ?3 AND since BETWEEN -?3 AND ?3 AND (?2 <> 0 OR since > ?1))
    OR EXISTS (SELECT 1 FROM shiftboss_bumps
        WHERE due BETWEEN -?3 AND ?3 AND since BETWEEN -?3 AND ?3 AND (?2 <> 0 OR since > ?1))";
/// At the time ?1 the clock was set by ?2 seconds. What began in the future then begins now.
const HOLDS: &str = "UPDATE shiftboss_holds
    SET since = min(since + ?2, ?1), until = until + ?2 - max(since + ?2 - ?1, 0)
    WHERE until BETWEEN -?3 AND ?3 AND since BETWEEN -?3 AND ?3 AND (?2 <> 0 OR since > ?1)";
const RETRIES: &str = "UPDATE shiftboss_bumps
    SET since = min(since + ?2, ?1), due = due + ?2 - max(since + ?2 - ?1, 0)
    WHERE due BETWEEN -?3 AND ?3 AND since BETWEEN -?3 AND ?3 AND (?2 <> 0 OR since > ?1)";

impl SqliteStore {
    pub(super) fn move_due_times(&mut self, now: UnixSeconds, by: i64) -> Result<()> {
        let values = (now, by.clamp(-SECONDS_MAX, SECONDS_MAX), SECONDS_MAX);
        // At most starts there is nothing, and whoever holds the lock is not waited for.
        if !self.connection.value::<bool>(ARE_ANY, values)? {
            return Ok(());
        }
        self.lock_yielding.wait();
        let moved = (self.connection.run("BEGIN IMMEDIATE", []))
            .and_then(|()| self.connection.run(HOLDS, values))
            .and_then(|()| self.connection.run(RETRIES, values))
            .and_then(|()| self.commit());
        if moved.is_err() {
            self.roll_back()?;
        }
        moved
    }
}
