//! What comes with time: holds and delays end, and follow the wall clock when it is set.

use super::{Batch, Engine, STEP_KEYS};
use crate::place::Turn;
use crate::record::Millis;
use crate::records::{From, Outset, Records, StoreResult, Stored};
use crate::rules;
use crate::rules::dispatch::Scope;

impl<S: Records> Engine<S> {
    /// The wall clock was set by so much: what is due keeps its distance, and lies no further ahead than it was said to take. With 0
    /// at each start. Some keys at a time, each step a transaction of its own.
    ///
    /// # Errors
    /// Not all have followed: it is to be asked again, with all by which the clock was set since it was followed last.
    pub async fn follow_clock(&mut self, now: Millis, by: Millis) -> StoreResult<()> {
        // At most starts there is nothing, and whoever holds a lock is not waited for.
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
            Ok(!it.store.next(From::Dues, None, &Scope::All, 1).await?.is_empty())
        })
        .await
    }
}

impl<S: Records> Batch<'_, S> {
    /// Some more keys follow the clock; whether there are more.
    async fn follow_clock(&mut self, by: Millis) -> StoreResult<bool> {
        self.header.clock = self.header.clock.saturating_add(by);
        self.context.clock = self.header.clock;
        // Those that have followed are left as they are, so it may begin anew.
        let behind = self.memo.followed.take().filter(|_| by == 0);
        let mut next = self.store.next(From::Dues, behind.as_ref(), &Scope::All, STEP_KEYS).await?;
        let is_more = next.len() == STEP_KEYS;
        self.memo.followed = next.last().filter(|_| is_more).cloned();
        // What came due while no daemon ran comes in the order in which it would have.
        next.sort_by_key(|stored| stored.place.due);
        self.wake_each(next);
        Ok(is_more)
    }

    /// Holds and delays end whose time is over: of so many keys.
    pub(super) async fn wake(&mut self) -> StoreResult<()> {
        self.flush().await?;
        let mut due =
            self.store.next(From::Due(self.context.now), None, &Scope::All, STEP_KEYS).await?;
        due.extend(self.ahead_of_now(STEP_KEYS).await?);
        self.wake_each(due);
        Ok(())
    }

    fn wake_each(&mut self, due: Vec<Stored>) {
        for stored in due {
            let slot = self.desk.put(stored);
            self.change(slot, rules::holds::wake);
        }
    }

    /// Keys whose turns lie in the future: a clock was ahead. Under `--classic` that is their place.
    async fn ahead_of_now(&mut self, count: usize) -> StoreResult<Vec<Stored>> {
        if !self.context.settings.is_fair {
            return Ok(Vec::new());
        }
        let now = Turn::Started(self.context.seconds());
        let mut ahead = self.store.next(From::Later(now), None, &Scope::All, count).await?;
        let since = Turn::Never(self.context.latest_since());
        let later = self.store.next(From::Later(since), None, &Scope::All, count).await?;
        let never_ran = |it: &Stored| matches!(it.place.order, Some(Turn::Never(_)));
        ahead.extend(later.into_iter().take_while(never_ran));
        Ok(ahead)
    }

    /// In how many seconds there is something to [wake](Self::wake). It is asked again and again beside workers' requests, which would
    /// have to be looked up anew if this batch were written first: what it changes is seen by the next look.
    pub(super) async fn next_hold_end(&mut self) -> StoreResult<Option<u64>> {
        if !self.ahead_of_now(1).await?.is_empty() {
            return Ok(Some(0));
        }
        let due = self.store.next(From::Due(Millis::MAX), None, &Scope::All, 1).await?;
        let due = due.first().and_then(|stored| stored.place.due);
        Ok(due.map(|due| seconds_left(due, self.context.now)))
    }
}

/// Whole seconds until a time has come; 0: it has.
pub(super) fn seconds_left(time: Millis, now: Millis) -> u64 {
    let left = time.saturating_sub(now).max(0);
    left.cast_unsigned().div_ceil(1_000)
}
