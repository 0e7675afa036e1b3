//! Sums of what ended, as they are written: changes are added up, each daemon's for itself.

use shiftboss_queue::sums::{Oldest, Sums};

use crate::wire::{Ask, ask};

/// A sum that does not fit is the largest that does, or the smallest.
macro_rules! sum {
    ($of:literal) => {
        concat!(
            $of,
            " = least(greatest(s.",
            $of,
            "::numeric + excluded.",
            $of,
            ", -9223372036854775808), 9223372036854775807)::int8"
        )
    };
}
const ADD_HOUR: &str = concat!(
    "INSERT INTO hours AS s (hour, fetcher, outcome, daemon, jobs, took_ms, revisits, revisit_seconds)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT (hour, fetcher, outcome, daemon) DO UPDATE SET ",
    sum!("jobs"),
    ", ",
    sum!("took_ms"),
    ", ",
    sum!("revisits"),
    ", ",
    sum!("revisit_seconds")
);
const ADD_MINUTE: &str = concat!(
    "INSERT INTO minutes AS s (minute, exit_code, daemon, jobs) VALUES ($1, $2, $3, $4)
    ON CONFLICT (minute, exit_code, daemon) DO UPDATE SET ",
    sum!("jobs")
);

pub(crate) fn add(sums: &Sums, daemon: i64) -> Vec<Ask> {
    let hours = sums.hours.iter().map(|((hour, fetcher, outcome), it)| {
        let word = outcome.word();
        let (jobs, took) = (it.jobs, it.took_ms);
        ask!(ADD_HOUR, *hour, fetcher.0, word, daemon, jobs, took, it.revisits, it.revisit_seconds)
    });
    let minutes = sums.minutes.iter();
    let minutes =
        minutes.map(|((minute, code), jobs)| ask!(ADD_MINUTE, *minute, *code, daemon, *jobs));
    hours.chain(minutes).collect()
}

pub(crate) fn drop_older(oldest: Oldest) -> [Ask; 2] {
    [
        ask!("DELETE FROM hours WHERE hour < $1", oldest.hour),
        ask!("DELETE FROM minutes WHERE minute < $1", oldest.minute),
    ]
}
