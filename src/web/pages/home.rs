//! The first page: how the queue stands, what is wrong, what ended in the last day, how long keys wait, the fetchers, what is in flight,
//! what failed.

use std::collections::HashSet;
use std::time::Duration;

use actix_web::http::StatusCode;
use askama::Template;
use shiftboss_protocol::answers::{QueueStatus, StatsGroup};
use shiftboss_queue::reader::{EndedAttempts, Grouping, ReadResult, StatsOf};

use super::Sight;
use super::asked::{AMONG, Asked};
use super::bars::{Picture, Unit};
use super::fetchers::listed;
use super::parts::{Frame, Grid, key_address, text};
use super::payload::Part;
use crate::text::span;
use crate::view::health::{Severity, Trouble};
use crate::view::{listings, status};

const DAY: Duration = Duration::from_secs(24 * 3_600);
/// Fetchers that are listed; all are on a page of their own.
const FETCHERS: usize = 20;
/// Troubles that are told; `status --check` tells all.
const TROUBLES_MAX: usize = 10;
/// Jobs in flight that are listed, those that are for longest.
const IN_FLIGHT: usize = 10;
/// Failed attempts that are listed, the last ones.
const FAILED: usize = 20;

#[derive(Template)]
#[template(path = "home.html")]
pub(super) struct Home {
    frame: Frame,
    numbers: Vec<Number>,
    /// What is wrong, but for what all pages say: whether it is an error, and what it is about.
    troubles: Vec<(bool, Trouble)>,
    more_troubles: usize,
    ended: Picture,
    ages: Picture,
    fetchers: Grid,
    more_fetchers: bool,
    in_flight: Grid,
    /// Keys wait, nothing keeps them from being handed out, and nobody has any.
    lacks_workers: bool,
    failed: Grid,
    /// Attempts among which those that failed were looked for.
    among: usize,
}

struct Number {
    name: &'static str,
    value: String,
    /// What it is of, or where that is listed.
    of: Option<Part>,
}

pub(super) fn ask(sight: &Sight<'_>, _: &Asked) -> ReadResult<(StatusCode, Home)> {
    let Sight { reader, snapshot, .. } = sight;
    let (queue, now) = (&snapshot.queue, sight.now());
    let last_day = |by| reader.stats(&StatsOf::last(DAY, by, now));
    let (all, hours) = (last_day(Grouping::All)?, last_day(Grouping::Hour)?);
    let outcomes = EndedAttempts::FAILED.to_vec();
    let (among, count) = (Some(AMONG), FAILED);
    let failed = EndedAttempts { outcomes, among, count, ..EndedAttempts::default() };
    let failed = reader.ended_attempts(&failed)?.attempts;
    let mut troubles = snapshot.health().troubles;
    if let Some(at) = troubles.iter().position(|trouble| trouble.stops_all) {
        troubles.remove(at);
    }
    let more_troubles = troubles.len().saturating_sub(TROUBLES_MAX);
    troubles.truncate(TROUBLES_MAX);
    let troubles = troubles.into_iter().map(|it| (it.severity == Severity::Error, it));
    let none = HashSet::new();
    let mut in_flight = listings::in_flight(queue, &none, now);
    in_flight.rows.truncate(IN_FLIGHT);
    let home = Home {
        frame: sight.frame("Queue").at("home"),
        numbers: numbers(queue, all.groups.first(), now),
        troubles: troubles.collect(),
        more_troubles,
        ended: Picture::ended(&hours, Unit::Hour, now),
        ages: Picture::ages(&reader.last_starts()?, now),
        fetchers: Grid::of(&listed(sight, queue.clone(), FETCHERS)?, sight),
        more_fetchers: queue.fetchers.len() > FETCHERS,
        lacks_workers: queue.oldest_waiting.is_some()
            && queue.holders.is_empty()
            && !(queue.paused || sight.is_down()),
        in_flight: Grid::of(&in_flight, sight),
        failed: Grid::of(&listings::log(&failed, &none, now), sight),
        among: AMONG,
    };
    Ok((StatusCode::OK, home))
}

fn numbers(queue: &QueueStatus, last_day: Option<&StatsGroup>, now: i64) -> Vec<Number> {
    let number = |name, value: String| Number { name, value, of: None };
    let cycle = last_day.and_then(|group| group.cycle_seconds);
    let mut numbers = vec![
        number("waiting", queue.rows.pending.to_string()),
        number("in flight", queue.rows.in_flight.to_string()),
        longest_wait(queue, now),
        number("done in 24 h", last_day.map_or(0, |group| group.jobs).to_string()),
        number("cycle time", cycle.map_or("-".to_owned(), span)),
        with_list("failed", "which failed", queue.failed, "tasks?status=failed"),
        with_list("delayed", "which are delayed", queue.delayed, "tasks?status=delayed"),
        with_list(
            "dead letters",
            "which are dead letters",
            queue.dead_letters,
            "tasks?status=dead_letter",
        ),
        with_list("held", "which are held", queue.held, "held"),
    ];
    if !queue.hold_rules.is_empty() {
        let value = queue.hold_rules.len().to_string();
        numbers.push(Number { name: "hold rules", value, of: None });
    }
    let closed = status::closed_groups(queue);
    if !queue.groups.is_empty() {
        let of = Part { text: "all groups".to_owned(), address: Some("groups".to_owned()) };
        let (name, value) = ("closed groups", closed.to_string());
        numbers.push(Number { name, value, of: Some(of) });
    }
    if queue.backed_off > 0 {
        numbers.push(with_list("backed off", "which are backed off", queue.backed_off, "held"));
    }
    numbers
}

/// How many there are, and where they are listed.
fn with_list(name: &'static str, which: &str, count: i64, list: &str) -> Number {
    let of = Part { text: which.to_owned(), address: Some(list.to_owned()) };
    Number { name, value: count.to_string(), of: (count > 0).then_some(of) }
}

/// Since the last run of the key that ran least recently.
fn longest_wait(queue: &QueueStatus, now: i64) -> Number {
    let (longest, value) = (queue.waits_longest(), status::longest_wait(queue, now));
    let of = longest.map(|it| Part { text: text(&it.key), address: key_address(&it.key) });
    Number { name: "longest wait", value, of }
}
