//! Writing sums of what ended: changes are added to this daemon's part.

use shiftboss_queue::sums::{OVER_STEP, Oldest, Sums};

use crate::header::whole;
use crate::wire::{Ask, ask, columns, put};

const ADD_HOURS: &str = concat!(
    "INSERT INTO hours AS h (hour, fetcher, outcome, daemon, jobs, took_ms, revisits, revisit_seconds)
    SELECT * FROM unnest($1::int8[], $2::int8[], $3::text[], $4::int8[], $5::int8[], $6::int8[], $7::int8[], $8::int8[])
    ON CONFLICT (hour, fetcher, outcome, daemon) DO UPDATE SET jobs = ",
    whole!("h.jobs::numeric + excluded.jobs"),
    ", took_ms = ",
    whole!("h.took_ms::numeric + excluded.took_ms"),
    ", revisits = ",
    whole!("h.revisits::numeric + excluded.revisits"),
    ", revisit_seconds = ",
    whole!("h.revisit_seconds::numeric + excluded.revisit_seconds")
);
columns! { Hours {
    hour: i64, fetcher: i64, outcome: String, daemon: i64, jobs: i64, took_ms: i64, revisits: i64, revisit_seconds: i64,
}}
const ADD_MINUTES: &str = concat!(
    "INSERT INTO minutes AS m (minute, exit_code, daemon, jobs)
    SELECT * FROM unnest($1::int8[], $2::int8[], $3::int8[], $4::int8[])
    ON CONFLICT (minute, exit_code, daemon) DO UPDATE SET jobs = ",
    whole!("m.jobs::numeric + excluded.jobs")
);
columns! { Minutes { minute: i64, exit_code: i64, daemon: i64, jobs: i64 }}

/// A limited number: there may be millions, and this batch's requesters wait.
const DROP_TASKS: &str =
    "DELETE FROM tasks WHERE number IN (SELECT number FROM tasks WHERE over < $1 LIMIT $2::int8)";

pub(crate) fn add(sums: &Sums, daemon: i64) -> impl Iterator<Item = Ask> {
    let (mut hours, mut minutes) = (Hours::default(), Minutes::default());
    for ((hour, fetcher, outcome), it) in &sums.hours {
        put! {
            hours; hour: *hour, fetcher: fetcher.0, outcome: outcome.word().to_owned(), daemon: daemon, jobs: it.jobs,
            took_ms: it.took_ms, revisits: it.revisits, revisit_seconds: it.revisit_seconds,
        }
    }
    for ((minute, exit_code), jobs) in &sums.minutes {
        put! { minutes; minute: *minute, exit_code: *exit_code, daemon: daemon, jobs: *jobs }
    }
    hours.ask(ADD_HOURS).into_iter().chain(minutes.ask(ADD_MINUTES))
}

/// Deletes old sums, and old single tasks that are over.
pub(crate) fn drop_older(oldest: Oldest) -> [Ask; 3] {
    [
        ask!("DELETE FROM hours WHERE hour < $1", oldest.hour),
        ask!("DELETE FROM minutes WHERE minute < $1", oldest.minute),
        ask!(DROP_TASKS, oldest.over, OVER_STEP),
    ]
}
