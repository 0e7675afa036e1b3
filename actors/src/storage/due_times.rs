//! Holds and delays end when their time has come; if the wall clock is set meanwhile they keep their length.
//!
//! Part of the StorageActor, which has the store [follow](crate::store::Store::follow_clock) the clock. It moves nothing itself.

use std::time::Duration;

use actix::prelude::*;
use shiftboss_protocol::model::UnixSeconds;
use tracing::warn;

use super::StorageActor;
use shiftboss_queue::error::StoreResult;
use shiftboss_queue::operation::{EndHolds, NextHoldEnd};

/// Most steps in which one look ends holds and delays: some thousands of keys in all.
const ENDS_AT_A_LOOK: u32 = 20;

/// Both clocks are read in whole seconds: they differ by one now and then.
const STEP_SECONDS: u64 = 2;

/// Compares the wall clock with the time that passes.
#[derive(Debug, Default)]
pub(super) struct ClockSteps {
    /// What the wall clock would have shown when the machine was started; `None`: the store has followed nothing yet.
    origin: Option<UnixSeconds>,
}

/// A change of the clock that the store must follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ClockStep {
    /// By how many seconds the clock was set; 0: the daemon has just started.
    pub by: i64,
    origin: UnixSeconds,
}

impl ClockSteps {
    /// The step that the store has not followed yet.
    pub fn look(&self, now: UnixSeconds, boot_time: Duration) -> Option<ClockStep> {
        let since_boot = i64::try_from(boot_time.as_secs()).unwrap_or(i64::MAX);
        let origin = now.saturating_sub(since_boot);
        let by = self.origin.map(|known| origin.saturating_sub(known));
        let is_step = by.is_none_or(|by| by.unsigned_abs() >= STEP_SECONDS);
        is_step.then(|| ClockStep { by: by.unwrap_or(0), origin })
    }

    /// The store has followed.
    pub fn followed(&mut self, step: ClockStep) {
        self.origin = Some(step.origin);
    }
}

impl StorageActor {
    /// Returns keys whose hold is over to the order, and tasks that are due to waiting; a few at a time, so that
    /// requests get in between. What cannot be written is tried again at the next look.
    pub(super) fn end_holds(&mut self, ctx: &mut Context<Self>) {
        // The store follows the clock with the next batch that writes, so this submits one.
        if self.clock_step().is_some() {
            return self.submit(ctx, EndHolds, |_, _, _| {});
        }
        self.end_some_holds(ctx, ENDS_AT_A_LOOK);
    }

    /// The step to follow.
    pub(super) fn clock_step(&self) -> Option<ClockStep> {
        self.clock_steps.look(self.clock.now(), self.clock.boot_time())
    }

    fn end_some_holds(&mut self, ctx: &mut Context<Self>, times: u32) {
        self.submit(ctx, NextHoldEnd, move |actor, ctx, next| {
            if next == Ok(Some(0)) && times > 0 {
                actor.submit(ctx, EndHolds, move |actor, ctx, ended| {
                    if ended.is_ok() {
                        actor.end_some_holds(ctx, times - 1);
                    }
                });
            }
        });
    }

    /// A step that the store could not follow is tried again with the next batch.
    pub(super) fn note_step(
        &mut self,
        ctx: &mut Context<Self>,
        step: ClockStep,
        followed: StoreResult<()>,
    ) {
        match followed {
            Ok(()) => {
                self.clock_steps.followed(step);
                if step.by != 0 {
                    let seconds = step.by;
                    warn!(seconds, "The clock was set. Retries and holds keep their delays.");
                    self.leases.note_clock_step();
                    self.begin_missing_leases(ctx);
                }
            }
            Err(error) => self.note(&error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sleep and rounding are no steps, and no step is lost if the store could not follow it.
    #[test]
    fn only_steps_are_noticed_until_they_are_followed() {
        let mut steps = ClockSteps::default();
        let look = |steps: &ClockSteps, now, passed| {
            steps.look(now, Duration::from_secs(passed)).map(|step| step.by)
        };
        assert_eq!(look(&steps, 1_000, 0), Some(0));
        steps.followed(steps.look(1_000, Duration::ZERO).unwrap());
        assert_eq!([look(&steps, 1_001, 0), look(&steps, 5_000, 4_001)], [None, None]);
        assert_eq!([look(&steps, 500, 100), look(&steps, 510, 110)], [Some(-600), Some(-600)]);
        steps.followed(steps.look(510, Duration::from_secs(110)).unwrap());
        assert_eq!([look(&steps, 520, 120), look(&steps, 1_130, 130)], [None, Some(600)]);
    }
}
