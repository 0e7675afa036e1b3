//! The order in which keys would be handed out now, walked from its beginning.
//!
//! For the views of the queue. It reads the same rows by the same statements as the dispatcher,
//! in each partition the ready rows, and those whose lease expired, and merges them. Rows of one key have
//! one position, so they come one after the other. What a key's dispatch would change is nothing
//! to the other keys: the walk tells what as many requests would get.

use std::collections::HashSet;

use rusqlite::{Connection, Result};
use shiftboss_actors::store::{Credit, Turns};
use shiftboss_protocol::model::UnixSeconds;

use crate::stores::sqlite::bumps::{ELIGIBLE, stored_credit};
use crate::stores::sqlite::candidates::{Rule, candidates};
use crate::stores::sqlite::dispatch::{OVERDUE, QueuePosition, READY, of_partition};
use crate::stores::sqlite::options::Policy;
use crate::stores::sqlite::partitions::Partitions;
use crate::stores::sqlite::query::Query;
use crate::stores::sqlite::records::state;
use crate::stores::sqlite::rows::RunId;
use crate::stores::sqlite::snapshot::policy;
use crate::stores::views::WALK_MAX;

/// Rows that record a dispatch whose lease is over since ?1, in order: a daemon sees to them when it looks for work.
const RECORDED: &str =
    "SELECT overdue.started, order_jitter, queue.attr_path, fetcher_id, fetcher_run_started
    FROM (SELECT attr_path, started FROM log INDEXED BY shiftboss_unfinished
        WHERE finished IS NULL AND started < ?1 ORDER BY started LIMIT 10000) AS overdue
    CROSS JOIN queue INDEXED BY queue_attr_path_index
        ON queue.attr_path = overdue.attr_path AND state = -2
    ORDER BY overdue.started, order_jitter, queue.attr_path, fetcher_id";

/// The rules by which the daemon hands out, as of one snapshot.
pub(super) struct Order {
    policy: Policy,
    partitions: Partitions,
    expired: UnixSeconds,
}

impl Order {
    /// Reads the rules; `now` tells whose lease expired.
    pub(super) fn load(snapshot: &Connection, now: UnixSeconds) -> Result<Self> {
        let policy = policy(snapshot)?;
        Ok(Self { policy, partitions: Partitions::load(snapshot)?, expired: policy.expired(now) })
    }

    /// What decides which of a key's rows is handed out.
    pub(super) fn rule(&self) -> Rule<'_> {
        Rule { policy: self.policy, partitions: &self.partitions, expired: self.expired }
    }

    /// Shows each key once, the next one first, as long as `show` wants more and until [`WALK_MAX`] rows were gone over. Says
    /// whether those were all keys. Of a bumped one it says so.
    pub(super) fn walk(
        &self,
        snapshot: &Connection,
        mut show: impl FnMut(String, bool) -> Result<bool>,
    ) -> Result<bool> {
        let credit = self.credit(snapshot)?;
        let bumped = if credit.share() > 0 { self.bumped(snapshot)? } else { Vec::new() };
        let mut turns = Turns::new(credit, bumped.iter().cloned());
        let bumped: HashSet<String> = bumped.into_iter().collect();
        self.walk_in_order(snapshot, |(.., key, _)| {
            while let Some(key) = turns.offered() {
                if !self.can_go(snapshot, &key)? {
                    continue;
                }
                turns.goes(key.clone());
                if !show(key, true)? {
                    return Ok(false);
                }
            }
            if !turns.is_left(&key) {
                return Ok(true);
            }
            let is_bumped = bumped.contains(&key);
            show(key, is_bumped)
        })
    }

    /// The same, as if nothing went before the order.
    pub(super) fn walk_in_order(
        &self,
        snapshot: &Connection,
        show: impl FnMut(QueuePosition) -> Result<bool>,
    ) -> Result<bool> {
        self.walk_along(&in_order(&self.partitions.open, self.expired), snapshot, show)
    }

    /// The keys of the lane that have a row to be handed out.
    fn bumped(&self, snapshot: &Connection) -> Result<Vec<String>> {
        let lane = (self.expired, "", i64::MIN, i64::MAX);
        let keys: Vec<(String, String, i64)> = snapshot.rows(ELIGIBLE, lane)?;
        Ok(keys.into_iter().map(|(key, ..)| key).collect())
    }

    /// Whether it could be handed out: its rows may all be of runs under deletion.
    fn can_go(&self, snapshot: &Connection, key: &str) -> Result<bool> {
        let rows = candidates(snapshot, key)?;
        Ok(rows.is_some_and(|(_, rows)| self.rule().choose(&rows).is_some()))
    }

    /// What may go before the order, as the daemon noted it.
    fn credit(&self, snapshot: &Connection) -> Result<Credit> {
        let share = state(snapshot, "bump_share")?.and_then(|share| share.parse().ok());
        Ok(Credit::new(share.unwrap_or_default(), stored_credit(snapshot)?))
    }

    /// The first one of those that ran before.
    pub(super) fn first_that_ran(&self, snapshot: &Connection) -> Result<Option<QueuePosition>> {
        let ran = in_order(&self.partitions.open, self.expired)
            .replace("state > 0", &format!("state > 0 AND last_started >= {}", i64::MIN));
        let mut first = None;
        self.walk_along(&ran, snapshot, |position| {
            first = Some(position);
            Ok(false)
        })?;
        Ok(first)
    }

    fn walk_along(
        &self,
        in_order: &str,
        snapshot: &Connection,
        mut show: impl FnMut(QueuePosition) -> Result<bool>,
    ) -> Result<bool> {
        let mut statement = snapshot.prepare(in_order)?;
        let mut rows = statement.query([])?;
        let mut last: Option<String> = None;
        for _ in 0..WALK_MAX {
            let Some(row) = rows.next()? else {
                return Ok(true);
            };
            let position = (row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?);
            let run = RunId { fetcher_id: position.3, started: row.get(4)? };
            // Rows of runs under deletion count as gone.
            if !self.partitions.allow(run) {
                continue;
            }
            if last.as_ref() == Some(&position.2) {
                continue;
            }
            last = Some(position.2.clone());
            if !show(position)? {
                return Ok(false);
            }
        }
        Ok(false)
    }
}

/// All rows that may be next in one order: SQLite merges those of the partitions, which are ordered by the index.
pub(in crate::stores::sqlite) fn in_order(partitions: &[i64], expired: UnixSeconds) -> String {
    // Plain rows, too, as all others that are ready.
    let plain = READY.replace("state = 2", "state = 1");
    let overdue = OVERDUE.replace("?2", &expired.to_string());
    let of_each = |partition: &i64| {
        [plain.as_str(), READY, overdue.as_str()].map(|sql| of_partition(sql, *partition))
    };
    let mut rows: Vec<String> = partitions.iter().flat_map(of_each).collect();
    rows.push(RECORDED.replace("?1", &expired.to_string()));
    let merged: Vec<String> = rows.iter().map(|sql| format!("SELECT * FROM ({sql})")).collect();
    merged.join(" UNION ALL ") + " ORDER BY 1, 2, 3, 4"
}
