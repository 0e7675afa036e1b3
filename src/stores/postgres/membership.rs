//! What the store and its companion share: the daemon's identity among the others, and their messages to each other.
//!
//! Shared by [`store`](super::store) and [`companion`](super::companion). It calls nothing.

use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use shiftboss_actors::store::{Changed, Polls};
use shiftboss_protocol::backoff::shortened;
use shiftboss_queue::error::{StoreError, StoreResult};
use tokio::sync::Notify;
use tracing::{info, warn};

use super::daemons::Place;
use super::peers::Peer;

/// After how many failed connections for beats in a row to warn, unless the server is away.
const WARN_AT: u32 = 3;

/// The state that the store and its companion share.
#[derive(Default)]
pub(super) struct Membership {
    state: Mutex<State>,
    /// There is work to announce to others.
    pub(super) work: Notify,
    polls: Polls,
}

#[derive(Default)]
struct State {
    /// The daemon's number and its epoch.
    joined: Place,
    /// It was taken for dead.
    is_lost: bool,
    /// The store's last call failed, too.
    is_away: bool,
    /// Daemons that no longer act, and whose jobs may not have been adopted yet.
    dead: Vec<Peer>,
    /// The server's clock was set back, or may have been.
    was_clock_set: bool,
    /// Whether the queue was paused at the last call.
    is_paused: Option<bool>,
    /// How far this daemon's counter is, on disk.
    beat: i64,
    /// Connections that failed since the last beat was heard.
    failed: u32,
    /// An error of the companion on an established connection that only an administrator can mend, in the schema or in
    /// the role's rights. A login that is refused for a while is not such an error: the store's own connection may
    /// still work.
    failure: Option<StoreError>,
    changed: Option<Changed>,
    waker: Option<Waker>,
    /// The companion has a connection on which notices of work arrive.
    listens: bool,
}

impl Membership {
    pub(super) fn new(polls: Polls) -> Self {
        Self { polls, ..Self::default() }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The store joined, or joined anew.
    pub(super) fn join(&self, place: Place) {
        let mut state = self.state();
        (state.joined, state.is_lost) = (place, false);
    }

    pub(super) fn joined(&self) -> Place {
        self.state().joined
    }

    pub(super) fn has_joined(&self) -> bool {
        self.joined() != (0, 0)
    }

    /// How far this daemon's counter is for certain, on any server that has what it wrote.
    pub(super) fn beat(&self) -> i64 {
        self.state().beat
    }

    pub(super) fn is_lost(&self) -> bool {
        self.state().is_lost
    }

    /// Whether the store's last call reached the server.
    pub(super) fn note_away(&self, is_away: bool) {
        self.state().is_away = is_away;
    }

    /// This daemon made work.
    pub(super) fn tell_work(&self) {
        self.work.notify_one();
    }

    /// The store's leases, or its queue, are not what the StorageActor knows.
    pub(super) fn tell_change(&self, change: Changed) {
        let mut state = self.state();
        state.changed = state.changed.max(Some(change));
        if let Some(waker) = state.waker.take() {
            waker.wake();
        }
    }

    pub(super) fn poll_changed(&self, task: &Context<'_>) -> Poll<Changed> {
        let mut state = self.state();
        if let Some(changed) = state.changed.take() {
            return Poll::Ready(changed);
        }
        state.waker = Some(task.waker().clone());
        Poll::Pending
    }

    pub(super) fn listens(&self) {
        self.state().listens = true;
        self.tell_change(Changed::Queue);
        self.tell_work();
    }

    pub(super) fn hears_nothing(&self) {
        self.state().listens = false;
    }

    /// A notice of work came, with its sender's number: another daemon's, or this one's own.
    pub(super) fn hear(&self, sender: &str) {
        if sender != self.joined().0.to_string() {
            self.tell_change(Changed::Queue);
        }
    }

    /// How long workers may wait without a look.
    pub(super) fn look_every(&self) -> Duration {
        let listens = self.state().listens;
        if listens { shortened(self.polls.notified) } else { self.polls.alone }
    }

    /// The daemon is to end with this, or to wait until it is over.
    pub(super) fn fail(&self, error: &StoreError) {
        self.state().failure = Some(error.clone());
    }

    /// Another daemon no longer acts: wakes the store, which takes care of its jobs.
    pub(super) fn note_dead(&self, dead: Peer) {
        let mut state = self.state();
        if !state.dead.contains(&dead) {
            state.dead.push(dead);
        }
        drop(state);
        self.tell_change(Changed::Leases);
    }

    pub(super) fn take_dead(&self) -> Vec<Peer> {
        std::mem::take(&mut self.state().dead)
    }

    pub(super) fn note_clock_set(&self) {
        self.state().was_clock_set = true;
        self.tell_change(Changed::Queue);
    }

    pub(super) fn was_clock_set(&self) -> bool {
        std::mem::take(&mut self.state().was_clock_set)
    }

    /// Operators give their order to any daemon; all daemons log it.
    pub(super) fn note_pause(&self, is_paused: bool) {
        match (self.state().is_paused.replace(is_paused), is_paused) {
            (Some(false), true) => info!("The queue is paused: nothing is handed out."),
            (Some(true), false) => info!("The queue is not paused any more."),
            _ => {}
        }
    }

    /// The connection for this daemon's beats failed. If the server is away, the StorageActor reports that.
    pub(super) fn note_silence(&self, error: &StoreError) {
        let mut state = self.state();
        if state.is_away {
            return;
        }
        state.failed = state.failed.saturating_add(1);
        if state.failed == WARN_AT {
            warn!(%error, "The server cannot be told that this daemon is alive: other daemons will take its jobs.");
        }
    }

    /// This daemon's counter on the server is at least this.
    pub(super) fn note_heard(&self, beat: i64) {
        let mut state = self.state();
        state.beat = beat;
        if std::mem::take(&mut state.failed) >= WARN_AT {
            info!("The server hears again that this daemon is alive.");
        }
    }

    /// All is done again that the companion does.
    pub(super) fn may_go_on(&self) {
        let denied = self.state().failure.take_if(|failure| !failure.is_fatal());
        if denied.is_some() {
            self.tell_change(Changed::Leases);
        }
    }

    /// The error with which the daemon ends, or which it waits out.
    pub(super) fn failure(&self) -> StoreResult<()> {
        self.state().failure.clone().map_or(Ok(()), Err)
    }

    pub(super) fn lose(&self, epoch: i64) {
        let mut state = self.state();
        if state.joined.1 == epoch {
            state.is_lost = true;
            drop(state);
            // The StorageActor asks for its leases, and so has the store join anew.
            self.tell_change(Changed::Leases);
        }
    }
}
