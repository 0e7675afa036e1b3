//! Keys that operators bump, and tasks that are tried again ([`retries`](super::retries)): the lane of `shiftboss_bumps`. Which
//! of them goes before the order, and what becomes of it.
//!
//! [`dispatch`](super::dispatch) asks for one before it looks at the order; the modules that end attempts and delete rows tell
//! here. While nothing is bumped, all that is in memory, and nothing is read. A key that is bumped is not plain, so its dispatch
//! is a row of `shiftboss_deliveries`.

use rusqlite::{Connection, OptionalExtension, Result};
use shiftboss_actors::store::{
    BUMPS_MAX, Bump, Bumped, CREDIT_FIRST, Credit, Dispatched, LeaseHolder,
};
use shiftboss_protocol::model::UnixSeconds;

use super::options::Policy;
use super::query::Query;
use super::records::state;
use super::rows::RunId;
use super::session::Session;

/// The first ?4 keys of the lane behind the kind ?2 and the place ?3 that have a row to be handed out, with both: those that
/// operators bumped come first. A lease that began before ?1 is over. Of a longer lane the first 1,000 are looked at, one after the
/// other: the rows of the inner query stay in its order.
pub(super) const ELIGIBLE: &str = "SELECT attr_path, kind, place FROM (
        SELECT * FROM shiftboss_bumps INDEXED BY shiftboss_lane
        WHERE attempt IS NULL AND due IS NULL ORDER BY kind, place LIMIT 1000) AS bump
    WHERE (kind, place) > (?2, ?3) AND EXISTS (SELECT 1 FROM queue INDEXED BY queue_attr_path_index
        WHERE queue.attr_path = bump.attr_path AND (state > 0 OR state = -1 AND last_started < ?1))
    LIMIT ?4";
/// Keys of the lane that cannot go, though they seem to, and that one look passes over: their runs are being deleted.
const PASSED_OVER_MAX: usize = 64;
/// Those that operators bumped, and that wait for their turn.
pub(super) const COUNT: &str = "SELECT count(*) FROM shiftboss_bumps INDEXED BY shiftboss_lane
    WHERE kind = 'bump' AND attempt IS NULL AND due IS NULL";
/// What the lane may spend, as of the last commit that changed it.
const CREDIT: &str = "SELECT value FROM shiftboss_counters WHERE name = 'credit'";

/// What is in memory of the bumped keys. Under the classic rules nothing is, and they are left alone.
#[derive(Debug)]
pub(super) struct Bumps {
    is_fair: bool,
    /// All of them, waiting or handed out.
    count: i64,
    credit: Credit,
    /// As it is in the table.
    stored: i64,
    /// Rows of these keys were deleted: such a key may have none any more.
    keys_went: Vec<String>,
    /// The same of keys that are not known.
    some_went: bool,
}

impl Bumps {
    pub(super) fn load(connection: &Connection, policy: Policy, share: u32) -> Result<Self> {
        let stored = stored_credit(connection)?;
        let (is_fair, credit) = (policy != Policy::Classic, Credit::new(share, stored));
        let count = if is_fair { count(connection)? } else { 0 };
        let keys_went = Vec::new();
        Ok(Self { is_fair, count, credit, stored, keys_went, some_went: false })
    }

    /// What the last commit left, whoever made it.
    pub(super) fn reload(&mut self, connection: &Connection) -> Result<()> {
        self.stored = stored_credit(connection)?;
        self.credit = Credit::new(self.credit.share(), self.stored);
        self.count = if self.is_fair { count(connection)? } else { 0 };
        self.keys_went.clear();
        self.some_went = false;
        Ok(())
    }

    /// With the commit.
    pub(super) fn flush(&mut self, connection: &Connection) -> Result<()> {
        let credit = self.credit.thousandths();
        if credit != self.stored && self.is_fair {
            let sql = "INSERT INTO shiftboss_counters (name, value) VALUES ('credit', ?1)
                ON CONFLICT (name) DO UPDATE SET value = excluded.value";
            connection.run(sql, [credit])?;
            self.stored = credit;
        }
        Ok(())
    }

    /// Whether the table has any row.
    pub(super) fn are_any(&self) -> bool {
        self.count > 0
    }

    pub(super) fn note_more(&mut self) {
        self.count += 1;
    }

