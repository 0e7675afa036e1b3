//! The state of a key's tasks, for readers, derived from its record. The [rules](crate::rules) decide what may be done
//! with them.

use shiftboss_protocol::model::UnixSeconds;

use crate::context::Context;
use crate::policy::failed_so_often;
use crate::record::{DeadBecause, Due, Extras, ListRow, Millis, Record, Retry, Task, seconds};
use shiftboss_protocol::answers::{Hold, HoldKind, RowState};

impl Record {
    /// Why a row is a dead letter, or a single task that is one for a reason other than its leases.
    pub fn dead_because(&self, task: Task) -> Option<DeadBecause> {
        self.extras.dead.iter().find(|it| it.0 == task).map(|it| it.1)
    }

    pub fn is_out(&self, task: Task) -> bool {
        self.flight.as_ref().is_some_and(|flight| flight.task == task)
    }

    /// Until when the key counts as out without a lease of its own: with a classic worker, or with another program that
    /// started it (spec 2).
    pub fn classic_until(&self, context: &Context) -> Option<UnixSeconds> {
        self.last.filter(|last| last.finished.is_none())?;
        let is_classic = match &self.flight {
            _ if !context.settings.is_fair => true,
            Some(flight) => flight.holder.is_none(),
            None => self.is_claimed,
        };
        let started = self.stands_at()?.min(context.seconds());
        let until = started.saturating_add(context.settings.lease_seconds).saturating_add(1);
        is_classic.then_some(until)
    }

    /// Whether it is out, so that it is not handed out.
    pub fn is_in_flight(&self, context: &Context) -> bool {
        let by_event = context.settings.is_fair && self.flight.is_some();
        by_event || self.classic_until(context).is_some_and(|until| until > context.seconds())
    }

    /// Since when it has been out; also if its end was never recorded.
    pub fn out_since(&self) -> Option<UnixSeconds> {
        let last = self.last.filter(|last| last.finished.is_none()).map(|last| last.started);
        self.flight.as_ref().map(|flight| seconds(flight.started)).or(last)
    }

    /// The state of a row for the next dispatch.
    pub fn row_state(&self, row: &ListRow, context: &Context) -> RowState {
        if context.is_going(row.task()) {
            RowState::Leaving
        } else if !self.newest_rows().any(|newest| newest.task() == row.task()) {
            RowState::Hidden
        } else if self.is_out(row.task()) {
            RowState::InFlight
        } else if self.is_armed(row) {
            RowState::Waiting
        } else if self.delay_of(row.task()).is_some() {
            RowState::Delayed
        } else if self.dead_because(row.task()).is_some() {
            RowState::DeadLetter
        } else if self.has_failed(row) {
            RowState::Failed
        } else {
            RowState::Dispatched
        }
    }

    /// Whether its fetcher was served with an attempt that failed, and it is not due by itself.
    pub fn has_failed(&self, row: &ListRow) -> bool {
        let task = row.task();
        let is_out = self.flight.as_ref().is_some_and(|it| it.task.fetcher() == row.fetcher);
        let is_over = !self.is_armed(row) && !is_out && self.delay_of(task).is_none();
        self.failed.contains(&row.fetcher) && is_over && self.dead_because(task).is_none()
    }

    /// When the key's last attempt ended, or began, if it has a row that failed.
    pub fn failed_at(&self) -> Option<UnixSeconds> {
        let has_failed =
            !self.failed.is_empty() && self.newest_rows().any(|row| self.has_failed(row));
        self.last.filter(|_| has_failed).map(|last| last.finished.unwrap_or(last.started))
    }

    pub fn delay_of(&self, task: Task) -> Option<&Retry> {
        self.extras.retries.iter().find(|it| it.task == task && it.due.is_some())
    }

    pub fn first_delay(&self) -> Option<Due> {
        self.extras.retries.iter().filter_map(|it| it.due).min_by_key(|due| due.at)
    }

    pub fn listed(&self) -> Listed {
        let Extras { hold, backoff, dead, .. } = &self.extras;
        Listed {
            held: hold.as_ref().map(|it| it.since),
            backed_off: backoff.and_then(|it| it.until).map(Due::begun),
            delayed: self.first_delay().map(|it| it.at),
            dead: dead.iter().any(|it| matches!(it.0, Task::Row { .. })),
        }
    }

    /// What holds the key: an operator, or else a backoff.
    pub fn hold(&self, context: &Context) -> Option<Hold> {
        let by_operator = self.extras.hold.as_ref().map(|it| Hold {
            kind: HoldKind::Hold,
            since: it.since,
            until: it.until.map(|due| seconds(context.followed(due).at)),
            reason: it.reason.clone(),
            by: it.by.to_string(),
        });
        by_operator.or_else(|| self.backoff(context))
    }

    pub fn backoff(&self, context: &Context) -> Option<Hold> {
        let backoff = self.extras.backoff?;
        let due = context.followed(backoff.until?);
        Some(Hold {
            kind: HoldKind::Backoff,
            since: seconds(due.begun()),
            until: Some(seconds(due.at)),
            reason: failed_so_often(backoff.failures.into()),
            by: "backoff".to_owned(),
        })
    }
}

/// Values that stores keep beside the extras that they are derived from, so that readers find them in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Listed {
    pub held: Option<UnixSeconds>,
    pub backed_off: Option<Millis>,
    pub delayed: Option<Millis>,
    pub dead: bool,
}

impl Due {
    pub fn begun(self) -> Millis {
        self.at.saturating_sub(self.delay)
    }
}
