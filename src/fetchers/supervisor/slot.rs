//! A fetcher's slot: what is wanted of it, what runs of it, and its clock. The supervisor's own.

use std::time::Duration;

use actix::prelude::*;
use shiftboss_protocol::model::UnixSeconds;

use super::super::child::Child;
use super::FetchersActor;
use crate::config::FetcherTable;

/// From a death to the start of the next child, at first; it doubles.
const RESTART_FIRST: Duration = Duration::from_secs(1);
/// The longest such time.
const RESTART_MAX: Duration = Duration::from_secs(60);

/// See the module.
#[derive(Default)]
pub(super) struct Slot {
    /// What is to run; `None`: nothing any more.
    pub wanted: Option<FetcherTable>,
    /// What runs.
    pub child: Option<Child>,
    /// It is replaced by one that was said anew.
    pub is_changed: bool,
    /// A run is on.
    pub is_running: bool,
    /// It was told to end.
    pub is_ending: bool,
    /// What makes the next run due by the clock, and when, in seconds since 1970.
    pub clock: Option<(SpawnHandle, UnixSeconds)>,
    /// Something of it is not noted yet, and will be.
    pub is_unsaved: bool,
    /// Deaths since a run ended last.
    pub deaths: u32,
}

impl Slot {
    /// Tells its child to end, once.
    pub fn end(&mut self, ctx: &mut Context<FetchersActor>) {
        self.stop_clock(ctx);
        if let Some(child) = self.child.as_ref().filter(|_| !self.is_ending) {
            child.end();
            self.is_ending = true;
        }
    }

    /// Its child is gone.
    pub fn clear(&mut self, ctx: &mut Context<FetchersActor>) {
        self.stop_clock(ctx);
        (self.child, self.is_ending, self.is_running) = (None, false, false);
    }

    /// When the clock wants the next run.
    pub fn due_at(&self) -> Option<UnixSeconds> {
        self.clock.map(|(_, at)| at)
    }

    /// How long to wait after one more death.
    pub fn restart_delay(&mut self) -> Duration {
        let doubled = 1_u32.checked_shl(self.deaths).unwrap_or(u32::MAX);
        self.deaths = self.deaths.saturating_add(1);
        RESTART_FIRST.saturating_mul(doubled).min(RESTART_MAX)
    }

    /// Nothing is due by the clock any more.
    pub fn stop_clock(&mut self, ctx: &mut Context<FetchersActor>) {
        if let Some((timer, _)) = self.clock.take() {
            ctx.cancel_future(timer);
        }
    }
}
