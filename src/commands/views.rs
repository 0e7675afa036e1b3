//! `shiftboss status`, `why`, `tasks`, `search`, `log` and `metrics`: each looks at a queue, with a daemon or
//! without, and shows what it found.

mod log;
mod status;

use std::io::{self, Write};

use serde::Serialize;
use shiftboss_actors::clock::{Clock, SystemClock};
use shiftboss_protocol::answers::QueueStatus;
use shiftboss_queue::reader::{
    EndedAttempts, Grouping, KEYS_BEFORE_MAX, ReadResult, Reader, StatsOf, TasksWith,
};

use super::printing::print;
use crate::cli::{View, ViewArguments};
use crate::exit::Failure;
use crate::metrics::Scrape;
use crate::stores::Database;
use crate::target::{Target, ask};
use crate::text::{counted, time};
use crate::view::health::Up;
use crate::view::key;
use crate::view::listings::HeldSet;
use crate::view::question::{Listed, Question, Turns, require_fetcher, require_group};
use crate::view::status::{held_as_whole, paused};

const HOUR_SECONDS: u64 = 3_600;

/// How many tasks, and next keys, where no number is given.
const COUNT: u16 = 100;
const NEXT_COUNT: u16 = 20;

pub fn run(asked: View) -> Result<(), Failure> {
    match asked {
        View::Status { arguments, check } => status::run(arguments, check),
        View::Why { arguments, key } => {
            let known = |found: Option<_>| found.ok_or_else(|| key::unheard_of(&key));
            let question = |target: &Target, reader: &dyn Reader, now| {
                let up = Up::of(target, &reader.status(now)?);
                key::find(reader, up, &key, KEYS_BEFORE_MAX, now)
            };
            look(arguments, question, known, key::render)
        }
        View::Tasks { arguments, next: true, number, .. } => {
            list(arguments, &Question::Next(number.unwrap_or(NEXT_COUNT).into()))
        }
        View::Tasks { arguments, held: true, number, .. } => {
            list(arguments, &Question::Held(number.unwrap_or(COUNT).into()))
        }
        View::Tasks { arguments, status, fetcher, group, number, .. } => {
            let count = number.unwrap_or(COUNT).into();
            let asked = TasksWith { status, fetcher, group, since: None, count };
            list(arguments, &Question::Tasks(asked))
        }
        View::Groups { arguments, number } => list(arguments, &Question::Groups(number.into())),
        View::Search { arguments, text, number } => {
            list(arguments, &Question::Keys(text, number.into()))
        }
        View::Log { arguments, sum: true, time, by, .. } => {
            let by = by.unwrap_or(Grouping::All);
            list(arguments, &Question::Sums(StatsOf::last(time, by, SystemClock.now())))
        }
        View::Log { arguments, failed, follow: true, after, .. } => {
            log::follow(arguments, failed, after)
        }
        View::Log { arguments, failed, since, log_dir, key, fetcher, number, .. } => {
            let outcomes = if failed { EndedAttempts::FAILED.to_vec() } else { Vec::new() };
            let count = number.into();
            let asked =
                EndedAttempts { outcomes, since, key, fetcher, count, ..EndedAttempts::default() };
            let with_outputs = |found: Result<_, Failure>| {
                found.map(|found| log::with_outputs(found, log_dir.as_deref()))
            };
            let render = |log: &_, now| log::render(log, count, now);
            let question = |_: &Target, reader: &dyn Reader, _| {
                let known = match &asked.fetcher {
                    Some(name) => require_fetcher(reader, name)?,
                    None => Ok(()),
                };
                Ok(known.and(Ok(reader.ended_attempts(&asked)?)))
            };
            look(arguments, question, with_outputs, render)
        }
        View::Metrics { target } => print(Scrape::take(target.find()?)?.text()),
    }
}

/// Asks, and shows what `then` makes of the answer: as JSON, or as the text that `render` makes of it at a time.
fn look<A, T: Serialize>(
    ViewArguments { target, json }: ViewArguments,
    question: impl FnOnce(&Target, &dyn Reader, i64) -> ReadResult<A>,
    then: impl FnOnce(A) -> Result<T, Failure>,
    render: impl FnOnce(&T, i64) -> String,
) -> Result<(), Failure> {
    let target = target.find()?;
    let now = SystemClock.now();
    let found = ask(&target.database, |reader, now| question(&target, reader, now))?;
    let found = then(found)?;
    if json {
        return print(target.json(&found)?);
    }
    warn_if_down(&target);
    print(render(&found, now))
}

fn list(ViewArguments { target, json }: ViewArguments, asked: &Question) -> Result<(), Failure> {
    let target = target.find()?;
    let now = SystemClock.now();
    if let Question::Tasks(TasksWith { fetcher, group, .. }) = asked {
        if let Some(name) = fetcher {
            ask(&target.database, |reader, _| require_fetcher(reader, name))??;
        }
        if let Some(name) = group {
            ask(&target.database, |reader, _| require_group(reader, name))??;
        }
    }
    let (found, queue) = ask(&target.database, |reader, now| {
        let found = asked.ask(reader, now)?;
        let queue = match asked {
            Question::Next(_) | Question::Held(_) => reader.status(now)?,
            _ => QueueStatus::default(),
        };
        Ok((found, queue))
    })?;
    if json {
        return print(target.json(&found)?);
    }
    warn_if_down(&target);
    let before = match &found {
        Listed::Next(queue) if queue.paused => {
            format!("Paused: {}.\n", paused())
        }
        Listed::Sums(stats) => {
            let hours = now.saturating_sub(stats.since).max(0).cast_unsigned();
            let hours = counted(hours.div_ceil(HOUR_SECONDS), "hour");
            format!("Since {} UTC ({hours}):\n", time(stats.since))
        }
        _ => String::new(),
    };
    let more = match &found {
        _ if !found.has_more() => "",
        Listed::Next(_) => "There are more: their payloads are too long to be listed at once.\n",
        Listed::Sums(_) => "There are more: ask for a shorter time.\n",
        _ => "There are more: give a larger -n.\n",
    };
    let besides = match &found {
        Listed::Held(_) => held_as_whole(&queue, now),
        _ => String::new(),
    };
    let turns = Turns::of(&queue, Up::of(&target, &queue).is_down());
    let table = found.table(&HeldSet::new(), &turns, now);
    print(before + &table.render_or_none() + more + &besides)
}

/// Warns on standard error that no daemon keeps the shown queue up to date; the JSON object has this information. A
/// queue on a server may have other daemons.
fn warn_if_down(target: &Target) {
    let database = &target.database;
    let why = match Up::of(target, &QueueStatus::default()) {
        Up::Down if matches!(database, Database::File(_)) => {
            format!("no daemon runs on {database}")
        }
        Up::Unknown(why) => format!("whether a daemon runs on {database} is not known: {why}"),
        _ => return,
    };
    // There may be no reader.
    let _ = writeln!(io::stderr(), "shiftboss: {why}; this is what is in the file");
}
