//! What a relay's store learns outside its calls: hints that there may be work, and that it was taken for dead.
//!
//! Raised by the tasks of its connection; the StorageActor polls it through the store.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use shiftboss_actors::store::{Changed, Polls};
use shiftboss_protocol::backoff::random;
use tokio::time::Instant;

/// Hints that come closer together count as one.
const HINTS_APART: Duration = Duration::from_millis(100);
/// All relays get a hint at once: each waits for a random part of this before it looks.
const SPREAD: Duration = Duration::from_millis(50);
/// Daemons send a hint at least every half minute: if none came for this long, hints do not arrive.
const HINTS_TRUSTED: Duration = Duration::from_secs(70);

#[derive(Default)]
pub(super) struct ChangeSignal {
    polls: Polls,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    changed: Option<Changed>,
    waker: Option<Waker>,
    lost: Option<i64>,
    last_hint: Option<Instant>,
    /// When it was last raised for a hint.
    last_raised: Option<Instant>,
    /// It must be raised later, for hints that came too close together.
    is_due: bool,
}

impl ChangeSignal {
    pub(super) fn new(polls: Polls) -> Self {
        Self { polls, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn raise(&self, changed: Changed) {
        let mut state = self.state();
        state.changed = state.changed.max(Some(changed));
        state.waker.take().into_iter().for_each(Waker::wake);
    }

    pub(super) fn lose(&self, epoch: i64) {
        self.state().lost = Some(epoch);
        self.raise(Changed::Leases);
    }

    pub(super) fn is_lost(&self, epoch: i64) -> bool {
        self.state().lost == Some(epoch)
    }

    /// There may be work. However fast hints come, the store looks for it: soon, or a little later for all hints that
    /// came meanwhile.
    pub(super) fn note_hint(self: &std::sync::Arc<Self>) {
        let now = Instant::now();
        let mut state = self.state();
        state.last_hint = Some(now);
        if std::mem::replace(&mut state.is_due, true) {
            return;
        }
        let earliest = state.last_raised.map_or(now, |last| (last + HINTS_APART).max(now));
        drop(state);
        let next = earliest + SPREAD * u32::from(random() as u8) / 256;
        let signal = std::sync::Arc::clone(self);
        tokio::spawn(async move {
            tokio::time::sleep_until(next).await;
            let mut state = signal.state();
            (state.is_due, state.last_raised) = (false, Some(next));
            drop(state);
            signal.raise(Changed::Queue);
        });
    }

    pub(super) fn poll(&self, task: &Context<'_>) -> Poll<Changed> {
        let mut state = self.state();
        match state.changed.take() {
            Some(changed) => Poll::Ready(changed),
            None => {
                state.waker = Some(task.waker().clone());
                Poll::Pending
            }
        }
    }

    pub(super) fn look_every(&self) -> Duration {
        let is_hinted = self.state().last_hint.is_some_and(|last| last.elapsed() < HINTS_TRUSTED);
        if is_hinted { self.polls.notified } else { self.polls.alone }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::task::Waker;

    use super::*;

    /// Endless hints do not starve workers: at 20 a second for two seconds there are 4 to 25 looks for work.
    #[tokio::test(start_paused = true)]
    async fn hints_without_end_are_looked_after() {
        let signal = Arc::new(ChangeSignal::default());
        assert_eq!(signal.look_every(), Polls::default().alone);
        let mut looks = 0;
        for _ in 0..40 {
            signal.note_hint();
            for _ in 0..5 {
                tokio::time::sleep(Duration::from_millis(10)).await;
                looks += u32::from(signal.poll(&Context::from_waker(Waker::noop())).is_ready());
            }
        }
        assert!((4..=25).contains(&looks), "{looks}");
        assert_eq!(signal.look_every(), Polls::default().notified);
        tokio::time::sleep(HINTS_TRUSTED).await;
        assert_eq!(signal.look_every(), Polls::default().alone);
    }

    /// A single hint is passed on within a twentieth of a second.
    #[tokio::test(start_paused = true)]
    async fn a_hint_is_heard_soon() {
        let signal = Arc::new(ChangeSignal::default());
        let context = Context::from_waker(Waker::noop());
        assert!(signal.poll(&context).is_pending());
        signal.note_hint();
        // Timers have steps of a millisecond.
        tokio::time::sleep(SPREAD + Duration::from_millis(1)).await;
        assert_eq!(signal.poll(&context), Poll::Ready(Changed::Queue));
        signal.lose(7);
        assert!(signal.is_lost(7) && !signal.is_lost(8));
        assert_eq!(signal.poll(&context), Poll::Ready(Changed::Leases));
    }
}
