//! Steps of the wall clock. Runs are due by the monotonic clock, and noted in the wall clock's time: when that is
//! set, what is noted is wrong by as much until it is noted anew. Part of the FetchersActor.

use std::time::Duration;

use actix::prelude::*;
use shiftboss_actors::clock::Clock;
use tokio::time::Instant;

use super::FetchersActor;

/// How often the clocks are held against each other.
pub(super) const LOOK_AT_CLOCK: Duration = Duration::from_secs(1);
/// Both clocks are read in whole seconds: they differ by one now and then.
const STEP_SECONDS: u64 = 2;

/// The wall clock against the monotonic one.
pub(super) struct Steps {
    origin: Instant,
    /// What the wall clock showed at the origin, as far as is known now.
    wall: i64,
}

impl Steps {
    pub fn from(clock: &dyn Clock) -> Self {
        Self { origin: Instant::now(), wall: clock.now() }
    }

    /// By how many seconds the wall clock was set since it was last asked.
    fn step(&mut self, clock: &dyn Clock) -> i64 {
        let since = i64::try_from(self.origin.elapsed().as_secs()).unwrap_or(i64::MAX);
        let step = clock.now().saturating_sub(self.wall.saturating_add(since));
        if step.unsigned_abs() < STEP_SECONDS {
            return 0;
        }
        self.wall = self.wall.saturating_add(step);
        step
    }
}

impl FetchersActor {
    /// The wall clock was set: notes what is planned in the new time.
    pub(super) fn follow_clock(&mut self, ctx: &mut Context<Self>) {
        let step = self.steps.step(&*self.parts.clock);
        if step == 0 || self.is_stopping {
            return;
        }
        for slot in self.slots.values_mut() {
            slot.clock = slot.clock.map(|(timer, at)| (timer, at.saturating_add(step)));
        }
        for record in self.records.values_mut() {
            record.next_run = record.next_run.map(|at| at.saturating_add(step));
        }
        for name in self.slots.keys().cloned().collect::<Vec<_>>() {
            self.save(&name, ctx);
        }
    }
}
