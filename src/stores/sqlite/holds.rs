//! Keys that are not handed out (`shiftboss_holds`), held by operators or by [`failures`](super::failures): the rule that gives rows their state knows them, and nothing else of a
//! dispatch does.
//!
//! Called by the store's operations. What the triggers do for edits by hand is done here for the daemon's own.

use rusqlite::{OptionalExtension, Result};
use shiftboss_actors::store::{HOLDS_ENDED_AT_ONCE, HOLDS_MAX, Held, Hold};
use shiftboss_protocol::model::UnixSeconds;

use super::query::Query;
use super::session::Session;

/// Those of operators are few.
pub(super) const COUNT: &str =
    "SELECT count(*) FROM shiftboss_holds INDEXED BY shiftboss_holds_by_age WHERE kind = 'hold'";
/// Of the key ?1.
const OF_OPERATOR: &str = "SELECT since, until, reason, by, kind FROM shiftboss_holds
    WHERE attr_path = ?1 AND kind = 'hold'";
/// When the first hold is over that ends by itself.
const FIRST_END: &str = "SELECT until FROM shiftboss_holds INDEXED BY shiftboss_hold_ends
    WHERE until IS NOT NULL ORDER BY until LIMIT 1";
/// Keys whose holds are over at ?1, at most ?2. The second in which one ends is its last: it is not over before its time.
const OVER: &str = "SELECT attr_path FROM shiftboss_holds INDEXED BY shiftboss_hold_ends
    WHERE until IS NOT NULL AND until < ?1 ORDER BY until LIMIT ?2";

impl Session<'_> {
    pub(super) fn hold(&mut self, hold: &Hold, now: UnixSeconds) -> Result<Held> {
        let key = hold.key.as_str();
        let replaced = self.row(OF_OPERATOR, [key]).optional()?.map(Box::new);
        let until = hold.seconds.map(|seconds| now.saturating_add(seconds.into()));
        let again = "UPDATE shiftboss_holds SET since = ?2, until = ?3, reason = ?4, by = ?5
            WHERE attr_path = ?1 AND kind = 'hold'";
        let first = "INSERT INTO shiftboss_holds (attr_path, kind, since, until, reason, by)
            VALUES (?1, 'hold', ?2, ?3, ?4, ?5)";
        let values = (key, now, until, &hold.reason, &*hold.by);
        if self.change(again, values)? == 0 {
            if self.value::<i64>(COUNT, [])? >= HOLDS_MAX as i64 {
                return Ok(Held::Full);
            }
            self.run(first, values)?;
            self.extract(key)?;
            self.recompute(key)?;
        }
        let known = "SELECT EXISTS (SELECT 1 FROM queue WHERE attr_path = ?1)
            OR EXISTS (SELECT 1 FROM log WHERE attr_path = ?1)";
        Ok(Held::Held { until, is_known: self.value(known, [key])?, replaced })
    }

    /// Whoever holds it; says whether it was held. What was counted of its failures stays.
    pub(super) fn unhold(&mut self, key: &str) -> Result<bool> {
        let sql = "DELETE FROM shiftboss_holds WHERE attr_path = ?1";
        let was_held = self.change(sql, [key])? > 0;
        if was_held {
            self.recompute(key)?;
        }
        Ok(was_held)
    }

    pub(super) fn end_holds(&mut self, now: UnixSeconds) -> Result<()> {
        let over: Vec<String> = self.values(OVER, (now, HOLDS_ENDED_AT_ONCE as i64))?;
        self.end_delays(now)?;
        for key in &over {
            let sql = "DELETE FROM shiftboss_holds WHERE attr_path = ?1 AND until < ?2";
            self.run(sql, (key, now))?;
            self.recompute(key)?;
        }
        Ok(())
    }

    pub(super) fn next_hold_end(&self, now: UnixSeconds) -> Result<Option<u64>> {
        let first: Option<i64> = self.value(FIRST_END, []).optional()?;
        let left = |until: i64| until.saturating_sub(now).saturating_add(1).max(0);
        let ends = [first.map(|until| left(until).cast_unsigned()), self.next_due(now)?];
        Ok(ends.into_iter().flatten().min())
    }

    pub(super) fn is_on_hold(&self, key: &str) -> Result<bool> {
        self.value("SELECT EXISTS (SELECT 1 FROM shiftboss_holds WHERE attr_path = ?1)", [key])
    }
}