    pub(super) fn note_fewer(&mut self, gone: usize) {
        self.count -= gone as i64;
    }

    pub(super) fn note_deletion<'k>(&mut self, keys: impl Iterator<Item = &'k str>) {
        if self.count > 0 {
            self.keys_went.extend(keys.map(str::to_owned));
        }
    }
}

fn count(database: &impl Query) -> Result<i64> {
    database.value("SELECT count(*) FROM shiftboss_bumps", [])
}

/// What the lane may spend, in thousandths.
pub(super) fn stored_credit(database: &impl Query) -> Result<i64> {
    Ok(database.value(CREDIT, []).optional()?.unwrap_or(CREDIT_FIRST))
}

impl Session<'_> {
    pub(super) fn bump(&mut self, bump: &Bump, now: UnixSeconds) -> Result<Bumped> {
        let key = bump.key.as_str();
        if !self.is_listed(key)? {
            return Ok(Bumped::Unknown);
        }
        if self.is_on_hold(key)? {
            return Ok(Bumped::Held);
        }
        if !self.is_bumped(key)? {
            if self.value::<i64>(COUNT, [])? >= BUMPS_MAX as i64 {
                return Ok(Bumped::Full);
            }
            // One whose earlier hand-out has not ended is bumped anew, and so is one that is tried again.
            self.run("DELETE FROM shiftboss_bumps WHERE attr_path = ?1", [key])?;
            let sql = "INSERT INTO shiftboss_bumps (attr_path, since, by) VALUES (?1, ?2, ?3)";
            self.run(sql, (key, now, &*bump.by))?;
        }
        self.queue.bumps.count = count(self)?;
        self.arm(key, None)?;
        let before = "SELECT count(*) FROM shiftboss_bumps INDEXED BY shiftboss_lane
            WHERE kind = 'bump' AND attempt IS NULL AND due IS NULL AND place < (SELECT place FROM shiftboss_bumps WHERE attr_path = ?1)";
        self.value(before, [key]).map(|before: i64| Bumped::Behind(before.cast_unsigned()))
    }

    fn is_bumped(&self, key: &str) -> Result<bool> {
        let sql = "SELECT EXISTS (SELECT 1 FROM shiftboss_bumps
            WHERE attr_path = ?1 AND kind = 'bump' AND attempt IS NULL)";
        self.value(sql, [key])
    }

    /// Hands a bumped key out before the order, if the credit pays for it and one could go.
    pub(super) fn next_bumped(
        &mut self,
        now: UnixSeconds,
        holder: Option<&LeaseHolder>,
    ) -> Result<Option<Dispatched>> {
        let bumps = &self.queue.bumps;
        if bumps.count == 0 || !bumps.credit.pays() || self.queue.cache.no_bumped_at == Some(now) {
            return Ok(None);
        }
        let (expired, mut from) = (self.queue.policy.expired(now), (String::new(), i64::MIN));
        let next = |it: &Self, from: &(String, i64)| {
            it.row(ELIGIBLE, (expired, &from.0, from.1, 1)).optional()
        };
        for _ in 0..PASSED_OVER_MAX {
            let Some((key, kind, place)) = next(self, &from)? else {
                break;
            };
            let key: String = key;
            from = (kind, place);
            // Its rows may all be of runs under deletion.
            if let Some(job) = self.hand_out(&key, None, now, holder)? {
                self.queue.bumps.credit = self.queue.bumps.credit.spent();
                // It may be known as the next one of the order.
                self.queue.cache.forget_order();
                return Ok(Some(job));
            }
        }
        self.queue.cache.no_bumped_at = Some(now);
        Ok(None)
    }

    /// A job was handed out that came next in the order.
    pub(super) fn pass_bumps(&mut self) {
        self.queue.bumps.credit = self.queue.bumps.credit.passed();
    }

    /// A key is handed out, before the order or in its turn: it is bumped no longer, unless that is taken back. A task that is
    /// tried again stays in the lane if another one of its key has gone.
    pub(super) fn bump_goes_out(&mut self, key: &str, task: RunId, attempt: i64) -> Result<()> {
        if self.queue.bumps.count == 0 {
            return Ok(());
        }
        let sql = "UPDATE shiftboss_bumps SET attempt = ?2 WHERE attr_path = ?1 AND attempt IS NULL AND due IS NULL
            AND (kind = 'bump' OR fetcher_id = ?3 AND run_started = ?4)";
        self.run(sql, (key, attempt, task.fetcher_id, task.started))?;
        self.forget_stale(key)
    }

    /// An attempt is taken back: a key that went out with it waits again as it did.
    pub(super) fn restore_bump(&mut self, attempt: i64) -> Result<()> {
        if self.queue.bumps.count == 0 {
            return Ok(());
        }
        let sql = "UPDATE shiftboss_bumps SET attempt = NULL, last_attempt = ?1 WHERE attempt = ?1";
        self.run(sql, [attempt])
    }

    /// An attempt that was taken back ended late: what was bumped has run.
    pub(super) fn end_late_bump(&mut self, attempt: i64) -> Result<()> {
        if self.queue.bumps.count > 0 {
            let sql = "DELETE FROM shiftboss_bumps
                WHERE last_attempt = ?1 AND attempt IS NULL AND due IS NULL";
            self.queue.bumps.count -= self.change(sql, [attempt])? as i64;
        }
        Ok(())
    }

    /// An attempt ended, and with it the bump of its key.
    pub(super) fn end_bump(&mut self, attempt: i64) -> Result<()> {
        if self.queue.bumps.count > 0 {
            let sql = "DELETE FROM shiftboss_bumps WHERE attempt = ?1";
            self.queue.bumps.count -= self.change(sql, [attempt])? as i64;
        }
        Ok(())
    }

    /// A job of the key ended: one that was bumped meanwhile runs once more.
    pub(super) fn arm_if_bumped(&mut self, key: &str) -> Result<()> {
        if self.queue.bumps.count > 0 && self.is_bumped(key)? {
            self.arm(key, None)?;
        }
        Ok(())
    }

    /// Keys that nothing lists any more are not bumped. Delayed ones, of which there may be many, are looked at when they are due.
    pub(super) fn forget_unlisted_bumps(&mut self) -> Result<()> {
        let bumps = &mut self.queue.bumps;
        let keys = std::mem::take(&mut bumps.keys_went);
        let are_all = std::mem::take(&mut bumps.some_went);
        if bumps.count == 0 {
            return Ok(());
        }
        let of_key = "DELETE FROM shiftboss_bumps WHERE attr_path = ?1 AND due IS NULL
            AND NOT EXISTS (SELECT 1 FROM queue WHERE queue.attr_path = ?1)";
        let of_all = "DELETE FROM shiftboss_bumps WHERE place IN (
                SELECT place FROM shiftboss_bumps INDEXED BY shiftboss_lane WHERE attempt IS NULL AND due IS NULL
                UNION ALL SELECT place FROM shiftboss_bumps INDEXED BY shiftboss_bumps_out WHERE attempt IS NOT NULL)
            AND NOT EXISTS (SELECT 1 FROM queue WHERE queue.attr_path = shiftboss_bumps.attr_path)";
        let mut gone = if are_all { self.change(of_all, [])? } else { 0 };
        for key in keys {
            gone += self.change(of_key, [key])?;
        }
        self.queue.bumps.note_fewer(gone);
        Ok(())
    }

    /// Somebody else wrote, or there was no daemon: what is bumped, and whose attempts have ended.
    pub(super) fn resolve_bumps(&mut self) -> Result<()> {
        self.queue.bumps.reload(self.connection)?;
        let sql = "DELETE FROM shiftboss_bumps WHERE attempt IS NOT NULL AND NOT EXISTS (
            SELECT 1 FROM shiftboss_deliveries AS delivery
            WHERE delivery.attr_path = shiftboss_bumps.attr_path
                AND delivery.attempt = shiftboss_bumps.attempt) RETURNING attr_path";
        if self.queue.bumps.count > 0 {
            for key in self.values::<String>(sql, [])? {
                self.queue.bumps.count -= 1;
                self.recompute(&key)?;
            }
            // Where pages were lost, lists bring keys back that nothing lists now.
            if state(self.connection, "made")?.as_deref() != Some("recovered") {
                self.queue.bumps.some_went = true;
            }
        }
        self.forget_unlisted_bumps()
    }
}
