//! `shiftboss status`, `why`, `tasks`, `search`, `log` and `metrics`: each looks at a queue, with a daemon or
//! without, and shows what it found.

mod log;
mod status;

use std::io::{self, Write};

use serde::Serialize;
use shiftboss_actors::clock::{Clock, SystemClock};
use shiftboss_queue::answers::{Found, HeldKeys, Queue, QueueStatus, Stats, Tasks};
use shiftboss_queue::reader::{
    EndedAttempts, Grouping, KEYS_BEFORE_MAX, ReadResult, Reader, StatsOf, TasksWith,
};

use super::printing::print;
use crate::cli::{View, ViewArguments};
use crate::exit::Failure;
use crate::metrics::Scrape;
use crate::stores::Database;
use crate::target::{Target, ask, line};
use crate::text::{counted, time};
use crate::view::health::Up;
use crate::view::listings::{self, HeldSet};
use crate::view::turns::Turns;
use crate::view::why;

const HOUR_SECONDS: u64 = 3_600;

/// How many tasks, and next keys, where no number is given.
const COUNT: u16 = 100;
const NEXT_COUNT: u16 = 20;

pub fn run(asked: View) -> Result<(), Failure> {
    match asked {
        View::Status { arguments, check } => status::run(arguments, check),
        View::Why { arguments, key } => {
            let known = |found: Option<_>| found.ok_or_else(|| why::unheard_of(&key));
            look(
                arguments,
                |reader, now| reader.why(now, &key, KEYS_BEFORE_MAX),
                known,
                why::render,
            )
        }
        View::Tasks { arguments, next: true, number, .. } => {
            queue(arguments, number.unwrap_or(NEXT_COUNT).into())
        }
        View::Tasks { arguments, held: true, number, .. } => {
            let count = number.unwrap_or(COUNT).into();
            look(arguments, |reader, _| reader.held(count), Ok, held)
        }
        View::Tasks { arguments, status, fetcher, number, .. } => {
            let count = number.unwrap_or(COUNT).into();
            let asked = TasksWith { status, fetcher, since: None, count };
            look(arguments, |reader, now| reader.tasks(now, &asked), Ok, tasks)
        }
        View::Search { arguments, text, number } => {
            let count = number.into();
            look(arguments, |reader, _| reader.search(&text, count), Ok, found)
        }
        View::Log { arguments, sum: true, time, by, .. } => {
            let by = by.unwrap_or(Grouping::All);
            let sums = |reader: &dyn Reader, now| reader.stats(&StatsOf::last(time, by, now));
            look(arguments, sums, Ok, stats)
        }
        View::Log { arguments, failed, follow: true, after, .. } => {
            log::follow(arguments, failed, after)
        }
        View::Log { arguments, failed, since, log_dir, key, number, .. } => {
            let outcomes = if failed { EndedAttempts::FAILED.to_vec() } else { Vec::new() };
            let count = number.into();
            let asked = EndedAttempts { outcomes, since, key, count, ..EndedAttempts::default() };
            let with_outputs = |found| Ok(log::with_outputs(found, log_dir.as_deref()));
            look(arguments, |reader, _| reader.ended_attempts(&asked), with_outputs, log::render)
        }
        View::Metrics { target } => print(Scrape::take(target.find()?)?.text()),
    }
}

/// Asks, and shows what `then` makes of the answer: as JSON, or as the text that `render` makes of it at a time.
fn look<A, T: Serialize>(
    ViewArguments { target, json }: ViewArguments,
    question: impl FnOnce(&dyn Reader, i64) -> ReadResult<A>,
    then: impl FnOnce(A) -> Result<T, Failure>,
    render: impl FnOnce(&T, i64) -> String,
) -> Result<(), Failure> {
    let target = target.find()?;
    let now = SystemClock.now();
    let found = then(ask(&target.database, question)?)?;
    if !json {
        warn_if_down(&target);
    }
    show(&target, &found, json, |found| render(found, now))
}

/// The next jobs, and when the turn of each is expected.
fn queue(ViewArguments { target, json }: ViewArguments, count: usize) -> Result<(), Failure> {
    let target = target.find()?;
    let now = SystemClock.now();
    let question = |reader: &dyn Reader, now| {
        reader.next_jobs(now, count).and_then(|found| Ok((found, reader.status(now)?)))
    };
    let (found, status) = ask(&target.database, question)?;
    if !json {
        warn_if_down(&target);
    }
    let turns = Turns::of(&status, Up::of(&target, &status) == Up::Down);
    show(&target, &found, json, |found| render_queue(found, &turns, now))
}

/// Prints what was found: the JSON object, or the text that `render` makes of it.
fn show<T: Serialize>(
    target: &Target,
    found: &T,
    json: bool,
    render: impl FnOnce(&T) -> String,
) -> Result<(), Failure> {
    if !json {
        return print(render(found));
    }
    print(target.json(found)?)
}

fn render_queue(queue: &Queue, turns: &Turns, now: i64) -> String {
    let paused = match queue.paused {
        true => format!("Paused: nothing is handed out until {}.\n", line("resume")),
        false => String::new(),
    };
    let more = match queue.truncated {
        true => "There are more: their payloads are too long to be listed at once.\n",
        false => "",
    };
    format!("{paused}{}{more}", listings::next(queue, turns, now).render_or_none())
}

/// What is said below a listing that has more.
fn more(is_truncated: bool) -> &'static str {
    if is_truncated { "There are more: give a larger -n.\n" } else { "" }
}

fn tasks(found: &Tasks, now: i64) -> String {
    listings::tasks(found, &HeldSet::new(), now).render_or_none() + more(found.truncated)
}

fn held(found: &HeldKeys, now: i64) -> String {
    listings::held(found, now).render_or_none() + more(found.truncated)
}

fn found(found: &Found, now: i64) -> String {
    listings::found(found, now).render_or_none() + more(found.truncated)
}

fn stats(stats: &Stats, now: i64) -> String {
    let hours = now.saturating_sub(stats.since).max(0).cast_unsigned().div_ceil(HOUR_SECONDS);
    let since = format!("Since {} UTC ({}):\n", time(stats.since), counted(hours, "hour"));
    let more = if stats.truncated { "There are more: ask for a shorter time.\n" } else { "" };
    since + &listings::stats(stats).render_or_none() + more
}

/// Says on standard error that nobody changes what is shown; the JSON object tells it itself. A queue on a server may
/// have other daemons.
fn warn_if_down(target: &Target) {
    let database = &target.database;
    let why = match Up::of(target, &QueueStatus::default()) {
        Up::Down if matches!(database, Database::File(_)) => {
            format!("no daemon runs on {database}")
        }
        Up::Unknown(why) => format!("whether a daemon runs on {database} is not known: {why}"),
        _ => return,
    };
    // Nobody may be reading.
    let _ = writeln!(io::stderr(), "shiftboss: {why}; this is what is in the file");
}
