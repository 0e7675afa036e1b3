//! Groups: loaded and locked, so that no two daemons change one at the same time. A batch locks more as it needs them: two
//! that meet crosswise are a deadlock, of which the server ends one, and that one is carried out again.

use std::collections::HashMap;

use shiftboss_queue::groups::GroupId;
use shiftboss_queue::record::Millis;
use shiftboss_queue::records::{Opens, StoreResult};
use shiftboss_queue::rules::groups::Group;

use super::PostgresRecords;
use crate::error::classify;
use crate::load;
use crate::wire::ask;

impl PostgresRecords {
    pub(super) async fn groups_now(&mut self, ids: &[GroupId]) -> StoreResult<Vec<Option<Group>>> {
        self.numbers.stale();
        let asked: Vec<i64> = ids.iter().map(|id| id.0).collect();
        let rows = self.ask_one(ask!(load::GROUPS, asked)).await?;
        let mut found: HashMap<_, _> = rows.iter().map(load::group).collect::<StoreResult<_>>()?;
        Ok(ids.iter().map(|id| found.remove(id)).collect())
    }

    pub(super) async fn opening_now(
        &mut self,
        (opens, id): Opens,
        until: Millis,
        count: usize,
    ) -> StoreResult<Vec<(Opens, Group)>> {
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        let rows = self.ask_one(ask!(load::OPENING, opens, id.0, until, count)).await?;
        rows.iter().map(load::opening).collect()
    }

    pub(super) async fn first_opening_now(&mut self) -> StoreResult<Option<Millis>> {
        let sql = "SELECT opens FROM groups WHERE opens IS NOT NULL ORDER BY opens LIMIT 1";
        let rows = self.ask_one(ask!(sql)).await?;
        rows.first().map(|row| row.try_get(0)).transpose().map_err(classify)
    }

    pub(super) async fn closed_now(&mut self, until: Millis, most: u32) -> StoreResult<u32> {
        let sql = "SELECT count(*) FROM (SELECT FROM groups
            WHERE kind IN (1, 2, 3) AND waiting > 0 AND (opens > $1::int8 OR kind = 2) LIMIT $2::int8) AS closed";
        let rows = self.ask_one(ask!(sql, until, i64::from(most))).await?;
        let count: i64 = rows.first().map_or(Ok(0), |row| row.try_get(0)).map_err(classify)?;
        Ok(u32::try_from(count).unwrap_or(most))
    }
}
