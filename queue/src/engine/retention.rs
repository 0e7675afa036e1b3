//! Keys that nothing lists, and that have not run for a long time: they are forgotten, if the settings say so.
//!
//! A pass goes over all keys, some at a time, each step with [what is due](super::Batch::wake): a second between two steps,
//! so that ten million keys take half a day and no worker notices; and an hour between two passes.

use super::{Batch, STEP_KEYS};
use crate::documents::FORGOTTEN;
use crate::record::SingleStatus;
use crate::records::{From, Records, StoreResult, Stored};
use crate::rules::lists;

const STEP_SECONDS: i64 = 1;
const PASS_SECONDS: i64 = 3_600;

/// How far a pass has come.
#[derive(Debug, Default)]
pub(super) struct Pass {
    behind: Option<Stored>,
    /// The second of the next step.
    next: i64,
}

impl<S: Records> Batch<'_, S> {
    /// Whether the next step is due; also where its time is from a clock that was ahead.
    pub(super) fn is_pass_due(&self) -> bool {
        let left = self.memo.pass.next.saturating_sub(self.context.seconds());
        self.context.settings.unlisted_kept.is_some() && !(1..=PASS_SECONDS).contains(&left)
    }

    /// One step, if it is due.
    pub(super) async fn forget_old(&mut self) -> StoreResult<()> {
        let due = self.context.settings.unlisted_kept.filter(|_| self.is_pass_due());
        let Some(kept) = due else { return Ok(()) };
        let (now, behind) = (self.context.seconds(), self.memo.pass.behind.take());
        let next = self.store.next(From::All, behind.as_ref(), STEP_KEYS).await?;
        let is_over = next.len() < STEP_KEYS;
        let last = next.last().filter(|_| !is_over).cloned();
        let mut forgotten = 0;
        for stored in next {
            if lists::is_old(&stored.record, now.saturating_sub(kept), &self.context)
                && !self.has_known_ids(&stored).await?
            {
                let slot = self.desk.put(stored);
                self.desk.forget(slot);
                forgotten += 1;
            }
        }
        if forgotten > 0 {
            let before = self.document(&FORGOTTEN, FORGOTTEN.name()).await?.unwrap_or(0);
            self.note(&FORGOTTEN, FORGOTTEN.of(""), &before.saturating_add(forgotten)).await?;
        }
        let seconds = if is_over { PASS_SECONDS } else { STEP_SECONDS };
        (self.memo.pass.behind, self.memo.pass.next) = (last, now.saturating_add(seconds));
        Ok(())
    }

    /// Whether a single task of it is over, and kept for its ID: it must not be added again.
    async fn has_known_ids(&mut self, stored: &Stored) -> StoreResult<bool> {
        for status in [SingleStatus::Done, SingleStatus::Cancelled] {
            if !self.store.singles(stored.id, status, 1).await?.is_empty() {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
