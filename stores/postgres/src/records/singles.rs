//! Single tasks, which records only count.

use shiftboss_protocol::fetcher_file::checksum;
use shiftboss_queue::record::SingleStatus;
use shiftboss_queue::records::{KeyId, StoreResult};

use super::PostgresRecords;
use crate::error::classify;
use crate::wire::ask;

impl PostgresRecords {
    pub(super) async fn single_now(&mut self, number: i64) -> StoreResult<Option<SingleStatus>> {
        let sql = "SELECT status FROM tasks WHERE number = $1";
        let rows = self.ask_one(ask!(sql, number)).await?;
        let Some(row) = rows.first() else {
            return Ok(None);
        };
        Ok(SingleStatus::of_word(row.try_get(0).map_err(classify)?))
    }

    pub(super) async fn singles_now(
        &mut self,
        id: KeyId,
        status: SingleStatus,
        count: usize,
    ) -> StoreResult<Vec<i64>> {
        let sql =
            "SELECT number FROM tasks WHERE key = $1 AND status = $2 ORDER BY number DESC LIMIT $3";
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        let rows = self.ask_one(ask!(sql, id.0, status.word(), count)).await?;
        rows.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>().map_err(classify)
    }

    pub(super) async fn waiting_single_now(
        &mut self,
        id: KeyId,
        payload: &str,
    ) -> StoreResult<Option<i64>> {
        let sql = "SELECT number FROM tasks
            WHERE key = $1 AND checksum = $2 AND status = 'waiting' AND payload = $3 LIMIT 1";
        let payload = payload.as_bytes();
        let ask = ask!(sql, id.0, checksum(payload).cast_signed(), payload.to_vec());
        let rows = self.ask_one(ask).await?;
        rows.first().map(|row| row.try_get(0)).transpose().map_err(classify)
    }
}
