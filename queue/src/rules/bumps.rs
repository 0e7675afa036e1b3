//! Keys that operators bump (docs/decisions/holds-retries-bumps.md), and putting ended tasks back.

use std::sync::Arc;

use super::forget_task;
use super::singles::{Numbered, retry_each};
use crate::context::Context;
use crate::operation::Bumped;
use crate::record::{Bump, FetcherId, ListRow, Record};

/// Why the key may not be bumped.
pub fn refuses(record: &Record) -> Option<Bumped> {
    if !record.is_listed() {
        return Some(Bumped::Unknown);
    }
    record.is_on_hold().then_some(Bumped::Held)
}

/// Bumps a key if it [may be](refuses): its ended tasks wait again, and it goes ahead of the order. A key that is out
/// runs once more. If repeated, it keeps its place, which is returned.
pub fn bump(record: &mut Record, ended: &[Numbered], by: Arc<str>, context: &mut Context) -> i64 {
    arm(record, None, ended);
    let bump = record.extras.bump.get_or_insert_with(|| {
        let (number, since) = (context.next_bump(), context.seconds());
        Bump { number, since, by }
    });
    bump.number
}

/// Puts the ended tasks of the key back, of one fetcher or of all, except the one that is out; returns how many.
/// `singles`: its single tasks that ended.
pub(super) fn arm(record: &mut Record, fetcher: Option<FetcherId>, singles: &[Numbered]) -> u64 {
    let is_meant = |of: FetcherId| fetcher.is_none_or(|only| only == of);
    let out = record.flight.as_ref().map(|it| it.task.fetcher());
    let ended = record
        .newest_rows()
        .filter(|row| !record.is_armed(row) && is_meant(row.fetcher) && Some(row.fetcher) != out);
    let ended: Vec<_> = ended.map(ListRow::task).collect();
    record.extras.retries.retain(|it| it.due.is_none() || !is_meant(it.task.fetcher()));
    for task in &ended {
        record.arm(*task);
        forget_task(record, *task);
    }
    let singles = if is_meant(FetcherId::TASKS) { retry_each(record, singles) } else { 0 };
    singles.saturating_add(ended.len() as u64)
}
