//! Forgetting a key that nothing lists, as an operator asks: when it ran, its attempts, its hold.
//!
//! Called by the store's operation. What was summed up of its jobs stays, and hand-outs that never arrived, which are no attempts
//! of a key ([`log`](super::views::log)).

use rusqlite::Result;
use shiftboss_actors::store::Forgotten;
use shiftboss_protocol::model::UnixSeconds;

use super::query::Query;
use super::rows::Delivery;
use super::session::Session;
use super::write_behind::keep_last_end;

/// Its attempts are a chain from where its fetchers were last served with it, and those that were taken back.
const ATTEMPTS: &str = "DELETE FROM shiftboss_attempts WHERE attr_path = ?1 AND attempt IN (
    WITH RECURSIVE chain(attempt) AS (
        SELECT attempt FROM shiftboss_last_served WHERE attr_path = ?1
        UNION SELECT previous FROM chain JOIN shiftboss_attempts USING (attempt) WHERE previous IS NOT NULL)
    SELECT attempt FROM chain
    UNION SELECT attempt FROM shiftboss_attempts INDEXED BY shiftboss_returned_attempts
        WHERE attr_path = ?1 AND outcome IN ('released', 'expired'))";

impl Session<'_> {
    pub(super) fn forget_key(&mut self, key: &str, now: UnixSeconds) -> Result<Forgotten> {
        if self.is_listed(key)? {
            return Ok(Forgotten::Listed);
        }
        let since = self.queue.policy.expired(now);
        let logged = "SELECT EXISTS (SELECT 1 FROM log
            WHERE attr_path = ?1 AND finished IS NULL AND started >= ?2)";
        let is_out = |delivery: &Delivery| delivery.worker.is_some() || delivery.started >= since;
        if self.value(logged, (key, since))? || self.deliveries(key)?.iter().any(is_out) {
            return Ok(Forgotten::InFlight);
        }
        self.retire_all_expired(key, |_| true)?;
        keep_last_end(self)?;
        let mut known = self.change(ATTEMPTS, [key])?;
        for sql in [
            "DELETE FROM log WHERE attr_path = ?1",
            "DELETE FROM shiftboss_last_served WHERE attr_path = ?1",
            "DELETE FROM shiftboss_holds WHERE attr_path = ?1",
            "DELETE FROM shiftboss_backoff_counts WHERE attr_path = ?1",
        ] {
            known += self.change(sql, [key])?;
        }
        Ok(if known > 0 { Forgotten::Forgotten } else { Forgotten::Unknown })
    }
}
