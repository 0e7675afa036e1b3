//! Handing out a key's task (spec 2, 5), and taking a hand-out back as if it had not happened.

use shiftboss_protocol::model::{Attempt, LeaseHolder};

use super::singles;
use crate::attempt::{EndedAttempt, Outcome};
use crate::context::Context;
use crate::record::{Before, FetcherId, Flight, LastRun, ListRow, Record, Task};

/// Which fetchers' tasks a worker takes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Scope {
    #[default]
    All,
    Fetchers(Vec<FetcherId>),
}

impl Scope {
    pub fn has(&self, fetcher: FetcherId) -> bool {
        match self {
            Self::All => true,
            Self::Fetchers(fetchers) => fetchers.contains(&fetcher),
        }
    }
}

/// Whose task is handed out when the key's turn comes. Fetchers take turns: first goes the one that was served longest
/// ago, or never. With `--classic` it is the lower fetcher.
pub fn next_fetcher(record: &Record, scope: &Scope, context: &Context) -> Option<FetcherId> {
    let waits = |row: &&ListRow| record.is_armed(row) && !context.is_going(row.task());
    let rows = record.newest_rows().filter(waits).map(|row| row.fetcher);
    let single = (record.singles.waiting > 0).then_some(FetcherId::TASKS);
    let is_held = |it: &FetcherId| context.hold_rule(&record.key, *it).is_some();
    let may = |it: &FetcherId| scope.has(*it) && context.is_handed_out(*it) && !is_held(it);
    let turn = |it: &FetcherId| match context.settings.is_fair {
        true => (record.served(*it), *it),
        false => (Attempt(0), *it),
    };
    rows.chain(single).filter(may).min_by_key(turn)
}

/// The task that is handed out then. If the record is not [whole](Record::is_whole), a single task is missing.
pub fn next_task(record: &Record, scope: &Scope, context: &Context) -> Option<Task> {
    match next_fetcher(record, scope, context)? {
        FetcherId::TASKS => record.singles.first.map(|number| Task::Single { number }),
        fetcher => record.newest_rows().find(|row| row.fetcher == fetcher).map(ListRow::task),
    }
}

/// Hands out a task of the key under `attempt`, which serves all rows of its fetcher.
pub fn dispatch(
    record: &mut Record,
    task: Task,
    attempt: Attempt,
    holder: Option<LeaseHolder>,
    context: &Context,
) {
    let before = Before {
        last: record.last,
        served: record.served.insert(task.fetcher(), attempt),
        bump: record.extras.bump.take(),
        ahead: record.extras.ahead.take(),
        group: record.group_of(task.fetcher()),
        clock: context.clock,
    };
    // With `--classic` a key that was out for too long is handed out again: its single task waits for the fair rules.
    if let Some(Flight { task: Task::Single { number }, .. }) = record.flight {
        singles::comes_back(record, number);
    }
    if let Task::Single { number } = task {
        singles::goes_out(record, number);
    }
    record.set_last(LastRun { started: context.seconds(), finished: None, exit_code: None });
    record.is_claimed = false;
    record.flight =
        Some(Flight { attempt, task, holder, started: context.now, owner: None, before });
}

/// Gives back the attempt that is out: order, turns and lane are as before it.
pub fn take_back(record: &mut Record, outcome: Outcome, context: &Context) -> Option<EndedAttempt> {
    let flight = record.flight.take()?;
    let attempt = flight.ended(record, outcome, None, context.now);
    restore(record, &flight);
    // A hand-out that never arrived does not count: a result of the attempt before it may still be accepted.
    if outcome != Outcome::Undone {
        record.last_attempt = flight.attempt;
    }
    Some(attempt)
}

/// Whether the last start is that of the attempt that is out, and was not edited since.
pub fn is_its_start(record: &Record) -> bool {
    record.flight.as_ref().is_some_and(|flight| is_start_of(record, flight))
}

fn is_start_of(record: &Record, flight: &Flight) -> bool {
    let is_its = |last: LastRun| last.started == flight.started.div_euclid(1_000);
    record.last.is_some_and(|last| last.finished.is_none() && is_its(last))
}

/// Restores what a hand-out changed. A start that was edited meanwhile stays.
pub(super) fn restore(record: &mut Record, flight: &Flight) {
    let Flight { task, before, .. } = flight;
    if is_start_of(record, flight) {
        (record.last, record.extras.ahead) = (before.last, before.ahead);
    }
    match before.served {
        Some(served) => record.served.insert(task.fetcher(), served),
        None => record.served.remove(&task.fetcher()),
    };
    if record.extras.bump.is_none() {
        record.extras.bump.clone_from(&before.bump);
    }
    if let Task::Single { number } = *task {
        singles::comes_back(record, number);
    }
}
