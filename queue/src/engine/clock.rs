//! Effects of time: holds and delays end, and follow the wall clock when it is set.

use super::{Batch, Engine, STEP_KEYS};
use crate::place::Turn;
use crate::record::Millis;
use crate::records::{From, Outset, Records, StoreResult, Stored};
use crate::rules;

impl<S: Records> Engine<S> {
    /// The wall clock was set by `by`: due times keep their distance, and lie no further ahead than their delay. Called
    /// with 0 at each start. Handles some keys at a time, each step in a transaction of its own.
    ///
    /// # Errors
    /// Not all keys have followed: call it again, with the whole change since the clock was last followed.
    pub async fn follow_clock(&mut self, now: Millis, by: Millis) -> StoreResult<()> {
        // At most starts there is nothing to do, and then we need not wait for a lock.
        if by == 0 && !self.has_dues(now).await? {
            return Ok(());
        }
        loop {
            let step = by.saturating_sub(self.followed);
            let is_more = self.alone(now, async |it| it.follow_clock(step).await).await?;
            self.followed = if is_more { by } else { 0 };
            if !is_more {
                return Ok(());
            }
        }
    }

    async fn has_dues(&mut self, now: Millis) -> StoreResult<bool> {
        self.begin(&Outset { only_reads: true, ..Outset::default() }).await?;
        self.in_batch(now, async |it| {
            it.only_reads = true;
            Ok(!it.store.next(From::Dues, None, 1).await?.is_empty())
        })
        .await
    }
}

impl<S: Records> Batch<'_, S> {
    /// Some more keys follow the clock; returns whether there are more.
    async fn follow_clock(&mut self, by: Millis) -> StoreResult<bool> {
        self.header.clock = self.header.clock.saturating_add(by);
        self.context.clock = self.header.clock;
        // Keys that have followed do not change again, so it may start over.
        let behind = self.memo.followed.take().filter(|_| by == 0);
        let mut next = self.store.next(From::Dues, behind.as_ref(), STEP_KEYS).await?;
        let is_more = next.len() == STEP_KEYS;
        self.memo.followed = next.last().filter(|_| is_more).cloned();
        // What came due while no daemon ran is handled in the order in which it came due.
        next.sort_by_key(|stored| stored.place.due);
        self.wake_each(next);
        Ok(is_more)
    }

    /// Ends the holds and delays that are over, of a bounded number of keys, and forgets old ones.
    pub(super) async fn wake(&mut self) -> StoreResult<()> {
        self.flush().await?;
        let mut due = self.store.next(From::Due(self.context.now), None, STEP_KEYS).await?;
        due.extend(self.ahead_of_now(STEP_KEYS).await?);
        self.wake_each(due);
        self.sort_some().await?;
        self.open_groups().await?;
        self.flush().await?;
        self.follow_hold_rules().await?;
        self.forget_old().await
    }

    fn wake_each(&mut self, due: Vec<Stored>) {
        for stored in due {
            let slot = self.desk.put(stored);
            self.change(slot, rules::holds::wake);
        }
    }

    /// Keys whose turns lie in the future, because a clock was ahead. Under `--classic` they keep those places.
    async fn ahead_of_now(&mut self, count: usize) -> StoreResult<Vec<Stored>> {
        if !self.context.settings.is_fair {
            return Ok(Vec::new());
        }
        let now = Turn::Started(self.context.seconds());
        let mut ahead = self.store.next(From::Later(now), None, count).await?;
        let since = Turn::Never(self.context.latest_since());
        let later = self.store.next(From::Later(since), None, count).await?;
        let never_ran = |it: &Stored| matches!(it.place.order, Some(Turn::Never(_)));
        ahead.extend(later.into_iter().take_while(never_ran));
        Ok(ahead)
    }

    /// In how many seconds there is something to [wake](Self::wake). This is asked often, in batches with workers'
    /// requests, and flushing the batch first would make them look up the next keys again. So its changes are only seen
    /// by the next look.
    pub(super) async fn next_hold_end(&mut self) -> StoreResult<Option<u64>> {
        // Groups open although nobody asks for their keys: `status` counts them.
        let has_due_groups = self.next_opening().await? == Some(0);
        let is_due = self.is_sorting() || self.is_pass_due() || has_due_groups;
        if is_due || !self.ahead_of_now(1).await?.is_empty() {
            return Ok(Some(0));
        }
        let due = self.store.next(From::Due(Millis::MAX), None, 1).await?;
        let due = due.first().and_then(|stored| stored.place.due);
        let due = due.into_iter().chain(self.hold_rules_due()).min();
        Ok(due.map(|due| seconds_left(due, self.context.now)))
    }
}

/// Whole seconds until a time has come; 0: it has.
pub(super) fn seconds_left(time: Millis, now: Millis) -> u64 {
    let left = time.saturating_sub(now).max(0);
    left.cast_unsigned().div_ceil(1_000)
}
