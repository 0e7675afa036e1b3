//! The first page: how the queue stands, what ended in the last day, how long keys wait, the fetchers, what is in flight, what
//! failed.

use std::time::Duration;

use actix_web::http::StatusCode;
use actix_web::{HttpRequest, HttpResponse, web};
use askama::Template;
use shiftboss_queue::answers::{Holding, QueueStatus, StatsGroup};
use shiftboss_queue::reader::{EndedAttempts, Grouping, ReadResult, StatsOf};

use super::asked::AMONG;
use super::bars::{Ages, Ended, Unit};
use super::fetchers::{Fetcher, Run, failing, listed};
use super::parts::{Attempt, Frame, KeyLink, Moment, output, text};
use super::{Sight, show};
use crate::text::span;
use crate::web::Page;

const DAY: Duration = Duration::from_secs(24 * 3_600);
/// Fetchers that are listed; all are on a page of their own.
const FETCHERS: usize = 20;
/// Fetchers that are told of because their last run failed.
const FAILING_MAX: usize = 5;
/// Jobs in flight that are listed, those that are for longest.
const IN_FLIGHT: usize = 10;
/// Failed attempts that are listed, the last ones.
const FAILED: usize = 20;

pub(super) async fn get(request: HttpRequest, page: web::Data<Page>) -> HttpResponse {
    show(&request, page, "home".to_owned(), |sight| Ok((StatusCode::OK, Home::ask(sight)?))).await
}

#[derive(Template)]
#[template(path = "home.html")]
struct Home {
    frame: Frame,
    numbers: Vec<Number>,
    ended: Ended,
    ages: Ages,
    fetchers: Vec<Fetcher>,
    /// There are more.
    more_fetchers: bool,
    /// Fetchers whose last run failed; and how many more there are.
    failing: Vec<Run>,
    more_failing: usize,
    in_flight: Vec<InFlight>,
    /// Keys wait, nothing keeps them from being handed out, and nobody has any.
    lacks_workers: bool,
    failed: Vec<Attempt>,
    /// Attempts among which those that failed were looked for.
    among: usize,
}

/// A number that is looked at first.
struct Number {
    name: &'static str,
    value: String,
    of: Option<Of>,
}

/// What a number is of.
enum Of {
    /// The key that ran so long ago, or never.
    Key(KeyLink),
    /// Where they are listed.
    List(&'static str),
}

struct InFlight {
    key: KeyLink,
    worker: String,
    since: Moment,
    /// Where that is shown which it has written so far.
    output: Option<String>,
}

impl Home {
    fn ask(sight: &Sight<'_>) -> ReadResult<Self> {
        let Sight { reader, now, .. } = *sight;
        let status = reader.status(now)?;
        let last_day = |by| reader.stats(&StatsOf::last(DAY, by, now));
        let (all, hours) = (last_day(Grouping::All)?, last_day(Grouping::Hour)?);
        let outcomes = EndedAttempts::FAILED.to_vec();
        let (among, count) = (Some(AMONG), FAILED);
        let failed = EndedAttempts { outcomes, among, count, ..EndedAttempts::default() };
        let failed = reader.ended_attempts(&failed)?.attempts;
        let failing = failing(sight, &status);
        Ok(Self {
            frame: sight.frame("Queue", &status).at("home"),
            numbers: numbers(&status, all.groups.first(), now),
            ended: Ended::of(&hours, Unit::Hour, now),
            ages: Ages::of(&reader.last_starts()?, now),
            fetchers: listed(sight, &status, FETCHERS)?,
            more_failing: failing.len().saturating_sub(FAILING_MAX),
            failing: failing.into_iter().take(FAILING_MAX).collect(),
            more_fetchers: status.fetchers.len() > FETCHERS,
            lacks_workers: lacks_workers(sight, &status),
            in_flight: status
                .holders
                .iter()
                .take(IN_FLIGHT)
                .map(|it| in_flight(it, sight))
                .collect(),
            failed: failed.iter().map(|ended| Attempt::of(ended, sight)).collect(),
            among: AMONG,
        })
    }
}

fn numbers(status: &QueueStatus, last_day: Option<&StatsGroup>, now: i64) -> Vec<Number> {
    let number = |name, value: String| Number { name, value, of: None };
    let cycle = last_day.and_then(|group| group.cycle_seconds);
    let mut numbers = vec![
        number("waiting", status.rows.pending.to_string()),
        number("in flight", status.rows.in_flight.to_string()),
        longest_wait(status, now),
        number("done in 24 h", last_day.map_or(0, |group| group.jobs).to_string()),
        number("cycle time", cycle.map_or("-".to_owned(), span)),
        with_list("dead letters", status.dead_letters, "tasks?status=dead_letter"),
        with_list("held", status.held, "held"),
    ];
    let rare = [
        ("delayed", status.delayed, "tasks?status=delayed"),
        ("backed off", status.backed_off, "held"),
    ];
    let rare = rare.into_iter().filter(|(_, count, _)| *count > 0);
    numbers.extend(rare.map(|(name, count, list)| with_list(name, count, list)));
    numbers
}

/// How many there are, and where they are listed.
fn with_list(name: &'static str, count: i64, list: &'static str) -> Number {
    Number { name, value: count.to_string(), of: (count > 0).then_some(Of::List(list)) }
}

/// Since the last run of the key that ran least recently.
fn longest_wait(status: &QueueStatus, now: i64) -> Number {
    let longest = status.waits_longest();
    let value = longest.map_or("-".to_owned(), |it| {
        it.last_started.map_or("never ran".to_owned(), |at| span(now.saturating_sub(at)))
    });
    let of = longest.map(|it| Of::Key(KeyLink::to(&it.key)));
    Number { name: "longest wait", value, of }
}

fn lacks_workers(sight: &Sight<'_>, status: &QueueStatus) -> bool {
    status.oldest_waiting.is_some()
        && status.holders.is_empty()
        && !(status.paused || sight.is_down(status))
}

fn in_flight(held: &Holding, sight: &Sight<'_>) -> InFlight {
    InFlight {
        output: output(&held.key, held.since, held.attempt, sight),
        key: KeyLink::to(&held.key),
        worker: held.worker.as_deref().map_or("classic".to_owned(), text),
        since: Moment::new(held.since, sight.now),
    }
}
